package serving

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// state returns the reason why the check of b fails, or "ok".
func state(b *Busy) string {
	if err := b.Check("workers").Do(); err != nil {
		return err.Error()
	}
	return "ok"
}

func TestBusyReportsTheKeyThatTakesLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBusy(time.Minute)
		got := []string{state(b)}
		after := func(d time.Duration) {
			time.Sleep(d) // Virtual time.
			got = append(got, state(b))
		}

		web := b.Start("default/web")
		after(time.Second)
		db := b.Start("default/db")
		after(59 * time.Second)
		after(time.Nanosecond)
		after(1500 * time.Millisecond)
		web()
		web() // Without effect: nothing else is finished by it.
		after(0)
		db()
		after(time.Hour)
		want := []string{
			"ok", "ok",
			"ok", // In work for exactly the budget.
			"a worker is busy with default/web for 1m0s; 1 above the limit of 1m0s",
			"a worker is busy with default/web for 1m1s; 2 above the limit of 1m0s",
			"a worker is busy with default/db for 1m0s; 1 above the limit of 1m0s",
			"ok",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("wrong reasons (-want +got):\n%s", diff)
		}
	})
}

func TestBusyDistinguishesTwoWorkersWithEqualKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBusy(time.Minute)
		b.Start("default/web")
		second := b.Start("default/web")
		time.Sleep(2 * time.Minute)
		second()
		if got, want := state(b), "a worker is busy with default/web for 2m0s; 1 above the limit of 1m0s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Under the race detector, this finds an access without the lock.
func TestBusyForgetsKeysThatManyWorkersFinish(t *testing.T) {
	b := NewBusy(time.Hour)
	check := b.Check("workers")
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for i := range 100 {
				done := b.Start(strconv.Itoa(worker) + "/" + strconv.Itoa(i))
				if err := check.Do(); err != nil {
					t.Error(err)
				}
				done()
			}
		})
	}
	workers.Wait()
	if len(b.turns) != 0 {
		t.Errorf("%d keys are remembered", len(b.turns))
	}
}
