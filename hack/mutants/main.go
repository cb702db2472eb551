// Command mutants asks whether the tests would notice if the code were wrong: it makes small faults, one at
// a time, runs the tests that should fail, and complains when they pass. It is what `make mutants` runs.
//
// There are faults that somebody planted, in planted.txt, and automatic ones, see mutate. The latter may
// survive where no test can tell the difference; survivors.txt lists those, each with its reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	plantedFile   = "hack/mutants/planted.txt"
	survivorsFile = "hack/mutants/survivors.txt"
)

// automatic are the packages whose mutants are made, not planted: those that decide, with tests in a flash.
var automatic = []string{"pkg/retry", "pkg/consistency", "pkg/plan"}

const help = `mutants makes small faults in the sources, one at a time, and runs the tests that should notice. Run it in
the root of the repository, as "go run ./hack/mutants [flags] [DIRECTORY...]"; the tree is not touched.

Planted faults are described in ` + plantedFile + `, and all of them must be killed. Automatic ones are
made of all files in the directories, by default ` + "%s" + `;
` + survivorsFile + ` lists those that are known to survive, and why. What does not compile
does not count.

The exit status is 1 when a planted fault survives or no longer fits its source; when an automatic one
survives that is not listed; when one is listed that does not survive; and when the tests fail without any
fault. Compiled mutants stay in Go's build cache, about 1 MB each, until it drops what nobody uses.

`

func main() {
	// A fault may make a loop that takes all memory: then that test shall fail, and not this machine.
	const memory = 8 << 30
	// Where there is no such limit we do without.
	_ = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are the values of the flags and arguments.
type options struct {
	planted, automatic, list bool
	only                     *regexp.Regexp
	parallel                 int
	timeout                  time.Duration
	dirs                     []string
}

func parse(args []string, out io.Writer) (*options, error) {
	opts := &options{dirs: automatic}
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() {
		fmt.Fprintf(out, help, strings.Join(automatic, ", "))
		fs.PrintDefaults()
	}
	fs.BoolVar(&opts.planted, "planted", false, "only the planted faults")
	fs.BoolVar(&opts.automatic, "auto", false, "only the automatic ones")
	fs.BoolVar(&opts.list, "list", false,
		"list the names of the faults, check that both files fit the sources, and run nothing")
	only := fs.String("only", "", "only faults whose name matches this `regexp`, see --list")
	fs.IntVar(&opts.parallel, "parallel", runtime.NumCPU(), "this `number` of tests run at once")
	fs.DurationVar(&opts.timeout, "timeout", 15*time.Second,
		"a test that takes this `long` hangs, and so has noticed the fault")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if opts.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	if opts.planted == opts.automatic {
		opts.planted, opts.automatic = true, true
	}
	if fs.NArg() > 0 {
		opts.dirs = nil
		for _, dir := range fs.Args() {
			opts.dirs = append(opts.dirs, path.Clean(filepath.ToSlash(dir)))
		}
	}
	return opts, nil
}

// concerns reports whether a run decides about the automatic mutant of this key, should there be one.
func (o *options) concerns(key string) bool {
	file, _, _ := strings.Cut(key, " | ")
	return o.automatic && o.only.MatchString(key) && slices.Contains(o.dirs, path.Dir(file))
}

func run(ctx context.Context, root string, args []string, out io.Writer) error {
	opts, err := parse(args, out)
	if err != nil {
		return err
	}
	var sown, grown []mutant
	if opts.planted {
		if sown, err = planted(root, filepath.Join(root, plantedFile)); err != nil {
			return err
		}
	}
	if opts.automatic {
		if grown, err = mutateAll(root, opts.dirs); err != nil {
			return err
		}
	}
	reasons, err := survivors(filepath.Join(root, survivorsFile))
	if err != nil {
		return err
	}
	maps.DeleteFunc(reasons, func(key, _ string) bool { return !opts.concerns(key) })
	unasked := func(m mutant) bool { return !opts.only.MatchString(m.key) }
	sown, grown = slices.DeleteFunc(sown, unasked), slices.DeleteFunc(grown, unasked)

	wrong := gone(reasons, grown)
	if opts.list {
		for _, m := range slices.Concat(sown, grown) {
			fmt.Fprintln(out, m.key)
		}
		return wrong.err()
	}
	results, err := try(ctx, root, opts, slices.Concat(sown, grown), out)
	if err != nil {
		return err
	}
	wrong = append(wrong, reportPlanted(out, root, sown, results[:len(sown)])...)
	wrong = append(wrong, reportAutomatic(out, root, grown, results[len(sown):], reasons)...)
	if len(wrong) == 0 {
		fmt.Fprintln(out, "all is as it should be")
	}
	return wrong.err()
}

// try runs the tests of the mutants, and before that those tests without a mutant.
func try(ctx context.Context, root string, opts *options, mutants []mutant, out io.Writer) ([]result, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &runner{root: root, dir: dir, out: out, parallel: opts.parallel, timeout: opts.timeout}
	if err := r.baseline(ctx, mutants); err != nil {
		return nil, err
	}
	return r.all(ctx, mutants)
}

// mutateAll returns the automatic mutants of the packages in dirs.
func mutateAll(root string, dirs []string) ([]mutant, error) {
	var all []mutant
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no Go files in %s", dir)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			file := path.Join(dir, filepath.Base(name))
			mutants, err := mutate(file, src)
			if err != nil {
				return nil, err
			}
			for i := range mutants {
				mutants[i].tests = []string{packageOf(file)}
			}
			all = append(all, mutants...)
		}
	}
	return all, nil
}
