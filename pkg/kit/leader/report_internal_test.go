package leader

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// newLog returns a logger, and a function that returns the messages since its last call. The function waits until
// nothing runs: a gate opens before the line about it is logged.
func newLog() (klog.Logger, func() []string) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	buffer := logger.GetSink().(ktesting.Underlier).GetBuffer()
	seen := 0
	return logger, func() []string {
		synctest.Wait()
		var messages []string
		for _, entry := range buffer.Data()[seen:] {
			messages = append(messages, entry.Message)
		}
		seen = len(buffer.Data())
		return messages
	}
}

func expectLog(t *testing.T, when string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: log (-want +got):\n%s", when, diff)
	}
}

func TestOneLineIsLoggedForEachChangeOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		logger, log := newLog()
		a := start(t, s, "a", defaultSettings)
		within(t, a.leading)
		b := startWith(t, newProcess(s, "b"), defaultSettings, logger, func() {})
		time.Sleep(time.Hour)
		expectLog(t, "while it stands by", log(), []string{"Standing by"})
		finish(a)
		within(t, b.leading)
		time.Sleep(time.Hour)
		expectLog(t, "while it leads", log(), []string{"Became leader"})
		finish(b)
		expectLog(t, "at the end", log(), []string{"Released the Lease"})
	})
}

const created = "Created the Lease, waiting for its duration before taking it"

// The failures that led to a loss are in the log too.
func TestALeaderThatCannotRenewLogsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		logger, log := newLog()
		a := startWith(t, newProcess(s, "a"), defaultSettings, logger, func() {})
		within(t, a.leading)
		a.begin(&fault{kind: refused}) // Reads and writes fail in turn.
		within(t, a.ended)
		want := []string{"Became leader", "Leader election failed, trying again", "Lost the leadership"}
		expectLog(t, "of a leader without a network", log(), want)
	})
}

func TestALeaderWhoseLeaseWasTakenLogsNoOtherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		logger, log := newLog()
		a := startWith(t, newProcess(s, "a"), defaultSettings, logger, func() {})
		within(t, a.leading)
		time.Sleep(time.Minute + time.Second)
		editLease(t, s, func(l *coordinationv1.Lease, _ string) { l.Spec.HolderIdentity = new("b") }, "")
		within(t, a.ended)
		expectLog(t, "of a leader that ends", log(), []string{"Became leader", "Lost the leadership"})
	})
}

func TestFailuresAreLoggedAtOnceAndThenEvery30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		forbidden := newSwitch(true)
		forbidLeases(s, forbidden)
		logger, log := newLog()
		a := startWith(t, newProcess(s, "a"), defaultSettings, logger, func() {})
		synctest.Wait()
		expectLog(t, "at once", log(), []string{"Leader election failed, trying again"})
		time.Sleep(29 * time.Second)
		expectLog(t, "after 29 s", log(), nil)
		time.Sleep(6 * time.Second)
		expectLog(t, "after 35 s", log(), []string{"Leader election failed, trying again"})
		forbidden.Store(false)
		within(t, a.leading)
		expectLog(t, "when it is over", log(), []string{"The Lease is available again", "Became leader"})
		finish(a)
	})
}

func TestAFailureToWriteIsNotOverWhenTheLeaseCanBeRead(t *testing.T) {
	for _, missing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			if missing {
				editLease(t, s, nil, "")
			}
			forbidden := newSwitch(true)
			forbidLeases(s, forbidden, "update", "create")
			logger, log := newLog()
			a := startWith(t, newProcess(s, "a"), defaultSettings, logger, func() {})
			time.Sleep(29 * time.Second)
			expectLog(t, "after 29 s", log(), []string{"Leader election failed, trying again"})
			time.Sleep(6 * time.Second)
			expectLog(t, "after 35 s", log(), []string{"Leader election failed, trying again"})
			forbidden.Store(false)
			within(t, a.leading)
			want := []string{"The Lease is available again", "Became leader"}
			if missing {
				want = slices.Insert(want, 1, created)
			}
			expectLog(t, "when it is over", log(), want)
			finish(a)
		})
	}
}

// The Lease then expires, so an error of the release is no error of the stop.
func TestAReleaseThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		logger, log := newLog()
		a := startWith(t, newProcess(s, "a"), defaultSettings, logger, func() {})
		within(t, a.leading)
		time.Sleep(time.Minute)
		log()
		a.begin(&fault{kind: cut})
		began := time.Now()
		a.stop()
		if err := within(t, a.ended); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		if took := time.Since(began); took > defaultSettings.RenewDeadline/2 {
			t.Errorf("the process has waited %v for the release", took)
		}
		expectLog(t, "at the end", log(), []string{"Did not release the Lease, others wait until it has expired"})
	})
}

// Taking a Lease is a race, and to lose it is no failure.
func TestConflictsAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Leases())
		logger, log := newLog()
		var members []*member
		for _, user := range []string{"a", "b", "c"} {
			members = append(members, startWith(t, newProcess(s, user), defaultSettings, logger, func() {}))
		}
		time.Sleep(time.Minute)
		expectLog(t, "of three processes", log(), []string{created, "Became leader", "Standing by", "Standing by"})
		finish(members...)
	})
}
