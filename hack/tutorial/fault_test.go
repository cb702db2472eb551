package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// allFaults makes TestEachFaultTurnsItsScenarioRed plant all faults. Each of them needs a build.
var allFaults = flag.Bool("faults", false, "plant all faults of step 9, which takes minutes")

// lessonsOf returns the lessons of step 9.
func lessonsOf(t *testing.T) []lesson {
	t.Helper()
	lessons, err := readLessons(root)
	if err != nil || len(lessons) < 20 {
		t.Fatalf("%d lessons, want at least 20: %v", len(lessons), err)
	}
	return lessons
}

func TestEachLessonHasAFaultThatFits(t *testing.T) {
	for _, l := range lessonsOf(t) {
		if _, err := overlay(root, t.TempDir(), l.fault); err != nil {
			t.Errorf("fault %s: %v", l.number, err)
		}
		if _, err := os.Stat(filepath.Join(root, "docs/scenarios", l.scenario+".txt")); err != nil {
			t.Errorf("fault %s: %v", l.number, err)
		}
	}
}

// TestEachFaultTurnsItsScenarioRed plants the faults of step 9. Its play plants one of them; with -faults it is all.
func TestEachFaultTurnsItsScenarioRed(t *testing.T) {
	if !*allFaults {
		t.Skip("takes minutes; run with -faults")
	}
	for _, l := range lessonsOf(t) {
		t.Run(l.number, func(t *testing.T) {
			if err := plant(t.Context(), root, l.number, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheFirstDifferenceIsShown(t *testing.T) {
	const output = `--- FAIL: TestScenarios (0.10s)
    --- FAIL: TestScenarios/quiet (0.10s)
        scenarios.go:48: when events come before answers, block 1 is
            foo web
            ----
            first
            
            want
            foo web
            ----
            second
        scenarios.go:51: when events come after answers, block 7 is
            # A comment.
            foo web deployment=web-1
            ----
            get foo web
            create deployment web-1
            
            want
            # A comment.
            foo web deployment=web-1
            ----
            get foo web
            status web Ready=False
            status web Ready=False
        scenarios.go:51: when events come after answers, block 8 is
            not shown
FAIL
`
	const want = `    foo web deployment=web-1
    ----
    get foo web
  - status web Ready=False
  - status web Ready=False
  + create deployment web-1
`
	if have := firstDifference(output); have != want {
		t.Errorf("have\n%swant\n%s", have, want)
	}
	if have := firstDifference("panic: all is lost\n"); !strings.Contains(have, "see the test's output") {
		t.Errorf("without a difference: %q", have)
	}
}
