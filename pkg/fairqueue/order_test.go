package fairqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// takeAll returns the queued keys in the order in which one worker gets them.
func takeAll(q *Queue[string]) (keys []string) {
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
		keys = append(keys, key)
	}
	return keys
}

func mustTake(t *testing.T, q *Queue[string], want string) {
	t.Helper()
	if got := strings.Join(takeAll(q), " "); got != want {
		t.Errorf("handed out %s, want %s", got, want)
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	q := newQueue(1)
	for _, key := range strings.Fields("a/1 a/2 a/3 b/1 b/2 c/1 c/2 c/3") {
		q.AddAs(key, Change)
	}
	mustTake(t, q, "a/1 b/1 c/1 a/2 b/2 c/2 a/3 c/3")
}

func TestANewKeyIsNextEvenIfAnotherNamespaceHasThousands(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 16} {
		for _, class := range []Class{Change, Initial} {
			q := newQueue(workers)
			for i := range 10_000 {
				q.AddAs(fmt.Sprint("a/", i), Change)
			}
			for range 100 {
				key, _ := q.Get()
				q.Done(key)
				q.AddAs("b/1", class)
				mustGet(t, q, "b/1")
				q.Done("b/1")
			}
			// It is next also if the worker is in the middle of something else when it is added.
			key, _ := q.Get()
			q.AddAs("b/1", class)
			q.Done(key)
			mustGet(t, q, "b/1")
		}
	}
}

// Each of the keys is new in the round when it is added. Their namespaces must not be before a every time.
func TestNamespacesThatComeBackDoNotStarveOthers(t *testing.T) {
	for others := range 4 {
		q := newQueue(1)
		for i := range 100 {
			q.AddAs(fmt.Sprint("a/", i), Change)
		}
		last := 0
		for i := range 100 {
			for other := range others + 1 {
				q.AddAs(fmt.Sprint("b", other, "/1"), Change)
			}
			key, _ := q.Get()
			q.Done(key)
			if keyNamespace(key) == "a" {
				last = i
			}
			if i-last > others+1 {
				t.Fatalf("after %d keys of %d other namespaces it is still not the turn of a", i-last, others+1)
			}
		}
	}
}

func TestChangesAreBeforeRetriesBeforeTheInitialList(t *testing.T) {
	q := newQueue(1)
	for class, key := range map[Class]string{Initial: "a/initial", Failed: "a/failed", Change: "a/change"} {
		q.AddAs(key, class)
	}
	q.Add("a/retry") // The class of Add, unless the Config has another.
	q.AddAs("a/change2", Change)
	keys := takeAll(q)
	slices.Sort(keys[2:4])
	if got := strings.Join(keys, " "); got != "a/change a/change2 a/failed a/retry a/initial" {
		t.Errorf("handed out %s", got)
	}
}

func TestTheClassOfAddIsThatOfTheConfig(t *testing.T) {
	q := New(Config[string]{Namespace: keyNamespace, Class: func(key string) Class {
		return map[string]Class{"a/change": Change, "a/retry": Retry, "a/initial": Initial}[key]
	}})
	for _, key := range []string{"a/initial", "a/retry", "a/change"} {
		q.Add(key)
	}
	mustTake(t, q, "a/change a/retry a/initial")
}

// A class is a head start of some seconds, no more.
func TestAKeyThatHasWaitedIsBeforeANewChange(t *testing.T) {
	for class, handicap := range map[Class]time.Duration{Retry: 5 * time.Second, Initial: 30 * time.Second} {
		for _, test := range []struct {
			waited time.Duration
			want   string
		}{
			{waited: handicap, want: "a/old a/new"},
			{waited: handicap - 1, want: "a/new a/old"},
		} {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(1)
				q.AddAs("a/old", class)
				time.Sleep(test.waited)
				q.AddAs("a/new", Change)
				mustTake(t, q, test.want)
			})
		}
	}
}

func TestNothingWaitsForEverBehindChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		q.AddAs("a/initial", Initial)
		start := time.Now()
		for i := 0; ; i++ { // Twice as many changes as there is time for.
			q.AddAs(fmt.Sprint("a/", i), Change)
			q.AddAs(fmt.Sprint("a/more", i), Change)
			key, _ := q.Get()
			time.Sleep(100 * time.Millisecond)
			q.Done(key)
			if key == "a/initial" {
				break
			}
			if time.Since(start) > 2*time.Minute {
				t.Fatal("a key of the initial list waits for ever")
			}
		}
	})
}

func TestAKeyThatIsAddedAgainMovesUpAndNeverDown(t *testing.T) {
	tests := []struct {
		name          string
		first, second Class
		want          string
	}{
		{name: "up", first: Initial, second: Change, want: "a/change a/key a/retry a/initial"},
		{name: "up, but not before a change", first: Initial, second: Retry, want: "a/change a/retry a/key a/initial"},
		{name: "not down", first: Change, second: Initial, want: "a/key a/change a/retry a/initial"},
		{name: "not back", first: Change, second: Change, want: "a/key a/change a/retry a/initial"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(1)
				for _, class := range []Class{test.first, test.second} {
					q.AddAs("a/key", class)
					if class == test.first {
						q.AddAs("a/change", Change)
						q.AddAs("a/retry", Retry)
						q.AddAs("a/initial", Initial)
						time.Sleep(time.Second)
					}
				}
				mustTake(t, q, test.want)
			})
		})
	}
}

func TestAKeyThatIsAddedWhileInHandIsQueuedInItsBestClass(t *testing.T) {
	for _, classes := range [][]Class{{Initial, Change}, {Change, Initial}, {Retry, Change, Initial}, {Failed, Change}} {
		q := newQueue(2)
		q.AddAs("a/key", Change)
		mustGet(t, q, "a/key")
		q.AddAs("a/retry", Retry)
		for _, class := range classes {
			q.AddAs("a/key", class)
		}
		q.Done("a/key")
		mustTake(t, q, "a/key a/retry")

		// That class is used up.
		q.AddAs("a/key", Initial)
		q.AddAs("a/retry", Retry)
		mustTake(t, q, "a/retry a/key")
	}
}
