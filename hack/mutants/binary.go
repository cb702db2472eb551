package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/foo-controller/hack/faults"
)

// A binary is the test binary of one package. It has many mutants, see weave.
type binary struct {
	dir      string // The directory of the package, relative to the root.
	file     string
	count    int                  // The number of its mutants.
	versions map[string][]version // By file.
	// flags are those with which its tests run, each set of them as one line.
	flags   map[string]bool
	slow    string // Matches the names of the slow tests, "" if no test is slow.
	killers killers
}

func newBinary(dir, file string) *binary {
	return &binary{
		dir: dir, file: file, versions: map[string][]version{}, flags: map[string]bool{}, killers: newKillers(),
	}
}

func (b *binary) add(file string, v version, flags []string) {
	b.count++
	b.versions[file] = append(b.versions[file], v)
	b.flags[strings.Join(flags, "\n")] = true
}

// A sharedRun is how the tests of a woven mutant run: these binaries, one after the other, with these flags.
type sharedRun struct {
	number   int
	place    string
	binaries []*binary
	flags    []string
}

// share decides for each mutant whether it is woven, and returns nil or a reason if it is not.
func (r *runner) share(ctx context.Context, mutants []mutant) (runs []*sharedRun, reasons []string, err error) {
	check, err := newChecker(ctx, r.root, directories(mutants))
	if err != nil {
		return nil, nil, err
	}
	versions, reasons := check.versions(mutants)
	if r.alone {
		reasons = slices.Repeat([]string{asked}, len(mutants))
	}
	runs = make([]*sharedRun, len(mutants))
	binaries := map[string]*binary{}
	for i, m := range mutants {
		packages, flags, ok := testPackages(m.tests)
		if reasons[i] == "" && !ok {
			reasons[i] = otherFlags
		}
		if reasons[i] != "" {
			continue
		}
		runs[i] = &sharedRun{number: versions[i].number, place: fmt.Sprint(m.file, ":", versions[i].from), flags: flags}
		for _, p := range packages {
			dir := path.Clean(p)
			if binaries[dir] == nil {
				binaries[dir] = newBinary(dir, filepath.Join(r.dir, fmt.Sprintf("%d.test", len(binaries))))
			}
			runs[i].binaries = append(runs[i].binaries, binaries[dir])
			binaries[dir].add(m.file, versions[i], flags)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(binaries)) {
		if err := r.prepare(ctx, check, binaries[name]); err != nil {
			return nil, nil, err
		}
	}
	for i, run := range runs {
		if run != nil && slices.ContainsFunc(run.binaries, func(b *binary) bool { return b.file == "" }) {
			runs[i], reasons[i] = nil, notBuilt
		}
	}
	return runs, reasons, nil
}

// testPackages splits the arguments of `go test` into the packages and the flags of a test binary. It reports false
// if there are other flags than it knows.
func testPackages(args []string) (packages, flags []string, ok bool) {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name, value, hasValue := strings.Cut(name, "=")
		switch {
		case !isFlag:
			packages = append(packages, args[i])
			continue
		case name != "run" && name != "skip":
			return nil, nil, false
		case !hasValue && i+1 < len(args):
			i++
			value = args[i]
		}
		flags = append(flags, "-test."+name+"="+value)
	}
	return packages, flags, len(packages) > 0
}

// prepare builds a binary, and runs its tests without a fault. If they failed, the failure of a mutant would prove
// nothing. A binary that does not compile loses its file.
func (r *runner) prepare(ctx context.Context, check *checker, b *binary) error {
	started := time.Now()
	built, err := r.build(ctx, check, b)
	if err != nil {
		return err
	}
	if !built {
		return nil
	}
	compiled := time.Since(started)
	for flags := range b.flags {
		if err := r.check(ctx, b, flags); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.out, "shared test binary of ./%s: %d of the faults, compiled in %s; its tests pass without a fault, "+
		"after %s\n", b.dir, b.count, compiled.Round(time.Second/10),
		(time.Since(started) - compiled).Round(time.Second/10))
	return nil
}

// check runs the tests of a binary without a fault.
func (r *runner) check(ctx context.Context, b *binary, flags string) error {
	if flags == "" {
		return r.findSlow(ctx, b)
	}
	_, err := r.passes(ctx, b, strings.Split(flags, "\n")...)
	return err
}

// passes runs tests without a fault, and returns an error if they fail.
func (r *runner) passes(ctx context.Context, b *binary, flags ...string) (string, error) {
	output, err := r.runBinary(ctx, b, 0, flags...)
	if err != nil {
		return "", fmt.Errorf("the tests fail without any fault: %s: %w\n%s", b.dir, err, output)
	}
	return output, nil
}

// build compiles a binary with all its versions. It reports false if that fails, which means that a version compiles
// alone, but not together with the others. No such version is known.
func (r *runner) build(ctx context.Context, check *checker, b *binary) (bool, error) {
	texts := map[string][]byte{}
	for file, versions := range b.versions {
		p := check.packages[path.Dir(file)]
		texts[file] = weave(p.files[file].text, versions)
		texts[path.Join(path.Dir(file), selectorName)] = selectorFile(p.name)
	}
	overlay, err := faults.Overlay(r.root, r.dir, filepath.Base(b.file), texts)
	if err != nil {
		return false, err
	}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay=" + overlay, "-o", b.file, "./" + b.dir}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(r.out, "the shared test binary of %s does not compile, so that each of its faults gets one of its "+
			"own: %v\n%s", b.dir, err, output)
		b.file = ""
	}
	return err == nil, nil
}

// runBinary runs the tests of a binary with the mutant of this number, in the directory of the package, as `go test`
// does.
func (r *runner) runBinary(ctx context.Context, b *binary, number int, flags ...string) (string, error) {
	// After its timeout, a test binary ends by itself, but not if it hangs before the first test.
	limit := 3 * r.timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end after %s", limit))
	defer cancel()
	fixed := []string{"-test.short", "-test.failfast", "-test.paniconexit0", "-test.timeout=" + r.timeout.String()}
	cmd := exec.CommandContext(ctx, b.file, append(fixed, flags...)...)
	cmd.Dir = filepath.Join(r.root, b.dir)
	cmd.Env = append(os.Environ(), selectorVariable+"="+strconv.Itoa(number))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // With the processes that a test has started, it is a group.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // What a test has started may keep the output open.
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(output) + "\npanic: " + context.Cause(ctx).Error(), err
	}
	return string(output), err
}
