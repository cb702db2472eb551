package reconcile_test

import (
	"errors"
	"fmt"
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

// deleteOld is what is sent for a deletion.
const deleteOld = "get team, get child, delete old"

// The rules are read from top to bottom, and those behind a final one do not count. A step that backs off is skipped.
func TestTheOrderOfTheRules(t *testing.T) {
	paused, broken, both := toCorrect(), toCorrect(), toCorrect()
	paused.Team = newTeam(annotated("paused"), annotated("broken"))
	broken.Team = newTeam(annotated("broken"))
	both.Old = old("old", "older")
	for _, test := range []struct {
		name   string
		desk   desk
		memory reconcile.Memory
		want   string
	}{
		{name: "a final rule", desk: paused, want: "nothing; Ready; done"},
		{name: "a final rule that is terminal", desk: broken, want: "nothing; Ready; terminal"},
		{name: "nothing is final", desk: both, want: "get team, patch child, " + deleteOld + "; Ready; done"},
		{
			name: "a step that backs off", desk: both, memory: remembers(ledger{patchOp: failed(1)}),
			want: deleteOld + "; Refused; wait 1ns",
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

// What follows is about live reads.

// The object may be gone by now, another one of its name, or have changed: then the sync ends.
func TestWhatALiveReadOfTheObjectFinds(t *testing.T) {
	for _, test := range []struct {
		setting setting
		want    string
	}{
		{setting: setting{desk: toCreateAgain()}, want: "get team, create child; Ready; done"},
		{
			setting: setting{desk: toReport(), memory: remembers(ledger{statusOp: failed(0)})},
			want:    "get team; Ready; done",
		},
	} {
		newer := newTeam(func(t *corev1.Namespace) { t.ResourceVersion = "99" })
		test.setting.replies = []reply{finds("get team", newer)}
		c := play(t, test.setting)
		check(t, test.want, c.line())
		check(t, "99", c.steps[len(c.steps)-1].ResourceVersion) // The status is that of the version that was read.
		for name, found := range map[string]metav1.Object{
			"nothing": nil, "another one": newTeam(func(t *corev1.Namespace) { t.UID = "new" }),
			"one that is being deleted": newTeam(ending), "an older spec": newTeam(ofGeneration(1)),
		} {
			test.setting.replies = []reply{finds("get team", found)}
			c := play(t, test.setting)
			check(t, name+": get team; no report; wait 1m0s", name+": "+c.line())
			check(t, "the cache to catch up", c.outcome.For)
		}
	}
	// The finalizer of an object that is being deleted may need it for a long time.
	leaving := setting{desk: toReport(), memory: remembers(ledger{statusOp: failed(0)})}
	leaving.desk.Team = newTeam(ending)
	check(t, "get team; Ready; done", play(t, leaving).line())
}

// A copy of a sync goes on by itself.
func TestAClone(t *testing.T) {
	d := toDelete()
	d.Child = child("n", "9")
	sync := desks.Sync(&d)
	sync.Begin(remembers(ledger{patchOp: failed(time.Minute)}), start, 0)
	sync.Next()
	want := sync.First().Message
	clone := sync.Clone()
	answers := map[string]reply{"get team": {obj: newTeam()}, "get child": {obj: child()}, "delete old": {err: forbidden}}
	for step := clone.Next(); step != nil; step = clone.Next() {
		clone.Record(step, step.Answered(answers[words(step)].obj, answers[words(step)].err), start)
	}
	check(t, want, sync.First().Message)
}

// A patch of a cluster-scoped object gets no namespace.
func TestAPatchOfWhatHasNoNamespace(t *testing.T) {
	sync := planOf("patch", func(*input) reconcile.Answer {
		return reconcile.Answer{Steps: []*reconcile.Step{reconcile.PatchStep(namespaceKind, new(newTeam()), nil, nil)}}
	}).Sync(&input{Namespace: newTeam(func(t *corev1.Namespace) { t.Namespace = "a" })})
	sync.Begin(reconcile.Memory{}, start, 0)
	check(t, "", sync.Next().Namespace)
}

// The cache has a child of an object without a status, and the child is gone now. The object may be gone, too.
func TestAChildThatIsGoneWasThere(t *testing.T) {
	d := toUpdate()
	d.Observed = 0
	s := setting{desk: d, memory: remembers(ledger{patchOp: failed(0)}), replies: []reply{finds("get child", nil)}}
	check(t, "get child, get team, create child; Ready; done", play(t, s).line())
}

// A step gets the namespace of the object before the rule of which it is one chooses: the refused ones come last. A
// child may have the kind of the object, or even its name: what is read of it is not the object.
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
	sync := planOf("put", func(*input) reconcile.Answer {
		return reconcile.Answer{Steps: []*reconcile.Step{step}}
	}).Sync(&input{Namespace: newTeam()})
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

// When a live read fails, the write that it comes before has failed. Nothing else is read in that sync.
func TestAReadThatFails(t *testing.T) {
	for err, first := range map[error]time.Duration{
		forbidden: time.Second, conflict: time.Second, noResponse: 5 * time.Millisecond,
	} {
		s := setting{desk: toUpdate(), replies: []reply{fails("get team", err)}}
		s.desk.Old = old("old", "older")
		c := play(t, s)
		if want := fmt.Sprint("; retry ", first); !strings.HasPrefix(c.line(), "patch child, get team; Re") ||
			!strings.HasSuffix(c.line(), want) || !errors.Is(c.outcome.Err, err) {
			t.Errorf("%s: %v, want one read after the patch, and %s", c.line(), c.outcome.Err, want)
		}
		check(t, 1, c.memory.Ledger[deleteOp].Failed.Count)
		check(t, 2, len(c.memory.Ledger)) // The other one is the patch that was done.
	}
}

// What follows is about the answers to writes.

// Three conflicts in a row are normal work. The fourth counts as a refusal, and is reported.
func TestConflictsInARow(t *testing.T) {
	otherUID := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "child", nil)
	otherUID.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "metadata.uid"}}
	for _, test := range []struct {
		write        string
		desk         desk
		err          error
		first, again string
	}{
		{write: "create child", desk: toCreateAgain(), err: exists, first: "get team, create child",
			again: "get team, get child, create child"},
		{write: "patch child", desk: toUpdate(), err: otherUID, first: "patch child", again: "get child, patch child"},
	} {
		check(t, []string{
			test.first + "; no report; retry 5ms as expected", test.again + "; no report; retry 10ms as expected",
			test.again + "; no report; retry 20ms as expected", test.again + "; Refused; retry 1s",
			test.again + "; Refused; retry 2s",
		}, rounds(t, 5, setting{desk: test.desk, replies: []reply{fails(test.write, test.err)}}))
	}
	check(t, []string{
		"nothing; Ready; retry 5ms as expected", "get team; Ready; retry 10ms as expected",
		"get team; Ready; retry 20ms as expected", "get team; Ready; retry 1s",
	}, rounds(t, 4, setting{desk: toReport(), replies: []reply{fails("report", conflict)}}))
	both := toUpdate()
	both.Old = old("old")
	c := play(t, setting{
		desk: both, memory: remembers(ledger{patchOp: failed(0)}), replies: []reply{fails("delete old", conflict)},
	})
	check(t, reconcile.Attempt{}, c.memory.Ledger[patchOp].Failed) // It has succeeded before the sync ended.
}

// After a write whose outcome is unknown the sync ends without a report, and it counts as written. When it fails again,
// the status reports it while it backs off.
func TestAnUnknownOutcome(t *testing.T) {
	for err, counts := range map[error]bool{noResponse: true, serverFails: true, forbidden: false} {
		c := play(t, setting{desk: toCreate(), replies: []reply{fails("create child", err), fails("report", forbidden)}})
		if c.memory.Wrote != counts || counts && c.outcome.For != reconcile.NextStep {
			t.Errorf("%v: it waits for %q, and remembers %+v", err, c.outcome.For, c.memory)
		}
	}
	check(t, []string{
		"create child; no report; retry 5ms", "get team, get child, create child; no report; retry 5ms",
		"nothing; RequestFailed; wait 5ms", "get team, get child, create child; no report; retry 5ms",
		"nothing; RequestFailed; wait 15ms",
	}, rounds(t, 5, setting{desk: toCreate(), replies: []reply{fails("create child", noResponse)}}))
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
		if c.outcome.For != "the next step" || !errors.Is(c.outcome.Err, forbidden) || c.outcome.Expected {
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
		s.now, s.memory = s.now.Add(c.outcome.After), c.memory
	}
	t.Fatalf("%s was sent only %d times", request, len(waits)+1)
	return nil
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
				s.now, s.memory = s.now.Add(c.outcome.After), c.memory
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
		if c.status != "Ready=False Admission: n is 9" || c.outcome.Kind != reconcile.Wait ||
			c.outcome.After != time.Second ||
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
		{name: "another generation empties the ledger", have: memory(0), obj: newTeam(ofGeneration(3)), want: noLedger},
		{
			name: "another uid is another object", have: memory(0), obj: newTeam(another),
			want: reconcile.Memory{UID: "new", Generation: 2},
		},
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
	unready := toDelete()
	unready.Child = child("ready", "")
	for _, test := range []struct {
		name   string
		desk   desk
		ledger ledger
		reply  reply
		want   []reconcile.Op
	}{
		{name: "a create of what is there, while something else fails", desk: toUpdate(), ledger: ledger{createOp: failed(1)},
			reply: fails("patch child", forbidden), want: []reconcile.Op{patchOp}},
		{name: "a deletion that is not wanted now", desk: unready, ledger: ledger{deleteOp: failed(1)},
			want: []reconcile.Op{deleteOp}},
		{name: "a deletion of what is gone", desk: toDelete(), ledger: ledger{deleteOp: failed(0)},
			reply: fails("delete old", apierrors.NewNotFound(configMaps, "old"))},
		{name: "a repetition", desk: toReport(), ledger: ledger{patchOp: repeated(1, 0)}, want: []reconcile.Op{patchOp}},
	} {
		c := play(t, setting{desk: test.desk, memory: remembers(test.ledger), replies: []reply{test.reply}})
		if got := slices.Collect(maps.Keys(c.memory.Ledger)); !slices.Equal(got, test.want) {
			t.Errorf("%s: the ledger has %v, want %v", test.name, got, test.want)
		}
	}
}

// Of several operations that back off, the retry is that of the first. Of two entries for one operation, the one that
// ends last counts. A status that waits because of a conflict does not end the sync.
func TestTheFirstRetryCounts(t *testing.T) {
	d := toCorrect()
	d.Old = old("old", "older")
	older := deleteOp
	older.Name = "older"
	undone := failed(seconds(40))
	undone.Repeated = reconcile.Attempt{Count: 4, Until: start.Add(seconds(50)),
		Report: &reconcile.Problem{Reason: "Undone", Message: "again"}}
	for want, l := range map[string]ledger{
		"nothing; Refused; wait 50s": {patchOp: undone, deleteOp: failed(seconds(60)), older: failed(seconds(60))},
		"nothing; no report; wait 40s": {patchOp: failed(seconds(40)), statusOp: conflicted(seconds(45)),
			deleteOp: failed(seconds(60)), older: failed(seconds(60))},
	} {
		check(t, want, play(t, setting{desk: d, memory: remembers(l)}).line())
	}
	alone := play(t, setting{desk: toReport(), memory: remembers(ledger{statusOp: conflicted(seconds(1))})})
	check(t, reconcile.WaitFor(reconcile.Backoff, seconds(1)), alone.outcome) // There is no error to log.
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
	s.memory, s.now, s.replies = play(t, s).memory, start.Add(time.Minute), nil
	c := play(t, s)
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
