package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

const (
	// opsVariable is the environment variable for -ops.
	opsVariable = "CONFORMANCE_OPS"
	// perSequence is the average number of operations in a sequence.
	perSequence = 64
	// shards is the number of parallel players. There are several, because they mostly wait for the cache of the real
	// server.
	shards = 8
)

var (
	ops        = flag.Int("ops", 5000, "operations to compare; "+opsVariable+" has precedence")
	kubeconfig = flag.String("kubeconfig", "", "use the API server of this file, which must know Foos")
)

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
	if value := os.Getenv(opsVariable); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", opsVariable, err)
			os.Exit(2)
		}
		*ops = n
	}
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
	for _, table := range []struct {
		title  string
		counts map[string]int
	}{{"operations", t.byKind}, {"answers", t.byCode}, {"media types", t.byMedia}, {"watches", t.byEvent}} {
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(table.counts)) {
			lines = append(lines, fmt.Sprintf("%7d %s", table.counts[key], key))
		}
		test.Logf("%s:\n%s", table.title, strings.Join(lines, "\n"))
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
	check(t, *ops, sequences, againstRealServer(t), simulated, tally)
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
	check(t, *ops/10, sequencesOf([]*kind{foos}), againstRealServer(t), simulatedOfGoTypes, tally)
	tally.mustOccur(t, ofGoTypes, longRun/10)
}

func TestTheSimulatedServerAgreesInProtobuf(t *testing.T) {
	tally := newTally()
	defer tally.report(t)
	check(t, *ops/10, sequences, againstRealServer(t).inBinary(), func() server { return simulated().inBinary() }, tally)
}

// TestTheSimulatedServerAgreesAboutAKindWithoutNamespaces plays one sequence after the other, because all of them share
// the objects of the kind.
func TestTheSimulatedServerAgreesAboutAKindWithoutNamespaces(t *testing.T) {
	want, tally := againstRealServer(t), newTally()
	defer tally.report(t)
	all := sequencesOf([]*kind{gadgets})
	for seed := 0; tally.operations < *ops/20; seed++ {
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
	check(t, *ops/10, sequencesOf([]*kind{gizmos}), againstRealServer(t), simulated, tally)
}

func TestTheRealServerAgreesWithItself(t *testing.T) {
	want := againstRealServer(t)
	tally := newTally()
	defer tally.report(t)
	check(t, *ops/10, sequences, want, func() server { return want }, tally)
}
