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
	// opsVariable is the environment's word for -ops.
	opsVariable = "CONFORMANCE_OPS"
	// perSequence is how many operations a sequence has, on average.
	perSequence = 64
	// shards play sequences side by side: much of the time goes into waiting for the real server's cache.
	shards = 8
)

var (
	ops        = flag.Int("ops", 5000, "operations to compare; "+opsVariable+" has precedence")
	kubeconfig = flag.String("kubeconfig", "", "use the API server of this file, which must know Foos")
)

func TestMain(m *testing.M) {
	// The same sequences every time, unless another seed is asked for, and all shards at once.
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

// longRun is how many operations meet every accepted difference.
const longRun = 50_000

// real returns the server that apisim is held against.
func real(t *testing.T) server {
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

// sameSeed lets a shard tell how its sequence is played again: the first shard begins with the seed it is given.
type sameSeed struct{ *testing.T }

func (t sameSeed) Name() string { return path.Dir(t.T.Name()) + "/0" }

// playBoth plays a sequence against two servers and says in words what is not the same.
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
		case errors.Is(err, errForgotten) && attempt < attempts:
			t.again()
		case err != nil:
			return "", err
		default:
			return compareRecords(sequence, records[0], records[1], t), nil
		}
	}
}

// seeds guards the seed of rapid, which is the same flag for all shards.
var seeds sync.Mutex

// check plays about n operations in random sequences, in as many shards. It reports the shortest sequence that
// it can find with a difference.
func check(t *testing.T, n int, want server, have func() server, tally *tally) {
	seed, err := strconv.ParseUint(flag.Lookup("rapid.seed").Value.String(), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	tally.seed = seed
	// The flag is as it was when the next test reads it.
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
				rapid.Check(sameSeed{t}, property(t.Context(), started, want, have, tally))
			})
		}
	})
}

// property is that the two servers answer the same to any sequence. The first that shows otherwise is shortened.
func property(ctx context.Context, started func(), want server, have func() server, tally *tally) func(*rapid.T) {
	var failed string // Rapid asks again, and wants to hear the same.
	return func(r *rapid.T) {
		started() // It has read the flags.
		drawn := sequences.Draw(r, "sequence")
		different := func(s sequence) string {
			words, err := playBoth(ctx, want, have(), s, tally)
			if err != nil {
				return err.Error()
			}
			return words
		}
		if failed == "" {
			if words := different(drawn); words != "" {
				short, words := shorten(drawn, words, different)
				failed = fmt.Sprintf("not the same: %v\n%s", short, words)
			}
		}
		if failed != "" {
			r.Fatal(failed)
		}
	}
}

// report logs the figures.
func (t *tally) report(test *testing.T) {
	test.Helper()
	test.Logf("seed %d: %d operations in %d sequences, %d of them played again because the real server had forgotten "+
		"where a watch was to begin", t.seed, t.operations, t.sequences, t.repeated)
	for _, table := range []struct {
		title  string
		counts map[string]int
	}{{"operations", t.byKind}, {"answers", t.byCode}, {"watches", t.byEvent}} {
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(table.counts)) {
			lines = append(lines, fmt.Sprintf("%7d %s", table.counts[key], key))
		}
		test.Logf("%s:\n%s", table.title, strings.Join(lines, "\n"))
	}
	var lines []string
	for _, d := range accepted {
		lines = append(lines, fmt.Sprintf("%7d %s: %s", t.accepted[d.name], d.name, d.reason))
	}
	test.Logf("accepted differences, by the places in answers where they are:\n%s", strings.Join(lines, "\n"))
}

func TestAPISimAgreesWithTheRealServer(t *testing.T) {
	tally := newTally()
	defer tally.report(t)
	check(t, *ops, real(t), simulated, tally)
	for _, d := range accepted {
		if tally.operations >= longRun && tally.accepted[d.name] == 0 {
			t.Errorf("nothing was accepted as %q: is it still different?", d.name)
		}
	}
}

func TestAPISimAgreesInProtobuf(t *testing.T) {
	tally := newTally()
	defer tally.report(t)
	check(t, *ops/10, real(t).inBinary(), func() server { return simulated().inBinary() }, tally)
}

func TestTheRealServerAgreesWithItself(t *testing.T) {
	want := real(t)
	tally := newTally()
	defer tally.report(t)
	check(t, *ops/10, want, func() server { return want }, tally)
}
