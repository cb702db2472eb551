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
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A bench is one call of the command.
type bench struct {
	quick   bool
	rounds  int
	only    *regexp.Regexp
	dir     string             // For results and logs.
	version string             // Of foo-controller. Each version has its own results.
	runs    map[string]metrics // Those that are done, by SCENARIO/CONTENDER/ROUND.
}

// metrics are what was measured in a run, by name.
type metrics map[string]float64

// A task is a run that is to be done.
type task struct {
	scenario
	contender string
	round     int
}

func (t task) key() string { return fmt.Sprintf("%s/%s/%d", t.name, t.contender, t.round) }

func run(ctx context.Context) error {
	b := &bench{dir: "bin/bench", runs: map[string]metrics{}}
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // Not flag's own, which has those of controller-runtime.
	flags.BoolVar(&b.quick, "quick", false, "small sizes, one round, and a report in bin/bench/quick")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each contender plays each scenario")
	again := flags.Bool("again", false, "forget the results of earlier calls")
	only := flags.String("only", "", "regular expression: leave out each SCENARIO/CONTENDER/ROUND that does not match")
	_ = flags.Parse(os.Args[1:]) // It exits.
	var err error
	if b.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	if b.quick {
		b.dir, b.rounds, *again = "bin/bench/quick", 1, true
	}
	version, err := exec.Command("bin/foo-controller", "--version").Output()
	if err != nil {
		return fmt.Errorf("bin/foo-controller: %w", err)
	}
	b.version = strings.TrimSpace(string(version))
	if err := b.load(*again); err != nil {
		return err
	}
	tasks := b.tasks()
	isOpen := func(t task) bool { return b.runs[t.key()] == nil }
	err = b.play(ctx, slices.DeleteFunc(slices.Clone(tasks), func(t task) bool {
		return !isOpen(t) || !b.only.MatchString(t.key())
	}))
	if err != nil || slices.ContainsFunc(tasks, isOpen) {
		return err
	}
	return b.report()
}

// tasks returns all runs, in the order in which they are to be done.
func (b *bench) tasks() (tasks []task) {
	for round := range b.rounds {
		first := len(tasks)
		for _, s := range scenarios {
			contenders := s.contenders
			if b.quick {
				contenders = s.quick
			}
			for _, contender := range contenders {
				if round == 0 || !s.once {
					tasks = append(tasks, task{s, contender, round + 1})
				}
			}
		}
		random := rand.New(rand.NewPCG(uint64(round), 0)) // A call that continues has the same order.
		random.Shuffle(len(tasks)-first, func(i, j int) {
			tasks[first+i], tasks[first+j] = tasks[first+j], tasks[first+i]
		})
	}
	return tasks
}

// play does the runs, and stores their results.
func (b *bench) play(ctx context.Context, tasks []task) error {
	void, began := 0, time.Now()
	for i, t := range tasks {
		fmt.Printf("%d of %d: %s\n", i+1, len(tasks), t.key())
		measured, err := b.measure(ctx, t)
		switch {
		case ctx.Err() != nil:
			return errors.New("stopped; the same command continues")
		case err != nil:
			fmt.Println("  void:", err)
			void++
			continue
		}
		b.runs[t.key()] = measured
		if err := b.save(); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(measured)) {
			fmt.Printf("  %s %.4g", name, measured[name])
		}
		left := time.Since(began) / time.Duration(i+1) * time.Duration(len(tasks)-i-1)
		fmt.Printf("\n  about %.0f minutes left\n", left.Minutes())
	}
	if void > 0 {
		return fmt.Errorf("%d runs are void; the last logs are in %s; the same command repeats these runs", void, b.dir)
	}
	return nil
}

func (b *bench) file() string { return filepath.Join(b.dir, b.version+".json") }

// load reads the results of earlier calls, or forgets them.
func (b *bench) load(forget bool) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(b.file())
	if forget || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, json.Unmarshal(text, &b.runs))
}

func (b *bench) save() error {
	text, err := json.MarshalIndent(b.runs, "", "\t")
	if err != nil {
		return err
	}
	partial := b.file() + ".partial"
	return errors.Join(os.WriteFile(partial, text, 0o644), os.Rename(partial, b.file()))
}
