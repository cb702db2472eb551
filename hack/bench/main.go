// Command bench measures what foo-controller costs, beside bare loops that send the same writes, a controller with
// controller-runtime, and one with the habits of the usual sample. It is the program of `make bench`, and runs at the
// root of the repository.
//
// Each run is one contender in one scenario, on a new control plane with etcd and an API server. Its figures come from
// the audit log of the API server and from /proc, which only Linux has. Afterwards each Deployment and each status must
// be right, or the run is void. The runs of a round have a random order, and ratios are between runs of one round.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
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

// contendCommand is the first argument of a process that is a contender: NAME KUBECONFIG ADDRESS follow.
const contendCommand = "contend"

func main() {
	runtime.LockOSThread() // Linux ends the contenders when the thread ends that started them.
	err := error(nil)
	if len(os.Args) == 5 && os.Args[1] == contendCommand {
		err = contend(os.Args[2], os.Args[3], os.Args[4])
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = newBench().run(ctx)
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
	dir          string // For results and logs.
	results      results
}

// results are what is stored.
type results struct {
	// Version is that of the controller. Results of different versions are not mixed.
	Version string
	// Seed gives the random orders.
	Seed uint64
	Runs []result
}

// A result is a run that is done.
type result struct {
	Scenario, Contender string
	Round               int
	Metrics             map[string]float64
	Seconds             float64
}

// A task is a run that is to be done.
type task struct {
	scenario  *scenario
	contender string
	round     int
}

func (t task) String() string { return t.scenario.name + "/" + t.contender }

func newBench() *bench {
	b := &bench{dir: "bin/bench"}
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // Not flag's own, which has those of controller-runtime.
	flags.BoolVar(&b.quick, "quick", false, "small sizes, one round, and a report in bin/bench/quick")
	flags.BoolVar(&b.again, "again", false, "forget the results of earlier calls")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each contender plays each scenario")
	only := flags.String("only", "", "regular expression: leave out each SCENARIO/CONTENDER that does not match")
	_ = flags.Parse(os.Args[1:]) // It exits.
	b.only = regexp.MustCompile(*only)
	if b.quick {
		b.dir, b.rounds, b.again = "bin/bench/quick", 1, true
	}
	return b
}

func (b *bench) run(ctx context.Context) error {
	if err := b.load(); err != nil {
		return err
	}
	tasks, void := b.tasks(), 0
	open := slices.DeleteFunc(slices.Clone(tasks), func(t task) bool {
		return b.has(t) || !b.only.MatchString(t.String())
	})
	for i, t := range open {
		fmt.Printf("%d of %d, round %d: %s\n", i+1, len(open), t.round, t)
		begun := time.Now()
		metrics, err := measure(ctx, t.scenario, t.contender, b.dir)
		if ctx.Err() != nil {
			return errors.New("stopped; the same command continues")
		}
		if err != nil {
			fmt.Printf("  void: %v\n", err)
			void++
			continue
		}
		b.results.Runs = append(b.results.Runs,
			result{t.scenario.name, t.contender, t.round, metrics, time.Since(begun).Seconds()})
		if err := b.save(); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			fmt.Printf("  %s %.4g", name, metrics[name])
		}
		fmt.Printf("\n  about %d minutes left\n", b.minutes(len(open)-i-1))
	}
	switch {
	case void > 0:
		return fmt.Errorf("%d runs are void; the last logs are in %s; the same command repeats these runs", void, b.dir)
	case slices.ContainsFunc(tasks, func(t task) bool { return !b.has(t) }):
		return nil // The others were not asked for.
	}
	return b.report()
}

// tasks returns all runs, in the order in which they are to be done.
func (b *bench) tasks() (tasks []task) {
	list := scenarios()
	if b.quick {
		list = quickScenarios()
	}
	for round := range b.rounds {
		first := len(tasks)
		for i := range list {
			for _, contender := range list[i].contenders {
				tasks = append(tasks, task{&list[i], contender, round + 1})
			}
		}
		rand.New(rand.NewPCG(b.results.Seed, uint64(round))).Shuffle(len(tasks)-first, func(i, j int) {
			tasks[first+i], tasks[first+j] = tasks[first+j], tasks[first+i]
		})
	}
	return tasks
}

// has reports whether a run is done.
func (b *bench) has(t task) bool {
	return slices.ContainsFunc(b.results.Runs, func(r result) bool {
		return r.Scenario == t.scenario.name && r.Contender == t.contender && r.Round == t.round
	})
}

// minutes returns how long so many runs take, if they take as long as those before.
func (b *bench) minutes(runs int) int {
	seconds := 0.0
	for _, r := range b.results.Runs {
		seconds += r.Seconds
	}
	return int(seconds/float64(len(b.results.Runs))*float64(runs)/60 + 0.5)
}

func (b *bench) file() string { return filepath.Join(b.dir, "results.json") }

// load reads the results of earlier calls.
func (b *bench) load() error {
	version, err := exec.Command("bin/foo-controller", "--version").Output()
	if err != nil {
		return fmt.Errorf("bin/foo-controller: %w", err)
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	b.results = results{Version: strings.TrimSpace(string(version)), Seed: rand.Uint64()}
	text, err := os.ReadFile(b.file())
	if b.again || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stored := results{}
	if err := errors.Join(err, json.Unmarshal(text, &stored)); err != nil {
		return fmt.Errorf("%s: %w", b.file(), err)
	}
	if stored.Version != b.results.Version {
		return fmt.Errorf("%s has figures of %s, and bin/ has %s: to forget them, make bench ARGS=-again",
			b.file(), stored.Version, b.results.Version)
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
	return errors.Join(os.WriteFile(partial, text, 0o644), os.Rename(partial, b.file()))
}
