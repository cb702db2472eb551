// Command bench measures what foo-controller costs, beside bare loops that send the same writes, a controller with
// controller-runtime, and one with the habits of the usual sample. It is the program of `make bench`, and runs at the
// root of the repository, after `make build`.
//
// Each run is one contender in one scenario, on a new control plane with etcd and an API server. Its figures come from
// the audit log of the API server and from /proc, which only Linux has. Afterwards each Deployment and each status must
// be right, or the run does not count. The runs of a round have a random order. Ratios are between runs of the same
// round.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	runtime.LockOSThread() // With this thread, Linux would end the processes that it started.
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // A flag set of its own: controller-runtime adds to flag's.
	name := flags.String("contender", "", "be this contender")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the contender")
	address := flags.String("address", "", "address of the contender's profiles")
	b := &bench{dir: "bin/bench"}
	flags.BoolVar(&b.quick, "quick", false, "small sizes, one round, no document")
	flags.BoolVar(&b.again, "again", false, "forget the results of earlier runs")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each scenario is played")
	only := flags.String("only", "", "regular expression for SCENARIO/CONTENDER: leave the others out")
	_ = flags.Parse(os.Args[1:]) // It exits.
	b.only = regexp.MustCompile(*only)
	err := error(nil)
	if *name != "" {
		err = contend(*name, *kubeconfig, *address)
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A bench is one call of the command.
type bench struct {
	quick, again bool
	rounds       int
	only         *regexp.Regexp
	dir          string // For the results.
	results      results
}

// results are what is stored.
type results struct {
	// Version is that of the controller. Results of different versions are not mixed.
	Version string
	// Seed is that of the random orders.
	Seed uint64
	Runs []result
}

// A result has the figures of one run.
type result struct {
	Scenario, Contender string
	Round               int
	Metrics             map[string]float64
	Timeline            []float64 `json:",omitempty"`
	// Took is how many seconds the run took.
	Took float64
}

// A task is a run that is to be done.
type task struct {
	scenario  *scenario
	contender string
	round     int
}

func (t task) String() string { return t.scenario.name + "/" + t.contender }

func (b *bench) run(ctx context.Context) error {
	plan := scenarios()
	if b.quick {
		b.dir, b.rounds, plan = b.dir+"/quick", 1, quickScenarios()
	}
	if err := b.load(); err != nil {
		return err
	}
	tasks := b.tasks(plan)
	open := slices.DeleteFunc(slices.Clone(tasks), func(t task) bool { return !b.only.MatchString(t.String()) || b.has(t) })
	failed := 0
	for i, t := range open {
		fmt.Printf("%3d of %d  round %d  %-40s", i+1, len(open), t.round, t)
		started := time.Now()
		r, err := measure(ctx, t.scenario, t.contender, b.dir)
		if ctx.Err() != nil {
			fmt.Println()
			return errors.New("stopped; the same command continues")
		}
		if err != nil {
			fmt.Printf("  VOID: %v\n", err)
			failed++
			continue
		}
		b.results.Runs = append(b.results.Runs, result{
			Scenario: t.scenario.name, Contender: t.contender, Round: t.round,
			Metrics: r.metrics, Timeline: r.timeline, Took: time.Since(started).Seconds(),
		})
		if err := b.save(); err != nil {
			return err
		}
		fmt.Printf("  %s; about %d minutes left\n", summary(r.metrics), b.left(open[i+1:]))
	}
	if failed > 0 {
		return fmt.Errorf("%d runs are void; their logs are in %s; the same command repeats them", failed, b.dir)
	}
	if slices.ContainsFunc(tasks, func(t task) bool { return !b.has(t) }) {
		return nil // Only some were asked for.
	}
	return b.report(tasks)
}

// tasks returns the runs in the order in which they are to be done.
func (b *bench) tasks(plan []scenario) (tasks []task) {
	for round := range b.rounds {
		begin := len(tasks)
		for i := range plan {
			for _, contender := range plan[i].contenders {
				if plan[i].rounds == 0 || round < plan[i].rounds {
					tasks = append(tasks, task{&plan[i], contender, round + 1})
				}
			}
		}
		these := tasks[begin:]
		random := rand.New(rand.NewPCG(b.results.Seed, uint64(round)))
		random.Shuffle(len(these), func(i, j int) { these[i], these[j] = these[j], these[i] })
	}
	return tasks
}

// has reports whether a run is done.
func (b *bench) has(t task) bool {
	return slices.ContainsFunc(b.results.Runs, func(r result) bool {
		return r.Scenario == t.scenario.name && r.Contender == t.contender && r.Round == t.round
	})
}

// left returns how many minutes these runs take: as long as those before, on the average.
func (b *bench) left(tasks []task) int {
	took := 0.0
	for _, r := range b.results.Runs {
		took += r.Took
	}
	return int(took/float64(len(b.results.Runs))*float64(len(tasks))/60 + 0.5)
}

// load reads the results of earlier calls.
func (b *bench) load() error {
	version, err := exec.Command("bin/foo-controller", "--version").Output()
	if err != nil {
		return fmt.Errorf("bin/foo-controller: %w", err)
	}
	b.results = results{Version: strings.TrimSpace(string(version)), Seed: rand.Uint64()}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(b.file())
	if errors.Is(err, fs.ErrNotExist) || b.again || b.quick {
		return nil
	}
	if err != nil {
		return err
	}
	stored := results{}
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("%s: %w", b.file(), err)
	}
	if stored.Version != b.results.Version {
		return fmt.Errorf("%s is about %s, and bin/ has %s: use -again", b.file(), stored.Version, b.results.Version)
	}
	b.results = stored
	return nil
}

func (b *bench) save() error {
	text, err := json.MarshalIndent(b.results, "", "\t")
	if err != nil {
		return err
	}
	partial := b.file() + ".partial"
	if err := os.WriteFile(partial, text, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, b.file()) // An interruption leaves the old one.
}

func (b *bench) file() string { return filepath.Join(b.dir, "results.json") }

// summary returns the figures of a run that show that it works.
func summary(metrics map[string]float64) string {
	var parts []string
	for _, m := range []struct{ name, format string }{
		{"seconds", "%.2f s"}, {"requestsPerFoo", "%.2f writes a Foo"}, {"create50", "Deployment after %.3f s"},
		{"restartSeconds", "restart %.2f s"}, {"idleRequests", "%.1f requests a minute"},
	} {
		if value, ok := metrics[m.name]; ok {
			parts = append(parts, fmt.Sprintf(m.format, value))
		}
	}
	return strings.Join(parts, ", ")
}
