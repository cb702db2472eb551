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
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// quickRuns are those of make bench-quick.
const quickRuns = "cold-1000-in-50/(foo|controller)|burst/(foo|plain)|single/(foo|controller)|idle/foo"

// contendCommand is the first argument of a process that is a contender: NAME KUBECONFIG ADDRESS follow.
const contendCommand = "contend"

func main() {
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
	env     string // For foo-controller.
	dir     string // For results and logs.
	version string // Of foo-controller, and env. Each has its own results.
	mu      sync.Mutex
	runs    map[string]metrics // Those that are done, by SCENARIO/CONTENDER/ROUND.
}

// metrics are what was measured in a run, by name.
type metrics map[string]float64

// A block has the runs of a scenario in a round.
type block struct {
	scenario
	round int
}

func (s block) key(contender string) string {
	return fmt.Sprintf("%s/%s/%d", s.name, contender, s.round)
}

func run(ctx context.Context) error {
	b := &bench{rounds: 5, dir: "bin/bench", runs: map[string]metrics{}}
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // Not flag's own, which has those of controller-runtime.
	flags.BoolVar(&b.quick, "quick", false, "one round of some runs, and a report in bin/bench/quick")
	flags.StringVar(&b.env, "env", "", "environment of foo-controller, such as GOGC=200; it has results of its own")
	only := flags.String("only", "", "regular expression: leave out each SCENARIO/CONTENDER/ROUND that does not match")
	limit := flags.Int("runs", math.MaxInt, "stop after a scenario has been played so often; the next call continues")
	_ = flags.Parse(os.Args[1:]) // It exits.
	if b.quick {
		b.rounds, b.dir, *only = 1, "bin/bench/quick", quickRuns
		_ = os.RemoveAll(b.dir) // MkdirAll reports what is wrong with it.
	}
	matches, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	version, err := exec.Command("bin/foo-controller", "--version").Output()
	if err != nil {
		return fmt.Errorf("bin/foo-controller: %w", err)
	}
	b.version = strings.TrimSpace(strings.TrimSpace(string(version)) + " " + b.env)
	if err := errors.Join(os.MkdirAll(b.dir, 0o755), b.load()); err != nil {
		return err
	}
	isOpen := func(key string) bool { return b.runs[key] == nil }
	blocks := b.blocks(func(key string) bool { return isOpen(key) && matches.MatchString(key) })
	began := time.Now()
	for i, block := range blocks[:min(*limit, len(blocks))] {
		err = errors.Join(err, b.play(ctx, block))
		if ctx.Err() != nil {
			return errors.New("stopped; the same command continues")
		}
		left := time.Since(began) / time.Duration(i+1) * time.Duration(len(blocks)-i-1)
		fmt.Printf("%d of %d done, about %.0f minutes left\n", i+1, len(blocks), left.Minutes())
	}
	if err != nil {
		return fmt.Errorf("the same command repeats what is void; logs are in %s:\n%w", b.dir, err)
	}
	if left := len(b.blocks(isOpen)); left > 0 && !b.quick {
		fmt.Println("not done: the same command continues")
		return nil
	}
	return b.report()
}

// blocks returns what is to be done, in this order.
func (b *bench) blocks(isWanted func(key string) bool) (blocks []block) {
	for round := 1; round <= b.rounds; round++ {
		first := len(blocks)
		for _, s := range scenarios {
			s := block{s, round}
			s.contenders = slices.DeleteFunc(slices.Clone(s.contenders), func(c string) bool { return !isWanted(s.key(c)) })
			if len(s.contenders) > 0 && (round == 1 || !s.once) {
				blocks = append(blocks, s)
			}
		}
		shuffle(blocks[first:])
	}
	return blocks
}

func shuffle[T any](s []T) { rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }

// play does the runs of a block, and stores their results.
func (b *bench) play(ctx context.Context, s block) error {
	var group errgroup.Group
	if !s.together {
		group.SetLimit(1)
	}
	shuffle(s.contenders)
	for _, contender := range s.contenders {
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			key := s.key(contender)
			fmt.Println(key)
			measured, err := b.measure(ctx, s.scenario, contender)
			if err != nil {
				return fmt.Errorf("%s is void: %w", key, err)
			}
			for _, name := range slices.Sorted(maps.Keys(measured)) {
				fmt.Printf("  %s: %.4g\n", name, measured[name])
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.runs[key] = measured
			return b.save()
		})
	}
	return group.Wait()
}

func (b *bench) file() string { return filepath.Join(b.dir, b.version+".json") }

// load reads the results of earlier calls.
func (b *bench) load() error {
	text, err := os.ReadFile(b.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, json.Unmarshal(text, &b.runs))
}

func (b *bench) save() error {
	text, err := json.MarshalIndent(b.runs, "", "\t")
	partial := b.file() + ".partial"
	return errors.Join(err, os.WriteFile(partial, text, 0o644), os.Rename(partial, b.file()))
}
