// Package conformance compares pkg/sim/apiserver with a real API server. It has only tests, which play random sequences
// of operations against both servers. All their answers must be the same.
//
//	go test -timeout 20m .                            5,000 operations, the same ones every time
//	CONFORMANCE_OPS=100000 go test -timeout 60m -v .  the full test, with counts
//	go test -rapid.seed 7 .                           other sequences
//	go test -kubeconfig k .                           a running API server with our CRD and those that setUp installs
//	CONFORMANCE_VALUES=100000 go test -run TestEverythingThatTheServerStoresCanBeRead -timeout 60m -v .
//
// The real server is the API server of bin/localcluster. -short skips all tests.
//
// An operation is a request in terms that are valid for any server: "the uid of the object", "an older resourceVersion
// of it", "the object as last seen, but with two replicas". A sequence is played twice, each time in a namespace of its
// own, by players that replace these terms by values from earlier answers of their server. Watches stay open until the
// end of a sequence. In addition to the random watches there is one for each kind from the beginning, so that the whole
// history is compared.
//
// The tests compare the code and the whole body of every answer, and all events. Before that, a normaliser replaces the
// values that must differ:
//
//   - resourceVersions by their position among the writes of the sequence, so that a write creates a new version on
//     both servers or on none, and in the same order
//   - uids and generated names by the order in which they were generated
//   - times by a constant
//   - the version of a list or a bookmark by the last write of the sequence before it, because the original version
//     also counts other writes
//
// It drops managed fields and periodic bookmarks, sorts the causes of an error, and cuts its message before the causes,
// which the message repeats. Of the headers it compares the content type and the warnings. A tenth as many operations
// are played in protobuf, as the typed clients of client-go use it, a tenth each for a rich schema and for Foos with
// their Go type, and a twentieth for a kind without namespaces.
//
// The kinds are built-in ones, Foos with the schema of their definition, and two kinds without a schema for the
// simulated server, which allow everything. Some operations accept other media types, such as objects that are reduced
// to their metadata, and some have the path of a kind without namespaces for one with namespaces, or the reverse. Other
// tests compare discovery whole, and what garbage collectors leave of random heaps of objects that own one another.
//
// A table lists the accepted differences with reasons. A long run fails if one of them does not occur any more, which
// also proves that the comparison finds differences.
//
// Another test plays the conversations of pkg/sim/apiserver/testdata, whose answers were recorded from a real server.
// With CONFORMANCE_RECORD=1, as `make conformance` sets it, it records them again.
//
// The operations avoid requests with which the real server changes only the managed fields, and so creates a new
// version of an object: a scale with the current number of replicas, a status of a custom resource with another
// version, another time of deletion for an object that is being deleted, a duplicate owner reference, and alpha fields
// of a Lease.
//
// Another test is about the real server and our Go type. It stores values at and beyond the edges of every field of a
// Foo. What the server accepts, the Go type must be able to decode: otherwise a single Foo ends the list and the watch
// of all Foos.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"pgregory.net/rapid"

	"example.com/foo-controller/hack/tools/controlplane"
	"example.com/foo-controller/pkg/footest"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/crd"
)

const (
	// perSequence is the average number of operations in a sequence.
	perSequence = 64
	// shards is the number of parallel players. There are several, because they mostly wait for the cache of the real
	// server.
	shards = 8
)

var (
	// ops is the number of operations to compare.
	ops        = fromEnvironment("CONFORMANCE_OPS", 5000)
	kubeconfig = flag.String("kubeconfig", "", "use the API server of this file, which must know Foos")
)

// fromEnvironment returns the number in an environment variable, or the usual number.
func fromEnvironment(variable string, usual int) int {
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", variable, err))
	}
	return n
}

func TestMain(m *testing.M) {
	// The same sequences every time, unless the user sets another seed, and all shards at once.
	for name, value := range map[string]string{
		"rapid.seed": "1", "rapid.shrinktime": "0s", "rapid.nofailfile": "true", "test.parallel": strconv.Itoa(shards),
	} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	code := m.Run()
	apiCluster.stop()
	fullCluster.stop()
	os.Exit(code)
}

// longRun is a number of operations that is large enough for every accepted difference to occur.
const longRun = 50_000

// againstRealServer returns the real server that the simulated server is compared with.
func againstRealServer(t *testing.T) server {
	t.Helper()
	if *kubeconfig == "" {
		return apiCluster.get(t)
	}
	s, err := realServer(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var namespaces atomic.Int64

// newNamespace returns a name that was not used before.
func newNamespace() string {
	return fmt.Sprintf("conformance-%d-%d", os.Getpid(), namespaces.Add(1))
}

// sameSeed makes a shard print the command that repeats its sequence: the first shard uses the seed of the command
// line.
type sameSeed struct{ *testing.T }

func (t sameSeed) Name() string { return path.Dir(t.T.Name()) + "/0" }

// playBoth plays a sequence against two servers and describes the first difference, or returns "".
func playBoth(ctx context.Context, want, have server, sequence sequence, t *tally) (string, error) {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		var records [2]record
		var errs [2]error
		var wg sync.WaitGroup
		for i, s := range []server{want, have} {
			wg.Go(func() { records[i], errs[i] = play(ctx, s, newNamespace(), sequence) })
		}
		wg.Wait()
		switch err := errors.Join(errs[:]...); {
		case errors.Is(err, errExpired) && attempt < attempts:
			t.countReplay()
		case err != nil:
			return "", err
		default:
			return compareRecords(sequence, records[0], records[1], t), nil
		}
	}
}

// seeds guards the seed of rapid, which is one flag for all shards.
var seeds sync.Mutex

// check plays about n operations in random sequences, divided among the shards. It reports the shortest sequence with a
// difference that it can find.
func check(t *testing.T, n int, from *rapid.Generator[sequence], want server, have func() server, tally *tally) {
	seed, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	tally.seed = seed
	// The next test reads the original value of the flag.
	defer func() {
		if err := flag.Set("rapid.seed", strconv.FormatUint(seed, 10)); err != nil {
			t.Error(err)
		}
	}()
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(strconv.Itoa(shard), func(t *testing.T) {
				t.Parallel()
				seeds.Lock()
				for name, value := range map[string]uint64{
					"rapid.seed":   seed + uint64(shard)<<32,
					"rapid.checks": uint64(max(1, n/perSequence/shards)),
				} {
					if err := flag.Set(name, strconv.FormatUint(value, 10)); err != nil {
						t.Fatal(err)
					}
				}
				started := sync.OnceFunc(seeds.Unlock)
				defer started()
				rapid.Check(sameSeed{t}, property(t.Context(), started, from, want, have, tally))
			})
		}
	})
}

// property checks that the two servers give the same answers to any sequence. It shortens the first sequence that
// fails.
func property(ctx context.Context, started func(), from *rapid.Generator[sequence], want server, have func() server,
	tally *tally) func(*rapid.T) {
	var failed string // Rapid runs a failed property again, and expects the same failure.
	return func(r *rapid.T) {
		started() // Rapid has read the flags.
		drawn := from.Draw(r, "sequence")
		different := func(s sequence) string {
			words, err := playBoth(ctx, want, have(), s, tally)
			if err != nil {
				return err.Error()
			}
			return words
		}
		if failed == "" {
			words := different(drawn)
			if words != "" && different(drawn) == "" {
				tally.countPassing(words)
			} else if words != "" {
				short, words := shorten(drawn, words, different)
				failed = fmt.Sprintf("not the same: %v\n%s", short, words)
			}
		}
		if failed != "" {
			r.Fatal(failed)
		}
	}
}

// report logs the counts.
func (t *tally) report(test *testing.T) {
	test.Helper()
	test.Logf("seed %d: %d operations in %d sequences, %d of them played again because the real server no longer had "+
		"the version at which a watch began", t.seed, t.operations, t.sequences, t.repeated)
	for _, words := range t.passing {
		test.Logf("this difference did not occur when the sequence was played again:\n%s", words)
	}
	var lines []string
	for _, d := range t.accept {
		lines = append(lines, fmt.Sprintf("%7d %s: %s", t.accepted[d.name], d.name, d.reason))
	}
	test.Logf("accepted differences, by the places in answers where they are:\n%s", strings.Join(lines, "\n"))
}

func TestTheSimulatedServerAgreesWithTheRealServer(t *testing.T) {
	tally := newTally()
	defer tally.report(t)
	check(t, ops, sequences, againstRealServer(t), simulated, tally)
	tally.mustOccur(t, accepted, longRun)
}

// mustOccur fails the test if one of the accepted differences has not occurred in a run of this length.
func (t *tally) mustOccur(test *testing.T, differences []difference, operations int) {
	for _, d := range differences {
		if t.operations >= operations && t.accepted[d.name] == 0 {
			test.Errorf("no difference was accepted as %q: remove it if the servers agree now", d.name)
		}
	}
}

func TestTheSimulatedServerAgreesAboutFoosOfTheirGoType(t *testing.T) {
	tally := newTally()
	tally.accept = slices.Concat(ofGoTypes, accepted)
	defer tally.report(t)
	check(t, ops/10, sequencesOf([]*kind{foos}), againstRealServer(t), simulatedOfGoTypes, tally)
	tally.mustOccur(t, ofGoTypes, longRun/10)
}

func TestTheSimulatedServerAgreesInProtobuf(t *testing.T) {
	tally := newTally()
	defer tally.report(t)
	check(t, ops/10, sequences, againstRealServer(t).inBinary(), func() server { return simulated().inBinary() }, tally)
}

// TestTheSimulatedServerAgreesAboutAKindWithoutNamespaces plays one sequence after the other, because all of them share
// the objects of the kind.
func TestTheSimulatedServerAgreesAboutAKindWithoutNamespaces(t *testing.T) {
	want, tally := againstRealServer(t), newTally()
	defer tally.report(t)
	all := sequencesOf([]*kind{gadgets})
	for seed := 0; tally.operations < ops/20; seed++ {
		sequence := all.Example(seed)
		different, err := playBoth(t.Context(), want, simulated(), sequence, tally)
		if err != nil {
			t.Fatal(err)
		}
		if different != "" {
			t.Fatalf("sequence %d: not the same: %v\n%s", seed, sequence, different)
		}
	}
}

func TestTheSimulatedServerAgreesAboutSchemas(t *testing.T) {
	tally := newTally()
	defer tally.report(t)
	check(t, ops/10, sequencesOf([]*kind{gizmos}), againstRealServer(t), simulated, tally)
}

// A cluster is a running local control plane with our CRD.
type cluster struct {
	*controlplane.ControlPlane
	server server
}

// A shared cluster is used by several tests. The first test that needs it starts it.
type shared struct {
	components string
	once       sync.Once
	cluster    *cluster
	err        error
}

var (
	// apiCluster has only an API server and no controllers.
	apiCluster = &shared{components: "api"}
	// fullCluster has all controllers of Kubernetes.
	fullCluster = &shared{components: "all"}
)

// get returns the real server. It skips the test with -short.
func (s *shared) get(t *testing.T) server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a local control plane; run without -short")
	}
	s.once.Do(func() { s.cluster, s.err = startCluster(s.components) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster.server
}

func (s *shared) stop() {
	if s.cluster != nil {
		s.cluster.Stop()
	}
}

// startCluster starts a control plane with our CRD.
func startCluster(components string) (*cluster, error) {
	const root = "../../.."
	plane, err := controlplane.Start(root, "--components="+components)
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane}
	if err := c.setUp(filepath.Join(root, "artifacts/crd")); err != nil {
		c.Stop()
		return nil, fmt.Errorf("set up a local control plane: %w", err)
	}
	return c, nil
}

func (c *cluster) setUp(crds string) (err error) {
	if err := c.Install(crds, definitions, simDefinitions); err != nil {
		return err
	}
	if c.server, err = realServer(c.Kubeconfig()); err != nil {
		return err
	}
	return c.server.ready()
}

// ready waits until the caches of the server for all kinds are filled. Before that, the server asks clients to retry.
func (s server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := &player{server: s}
	for _, k := range append(slices.Clone(kinds), gadgets, gizmos) {
		err := until(ctx, func() (bool, error) {
			answer, err := p.send(ctx, "GET", k.path("default"), "", nil)
			return answer.code == http.StatusOK, err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", k, err)
		}
	}
	return nil
}

// realServer returns the server of a kubeconfig.
func realServer(kubeconfig string) (server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return server{}, err
	}
	config.QPS = -1
	transport, err := rest.TransportFor(config)
	return server{url: config.Host, transport: transport, staleReads: true, watchTimeout: 20 * time.Second}, err
}

// Directories with the definitions of the other kinds. Those of pkg/sim/apiserver are also for its recorded answers.
const (
	definitions    = "testdata/crds"
	simDefinitions = "../../../pkg/sim/apiserver/testdata/kinds"
)

// foosOfTheirDefinition are Foos with the schema of their CustomResourceDefinition.
var foosOfTheirDefinition = sync.OnceValue(func() apiserver.Kind {
	return crd.MustLoad("../../../artifacts/crd/samplecontroller.k8s.io_foos.yaml")
})

var gizmosOfTheirDefinition = sync.OnceValue(func() apiserver.Kind {
	return crd.MustLoad(definitions + "/gizmos.yaml")
})

// simulated returns a new simulated server with all kinds.
func simulated() server { return simulatedWith(foosOfTheirDefinition()) }

// simulatedOfGoTypes returns the same with the Go type of Foos, and rules in Go.
func simulatedOfGoTypes() server {
	foos := footest.FooKind()
	foos.Columns = foosOfTheirDefinition().Columns
	return simulatedWith(foos)
}

func simulatedWith(foos apiserver.Kind) server {
	s := apiserver.New(apiserver.Namespaces(), apiserver.Deployments(), apiserver.ConfigMaps(), apiserver.Leases(),
		foos, gizmosOfTheirDefinition(), withoutSchema(definitions+"/widgets.yaml"),
		withoutSchema(simDefinitions+"/gadgets.yaml"))
	return server{url: "http://apiserver", transport: s, watchTimeout: 10 * time.Second}
}

// withoutSchema returns the kind of a definition without its schema, which allows everything.
func withoutSchema(file string) apiserver.Kind {
	definition, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	kind, err := apiserver.FromCRD(definition, "")
	if err != nil {
		panic(err)
	}
	return kind
}

// shorten returns the shortest sequence that it can find for which different returns a difference, and that difference.
// If it finds none, it returns s and difference. It leaves out operations, first many at once. Rapid's own shrinking
// works on random bits and would have to play many more sequences.
func shorten(s sequence, difference string, different func(sequence) string) (sequence, string) {
	for size := max(1, len(s)/2); ; size /= 2 {
		for i := 0; i < len(s); {
			shorter := slices.Delete(slices.Clone(s), i, min(i+size, len(s)))
			if words := different(shorter); words != "" {
				s, difference = shorter, words
				continue
			}
			i += size
		}
		if size <= 1 {
			return s, difference
		}
	}
}

// TestRecordedAnswersAreThoseOfTheRealServer plays the conversations of pkg/sim/apiserver/testdata on the real server.
// The test of that package plays them on the simulated server, in milliseconds.
func TestRecordedAnswersAreThoseOfTheRealServer(t *testing.T) {
	t.Parallel()
	againstRealServer(t)
	config := *kubeconfig
	if config == "" {
		config = apiCluster.cluster.Kubeconfig()
	}
	config, err := filepath.Abs(config)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-count=1", "-run", "TestAnswersAreThoseRecordedFromARealServer", "-parallel", "8", ".",
		"-kubeconfig", config}
	if os.Getenv("CONFORMANCE_RECORD") != "" {
		args = append(args, "-record")
	}
	test := exec.CommandContext(t.Context(), "go", args...)
	test.Dir = "../../../pkg/sim/apiserver"
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDiscovery compares discovery whole, in all media types, except for the kinds that the simulated server does not
// have, the hashes of storage versions, the addresses of the server, and the order of groups and resources.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	want, have := againstRealServer(t), simulated()
	paths := []string{"/api", "/apis", "/apis/nowhere", "/apis/apps/v9", "/api/v9"}
	for _, k := range append(slices.Clone(kinds), gadgets, gizmos, namespaceKind) {
		path := strings.TrimSuffix(k.misplacedPath(""), "/"+k.resource)
		paths = append(paths, path)
		if k.group != "" {
			paths = append(paths, strings.TrimSuffix(path, "/"+k.version))
		}
	}
	for _, path := range paths {
		for _, accept := range []string{plainJSON, "application/yaml", binary + inAnyCase} {
			var trees [2]map[string]any
			for i, s := range []server{want, have} {
				answer, err := (&player{server: s, accept: accept}).send(t.Context(), "GET", path, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				discoverable(answer.body)
				trees[i] = map[string]any{"code": float64(answer.code), "media": answer.media, "body": answer.body}
			}
			for _, l := range compare("", trees[0], trees[1]) {
				t.Errorf("%s as %s%s", path, accept, l)
			}
		}
	}
}

// discoverable removes what differs between servers, and sorts what has no order.
func discoverable(body any) {
	object, _ := body.(map[string]any)
	all := append(slices.Clone(kinds), gadgets, gizmos, namespaceKind)
	delete(object, "serverAddressByClientCIDRs")
	if groups, ok := object["groups"].([]any); ok {
		object["groups"] = known(groups, func(name string) bool {
			return slices.ContainsFunc(all, func(k *kind) bool { return k.group == name })
		})
	}
	if resources, ok := object["resources"].([]any); ok {
		object["resources"] = known(resources, func(name string) bool {
			name, _, _ = strings.Cut(name, "/")
			return slices.ContainsFunc(all, func(k *kind) bool {
				return k.resource == name && k.apiVersion() == object["groupVersion"]
			})
		})
	}
}

// known returns the elements whose name is known, sorted by name. Subresources keep their order.
func known(all []any, is func(name string) bool) []any {
	kept := slices.DeleteFunc(all, func(one any) bool { return !is(text(one, "name")) })
	for _, one := range kept {
		delete(one.(map[string]any), "storageVersionHash")
	}
	slices.SortStableFunc(kept, func(a, b any) int {
		of, than := strings.Split(text(a, "name"), "/"), strings.Split(text(b, "name"), "/")
		return strings.Compare(of[0], than[0])
	})
	return kept
}

// TestAnExpiredVersion starts watches at the first version of all. The cache of the real server for Foos begins later,
// because the CRD was created after the server had started. For built-in kinds that depends on the speed of the start.
// The test does not cover versions that etcd has compacted, because a real server compacts only every five minutes.
func TestAnExpiredVersion(t *testing.T) {
	t.Parallel()
	have := simulated()
	have.transport.(*apiserver.Server).Compact()
	from := func(more ...parameter) operation {
		query := append([]parameter{{"watch", "true"}, {"resourceVersion", noVersion}}, more...)
		return operation{verb: "watch", method: "GET", kind: foos, query: query}
	}
	sequence := []operation{
		creation(foos, edited{base: foos.object("a")}),
		from(),
		from(parameter{"labelSelector", "app=x"}),
		from(parameter{"fieldSelector", "metadata.name=a"}),
		from(parameter{"allowWatchBookmarks", "true"}),
		from(parameter{"sendInitialEvents", "true"}, parameter{"resourceVersionMatch", "NotOlderThan"},
			parameter{"allowWatchBookmarks", "true"}),
	}
	different, err := playBoth(t.Context(), againstRealServer(t), have, sequence, newTally())
	if err != nil {
		t.Fatal(err)
	}
	if different != "" {
		t.Errorf("different answers:\n%s", different)
	}
}
