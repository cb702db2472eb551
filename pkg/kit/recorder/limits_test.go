package recorder

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// allowed returns how many of n calls for a namespace are allowed.
func allowed(limits *Limits, namespace string, n int) int {
	count := 0
	for range n {
		if limits.Allow(namespace) {
			count++
		}
	}
	return count
}

func TestANamespaceHasABurstAndARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewLimits()
		if n := allowed(limits, "a", 100); n != 30 {
			t.Errorf("%d at once, want 30", n)
		}
		time.Sleep(10 * time.Second)
		if n := allowed(limits, "a", 100); n != 10 {
			t.Errorf("%d after 10 s, want 10", n)
		}
		time.Sleep(time.Hour)
		if n := allowed(limits, "a", 100); n != 30 {
			t.Errorf("%d after an hour, want 30", n)
		}
	})
}

// A namespace that has used up its own tokens takes none of those that all share.
func TestANamespaceDoesNotTakeWhatOthersNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := NewLimits()
		allowed(limits, "greedy", 10_000)
		if n := allowed(limits, "b", 100); n != 20 {
			t.Errorf("another namespace: %d, want the 20 that are left of 50", n)
		}
		for second := range 100 {
			time.Sleep(time.Second)
			allowed(limits, "greedy", 1000)
			if n := allowed(limits, fmt.Sprint("quiet-", second), 1); n != 1 {
				t.Fatalf("second %d: a quiet namespace is refused", second)
			}
		}
	})
}

func TestAllNamespacesTogetherAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, count := NewLimits(), 0
		for second := range 60 {
			for i := range 200 {
				count += allowed(limits, fmt.Sprint("ns-", second, "-", i), 1)
			}
			time.Sleep(time.Second)
		}
		if count != 60*total {
			t.Errorf("%d in a minute, want %d", count, 60*total)
		}
	})
}

// New namespaces without end: what is remembered has a limit.
func TestNamespacesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, greedy, seconds := NewLimits(), 0, 0
		for i := range 10 * maxBuckets {
			greedy += allowed(limits, "greedy", 1)
			limits.Allow(fmt.Sprint("ns-", i))
			if i%total == 0 {
				time.Sleep(time.Second)
				seconds++
			}
			if len(limits.buckets) > maxBuckets {
				t.Fatalf("%d buckets", len(limits.buckets))
			}
		}
		if most := burst + seconds; greedy > most {
			t.Errorf("%d for the namespace that never pauses, want at most %d: its bucket must not be dropped", greedy, most)
		}
	})
}
