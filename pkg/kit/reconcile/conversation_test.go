package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// deleteOld is what is sent for a deletion.
const deleteOld = "get team, get child, delete old"

// The rules are read from top to bottom, and those behind a final one do not count.
func TestTheOrderOfTheRules(t *testing.T) {
	paused, broken := toCorrect(), toCorrect()
	paused.Team = newTeam(annotated("paused"), annotated("broken"))
	broken.Team = newTeam(annotated("broken"))
	createFirst := toCreate()
	createFirst.Old = old("old")
	both, deleted := toCorrect(), toCorrect()
	both.Old = old("old", "older")
	deleted.Team = newTeam(ending)
	for _, test := range []struct {
		name   string
		desk   desk
		memory reconcile.Memory
		want   string
	}{
		{name: "a final rule", desk: paused, want: "nothing; Ready; done"},
		{name: "a final rule that is terminal", desk: broken, want: "nothing; Ready; terminal"},
		{name: "a final rule that sends something", desk: createFirst, want: "create child; Ready; done"},
		{name: "an object that is being deleted", desk: deleted, want: "get team, patch child; Ready; done"},
		{name: "nothing is final", desk: both, want: "get team, patch child, " + deleteOld + "; Ready; done"},
		{
			name: "a step that backs off is skipped", desk: both, memory: remembers(ledger{patchOp: failed(1)}),
			want: deleteOld + "; Refused; wait 1ns",
		},
		{
			name: "a rule is final although its step backs off", desk: createFirst,
			memory: remembers(ledger{createOp: failed(1)}), want: "nothing; Refused; wait 1ns",
		},
		{
			name: "of steps of which only one is sent, one that was refused comes last", desk: both,
			memory: remembers(ledger{deleteOp: failed(seconds(1))}),
			want:   "get team, patch child, get team, get child, delete older; Refused; wait 1s",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := play(t, setting{desk: test.desk, memory: test.memory})
			if check(t, test.want, c.line()); c.outcome.Kind == reconcile.Wait && c.outcome.Err == nil {
				t.Error("it is not known what it waits for")
			}
		})
	}
}

// What follows is about live reads: which steps need them, and what follows from the answers.

// The object may be gone by now, another one of its name, or have changed.
func TestWhatALiveReadOfTheObjectFinds(t *testing.T) {
	wrote := remembers(nil)
	wrote.Wrote = true
	for _, test := range []struct {
		name   string
		desk   desk
		memory reconcile.Memory
		want   string
	}{
		{name: "before another create", desk: toCreateAgain(), want: "get team, create child; Ready; done"},
		{
			name: "before a create after a write", desk: toCreate(), memory: wrote,
			want: "get team, create child; Ready; done",
		},
		{name: "before a correction", desk: toCorrect(), want: "get team, patch child; Ready; done"},
		{name: "before a deletion", desk: toDelete(), want: deleteOld + "; Ready; done"},
		{
			name: "before a status that has failed", desk: toReport(), memory: remembers(ledger{statusOp: failed(0)}),
			want: "get team; Ready; done",
		},
	} {
		for _, found := range []struct {
			name   string
			team   metav1.Object
			isSame bool
		}{
			{name: "the same", team: newTeam(), isSame: true},
			{name: "a newer version", team: newTeam(func(t *corev1.Namespace) { t.ResourceVersion = "99" }), isSame: true},
			{name: "nothing"},
			{name: "another one", team: newTeam(func(t *corev1.Namespace) { t.UID = "new" })},
			{name: "that it is being deleted", team: newTeam(ending)},
			{name: "a newer spec", team: newTeam(ofGeneration(3))},
			{name: "an older spec", team: newTeam(ofGeneration(1))},
		} {
			t.Run(test.name+" it finds "+found.name, func(t *testing.T) {
				c := play(t, setting{desk: test.desk, memory: test.memory, replies: []reply{finds("get team", found.team)}})
				want := test.want
				if !found.isSame {
					want = "get team; no report; wait 1m0s"
				}
				check(t, want, c.line())
				if !found.isSame && c.outcome.For != "the cache to catch up" {
					t.Errorf("it waits for %q", c.outcome.For)
				}
			})
		}
	}
}

// The status is written for the version that was read last.
func TestTheStatusIsThatOfTheObjectThatWasRead(t *testing.T) {
	live := newTeam(func(t *corev1.Namespace) { t.ResourceVersion = "99" })
	c := play(t, setting{desk: toCreateAgain(), replies: []reply{finds("get team", live)}})
	if last := c.steps[len(c.steps)-1]; last.ResourceVersion != "99" || last.Body.GetResourceVersion() != "99" {
		t.Errorf("%s has resourceVersion %q", last.Op, last.ResourceVersion)
	}
}

// The rules decide again on the child that was read.
func TestADecisionRestsOnTheChildThatWasRead(t *testing.T) {
	for _, test := range []struct {
		name  string
		found metav1.Object
		want  string
	}{
		{name: "it is not ready any more", found: child("ready", ""), want: "get team, get child; Ready; done"},
		{name: "it is gone", want: "get team, get child, create child; Ready; done"},
		{
			name: "it differs, and again after the patch: that is for the next sync", found: child("n", "9"),
			want: "get team, get child, patch child, get team, get child; no report; wait 5ms",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := play(t, setting{desk: toDelete(), replies: []reply{finds("get child", test.found)}})
			check(t, test.want, c.line())
		})
	}
}

// The cache has a child of an object without a status, and the child is gone now. The object may be gone, too.
func TestAChildThatIsGoneWasThere(t *testing.T) {
	d := toUpdate()
	d.Observed = 0
	s := setting{desk: d, memory: remembers(ledger{patchOp: failed(0)}), replies: []reply{finds("get child", nil)}}
	check(t, "get child, get team, create child; Ready; done", play(t, s).line())
}

// A write that has failed may have been done, or the cache lags, or admission has answered before the API server has
// checked the name. So it is repeated only after a live read of what it writes, whatever the failure was.
func TestAWriteThatHasFailedIsRepeatedAfterALiveRead(t *testing.T) {
	reported := newTeam()
	reported.Status.Phase = "Ready"
	for _, test := range []struct {
		op    reconcile.Op
		write string
		desk  desk
		first string
		again string
		// found is what makes the write unnecessary, and done the sync that has found it.
		found reply
		done  string
	}{
		{
			op: createOp, write: "create child", desk: toCreateAgain(), first: "get team, create child",
			again: "get team, get child, create child; Ready; done",
			found: finds("get child", child()), done: "get team, get child; Ready; done",
		},
		{
			op: patchOp, write: "patch child", desk: toUpdate(), first: "patch child",
			again: "get child, patch child; Ready; done",
			found: finds("get child", nil), done: "get child, get team, create child; Ready; done",
		},
		{ // Its uid and resourceVersion are enough, and it has read both anyway.
			op: deleteOp, write: "delete old", desk: toDelete(), first: deleteOld, again: deleteOld + "; Ready; done",
			found: finds("get child", child("ready", "")), done: "get team, get child; Ready; done",
		},
		{
			op: statusOp, write: "report", desk: toReport(), first: "nothing", again: "get team; Ready; done",
			found: finds("get team", reported), done: "get team; no report; done",
		},
	} {
		for _, err := range []error{forbidden, tooMany, conflict, noResponse, serverFails} {
			t.Run(fmt.Sprint(test.write, ": ", err), func(t *testing.T) {
				c := play(t, setting{desk: test.desk, replies: []reply{fails(test.write, err)}})
				if got, _, _ := strings.Cut(c.line(), ";"); got != test.first {
					t.Errorf("first %s is sent, want %s", got, test.first)
				}
				next := setting{desk: test.desk, memory: c.memory, now: c.endedAt.Add(time.Minute)}
				again := play(t, next)
				check(t, test.again, again.line())
				if entry := again.memory.Ledger[test.op]; entry.Failed.Count > 0 {
					t.Errorf("after a success the ledger has %+v", entry)
				}
				next.replies = []reply{test.found}
				check(t, test.done, play(t, next).line())
			})
		}
	}
}

// A step gets the namespace of the object before the rule of which it is one chooses: the refused ones come last. A child
// may have the kind of the object, or even its name: what is read of it is not the object.
func TestOnlyOneOfStepsWithoutANamespace(t *testing.T) {
	refused := ledger{}
	for _, name := range [][2]string{{"team", "a"}, {"team", "b"}, {"other", "child"}} {
		refused[reconcile.Op{Verb: reconcile.Create, Kind: "ConfigMap", Namespace: name[0], Name: name[1]}] = failed(0)
	}
	for _, test := range []struct {
		onlyOne bool
		steps   [][2]string
		want    []string
	}{
		{onlyOne: true, steps: [][2]string{{"", "a"}, {"", "b"}, {"", "c"}}, want: []string{"create c"}},
		{steps: [][2]string{{"", "a"}, {"", "c"}}, want: []string{"get a", "create a"}},
		{steps: [][2]string{{"other", "child"}}, want: []string{"get child", "create child"}},
	} {
		sync := reconcile.New(reconcile.Plan[group]{
			Object:             func(in *group) reconcile.Ref { return reconcile.RefTo(configMapKind, &in.One) },
			ObservedGeneration: func(*group) int64 { return 0 },
			Rules: []reconcile.Rule[group]{{Name: "create", Ask: func(in *group) reconcile.Answer {
				a := reconcile.Answer{OnlyOne: test.onlyOne}
				for _, name := range test.steps {
					body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name[0], Name: name[1]}}
					a.Steps = append(a.Steps, reconcile.CreateStep(configMapKind, new(*corev1.ConfigMap), body))
				}
				return a
			}}},
			Status: func(*group, *reconcile.Sync) *reconcile.Step { return nil },
		}).Sync(&group{One: child()})
		sync.Begin(reconcile.Memory{UID: "child-uid", Ledger: refused}, start, 0)
		var sent []string
		for step := sync.Next(); step != nil; step = sync.Next() {
			sent = append(sent, words(step))
			sync.Record(step, reconcile.Reply{}, start)
		}
		check(t, test.want, sent)
	}
}

// What may be done twice needs no read, and an object that has no owner none of the object either. Without Undone, what
// something keeps undoing is not reported.
func TestAnIdempotentWriteIsRepeatedWithoutARead(t *testing.T) {
	step := reconcile.CreateStep(configMapKind, new(*corev1.ConfigMap), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "child"},
	})
	step.Idempotent = true
	p := reconcile.New(reconcile.Plan[input]{
		Object:             plan.Object,
		ObservedGeneration: plan.ObservedGeneration,
		Rules: []reconcile.Rule[input]{{Name: "put", Ask: func(*input) reconcile.Answer {
			return reconcile.Answer{Steps: []*reconcile.Step{step}}
		}}},
		Status: noStatus,
	})
	sync := p.Sync(&input{Namespace: newTeam()})
	put := createOp
	put.Namespace = ""
	memory := remembers(ledger{put: {Failed: failed(0).Failed, Repeated: repeated(4, 0).Repeated}})
	memory.Wrote = true
	sync.Begin(memory, start, 0)
	next := sync.Next()
	if next.Verb != reconcile.Create {
		t.Errorf("the next request is %s", next.Op)
	}
	sync.Record(next, next.Answered(next.Body, nil), start)
	if problem := sync.Undone(put); problem != nil {
		t.Errorf("it reports %v", problem)
	}
}

// A live read has the name of the write that it comes before: when the read fails, that write has failed. Nothing else
// is read in that sync, so what else needs a read fails with it, and what needs none is done.
func TestAReadThatFails(t *testing.T) {
	patchFirst := toDelete()
	patchFirst.Observed, patchFirst.Child = 1, child("n", "9")
	two := toDelete()
	two.Old = old("old", "older")
	for _, test := range []struct {
		name   string
		desk   desk
		ledger ledger
		read   string
		want   string
		fails  []reconcile.Op
	}{
		{
			name: "of the object before a create", desk: toCreateAgain(), read: "get team", want: "get team; Refused",
			fails: []reconcile.Op{createOp},
		},
		{
			name: "of the child before a create", desk: toCreateAgain(), ledger: ledger{createOp: failed(0)},
			read: "get child", want: "get team, get child; Refused", fails: []reconcile.Op{createOp},
		},
		{
			name: "before the second write: the first was done", desk: patchFirst, read: "get team",
			want: "patch child, get team; Refused", fails: []reconcile.Op{deleteOp},
		},
		{
			name: "before one of two deletions: the other is not tried", desk: two, read: "get team",
			want: "get team; Refused", fails: []reconcile.Op{deleteOp},
		},
		{
			name: "before a patch: the deletion needs a read too", desk: patchFirst, ledger: ledger{patchOp: failed(0)},
			read: "get child", want: "get child; Refused", fails: []reconcile.Op{deleteOp, patchOp},
		},
		{
			name: "before a status", desk: toReport(), ledger: ledger{statusOp: failed(0)}, read: "get team",
			want: "get team; no report", fails: []reconcile.Op{statusOp},
		},
	} {
		for err, first := range map[error]time.Duration{forbidden: time.Second, noResponse: 5 * time.Millisecond} {
			t.Run(fmt.Sprint(test.name, ": ", err), func(t *testing.T) {
				s := setting{desk: test.desk, memory: remembers(test.ledger), replies: []reply{fails(test.read, err)}}
				c := play(t, s)
				want := test.want
				if err == noResponse {
					want = strings.Replace(want, "Refused", "RequestFailed", 1)
				}
				if !strings.HasPrefix(c.line(), want+"; retry ") || c.outcome.Expected {
					t.Errorf("%s, want %s and a retry that is logged", c.line(), want)
				}
				for _, op := range test.fails {
					before, after := test.ledger[op].Failed.Count, c.memory.Ledger[op].Failed
					delay := first << before
					if after.Count != before+1 || after.Expected || !after.Until.Equal(start.Add(delay)) {
						t.Errorf("the ledger has %+v of %s, want a delay of %s", after, op, delay)
					}
				}
				for op, e := range c.memory.Ledger {
					if e.Failed.Count > 0 && !slices.Contains(test.fails, op) {
						t.Errorf("%s has failed too", op)
					}
				}
			})
		}
	}
}

// What follows is about the answers to writes.

// Three conflicts in a row are normal work. The fourth counts as a refusal, and is reported.
func TestConflictsInARow(t *testing.T) {
	otherUID := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "child", nil)
	otherUID.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	for _, test := range []struct {
		write string
		desk  desk
		err   error
		first string
		again string
		last  string // The reason that the fourth is reported with.
	}{
		{write: "create child", desk: toCreateAgain(), err: exists, first: "get team, create child",
			again: "get team, get child, create child"},
		{write: "create child", desk: toCreateAgain(), err: notFound, first: "get team, create child",
			again: "get team, get child, create child"},
		{write: "patch child", desk: toUpdate(), err: conflict, first: "patch child", again: "get child, patch child",
			last: "RequestFailed"},
		{write: "patch child", desk: toUpdate(), err: notFound, first: "patch child", again: "get child, patch child"},
		{write: "patch child", desk: toUpdate(), err: otherUID, first: "patch child", again: "get child, patch child"},
		{write: "delete old", desk: toDelete(), err: conflict, first: deleteOld, again: deleteOld, last: "RequestFailed"},
	} {
		t.Run(fmt.Sprint(test.write, ": ", test.err), func(t *testing.T) {
			last := test.last
			if last == "" {
				last = "Refused"
			}
			check(t, []string{
				test.first + "; no report; retry 5ms as expected", test.again + "; no report; retry 10ms as expected",
				test.again + "; no report; retry 20ms as expected", test.again + "; " + last + "; retry 1s",
				test.again + "; " + last + "; retry 2s",
			}, rounds(t, 5, setting{desk: test.desk, replies: []reply{fails(test.write, test.err)}}))
		})
	}
	check(t, []string{
		"nothing; Ready; retry 5ms as expected", "get team; Ready; retry 10ms as expected",
		"get team; Ready; retry 20ms as expected", "get team; Ready; retry 1s",
	}, rounds(t, 4, setting{desk: toReport(), replies: []reply{fails("report", conflict)}}))
}

// A conflict ends the sync, even when there is more that could be done; after a refusal the rest is done.
func TestWhatFollowsAFailedWrite(t *testing.T) {
	both := toUpdate()
	both.Old = old("old")
	for _, test := range []struct {
		name    string
		replies []reply
		want    string
	}{
		{name: "a conflict", replies: []reply{fails("patch child", conflict)},
			want: "patch child; no report; retry 5ms as expected"},
		{name: "a conflict of the second write", replies: []reply{fails("delete old", conflict)},
			want: "patch child, " + deleteOld + "; no report; retry 5ms as expected"},
		{name: "a conflict after a refusal, which is logged",
			replies: []reply{fails("patch child", forbidden), fails("delete old", conflict)},
			want:    "patch child, " + deleteOld + "; no report; retry 5ms"},
		{name: "no answer", replies: []reply{fails("patch child", noResponse)}, want: "patch child; no report; retry 5ms"},
		{name: "a refusal", replies: []reply{fails("patch child", forbidden)},
			want: "patch child, " + deleteOld + "; Refused; retry 1s"},
		{name: "a refusal of the second write", replies: []reply{fails("delete old", forbidden)},
			want: "patch child, " + deleteOld + "; Refused; retry 1s"},
		{name: "a status without an answer", replies: []reply{fails("report", noResponse)},
			want: "patch child, " + deleteOld + "; Ready; retry 5ms"},
		{name: "a deletion of what is gone", replies: []reply{fails("delete old", apierrors.NewNotFound(configMaps, "old"))},
			want: "patch child, " + deleteOld + "; Ready; done"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := play(t, setting{desk: both, replies: test.replies})
			check(t, test.want, c.line())
			if step := c.sync.Next(); step != nil {
				t.Errorf("after the end %s is sent", step.Op)
			}
		})
	}
}

// After a write whose outcome is unknown the sync ends without a report, and it counts as written. When it fails again,
// the status reports it while it backs off.
func TestAnUnknownOutcome(t *testing.T) {
	for _, err := range []error{noResponse, serverFails, apierrors.NewTimeoutError("etcd", 1)} {
		c := play(t, setting{desk: toCreate(), replies: []reply{fails("create child", err)}})
		if c.outcome.For != "the next step" || !c.memory.Wrote {
			t.Errorf("%v: it waits for %q, and remembers %+v", err, c.outcome.For, c.memory)
		}
	}
	refused := setting{desk: toCreate(), replies: []reply{fails("create child", forbidden), fails("report", forbidden)}}
	if play(t, refused).memory.Wrote {
		t.Error("what was refused counts as written")
	}
	want := []string{
		"create child; no report; retry 5ms", "get team, get child, create child; no report; retry 5ms",
		"nothing; RequestFailed; wait 5ms", "get team, get child, create child; no report; retry 5ms",
		"nothing; RequestFailed; wait 15ms",
	}
	check(t, want, rounds(t, len(want), setting{desk: toCreate(), replies: []reply{fails("create child", noResponse)}}))
	check(t, []string{"nothing; Ready; retry 5ms", "get team; Ready; retry 10ms"}, // It is the last request anyway.
		rounds(t, 2, setting{desk: toReport(), replies: []reply{fails("report", noResponse)}}))
}

// A write in a namespace that is being deleted is repeated after a minute, and not reported. What has failed before it
// in the sync is not lost.
func TestANamespaceThatIsBeingDeleted(t *testing.T) {
	for write, d := range map[string]desk{
		"create child": toCreate(), "patch child": toUpdate(), "delete old": toDelete(), "report": toReport(),
	} {
		d.Team.Namespace = "team" // As if the kind had namespaces.
		c := play(t, setting{desk: d, replies: []reply{fails(write, terminating())}})
		if want := reconcile.WaitFor(reconcile.Backoff, time.Minute); c.outcome != want || len(c.memory.Ledger) > 0 {
			t.Errorf("%s: outcome %+v, and the ledger %v", write, c.outcome, c.memory.Ledger)
		}
	}
	both := toUpdate()
	both.Old = old("old")
	c := play(t, setting{desk: both, memory: remembers(ledger{patchOp: failed(0)}), replies: []reply{
		fails("patch child", tooMany), fails("delete old", tooMany), fails("report", terminating()),
	}})
	if c.outcome.Kind != reconcile.Retry || c.outcome.After != time.Second || !errors.Is(c.outcome.Err, tooMany) {
		t.Errorf("after failures: outcome %+v", c.outcome)
	}
}

// The object has changed after a write of this sync was refused. The refusal is no success: it is logged and retried.
func TestARefusalBeforeTheObjectHasChangedIsRetried(t *testing.T) {
	both := toUpdate()
	both.Old = old("old")
	for name, found := range map[string]metav1.Object{"it is gone": nil, "it has a newer spec": newTeam(ofGeneration(3))} {
		c := play(t, setting{desk: both, replies: []reply{fails("patch child", forbidden), finds("get team", found)}})
		check(t, "patch child, get team; no report; retry 5ms", c.line())
		if c.outcome.For != reconcile.NextStep || !errors.Is(c.outcome.Err, forbidden) || c.outcome.Expected {
			t.Errorf("%s: outcome %+v", name, c.outcome)
		}
	}
}

// Every failure of a sync is logged, and the key comes back for the first retry.
func TestSeveralFailures(t *testing.T) {
	both := toUpdate()
	both.Old = old("old")
	c := play(t, setting{desk: both, replies: []reply{
		fails("patch child", forbidden), fails("delete old", tooMany), fails("report", serverFails),
	}})
	check(t, "patch child, "+deleteOld+"; Refused; retry 5ms", c.line())
	check(t, "the backoff to end", c.outcome.For)
	check(t, `patch ConfigMap team/child: configmaps "child" is forbidden: exceeded quota: small`+
		"\ndelete ConfigMap team/old: slow down\nupdate status of Namespace team: Internal error occurred: etcd",
		c.outcome.Err.Error())
	c = play(t, setting{ // Before the status, the object is read, and by then nothing of that is wanted any more.
		desk: both, memory: remembers(ledger{patchOp: failed(0), statusOp: failed(0)}), replies: []reply{
			fails("patch child", forbidden), fails("delete old", forbidden), finds("get team", newTeam()),
			finds("get team", newTeam(annotated("paused"))),
		},
	})
	check(t, "get child, patch child, "+deleteOld+", get team; Ready; retry 1s", c.line())
}

// A delay begins when the answer comes, and what is left of it is counted from the last answer.
func TestADelayBeginsAtTheAnswer(t *testing.T) {
	for report, left := range map[time.Duration]time.Duration{
		2 * time.Millisecond: 998 * time.Millisecond, time.Second: 0, time.Minute: 0,
	} {
		c := play(t, setting{desk: toUpdate(), replies: []reply{
			slowly(fails("patch child", forbidden), seconds(7)), slowly(reply{to: "report", good: true}, report),
		}})
		if until := c.memory.Ledger[patchOp].Failed.Until; !until.Equal(start.Add(seconds(8))) || c.outcome.After != left {
			t.Errorf("the delay ends at %s, and %s are left", until, c.outcome.After)
		}
	}
}

// Nothing is sent without a uid and a resourceVersion: the API server takes an empty one as no precondition.
func TestWhatHasNoVersionIsNotWritten(t *testing.T) {
	for name, edit := range map[string]func(*corev1.ConfigMap){
		"uid":             func(c *corev1.ConfigMap) { c.UID = "" },
		"resourceVersion": func(c *corev1.ConfigMap) { c.ResourceVersion = "" },
	} {
		d := toCorrect()
		edit(d.Child)
		c := play(t, setting{desk: d})
		check(t, name+": nothing; Refused; retry 1s", name+": "+c.line())
		check(t, &reconcile.Problem{
			Reason: "Refused", Advice: reconcile.TriesAgain, Failed: true, Message: "Cannot patch ConfigMap team/child: " +
				`ConfigMap "child" has no uid or no resourceVersion, and no write is sent without both`,
		}, c.sync.First())
	}
}

// A Clone goes on by itself.
func TestCloneIsIndependent(t *testing.T) {
	in := toCorrect()
	in.Old = old("old", "older")
	sync := desks.Sync(&in)
	sync.Begin(remembers(ledger{patchOp: failed(seconds(1))}), start, 0)
	want := sync.Next().Op // The patch backs off.
	other := sync.Clone()
	for step := other.Next(); step != nil; step = other.Next() {
		reply := step.Answered(step.Have(), nil)
		switch words(step) {
		case "get child":
			reply.Object = child()
		case "report":
			reply.Err = forbidden // Nothing but this backs off now.
		}
		other.Record(step, reply, start)
	}
	check(t, "Refused: quota", sync.First().Error())
	check(t, want, sync.Next().Op)
	check(t, (*reconcile.Problem)(nil), sync.Problem(statusOp))
	if slices.Contains(in.Old, nil) || in.Child.Data["n"] != "9" {
		t.Error("the copy has changed the Input")
	}
}
