package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file is about the order of the tests. The sooner a mutant fails, the sooner the next one can run.

// tryShared runs the tests of a woven mutant, in rounds: the tests that noticed other mutants of the same place, the
// other quick ones, the slow ones. Most mutants fail in the first round.
func (r *runner) tryShared(ctx context.Context, run *sharedRun) (outcome, error) {
	b := run.binary
	for _, flags := range b.rounds(run.place, r.timeout) {
		output, err := r.runBinary(ctx, b, run.number, flags...)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.As(err, &exit):
			if b.slow != "" {
				r.learn(ctx, b, run.place, firstFailure(output))
			}
			return killed, nil
		case err != nil:
			return "", fmt.Errorf("%s: %w\n%s", b.dir, err, output)
		}
	}
	return survived, nil
}

// rounds returns the flags for the runs of the tests with a mutant at this place. Quick tests get less time than
// others, because many mutants make them hang.
func (b *binary) rounds(place string, timeout time.Duration) [][]string {
	const quickTimeout = 20 * time.Second
	limit := "-test.timeout=" + min(timeout, quickTimeout).String()
	if b.slow == "" {
		return [][]string{{limit}}
	}
	rounds := [][]string{{"-test.skip=" + b.slow, limit}, {"-test.run=" + b.slow}}
	if likely := b.killers.at(place); likely != nil {
		rounds = slices.Insert(rounds, 0, []string{"-test.run=" + exactly(likely), limit})
	}
	return rounds
}

// killers has the quick tests that noticed a mutant, by the place of the mutant.
type killers struct {
	mu    sync.Mutex
	tests map[string][]string
	// alone has, for each test, whether it passes without a fault and without the other tests. If it does not, its
	// failure would prove nothing.
	alone map[string]bool
}

func (k *killers) at(place string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.tests[place])
}

func newKillers() killers { return killers{tests: map[string][]string{}, alone: map[string]bool{}} }

// learn adds the test that noticed a mutant, unless it is slow: a quick one may notice the next mutant too.
func (r *runner) learn(ctx context.Context, b *binary, place, name string) {
	isSlow, err := regexp.MatchString(b.slow, name)
	if isSlow || err != nil || name == "" {
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

// findSlow finds the slow tests of a binary, and checks that the others pass without them and they without the others.
// It repeats that, because a test may take longer if it is the first one to need something.
func (r *runner) findSlow(ctx context.Context, b *binary) error {
	var names []string
	for flags := []string{"-test.v"}; ; flags = []string{"-test.v", "-test.skip=" + b.slow} {
		output, err := r.passes(ctx, b, flags...)
		if err != nil {
			return err
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
	_, err := r.passes(ctx, b, "-test.run="+b.slow)
	return err
}

var (
	failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\w+)`)
	passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \((\d+\.\d+)s\)$`)
)

// firstFailure returns the first test that failed, "" if it was not a test, but a panic or a timeout outside of one.
func firstFailure(output string) string {
	match := failed.FindStringSubmatch(output)
	if match == nil {
		return ""
	}
	return match[1]
}

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
