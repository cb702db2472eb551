package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A binary is the test binary of one package. It has many mutants, see weave.
type binary struct {
	dir      string // The directory of the package, relative to the root.
	file     string
	versions map[string][]version // By file.
	slow     string               // Matches the names of the slow tests, "" if there are none.
	killers  killers
}

func newBinary(dir, file string) *binary {
	return &binary{dir: dir, file: file, versions: map[string][]version{},
		killers: killers{tests: map[string][]string{}, alone: map[string]bool{}}}
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
			binaries[dir].versions[m.file] = append(binaries[dir].versions[m.file], versions[i])
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
	if err := r.findSlow(ctx, b); err != nil {
		return err
	}
	count := 0
	for _, versions := range b.versions {
		count += len(versions)
	}
	fmt.Fprintf(r.out, "shared test binary of ./%s: %d of the faults, compiled in %s; "+
		"its tests pass without a fault, after %s\n", b.dir, count, compiled.Round(time.Second/10), (time.Since(started) - compiled).Round(time.Second/10))
	return nil
}

// findSlow finds the slow tests of a binary, and checks that the others pass without them and they without the others.
// It repeats that, because a test may take longer if it is the first one to need something.
func (r *runner) findSlow(ctx context.Context, b *binary) error {
	var names []string
	for flags := []string{"-test.v"}; ; flags = []string{"-test.v", "-test.skip=" + b.slow} {
		output, err := r.runBinary(ctx, b, 0, flags...)
		if err != nil {
			return fmt.Errorf("the tests fail without any fault: %s: %w\n%s", b.dir, err, output)
		}
		more := slowTests(output)
		if more == nil {
			break
		}
		names = append(names, more...)
		b.slow = exactly(names)
	}
	if b.slow == "" {
		return nil
	}
	if output, err := r.runBinary(ctx, b, 0, "-test.run="+b.slow); err != nil {
		return fmt.Errorf("the tests fail without any fault: %s: %w\n%s", b.dir, err, output)
	}
	return nil
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
	overlay, err := r.overlay(filepath.Base(b.file), texts)
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

// tryShared runs the tests of a woven mutant, in rounds: the tests that noticed other mutants of the same place, the
// other quick ones, the slow ones. Most mutants fail in the first round.
func (r *runner) tryShared(ctx context.Context, run *sharedRun) (result, error) {
	for _, b := range run.binaries {
		rounds := [][]string{run.flags}
		if len(run.flags) == 0 {
			rounds = b.rounds(run.place)
		}
		for _, flags := range rounds {
			output, err := r.runBinary(ctx, b, run.number, flags...)
			var exit *exec.ExitError
			switch {
			case ctx.Err() != nil:
				return result{}, ctx.Err()
			case errors.As(err, &exit):
				by := firstFailure(output)
				if len(rounds) > 1 {
					r.learn(ctx, b, run.place, by)
				}
				return result{outcome: killed, by: by}, nil
			case err != nil:
				return result{}, fmt.Errorf("%s: %w\n%s", b.dir, err, output)
			}
		}
	}
	return result{outcome: survived}, nil
}

// rounds returns the flags for the runs of the tests with a mutant at this place.
func (b *binary) rounds(place string) [][]string {
	if b.slow == "" {
		return [][]string{nil}
	}
	rounds := [][]string{{"-test.skip=" + b.slow}, {"-test.run=" + b.slow}}
	if likely := b.killers.at(place); likely != nil {
		// The slow ones among them are not worth it: another test may notice the mutant.
		first := []string{"-test.run=" + exactly(likely), "-test.skip=" + b.slow}
		rounds = slices.Insert(rounds, 0, first)
	}
	return rounds
}

// killers has the quick tests that noticed a mutant, by the place of the mutant.
type killers struct {
	mu    sync.Mutex
	tests map[string][]string
	// alone tells of each test whether it passes without a fault and without the other tests. If it does not, its
	// failure would prove nothing.
	alone map[string]bool
}

func (k *killers) at(place string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.tests[place])
}

// learn adds the test that noticed a mutant.
func (r *runner) learn(ctx context.Context, b *binary, place, by string) {
	name, _, _ := strings.Cut(by, "/")
	isSlow, err := regexp.MatchString(b.slow, name)
	if isSlow || err != nil || !isName.MatchString(name) { // It may be the message of a panic.
		return
	}
	k := &b.killers
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.alone[name]; !known {
		_, err := r.runBinary(ctx, b, 0, "-test.run="+exactly([]string{name}))
		k.alone[name] = err == nil
	}
	if k.alone[name] && !slices.Contains(k.tests[place], name) {
		k.tests[place] = append(k.tests[place], name)
	}
}

var (
	isName = regexp.MustCompile(`^\w+$`)
	passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \((\d+\.\d+)s\)$`)
)

// slowTests returns the tests that took longer than the others. output is what a test binary prints with -test.v.
func slowTests(output string) (names []string) {
	const slow = 0.1 // Seconds.
	for _, match := range passed.FindAllStringSubmatch(output, -1) {
		if seconds, err := strconv.ParseFloat(match[2], 64); err == nil && seconds >= slow {
			names = append(names, match[1])
		}
	}
	return names
}

// exactly returns a regular expression that matches these names.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
