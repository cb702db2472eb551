// Command bench measures what foo-controller costs, beside bare loops that send the same writes, two controllers with
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
	"slices"
	"strings"
	"syscall"
)

const (
	rounds = 5
	dir    = "bin/bench" // For results and logs.
)

// contendCommand is the first argument of a process that is a contender: NAME KUBECONFIG ADDRESS follow.
const contendCommand = "contend"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work := run
	if len(os.Args) == 5 && os.Args[1] == contendCommand {
		work = contend
	}
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A bench is one call of the command.
type bench struct {
	only    *regexp.Regexp     // Which runs to do.
	version string             // Of foo-controller. Each has its own results.
	runs    map[string]metrics // Those that are done, by SCENARIO/CONTENDER/ROUND.
}

// metrics are what was measured in a run, by name.
type metrics map[string]float64

func run(ctx context.Context) error {
	b := &bench{runs: map[string]metrics{}}
	flags := flag.NewFlagSet("bench", flag.ExitOnError) // Not flag's own, which has those of controller-runtime.
	only := flags.String("only", "", "regular expression: each SCENARIO/CONTENDER/ROUND to do, without a report")
	_ = flags.Parse(os.Args[1:]) // It exits.
	version, err := exec.Command(binary, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	b.version = strings.TrimSpace(string(version))
	b.only, err = regexp.Compile(*only)
	if err := errors.Join(err, os.MkdirAll(dir, 0o755), b.load()); err != nil {
		return err
	}
	if err := b.playAll(ctx); err != nil {
		return fmt.Errorf("%w\nlogs are in %s; the same command continues", err, dir)
	}
	if *only != "" {
		return nil // Others may not be done.
	}
	return b.report()
}

// playAll does all runs. The contenders of a scenario take turns, so that they have the same conditions.
func (b *bench) playAll(ctx context.Context) (err error) {
	for round := 1; round <= rounds; round++ {
		for _, i := range rand.Perm(len(scenarios)) {
			s := scenarios[i]
			for _, j := range rand.Perm(len(s.contenders)) {
				err = errors.Join(err, b.play(ctx, s, s.contenders[j], round))
			}
		}
	}
	return errors.Join(err, ctx.Err())
}

// play does a run and stores its result, unless it has one.
func (b *bench) play(ctx context.Context, s scenario, contender string, round int) error {
	key := fmt.Sprintf("%s/%s/%d", s.name, contender, round)
	if !b.only.MatchString(key) || s.once && round > 1 || b.runs[key] != nil || ctx.Err() != nil {
		return nil
	}
	fmt.Printf("%s, %d runs are done\n", key, len(b.runs))
	measured, err := b.measure(ctx, s, contender)
	if err != nil {
		return fmt.Errorf("%s is void: %w", key, err)
	}
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		fmt.Printf("  %s: %.4g\n", name, measured[name])
	}
	b.runs[key] = measured
	text, err := json.MarshalIndent(b.runs, "", "\t")
	return errors.Join(err, os.WriteFile(b.file(), text, 0o644))
}

func (b *bench) file() string { return filepath.Join(dir, b.version+".json") }

// load reads the results of earlier calls, unless they may be those of other files.
func (b *bench) load() error {
	text, err := os.ReadFile(b.file())
	if errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(b.version, "-dirty") {
		return nil
	}
	return errors.Join(err, json.Unmarshal(text, &b.runs))
}
