package fairqueue

import (
	"cmp"
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

// A key that is queued may become that of another object, in another namespace.
func TestAKeyMovesToItsNamespace(t *testing.T) {
	moved := map[string]string{}
	q := New(Config[string]{Workers: 1, Namespace: func(key string) string {
		return cmp.Or(moved[key], keyNamespace(key))
	}})
	for _, key := range strings.Fields("a/1 a/2 a/3 b/1 c/1") {
		q.Add(key)
	}
	moved["a/3"], moved["b/1"] = "d", "a"
	q.Add("a/3")
	q.Add("b/1")
	mustTake(t, q, "a/1 c/1 a/3 a/2 b/1")
	if s := q.schedule; len(s.namespaces) > 0 || len(s.items) > 0 {
		t.Errorf("%d namespaces and %d keys are kept", len(s.namespaces), len(s.items))
	}
}

func TestANewKeyIsNextEvenIfAnotherNamespaceHasThousands(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 16} {
		for _, classes := range [][2]Class{{Change, Change}, {Initial, Change}, {Initial, Initial}} {
			q, class := newQueue(workers), classes[1]
			for i := range 10_000 {
				q.AddAs(fmt.Sprint("a/", i), classes[0])
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

// A change has a head start of some seconds over a retry, no more.
func TestARetryThatHasWaitedIsBeforeANewChange(t *testing.T) {
	const handicap = 5 * time.Second
	for _, test := range []struct {
		waited time.Duration
		want   string
	}{
		{waited: handicap, want: "a/old a/new"},
		{waited: handicap - 1, want: "a/new a/old"},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(1)
			q.AddAs("a/old", Retry)
			time.Sleep(test.waited)
			q.AddAs("a/new", Change)
			mustTake(t, q, test.want)
		})
	}
}

// However many namespaces wait for their first sync, a change is next: of one of them, and of another one.
func TestAChangeIsNextAtAStartWithManyNamespaces(t *testing.T) {
	for _, workers := range []int{1, 2, 16} {
		for _, changed := range []string{"other/1", "500/3", "0/new"} {
			q := newQueue(workers)
			for i := range 10_000 {
				q.AddAs(fmt.Sprint(i%1000, "/", i/1000), Initial)
			}
			for range 1500 {
				key, _ := q.Get()
				q.Done(key)
			}
			q.AddAs(changed, Change)
			mustGet(t, q, changed)
		}
	}
}

// The initial list has one key in eight, be the others of the same namespace or not.
func TestTheInitialListGoesOnWhileChangesNeverEnd(t *testing.T) {
	for _, namespace := range []string{"a", "b"} {
		q := newQueue(1)
		for i := range 10 {
			q.AddAs(fmt.Sprint("a/initial", i), Initial)
		}
		var handedOut []string
		for i := range 80 {
			q.AddAs(fmt.Sprint(namespace, "/", 2*i), Change)
			q.AddAs(fmt.Sprint(namespace, "/", 2*i+1), Retry)
			key, _ := q.Get()
			q.Done(key)
			if strings.HasPrefix(key, "a/initial") {
				handedOut = append(handedOut, fmt.Sprint(i+1, ":", key))
			}
		}
		want := "8:a/initial0 16:a/initial1 24:a/initial2 32:a/initial3 40:a/initial4 48:a/initial5 56:a/initial6 " +
			"64:a/initial7 72:a/initial8 80:a/initial9"
		if got := strings.Join(handedOut, " "); got != want {
			t.Errorf("handed out %s, want %s", got, want)
		}
	}
}

// A namespace that is at its limit keeps its turn. Otherwise eight busy namespaces would be before its change each time
// when it is below its limit again, and so would a key of its initial list, which has one place in eight.
func TestAChangeDoesNotWaitForTheInitialListOfItsNamespace(t *testing.T) {
	for _, busy := range []int{2, 7, 8, 20} {
		q := newQueue(2) // So the limit is one.
		addMany(q, "a", 100, Initial)
		addBusy := func() {
			for i := range busy {
				q.AddAs(fmt.Sprint("b", i, "/1"), Change)
			}
		}
		held, _ := q.Get()
		q.AddAs("a/change", Change)
		initial := 0
		for held != "a/change" {
			addBusy()
			for range 5*busy + 1 { // While a key of a is in hand, each of the others is served five times.
				key, _ := q.Get()
				q.Done(key)
				addBusy()
			}
			q.Done(held)
			for held = ""; keyNamespace(held) != "a"; {
				addBusy()
				if held, _ = q.Get(); keyNamespace(held) != "a" {
					q.Done(held)
				}
			}
			if held != "a/change" {
				initial++
			}
		}
		if initial > 1 {
			t.Errorf("%d busy namespaces: %d keys of the initial list were before the change", busy, initial)
		}
	}
}

// Namespaces that have only keys of the initial list are no newcomers of the other turns.
func TestTheInitialListUsesUpNoNewcomers(t *testing.T) {
	q := newQueue(1)
	q.AddAs("old/1", Change)
	q.AddAs("old/2", Change)
	mustGet(t, q, "old/1")
	q.Done("old/1")
	for i := range newcomersInARound {
		q.AddAs(fmt.Sprint("new", i, "/1"), Initial)
	}
	q.AddAs("other/1", Change)
	mustGet(t, q, "other/1")
}

// Each new namespace is before a, which has been served in this round. At some point it is the turn of a all the same.
func TestNewNamespacesThatNeverEndDoNotStarveAnOldOne(t *testing.T) {
	q := newQueue(1)
	for i := range 10 {
		q.AddAs(fmt.Sprint("a/", i), Change)
	}
	last := 0
	for i := range 5 * newcomersInARound {
		q.AddAs(fmt.Sprint("new", i, "/1"), Change)
		key, _ := q.Get()
		q.Done(key)
		if keyNamespace(key) == "a" {
			last = i
		}
		if i-last > newcomersInARound+10 { // In each round, one more has been left over from the last one.
			t.Fatalf("after the keys of %d new namespaces it is still not the turn of a", i-last)
		}
	}
}

func TestAKeyThatIsAddedAgainMovesUpAndNeverDown(t *testing.T) {
	tests := []struct {
		name          string
		first, second Class
		want          string
	}{
		{name: "up", first: Initial, second: Change, want: "a/key a/change a/retry a/initial"},
		{name: "up from a retry", first: Retry, second: Change, want: "a/change a/key a/retry a/initial"},
		{name: "up, as if it were a change", first: Initial, second: Retry, want: "a/key a/change a/retry a/initial"},
		{name: "a retry keeps its place", first: Failed, second: Retry, want: "a/change a/key a/retry a/initial"},
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
