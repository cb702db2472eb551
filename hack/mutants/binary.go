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
	"syscall"
	"time"

	"example.com/foo-controller/hack/tools/faults"
)

// A binary is the test binary of one package. It has many mutants, see weave.
type binary struct {
	dir      string // The directory of the package, relative to the root.
	file     string
	count    int                  // The number of its mutants.
	versions map[string][]version // By file.
	slow     string               // Matches the names of the slow tests, "" if no test is slow.
	killers  killers
}

func newBinary(dir, file string) *binary {
	return &binary{dir: dir, file: file, versions: map[string][]version{}, killers: newKillers()}
}

func (b *binary) add(file string, v version) {
	b.count++
	b.versions[file] = append(b.versions[file], v)
}

// A sharedRun is how the tests of a woven mutant run.
type sharedRun struct {
	number int
	place  string
	binary *binary
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
		if reasons[i] != "" {
			continue
		}
		dir := path.Dir(m.file)
		if binaries[dir] == nil {
			binaries[dir] = newBinary(dir, filepath.Join(r.dir, fmt.Sprintf("%d.test", len(binaries))))
		}
		binaries[dir].add(m.file, versions[i])
		where := fmt.Sprint(m.file, ":", versions[i].from)
		runs[i] = &sharedRun{number: versions[i].number, place: where, binary: binaries[dir]}
	}
	for _, name := range slices.Sorted(maps.Keys(binaries)) {
		if err := r.prepare(ctx, check, binaries[name]); err != nil {
			return nil, nil, err
		}
	}
	for i, run := range runs {
		if run != nil && run.binary.file == "" {
			runs[i], reasons[i] = nil, notBuilt
		}
	}
	return runs, reasons, nil
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
	if err := r.findSlow(ctx, b); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "shared test binary of ./%s: %d of the faults, compiled in %s; its tests pass without a fault, "+
		"after %s\n", b.dir, b.count, compiled.Round(time.Second/10),
		(time.Since(started) - compiled).Round(time.Second/10))
	return nil
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
	p := check.packages[b.dir]
	texts := map[string][]byte{path.Join(b.dir, selectorName): selectorFile(p.name)}
	for file, versions := range b.versions {
		texts[file] = weave(p.files[file].text, versions)
	}
	overlay, err := faults.Overlay(r.root, r.dir, filepath.Base(b.file), texts)
	if err != nil {
		return false, err
	}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay=" + overlay, "-o", b.file, "."}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.testsOf(b.dir)
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
	fixed := []string{"-test.short", "-test.failfast", "-test.paniconexit0", "-test.timeout=" + r.timeout.String(),
		"-test.run=" + r.run}
	cmd := exec.CommandContext(ctx, b.file, append(fixed, flags...)...)
	cmd.Dir = r.testsOf(b.dir)
	cmd.Env = append(os.Environ(), selectorVariable+"="+strconv.Itoa(number))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // With the processes that a test has started, it is a group.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // What a test has started may keep the output open.
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return string(output) + "\n" + context.Cause(ctx).Error(), err
	}
	return string(output), err
}
