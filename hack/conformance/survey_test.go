package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	survey     = flag.Int("survey", 0, "play the sequences up to this one, and count the first differences")
	surveyFrom = flag.Int("survey-from", 0, "the first sequence of -survey")
)

// TestSurvey is for work on apiserver. It does not stop at the first difference, and does not shorten sequences.
func TestSurvey(t *testing.T) {
	if *survey == 0 {
		t.Skip("only with -survey")
	}
	want := againstRealServer(t)
	seen, examples := map[string]int{}, map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for shard := range shards {
		wg.Go(func() {
			for i := *surveyFrom + shard; i < *survey; i += shards {
				different, err := playBoth(t.Context(), want, simulated(), sequences.Example(i), newTally())
				if err != nil {
					t.Error(err)
					return
				}
				look := signatureOf(different)
				different = fmt.Sprintf("%s\t(sequence %d)\n", different, i)
				mu.Lock()
				seen[look]++
				if old, ok := examples[look]; !ok || len(different) < len(old) {
					examples[look] = different
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	often := func(a, b string) int { return cmp.Compare(seen[b], seen[a]) }
	for _, look := range slices.SortedFunc(maps.Keys(seen), often) {
		t.Logf("%d times %s\n%s", seen[look], look, examples[look])
	}
}

var particular = regexp.MustCompile(`/[abc]\b|\[\d+\]|\d+|[<"][^ ]*[>"]|\?[^ ]*`)

// signatureOf shortens a difference to the part that it may have in common with others.
func signatureOf(different string) string {
	lines := strings.SplitN(different, "\n", 3)
	if len(lines) < 2 {
		return "the same"
	}
	method, _, _ := strings.Cut(lines[0], "{")
	value, _, _ := strings.Cut(lines[1], ":")
	return particular.ReplaceAllString(method[:min(len(method), 60)], "") + " " + particular.ReplaceAllString(value, "")
}
