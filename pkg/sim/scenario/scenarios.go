package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// Play plays the files that match pattern and compares the results with the outputs in the files. With rewrite it
// writes the results into the files instead.
//
// In addition to a wrong output, each of these fails a scenario:
//
//   - One more sync of every object after a block sends a request or an event.
//   - A sync changes a cached object, or panics.
//   - A write lacks a precondition or the field manager.
//   - The result depends on whether the watch event of a write comes before or after the answer to the write.
func Play(t *testing.T, kind Kind, pattern string, rewrite bool) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playFile(t, &kind, file, rewrite)
		})
	}
}

func playFile(t *testing.T, kind *Kind, file string, rewrite bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, problems := playInBubble(t, string(text), player{kind: kind})
	eventsFirst, moreProblems := playInBubble(t, string(text), player{kind: kind, eventsFirst: true})
	if len(problems) == 0 {
		problems = moreProblems
	}
	problems = append(problems,
		compareBlocks("events come before answers", withoutDelays(got), withoutDelays(eventsFirst))...)
	if !rewrite {
		problems = append(problems, compareBlocks("events come after answers", string(text), got)...)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	if !rewrite {
		return
	}
	if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compareBlocks returns the differences of two versions of a scenario, block by block.
func compareBlocks(when, want, got string) (differences []string) {
	wantBlocks, gotBlocks := blocksOf(want), blocksOf(got)
	for i := range wantBlocks {
		if wantBlocks[i] != gotBlocks[i] {
			differences = append(differences,
				fmt.Sprintf("when %s, block %d is\n%s\n\nwant\n%s\n", when, i+1, gotBlocks[i], wantBlocks[i]))
		}
	}
	return differences
}

// blocksOf returns the blocks of a scenario: empty lines separate them.
func blocksOf(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

// withoutDelays returns a scenario without the lines about delays.
func withoutDelays(text string) string { return delayLines.ReplaceAllString(text, "") }

var delayLines = regexp.MustCompile(`\n(.* waits for the caches|.* is tried again within .*|nothing)\b`)

// A player plays scenarios in one way.
type player struct {
	kind *Kind
	// eventsFirst makes the caches of a controller see its write before it gets the answer. Real clusters have both
	// orders.
	eventsFirst bool
	// onRequest, unless nil, is called with each request before it is served.
	onRequest func(*Env, *request)
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
