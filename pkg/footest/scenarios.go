package footest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// RunScenarios plays the files that match pattern, and compares what happens with their outputs. With rewrite it
// writes the outputs into the files instead.
//
// A scenario also fails, whatever its output is, when after a block one more sync of every Foo sends anything, when a
// sync changes a cached object or panics, when a write lacks what it must carry, and when it makes a difference
// whether the event of a write comes before its answer or after it.
func RunScenarios(t *testing.T, pattern string, newSubject NewSubject, rewrite bool) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	WithoutErrorDelays(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) { runScenario(t, file, newSubject, rewrite) })
	}
}

func runScenario(t *testing.T, file string, newSubject NewSubject, rewrite bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, problems := playInBubble(t, string(text), player{newSubject: newSubject})
	eventsFirst, moreProblems := playInBubble(t, string(text), player{newSubject: newSubject, eventsFirst: true})
	if len(problems) == 0 {
		problems = moreProblems
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	compareBlocks(t, "events come before answers", withoutDelays(got), withoutDelays(eventsFirst))
	if !rewrite {
		compareBlocks(t, "it is played", string(text), got)
		return
	}
	if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compareBlocks compares two forms of a scenario, block by block.
func compareBlocks(t *testing.T, when, want, got string) {
	t.Helper()
	wanted, gotten := blocksOf(want), blocksOf(got)
	for i := range wanted {
		if wanted[i] != gotten[i] {
			t.Errorf("when %s, block %d is\n%s\n\nwant\n%s\n", when, i+1, gotten[i], wanted[i])
		}
	}
}

// blocksOf returns the blocks of a scenario: empty lines separate them.
func blocksOf(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

// WithoutErrorDelays removes, for this test, the handlers of errors that delay the caller by the real clock: in a
// bubble their delay would be the age of the bubble's clock, many years.
func WithoutErrorDelays(t *testing.T) {
	all := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = all[:1]
	t.Cleanup(func() { utilruntime.ErrorHandlers = all })
}

// withoutDelays returns a scenario without the lines about delays.
func withoutDelays(text string) string { return delayLines.ReplaceAllString(text, "") }

var delayLines = regexp.MustCompile(`\n(.* waits for the caches|.* is tried again within .*|nothing)\b`)

// A player plays scenarios in one way.
type player struct {
	newSubject NewSubject
	// eventsFirst has a controller's caches see what it writes before it gets the answer. Both orders happen.
	eventsFirst bool
	// onRequest, unless nil, sees each request before it is served.
	onRequest func(*env, *request)
}

// playInBubble plays a scenario in virtual time. It returns the text with the outputs that the controller produced,
// and the problems that it found.
func playInBubble(t *testing.T, text string, how player) (played string, problems []string) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t.Context(), how)
		defer e.stop()
		played, problems = e.play(text), e.problems
	})
	return played, problems
}
