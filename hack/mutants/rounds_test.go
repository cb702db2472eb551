package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests that noticed mutants of the same place come first, the slow tests come last.
func TestRounds(t *testing.T) {
	b := newBinary("p", "p.test")
	check := func(name, place string, timeout time.Duration, want ...[]string) {
		t.Helper()
		if diff := cmp.Diff(want, b.rounds(place, timeout)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	const limit = "-test.timeout=20s"
	check("without slow tests there is one round", "p.go:7", time.Minute, []string{limit})
	b.slow = exactly([]string{"TestS", "TestT"})
	quick, slow := []string{"-test.skip=^(TestS|TestT)$", limit}, []string{"-test.run=^(TestS|TestT)$"}
	check("no mutant was noticed yet", "p.go:7", time.Minute, quick, slow)
	b.killers.tests["p.go:7"] = []string{"TestA", "TestB"}
	check("two tests have noticed some", "p.go:7", time.Minute, []string{"-test.run=^(TestA|TestB)$", limit}, quick, slow)
	check("at another place", "p.go:8", time.Minute, quick, slow)
	quick[1] = "-test.timeout=5s"
	check("with a short timeout", "p.go:8", 5*time.Second, quick, slow)
}

func TestSlowTests(t *testing.T) {
	const output = "=== RUN   TestA\n--- PASS: TestA (0.09s)\n--- PASS: TestB (0.10s)\n    --- PASS: TestB/c (0.10s)\n" +
		"--- PASS: ExampleC (12.00s)\nPASS\n"
	if diff := cmp.Diff([]string{"TestB", "ExampleC"}, slowTests(output)); diff != "" {
		t.Errorf("slow tests (-want +got):\n%s", diff)
	}
}

func TestFirstFailure(t *testing.T) {
	for _, test := range []struct{ name, output, want string }{
		{"the row of a table", "--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/a_row (0.00s)\nFAIL\n", "TestA"},
		{"the first of several", "--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\n", "TestA"},
		{"a panic in no test", "panic: boom\n\ngoroutine 1:\nFAIL\tp\n", ""},
	} {
		if got := firstFailure(test.output); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
