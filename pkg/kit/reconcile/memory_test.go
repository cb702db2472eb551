package reconcile_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file is about what is remembered from one sync to the next.

// delays plays syncs until a request was sent n+1 times, and returns how long it took from each to the next. The caches
// always have the same.
func delays(t *testing.T, n int, s setting, request string) (waits []time.Duration) {
	t.Helper()
	var last time.Time
	s.now = start
	for range 10 * n {
		c := play(t, s)
		if slices.ContainsFunc(c.steps, func(step *reconcile.Step) bool { return words(step) == request }) {
			if !last.IsZero() {
				waits = append(waits, s.now.Sub(last))
			}
			last = s.now
		}
		if len(waits) == n {
			return waits
		}
		s.now, s.memory = c.endedAt.Add(c.outcome.After), c.memory
	}
	t.Fatalf("%s was sent only %d times", request, len(waits)+1)
	return nil
}

// The random part of a delay is an input: the same input, the same delay.
func TestJitterShortensADelay(t *testing.T) {
	for random, want := range map[float64]time.Duration{
		0: time.Second, 0.25: 950 * time.Millisecond, 0.5: 900 * time.Millisecond,
	} {
		for range 2 {
			s := setting{desk: toCreate(), random: random, replies: []reply{fails("create child", forbidden)}}
			if after := play(t, s).outcome.After; after != want {
				t.Errorf("random %v: a delay of %s, want %s", random, after, want)
			}
		}
	}
}

// What something else keeps undoing is put right three times at once, and then after a delay that doubles, and is
// reported. So is a status that somebody replaces, but there is nowhere to report that.
func TestTheDelayOfRepetitions(t *testing.T) {
	wrote, reported := remembers(nil), remembers(nil)
	wrote.Wrote, reported.Reported = true, "what was reported"
	want := milliseconds(0, 0, 0, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000)
	for request, s := range map[string]setting{
		"create child": {desk: toCreate(), memory: wrote}, "patch child": {desk: toCorrect()},
		"report": {desk: toReport(), memory: reported},
	} {
		t.Run(request, func(t *testing.T) {
			check(t, want, delays(t, len(want), s, request))
			var events []string
			s.now = start
			for n := range 6 {
				c := play(t, s)
				if undone := strings.Contains(c.status, "Undone"); undone != (n >= 3) && request != "report" {
					t.Errorf("time %d: the status is %q", n+1, c.status)
				}
				events = append(events, c.events...)
				s.now, s.memory = c.endedAt.Add(c.outcome.After), c.memory
			}
			corrected := slices.DeleteFunc(events, func(reason string) bool { return reason != "Corrected" })
			if request == "patch child" && len(corrected) != 3 {
				t.Errorf("there are %d events, want one for each of the first three corrections", len(corrected))
			}
		})
	}
}

// What admission changes is reported at once, and written again after a delay. There is no event: the write has not had
// its effect.
func TestWhatAdmissionChanges(t *testing.T) {
	for write, d := range map[string]desk{"create child": toCreate(), "patch child": toCorrect()} {
		c := play(t, setting{desk: d, replies: []reply{finds(write, child("n", "9"))}})
		if c.status != "Ready=False Admission: n is 9" || c.outcome.Kind != reconcile.Wait || c.outcome.After != time.Second ||
			slices.Contains(c.events, "Corrected") {
			t.Errorf("%s: status %q, events %q, outcome %+v", write, c.status, c.events, c.outcome)
		}
		again := play(t, setting{desk: toCorrect(), memory: c.memory, now: start.Add(c.outcome.After)})
		check(t, "get team, patch child; Ready; done", again.line())
		check(t, []string(nil), again.events) // The status has reported it.
	}
}

// A status is overwritten if what was sent is not there.
func TestWhenAStatusIsOverwritten(t *testing.T) {
	reported := play(t, setting{desk: toReport()})
	for _, test := range []struct {
		name string
		edit func(*desk)
		want int // Repetitions.
	}{
		{name: "it is there, and another one is wanted", edit: func(d *desk) { d.Child = child("empty", "yes") }},
		{name: "it is gone", edit: func(d *desk) { d.Team = newTeam() }, want: 1},
		{name: "it is there, and is needed again", want: 1, edit: func(d *desk) {
			d.Team = d.Team.DeepCopy()
			d.Team.Annotations["restless"] = "true"
		}},
	} {
		s := setting{desk: reported.end, memory: reported.memory}
		test.edit(&s.desk)
		c := play(t, s)
		if got := c.memory.Ledger[statusOp].Repeated.Count; got != test.want || c.status == "" {
			t.Errorf("%s: %d repetitions, and the status %q", test.name, got, c.status)
		}
	}
	s := setting{desk: reported.end, memory: reported.memory} // While it is as it was reported, nobody undoes it.
	s.desk.Child = child("empty", "yes")
	s.memory.Ledger = ledger{statusOp: repeated(4, seconds(8))}
	check(t, "nothing; Empty; done", play(t, s).line())
	s.desk.Team = newTeam()
	check(t, "nothing; no report; wait 8s", play(t, s).line())
}

// The first child is no repetition.
func TestTheFirstCreationIsNoRepetition(t *testing.T) {
	if c := play(t, setting{desk: toCreate()}); len(c.memory.Ledger) > 0 || !c.memory.Wrote {
		t.Errorf("it remembers %+v", c.memory)
	}
	afterFailure := setting{desk: toCreate(), memory: remembers(ledger{createOp: failed(0)})}
	check(t, "get child, create child; Ready; done", play(t, afterFailure).line())
	for _, s := range []setting{{desk: toCreateAgain()}, {desk: toCreateAgain(), memory: afterFailure.memory}} {
		if got := play(t, s).memory.Ledger[createOp].Repeated.Count; got != 1 {
			t.Errorf("a creation for an object that had one counts %d, want 1", got)
		}
	}
}

func TestMemoryOf(t *testing.T) {
	memory := func(left time.Duration) reconcile.Memory {
		m := remembers(ledger{patchOp: failed(left), createOp: repeated(1, left), statusOp: conflicted(0)})
		m.Wrote, m.Reported = true, "x"
		return m
	}
	noLedger, faded := memory(0), memory(0)
	noLedger.Ledger, noLedger.Generation = nil, 3
	delete(faded.Ledger, patchOp)
	delete(faded.Ledger, createOp)
	another := func(t *corev1.Namespace) { t.UID = "new" }
	for _, test := range []struct {
		name string
		have reconcile.Memory
		obj  metav1.Object
		want reconcile.Memory
	}{
		{name: "nothing is remembered", obj: newTeam(), want: remembers(nil)},
		{name: "the same object", have: memory(0), obj: newTeam(), want: memory(0)},
		{name: "another generation empties the ledger", have: memory(0), obj: newTeam(ofGeneration(3)), want: noLedger},
		{
			name: "another uid is another object", have: memory(0), obj: newTeam(another),
			want: reconcile.Memory{UID: "new", Generation: 2},
		},
		{name: "a delay that has not ended", have: memory(time.Minute), obj: newTeam(), want: memory(time.Minute)},
		{
			name: "a delay that ended ten minutes ago", have: memory(-10 * time.Minute), obj: newTeam(),
			want: memory(-10 * time.Minute),
		},
		{name: "a delay that ended earlier", have: memory(-10*time.Minute - 1), obj: newTeam(), want: faded},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := maps.Clone(test.have.Ledger)
			got := test.have.Of(test.obj, start)
			check(t, test.want, got)
			if got.Ledger != nil {
				got.Ledger[createOp] = failed(0)
			}
			check(t, before, test.have.Ledger)
		})
	}
}

// A complete sync drops the failures of what is no longer wanted. Deletions and repetitions fade with time only.
func TestWhatACompleteSyncDrops(t *testing.T) {
	paused, reported, unready := toCreate(), toReport(), toDelete()
	paused.Team = newTeam(annotated("paused"))
	reported.Team = newTeam(func(t *corev1.Namespace) { t.Status.Phase = "Ready" })
	unready.Child = child("ready", "")
	for _, test := range []struct {
		name   string
		desk   desk
		ledger ledger
		reply  reply
		want   []reconcile.Op
	}{
		{name: "what is wanted and backs off", desk: toCreate(), ledger: ledger{createOp: failed(1)},
			want: []reconcile.Op{createOp}},
		{name: "a create of what is there", desk: toReport(), ledger: ledger{createOp: failed(1)}},
		{name: "a create of what is there, while something else fails", desk: toUpdate(), ledger: ledger{createOp: failed(1)},
			reply: fails("patch child", forbidden), want: []reconcile.Op{patchOp}},
		{name: "a patch of what does not differ", desk: toReport(), ledger: ledger{patchOp: failed(1)}},
		{name: "what comes after a final rule", desk: paused, ledger: ledger{createOp: failed(1), patchOp: failed(1)}},
		{name: "a status that does not differ", desk: reported, ledger: ledger{statusOp: failed(1)}},
		{name: "a status that backs off", desk: toReport(), ledger: ledger{statusOp: failed(1)},
			want: []reconcile.Op{statusOp}},
		{name: "a deletion that is not wanted now", desk: unready, ledger: ledger{deleteOp: failed(1)},
			want: []reconcile.Op{deleteOp}},
		{name: "a deletion of what is gone", desk: toDelete(), ledger: ledger{deleteOp: failed(0)},
			reply: fails("delete old", apierrors.NewNotFound(configMaps, "old"))},
		{name: "a repetition", desk: toReport(), ledger: ledger{patchOp: repeated(1, 0)}, want: []reconcile.Op{patchOp}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := play(t, setting{desk: test.desk, memory: remembers(test.ledger), replies: []reply{test.reply}})
			check(t, test.want, slices.Collect(maps.Keys(c.memory.Ledger)))
		})
	}
}

// An operation that backs off blocks only itself; until then the status has its failure. One that backs off because of
// a conflict ends the sync: what there is to report is not known before the retry.
func TestWhileAnOperationBacksOff(t *testing.T) {
	both := toCorrect()
	both.Old = old("old")
	for _, test := range []struct {
		name string
		desk desk
		op   reconcile.Op
		want string
	}{
		{name: "a create", desk: toCreateAgain(), op: createOp, want: "nothing; Refused; wait 1s"},
		{name: "a patch", desk: both, op: patchOp, want: deleteOld + "; Refused; wait 1s"},
		{name: "a deletion", desk: both, op: deleteOp, want: "get team, patch child; Refused; wait 1s"},
		{name: "a status", desk: toReport(), op: statusOp, want: "nothing; no report; wait 1s"},
		{name: "what is not wanted", desk: toReport(), op: createOp, want: "nothing; Ready; done"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := setting{desk: test.desk, memory: remembers(ledger{test.op: failed(seconds(1))})}
			c := play(t, s)
			check(t, test.want, c.line())
			if want := "quota"; c.outcome.Kind == reconcile.Wait && !strings.Contains(c.outcome.Err.Error(), want) {
				t.Errorf("the error of the wait is %v", c.outcome.Err)
			}
			s.memory = remembers(ledger{test.op: conflicted(seconds(1))})
			want := reconcile.Outcome{Kind: reconcile.Wait, After: seconds(1), For: reconcile.Backoff}
			if test.name == "what is not wanted" {
				want = reconcile.Outcome{Kind: reconcile.Done}
			}
			if c := play(t, s); c.outcome != want || c.status != "" && want.Kind == reconcile.Wait {
				t.Errorf("after a conflict the outcome is %+v, want %+v, and the status %q", c.outcome, want, c.status)
			}
		})
	}
}

// Of several operations that back off, the retry is that of the first. Of two entries for one operation, the one that
// ends last counts.
func TestTheFirstRetryCounts(t *testing.T) {
	d := toCorrect()
	d.Old = old("old", "older")
	older := deleteOp
	older.Name = "older"
	elsewhere := deleteOp
	elsewhere.Namespace = "other"
	undone := failed(seconds(40))
	undone.Repeated = reconcile.Attempt{Count: 4, Until: start.Add(seconds(50)),
		Report: &reconcile.Problem{Reason: "Undone", Message: "again"}}
	for _, test := range []struct {
		name   string
		ledger ledger
		want   string
	}{
		{
			name: "three operations, and one of another namespace", want: "nothing; Refused; wait 20s",
			ledger: ledger{patchOp: failed(seconds(40)), deleteOp: failed(seconds(30)), older: failed(seconds(20)),
				elsewhere: failed(seconds(1))},
		},
		{
			name: "two entries of one operation", want: "nothing; Refused; wait 50s",
			ledger: ledger{patchOp: undone, deleteOp: failed(seconds(60)), older: failed(seconds(60))},
		},
		{
			name: "a conflict before a step that was refused", want: "nothing; no report; wait 20s",
			ledger: ledger{patchOp: failed(seconds(40)), deleteOp: conflicted(seconds(20)), older: failed(0)},
		},
		{
			name: "a status that backs off because of a conflict ends nothing", want: "nothing; no report; wait 40s",
			ledger: ledger{patchOp: failed(seconds(40)), statusOp: conflicted(seconds(45)), deleteOp: failed(seconds(60)),
				older: failed(seconds(60))},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			check(t, test.want, play(t, setting{desk: d, memory: remembers(test.ledger)}).line())
		})
	}
}

// The status has which operation failed and why; of several, the first one in the order of the rules. Blocked has all.
func TestWhatIsReportedOfFailures(t *testing.T) {
	d := toUpdate()
	d.Old = old("old", "older")
	older := deleteOp
	older.Name = "older"
	s := setting{
		desk: d, memory: remembers(ledger{older: failed(time.Millisecond), statusOp: repeated(4, 0)}),
		replies: []reply{fails("patch child", apierrors.NewBadRequest("no such field")), fails("delete old", tooMany)},
	}
	s.memory.Reported = "something else" // It has been overwritten three times, and is an event all the same.
	c := play(t, s)
	check(t, &reconcile.Problem{
		Reason: "Refused", Failed: true,
		Message: "Cannot patch ConfigMap team/child: refused by the API server: no such field",
		Advice: "Change this Namespace, or ask an administrator of the cluster to change the policy. " +
			reconcile.TriesAgain,
	}, c.sync.First())
	check(t, "patch child, get team, get child, delete old; Refused; retry 1ms", c.line())
	check(t, []string{"Refused"}, c.events)
	for stop, want := range map[bool][]string{
		false: {"patch ConfigMap team/child Refused", "delete ConfigMap team/old RequestFailed",
			"delete ConfigMap team/older Refused"},
		true: {"patch ConfigMap team/child Refused"},
	} {
		var got []string
		for op, problem := range c.sync.Blocked {
			if got = append(got, op.String()+" "+problem.Reason); stop {
				break
			}
		}
		check(t, want, got)
	}
	if problem := c.sync.Undone(patchOp); problem != nil {
		t.Errorf("nobody undoes the patch: %v", problem)
	}
}

// A conflict over one of several deletions is not reported while another one is done.
func TestAConflictOverOneOfSeveralIsNotReported(t *testing.T) {
	s := setting{desk: toDelete(), replies: []reply{fails("delete old", conflict)}}
	s.desk.Old = old("old", "older")
	c := play(t, s)
	s.memory, s.now, s.replies = c.memory, c.endedAt.Add(time.Minute), nil
	c = play(t, s)
	check(t, "get team, get child, delete older; Ready; done", c.line())
	check(t, (*reconcile.Problem)(nil), c.sync.First())
}

// What something else undoes, and is not needed now, is reported in a fixed order.
func TestTheOrderOfWhatIsUndone(t *testing.T) {
	all := ledger{}
	for _, name := range []string{"c", "a", "d", "b"} {
		all[reconcile.Op{Name: name}] = reconcile.Entry{Repeated: reconcile.Attempt{
			Until: start.Add(seconds(1)), Report: &reconcile.Problem{Message: name},
		}}
	}
	in := toReport()
	sync := desks.Sync(&in)
	sync.Begin(remembers(all), start, 0)
	for range 100 { // The order of a map is another one each time.
		if first := sync.First().Message; first != "a" {
			t.Fatalf("the first is %q", first)
		}
	}
}
