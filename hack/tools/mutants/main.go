// Command mutants checks that the tests fail if the code is wrong. It makes small faults, one at a time, runs the tests
// of the package, and reports the faults with which they pass. `make mutants` runs it. See mutate for the faults.
//
// To compile each fault would take hours. So almost all faults of a package are compiled together, see weave, and an
// environment variable selects one of them for each run of the tests. Constants and values of variables are compiled
// alone, see tryAlone.
//
// A fault may survive if no test can notice it. survivors.txt lists these, each with its reason.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

const survivorsFile = "hack/tools/mutants/survivors.txt"

// defaultPaths are what decides, and whose tests are fast: directories of packages, and a file.
var defaultPaths = []string{"pkg/kit/consistency", "pkg/kit/reconcile", "pkg/kit/recorder/limits.go", "pkg/plan"}

// defaultAlso are the tests of Foo and of the starter, walks included: they show whether the engine is right.
const defaultAlso = "pkg/kit/reconcile=pkg/plan,pkg/kit/reconcile=hack/starter/pkg/plan"

const help = `mutants makes small faults in the sources, one at a time, and runs the tests that should fail. Run it in
hack/tools/mutants, as "go run . [flags] [DIRECTORY|FILE...]"; both begin at the root. It does not change the sources.

Faults are generated for these files and all files in the directories, by default ` + "%s" + `.
` + survivorsFile + ` lists those that are known to survive, and why. Faults that do not compile
do not count.

The exit status is 1 in each of these cases: A fault survives and is not listed. A listed fault does not survive,
or there is no such fault any more. The tests fail without a fault.
Compiled mutants stay in Go's build cache until Go removes unused entries.

`

func main() {
	// A fault may cause a loop that allocates all memory. With the limit, only the test fails and not the machine.
	const memory = 8 << 30
	// The error is ignored, because some systems have no such limit.
	_ = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, "../../..", os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "mutants:\n%v\n", err)
		os.Exit(1)
	}
}

// options are the values of the flags and arguments.
type options struct {
	list    bool
	only    *regexp.Regexp
	also    []string
	timeout time.Duration
	paths   []string
}

func parse(args []string, out io.Writer) (*options, error) {
	opts := &options{paths: defaultPaths}
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() {
		fmt.Fprintf(out, help, strings.Join(defaultPaths, ", "))
		fs.PrintDefaults()
	}
	fs.BoolVar(&opts.list, "list", false,
		"list the names of the faults, check that "+survivorsFile+" fits the sources, and run nothing")
	only := fs.String("only", "", "only faults whose name matches this `regexp`, see --list")
	also := fs.String("also", defaultAlso, "try what the tests of a package do not notice with those of another "+
		"directory: `PACKAGE=DIRECTORY`, separated by commas")
	fs.DurationVar(&opts.timeout, "timeout", time.Minute,
		"a test that takes this `long` hangs, which counts as a failure")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	opts.also = strings.Split(*also, ",")
	var err error
	if opts.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("--only: %w", err)
	}
	if fs.NArg() > 0 {
		opts.paths = nil
		for _, arg := range fs.Args() {
			opts.paths = append(opts.paths, path.Clean(filepath.ToSlash(arg)))
		}
	}
	return opts, nil
}

// includes reports whether a run with these options includes the mutant with this key.
func (o *options) includes(key string) bool {
	file, _, _ := strings.Cut(key, " | ")
	return o.only.MatchString(key) && (slices.Contains(o.paths, path.Dir(file)) || slices.Contains(o.paths, file))
}

func run(ctx context.Context, root string, args []string, out io.Writer) error {
	opts, err := parse(args, out)
	if err != nil {
		return err
	}
	mutants, err := mutateAll(root, opts.paths)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !opts.includes(m.key) })
	reasons, err := survivors(filepath.Join(root, survivorsFile))
	if err != nil {
		return err
	}
	maps.DeleteFunc(reasons, func(key, _ string) bool { return !opts.includes(key) })
	found := unknownSurvivors(reasons, mutants)
	if opts.list {
		for _, m := range mutants {
			fmt.Fprintln(out, m.key)
		}
		return errors.Join(found...)
	}
	outcomes, err := try(ctx, root, "", opts.timeout, mutants, out)
	if err != nil {
		return err
	}
	if err := tryElsewhere(ctx, root, opts, mutants, outcomes, out); err != nil {
		return err
	}
	found = append(found, report(out, mutants, outcomes, reasons)...)
	if len(found) == 0 {
		fmt.Fprintln(out, "no problems")
	}
	return errors.Join(found...)
}

// try runs tests of the mutants, after running the same tests without a mutant: those in a directory or, without one,
// those beside the code.
func try(
	ctx context.Context, root, tests string, timeout time.Duration, mutants []mutant, out io.Writer,
) ([]outcome, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &runner{root: root, dir: dir, out: out, timeout: timeout, tests: tests}
	return r.all(ctx, mutants)
}

// tryElsewhere tries the survivors of a package with the tests of other directories, and corrects the outcomes.
func tryElsewhere(
	ctx context.Context, root string, opts *options, mutants []mutant, outcomes []outcome, out io.Writer,
) error {
	for _, pair := range opts.also {
		dir, tests, _ := strings.Cut(pair, "=")
		var indexes []int
		var left []mutant
		for i, m := range mutants {
			if outcomes[i] == survived && path.Dir(m.file) == dir {
				indexes, left = append(indexes, i), append(left, m)
			}
		}
		if len(left) == 0 {
			continue
		}
		fmt.Fprintf(out, "%d survivors of ./%s, with the tests of ./%s\n", len(left), dir, tests)
		again, err := try(ctx, root, tests, opts.timeout, left, out)
		if err != nil {
			return err
		}
		for i, have := range again {
			outcomes[indexes[i]] = have
		}
	}
	return nil
}

// mutateAll returns the mutants of the files in paths, and of the packages in those that are directories.
func mutateAll(root string, paths []string) ([]mutant, error) {
	var all []mutant
	for _, path := range paths {
		pattern := filepath.Join(root, path)
		if filepath.Ext(path) != ".go" {
			pattern = filepath.Join(pattern, "*.go")
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no Go files in %s", path)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			file, err := filepath.Rel(root, name)
			if err != nil {
				return nil, err
			}
			mutants, err := mutate(filepath.ToSlash(file), src)
			if err != nil {
				return nil, err
			}
			all = append(all, mutants...)
		}
	}
	return all, nil
}

// report prints the counts, and returns an error for each outcome that is not as listed.
func report(out io.Writer, mutants []mutant, outcomes []outcome, reasons map[string]string) (found []error) {
	counts := map[outcome]int{}
	for i, m := range mutants {
		counts[outcomes[i]]++
		switch _, listed := reasons[m.key]; {
		case outcomes[i] == survived && !listed:
			found = append(found, fmt.Errorf("survives, and is not listed: %s", m.key))
		case outcomes[i] != survived && listed:
			found = append(found, fmt.Errorf("listed as a survivor, but now %s: %s", outcomes[i], m.key))
		}
	}
	fmt.Fprintf(out, "%d killed, %d survived; %d more did not compile\n",
		counts[killed], counts[survived], counts[notCompiled])
	return found
}

// survivors returns the keys of the mutants that are known to survive, with the reasons. In the file each
// key is a line, and the reason the indented lines below it; # begins a comment.
func survivors(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	key := ""
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		_, known := reasons[trimmed]
		switch {
		case trimmed == "" || line[0] == '#':
		case line[0] != ' ' && line[0] != '\t':
			if known {
				return nil, fmt.Errorf("%s: listed twice: %s", path, trimmed)
			}
			key = trimmed
			reasons[key] = ""
		case key == "":
			return nil, fmt.Errorf("%s: a reason, but no mutant above it: %s", path, trimmed)
		default:
			reasons[key] = strings.TrimSpace(reasons[key] + " " + trimmed)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if reasons[key] == "" {
			return nil, fmt.Errorf("%s: no reason, in indented lines below: %s", path, key)
		}
	}
	return reasons, nil
}

// unknownSurvivors returns an error for each listed survivor that no generated mutant matches any more.
func unknownSurvivors(reasons map[string]string, mutants []mutant) (found []error) {
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.key == key }) {
			found = append(found, fmt.Errorf("listed as a survivor, but there is no such mutant any more: %s", key))
		}
	}
	return found
}
