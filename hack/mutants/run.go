package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/foo-controller/hack/tools/faults"
)

type outcome string

const (
	killed      outcome = "killed"
	survived    outcome = "survived"
	notCompiled outcome = "not compiled"
)

// A runner runs tests in the module at root. With the flag -overlay, Go reads a mutant from dir instead of the original
// file, so the sources never change.
type runner struct {
	root, dir string
	out       io.Writer
	parallel  int
	timeout   time.Duration
	alone     bool // Tries every mutant alone.
	// tests is the directory whose tests run, "" for those beside the code. run selects some of them, "" all.
	tests, run string
}

// testsOf returns the directory of the tests that run for the code in dir, which is relative to the root.
func (r *runner) testsOf(dir string) string { return filepath.Join(r.root, cmp.Or(r.tests, dir)) }

// baseline runs the tests of all mutants that are tried alone, without a fault.
func (r *runner) baseline(ctx context.Context, mutants []mutant, runs []*sharedRun) error {
	var alone []mutant
	for i, m := range mutants {
		if runs[i] == nil {
			alone = append(alone, m)
		}
	}
	for _, dir := range directories(alone) {
		fmt.Fprintf(r.out, "without a fault: go test ./%s\n", cmp.Or(r.tests, dir))
		if output, err := r.goTest(ctx, dir); err != nil {
			return fmt.Errorf("the tests fail without any fault: %w\n%s", err, output)
		}
	}
	return nil
}

// goTest runs the tests of the code in dir.
func (r *runner) goTest(ctx context.Context, dir string, args ...string) (string, error) {
	fixed := []string{"test", "-short", "-failfast", "-count=1", "-vet=off", "-ldflags=-s -w",
		"-timeout=" + r.timeout.String(), "-run=" + r.run}
	if r.parallel > 1 {
		fixed = append(fixed, "-p=1") // The mutants run in parallel already.
	}
	cmd := exec.CommandContext(ctx, "go", append(fixed, args...)...)
	cmd.Dir = r.testsOf(dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // On an interrupt, go test ends its tests too.
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// tryAlone compiles a mutant without any other, and runs its tests. It takes longer than tryShared, but can try every
// mutant.
func (r *runner) tryAlone(ctx context.Context, i int, m mutant) (outcome, error) {
	src, err := os.ReadFile(filepath.Join(r.root, m.file))
	if err != nil {
		return "", err
	}
	overlay, err := faults.Overlay(r.root, r.dir, fmt.Sprint("alone-", i), map[string][]byte{m.file: m.apply(src)})
	if err != nil {
		return "", err
	}
	output, err := r.goTest(ctx, path.Dir(m.file), "-overlay="+overlay)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return survived, nil
	case strings.Contains(output, "[build failed]"):
		return notCompiled, nil
	case !strings.Contains("\n"+output, "\nFAIL"):
		return "", fmt.Errorf("go test: %w\n%s", err, output) // No test failed, but go test itself.
	}
	return killed, nil
}

func (m *mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.from], []byte(m.text), src[m.to:])
}

// all tries the mutants, several at a time, and returns the outcomes in their order. First it runs the tests without a
// mutant.
func (r *runner) all(ctx context.Context, mutants []mutant) ([]outcome, error) {
	started := time.Now()
	before, err := r.fingerprint(mutants)
	if err != nil {
		return nil, err
	}
	runs, reasons, err := r.share(ctx, mutants)
	if err != nil {
		return nil, err
	}
	if err := r.baseline(ctx, mutants, runs); err != nil {
		return nil, err
	}
	outcomes, err := r.tryAll(ctx, mutants, runs)
	if err != nil {
		return nil, err
	}
	after, err := r.fingerprint(mutants)
	if err == nil && after != before {
		err = errors.New("the sources changed while the tests ran, so the results are invalid: run again")
	}
	fmt.Fprintf(r.out, "%d faults in %s\n%s", len(mutants), time.Since(started).Round(time.Second), describe(reasons))
	return outcomes, err
}

func (r *runner) tryAll(ctx context.Context, mutants []mutant, runs []*sharedRun) ([]outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make([]outcome, len(mutants))
	next := make(chan int)
	progress := &progress{out: r.out, total: len(mutants), started: time.Now()}
	var workers sync.WaitGroup
	for range r.parallel {
		workers.Go(func() {
			for i := range next {
				have, err := r.try(ctx, i, mutants[i], runs[i])
				if err != nil {
					cancel(fmt.Errorf("%s: %w", mutants[i].key, err)) // Only the first call counts.
					continue
				}
				outcomes[i] = have
				progress.done(mutants[i].key, have)
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes, context.Cause(ctx)
}

func (r *runner) try(ctx context.Context, i int, m mutant, run *sharedRun) (outcome, error) {
	if run == nil {
		return r.tryAlone(ctx, i, m)
	}
	return r.tryShared(ctx, run)
}

// fingerprint is a hash of the Go files in the directories of the mutants.
func (r *runner) fingerprint(mutants []mutant) (string, error) {
	var dirs []string
	for _, m := range mutants {
		dirs = append(dirs, filepath.Dir(m.file))
	}
	slices.Sort(dirs)
	hash := sha256.New()
	for _, dir := range slices.Compact(dirs) {
		files, err := filepath.Glob(filepath.Join(r.root, dir, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(hash, "%s %d\n%s", file, len(src), src)
		}
	}
	return string(hash.Sum(nil)), nil
}

// progress prints the progress of a run every 10 s, and each survivor at once: a long run may be stopped.
type progress struct {
	out     io.Writer
	total   int
	started time.Time

	mu     sync.Mutex
	counts map[outcome]int
	last   time.Time
}

func (p *progress) done(key string, have outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts, p.last = map[outcome]int{}, p.started
	}
	p.counts[have]++
	if have == survived {
		fmt.Fprintln(p.out, "survived:", key)
	}
	n := p.counts[killed] + p.counts[survived] + p.counts[notCompiled]
	if time.Since(p.last) < 10*time.Second && n < p.total {
		return
	}
	p.last = time.Now()
	spent := time.Since(p.started)
	left := spent / time.Duration(n) * time.Duration(p.total-n)
	fmt.Fprintf(p.out, "%d of %d: %d killed, %d survived, %d not compiled; %s so far, about %s to go\n", n, p.total,
		p.counts[killed], p.counts[survived], p.counts[notCompiled], spent.Round(time.Second), left.Round(time.Second))
}
