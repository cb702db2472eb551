package walktest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file has what must hold in every conversation, for any plan.

// A talk is one conversation, and what the oracles know of it.
type talk struct {
	world  *World
	sync   *reconcile.Sync
	object metav1.Object // As the cache had it when the sync began.
	// live is what the API server has, seen what the caches and the answers have shown.
	live, seen Objects
	versions   int
	lines      []line
	first      int // The index in lines of the first line of this sync.
	bad        int
	began, at  time.Time
	// remembered is the memory of the world as far as it counts. memory and outcome are those after the end.
	remembered, memory reconcile.Memory
	outcome            reconcile.Outcome

	// read is what was read live since the last write. readFailed means that a live read failed.
	read       []reconcile.Op
	readFailed bool
	// lost means that a live read found the object gone, another one, or otherwise being deleted; changed also with
	// another spec.
	lost, changed bool
	// surprised are the children of which a live read found a version that the cache lacks.
	surprised []Key
	// status is what was sent last.
	status metav1.Object
	// failures are the writes that were not done, before those of the sync before. unknown means that one of them may have
	// been done, quiet that one of them ends the sync without a report, refused that one of them is none of that.
	failures                []failed
	before                  []reconcile.Op
	unknown, quiet, refused bool
	// wroteBefore means that something was written for the object before this sync, or may have been; wrote also in it.
	wroteBefore, wrote bool
	// wanted are the writes that are sent in this world when nothing backs off.
	wanted        []reconcile.Op
	delaysNothing bool
	// held and eventDue are those of World, for the end of the conversation.
	held, eventDue bool
	// admitted means that a webhook has changed a write, deleted that something was deleted, whose event brings the key
	// back.
	admitted, deleted bool
}

func (c *talk) clone() *talk {
	branch := *c
	branch.sync = c.sync.Clone()
	branch.lines, branch.read, branch.failures = slices.Clip(c.lines), slices.Clip(c.read), slices.Clip(c.failures)
	branch.surprised = slices.Clip(c.surprised)
	return &branch
}

// hasRead reports whether an object was read live since the last write.
func (c *talk) hasRead(key Key) bool { return slices.Contains(c.read, key.op(reconcile.Get)) }

// sent are the requests of this sync.
func (c *talk) sent() (ops []reconcile.Op) {
	for _, l := range c.lines[c.first:] {
		ops = append(ops, l.op)
	}
	return ops
}

// writes are those of this sync.
func (c *talk) writes() []reconcile.Op {
	return slices.DeleteFunc(c.sent(), func(op reconcile.Op) bool { return op.Verb == reconcile.Get })
}

// ended is the end of the conversation, for people.
func (c *talk) ended() string {
	text := "the sync ends: " + c.outcome.Kind
	if c.outcome.ComesBack() {
		text += fmt.Sprintf(" after %v", c.outcome.After)
	}
	if c.outcome.For != "" {
		text += ", for " + c.outcome.For
	}
	if c.outcome.Err != nil {
		text += fmt.Sprintf(" (expected: %t): %v", c.outcome.Expected, c.outcome.Err)
	}
	if c.status != nil {
		text += "\n  the last status: " + reconcile.Summary(conditionsOf(c.status))
	}
	return text
}

// A line is a request and how it was answered, or another thing that has happened.
type line struct {
	op          reconcile.Op
	rule, reply string
}

func (l line) String() string {
	if l.rule == "" {
		return l.reply
	}
	return fmt.Sprintf("%s: %s -> %s", l.rule, text(l.op), l.reply)
}

func text(op reconcile.Op) string { return string(op.Verb) + " " + keyOf(op).String() }

// A failed write, or one that a failed read was for. If terminating, its namespace is being deleted: it cannot have
// been done.
type failed struct {
	op          reconcile.Op
	message     string
	terminating bool
}

// A rule is what must hold before each request, or, if that is nil, at each end.
type rule struct {
	name string
	step func(c *talk, step *reconcile.Step) bool
	end  func(c *talk) bool
}

func (p *player[In, W]) allRules() []rule {
	return []rule{
		{name: "a sync sends few requests", step: func(c *talk, _ *reconcile.Step) bool {
			return len(c.lines)-c.first < cmp.Or(p.MaxRequests, 12)
		}},
		{name: "a write carries uid and resourceVersion", step: carriesPreconditions},
		{name: "nothing is written for an object that is gone, another one, being deleted or has another spec",
			step: func(c *talk, step *reconcile.Step) bool { return step.IsRead() || !c.lost && !c.changed }},
		{name: "nothing is written after a write with an unknown outcome",
			step: func(c *talk, step *reconcile.Step) bool { return step.IsRead() || !c.unknown }},
		{name: "a create for an object that may have had children comes after a live read of it",
			step: func(c *talk, step *reconcile.Step) bool {
				mayHaveHad := c.wroteBefore || observed(c.object) != 0
				return step.Verb != reconcile.Create || step.Idempotent || !mayHaveHad || c.hasRead(p.key)
			}},
		{name: "a deletion comes after a live read of the object", step: func(c *talk, step *reconcile.Step) bool {
			return step.Verb != reconcile.Delete || c.hasRead(p.key)
		}},
		{name: "a write that has failed is repeated only after a live read of what it writes", step: readsBeforeRepeating},
		{name: "nothing of another's, and nothing that is being deleted, is written", step: p.writesItsOwn},
		{name: "a child is created for the object, with its controller", step: func(c *talk, step *reconcile.Step) bool {
			return step.Verb != reconcile.Create || step.Idempotent || controls(c.object, step.Body)
		}},
		{name: "nothing is written twice in a sync", step: writesOnce},
		{name: "no live read is sent twice without a write between",
			step: func(c *talk, step *reconcile.Step) bool { return !step.IsRead() || !c.hasRead(keyOf(step.Op)) }},
		{name: "nothing is read after a live read that failed", // Each may hang.
			step: func(c *talk, step *reconcile.Step) bool { return !step.IsRead() || !c.readFailed }},
		{name: "a write changes something", step: p.changesSomething},
		{name: "Ready is True only when it is", step: func(c *talk, step *reconcile.Step) bool {
			isTrue := step.Verb == reconcile.UpdateStatus && ready(step.Body).Status == metav1.ConditionTrue
			return !isTrue || p.mayBeReady(step.Body.(W), c.seen)
		}},
		{name: "the status is about the generation", step: func(c *talk, step *reconcile.Step) bool {
			return step.Verb != reconcile.UpdateStatus || observed(step.Body) == c.object.GetGeneration()
		}},

		{name: "a delay is between 0 and a minute, and 0 only when another one has ended", end: delayIsReasonable},
		{name: "what was not done comes back", end: failuresComeBack},
		{name: "what was refused is in the condition Ready", end: p.failuresAreReported},
		{name: "what was refused is logged", end: failuresAreLogged},
		{name: "a conflict is not logged as an error", end: conflictsAreExpected},
		{name: "what backs off is not sent, comes back, and is in the condition Ready", end: p.respectsBackoffs},
		{name: "when all answers are good another sync sends nothing", end: p.repeatsNothing},
		{name: "what is remembered of another object, of an earlier spec, or of what is not wanted, delays nothing",
			end: delaysNothing},
	}
}

func carriesPreconditions(_ *talk, step *reconcile.Step) bool {
	switch step.Verb {
	case reconcile.Get, reconcile.Create:
		return true
	case reconcile.Patch:
		sent, have := metav1.PartialObjectMetadata{}, step.Have()
		return json.Unmarshal(step.Patch, &sent) == nil && sent.UID != "" && sent.ResourceVersion != "" &&
			sent.UID == have.GetUID() && sent.ResourceVersion == have.GetResourceVersion()
	case reconcile.UpdateStatus:
		return step.Body.GetUID() != "" && step.Body.GetResourceVersion() != ""
	}
	return step.UID != "" && step.ResourceVersion != ""
}

// readsBeforeRepeating: a deletion carries uid and resourceVersion, and what is gone counts as deleted.
func readsBeforeRepeating(c *talk, step *reconcile.Step) bool {
	failed := slices.Contains(c.before, step.Op) || c.remembered.Ledger[step.Op].Failed.Count > 0 ||
		slices.ContainsFunc(c.failures, func(f failed) bool { return f.op == step.Op })
	return step.IsRead() || step.Verb == reconcile.Delete || step.Idempotent || !failed || c.hasRead(keyOf(step.Op))
}

func (p *player[In, W]) writesItsOwn(c *talk, step *reconcile.Step) bool {
	isOther := step.Verb != reconcile.Patch && step.Verb != reconcile.Delete || keyOf(step.Op) == p.key
	return isOther || step.Idempotent || isOurs(c.object, c.seen[keyOf(step.Op)])
}

// writesOnce: what was created is not patched too, unless a live read has found something new. The status of an object
// counts as another one.
func writesOnce(c *talk, step *reconcile.Step) bool {
	isKnown := !c.hasRead(keyOf(step.Op))
	return step.IsRead() || !slices.ContainsFunc(c.writes(), func(op reconcile.Op) bool {
		isStatus := op.Verb == reconcile.UpdateStatus || step.Verb == reconcile.UpdateStatus
		return op == step.Op || !isStatus && isKnown && keyOf(op) == keyOf(step.Op)
	})
}

// changesSomething: a patch is compared with the version that it is for, and a status too.
func (p *player[In, W]) changesSomething(c *talk, step *reconcile.Step) bool {
	have := c.seen[keyOf(step.Op)]
	switch {
	case have == nil, step.Have() == nil, step.Have().GetResourceVersion() != have.GetResourceVersion():
		return true
	case step.Verb == reconcile.Patch:
		return !reflect.DeepEqual(have, p.patched(have, step))
	case step.Verb == reconcile.UpdateStatus:
		return !reflect.DeepEqual(field(have, "Status"), field(step.Body, "Status"))
	}
	return true
}

// conditionsOf returns those of the status of obj, and observed its observedGeneration.
func conditionsOf(obj metav1.Object) []metav1.Condition {
	all, _ := reflect.ValueOf(field(obj, "Status")).FieldByName("Conditions").Interface().([]metav1.Condition)
	return all
}

func observed(obj metav1.Object) int64 {
	return reflect.ValueOf(field(obj, "Status")).FieldByName("ObservedGeneration").Int()
}

// ready returns the condition Ready.
func ready(obj metav1.Object) metav1.Condition {
	if c := meta.FindStatusCondition(conditionsOf(obj), "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (p *player[In, W]) mayBeReady(obj W, objects Objects) bool {
	return obj.GetDeletionTimestamp() == nil && (p.Worlds != nil || p.isComplete(obj, objects)) && p.Ready(obj, objects)
}

// isComplete reports whether all children that are asked for are there, are the object's, and are not being deleted,
// and no other one is.
func (p *player[In, W]) isComplete(obj W, objects Objects) bool {
	return !slices.ContainsFunc(p.Children, func(child Child[W]) bool {
		return (child.Want(obj) != nil) != isOurs(obj, objects[p.childKey(&child)])
	})
}

// delayIsReasonable: a delay of 0 means that the delay of a failure was over before the last answer came.
func delayIsReasonable(c *talk) bool {
	if !c.outcome.ComesBack() {
		return c.outcome.After == 0
	}
	over := false
	for _, e := range c.memory.Ledger {
		over = over || e.Failed.Count > 0 && !e.Failed.Until.After(c.at) ||
			e.Repeated.Count > 0 && !e.Repeated.Until.After(c.at)
	}
	return c.outcome.After > 0 && c.outcome.After <= time.Minute || c.outcome.After == 0 && over
}

func failuresComeBack(c *talk) bool {
	return c.eventDue || !slices.ContainsFunc(c.failures, func(f failed) bool {
		attempt := c.memory.Ledger[f.op].Failed
		late := attempt.Until.After(c.began) && c.outcome.After > max(attempt.Until.Sub(c.at), 5*time.Millisecond)
		return !c.outcome.ComesBack() || late
	})
}

// failuresAreReported: a sync that ends because of a conflict, a lost answer or another live object reports nothing;
// the next one does.
func (p *player[In, W]) failuresAreReported(c *talk) bool {
	return c.quiet || c.changed || c.statusBacksOff() || !slices.ContainsFunc(c.failures, func(f failed) bool {
		return f.op.Verb != reconcile.UpdateStatus && !p.reports(c, f.op, f.message)
	})
}

// statusBacksOff reports whether no status was sent because its write backs off, or one after a conflict.
func (c *talk) statusBacksOff() bool {
	for op, e := range c.memory.Ledger {
		if e.Failed.Until.After(c.began) && e.Failed.Expected ||
			op.Verb == reconcile.UpdateStatus && c.status == nil && until(e).After(c.began) {
			return true
		}
	}
	return false
}

// reports reports whether the status that was sent last, or is stored, has the message of the failure of op. Something
// else is reported when the name is taken, or when what is to be patched is gone, changed or not the object's any more.
// Of several problems one is reported.
func (p *player[In, W]) reports(c *talk, op reconcile.Op, message string) bool {
	have := c.seen[keyOf(op)]
	patchable := isOurs(c.object, have) && !slices.Contains(c.surprised, keyOf(op))
	if op.Verb == reconcile.Create && have != nil || op.Verb == reconcile.Patch && keyOf(op) != p.key && !patchable {
		return true
	}
	sent := c.status
	if sent == nil {
		sent = c.object
	}
	is := ready(sent)
	several := len(c.failures)+len(c.remembered.Ledger) > 1 || !p.isFine(c, op)
	return strings.Contains(is.Message, message) || !p.ReportsAll && several && is.Status == metav1.ConditionFalse
}

// isFine reports whether nothing but the failure of op is to be reported.
func (p *player[In, W]) isFine(c *talk, op reconcile.Op) bool {
	return !slices.ContainsFunc(p.Children, func(child Child[W]) bool {
		key := p.childKey(&child)
		have := c.seen[key]
		unusual := have != nil && (!isOurs(c.object, have) || have.GetResourceVersion() == "" || have.GetUID() == "")
		return key != keyOf(op) && (unusual || c.world.Admits || c.admitted)
	})
}

// failuresAreLogged: the queue logs the error of a retry that is not expected.
func failuresAreLogged(c *talk) bool {
	return c.quiet || c.changed || !slices.ContainsFunc(c.failures, func(f failed) bool {
		ours := f.op.Verb == reconcile.Create && c.seen[keyOf(f.op)] != nil // Another sync has created it.
		logged := c.outcome.Kind == "retry" && !c.outcome.Expected && strings.Contains(c.outcome.Err.Error(), f.message)
		return !ours && !logged
	})
}

// conflictsAreExpected: the first three in a row are normal work.
func conflictsAreExpected(c *talk) bool {
	others := c.unknown || c.refused || c.readFailed || isUnwritable(c.world.Cached)
	return !c.quiet || others || c.bad != 1 || len(c.failures) != 1 || c.outcome.Kind != "retry" || c.outcome.Expected ||
		c.remembered.Ledger[c.failures[0].op].Failed.Count >= 3
}

// backingOff returns the operations of the ledger that would be sent if they did not back off. It returns nothing when
// an answer is bad, or when a live read may have shown that they are not wanted any more.
func (c *talk) backingOff() (ops []reconcile.Op) {
	if c.bad > 0 || c.eventDue || len(c.surprised) > 0 {
		return nil
	}
	for op, e := range c.remembered.Ledger {
		end := until(e)
		if op.Verb == reconcile.UpdateStatus {
			end = e.Failed.Until // Nobody overwrites it.
		}
		another := op.Verb == reconcile.Delete && c.deleted // Of several one is deleted, and its event brings the key back.
		if slices.Contains(c.wanted, op) && end.After(c.began) && !another {
			ops = append(ops, op)
		}
	}
	return ops
}

// until returns when the delays of an operation end.
func until(e reconcile.Entry) time.Time {
	if e.Repeated.Until.After(e.Failed.Until) {
		return e.Repeated.Until
	}
	return e.Failed.Until
}

// respectsBackoffs: what backs off is not sent, and the key comes back when the delay is over, if not earlier.
// Meanwhile the status reports it, unless a cache lags, or the status backs off too.
func (p *player[In, W]) respectsBackoffs(c *talk) bool {
	ops := c.backingOff()
	noStatus := c.remembered.Ledger[p.key.op(reconcile.UpdateStatus)].Failed.Until.After(c.began)
	return !slices.ContainsFunc(ops, func(op reconcile.Op) bool {
		e, alone := c.remembered.Ledger[op], c.isAlone(op, ops)
		late := c.outcome.After > max(until(e).Sub(c.at), 0) || !c.outcome.ComesBack() && !c.deleted
		isReported := c.quiet || op.Verb == reconcile.UpdateStatus || !alone ||
			p.reports(c, op, cmp.Or(e.Failed.Report, e.Repeated.Report).Message)
		if noStatus || e.Failed.Expected {
			isReported = c.quiet || c.status == nil
		}
		return slices.Contains(c.sent(), op) || late && (alone || !c.outcome.ComesBack()) || !isReported
	})
}

// isAlone reports whether no other operation that backs off decides whether op is wanted. One that comes before it
// does, but not for a status.
func (c *talk) isAlone(op reconcile.Op, backingOff []reconcile.Op) bool {
	first := slices.IndexFunc(c.wanted, func(op reconcile.Op) bool { return slices.Contains(backingOff, op) })
	return len(backingOff) == 1 || op.Verb == reconcile.UpdateStatus ||
		op.Verb != reconcile.Delete && c.wanted[first] == op
}

// isDue reports whether the key comes back by itself after the sync, or because of an event.
func (c *talk) isDue() bool { return c.outcome.ComesBack() || c.eventDue || c.held }

// repeatsNothing: a conflict, or a cache that lags, does not end the work.
func (p *player[In, W]) repeatsNothing(c *talk) bool {
	behind := c.world.Held
	for _, e := range c.memory.Ledger {
		behind = behind || e.Failed.Expected
	}
	next := p.caughtUp(c)
	if c.bad > 0 || c.quiet || c.eventDue || behind && c.isDue() || next == nil {
		return true
	}
	again, _ := p.begin(next, c.at.Add(time.Millisecond))
	step := again.sync.Next()
	if step == nil || c.deleted && (step.Verb == reconcile.Delete || step.For.Verb == reconcile.Delete) {
		return true // A sync may delete one of several.
	}
	write := step
	for write != nil && write.IsRead() { // What it confirms first.
		p.answer(again, write, &good)
		write = again.sync.Next()
	}
	if write != nil && write.Idempotent {
		return true // It is done again until the status has that it was done.
	}
	c.lines = append(c.lines, line{reply: fmt.Sprintf("another sync wants to %s: %s", text(step.Op), step.Why)})
	return false
}

// delaysNothing: what is sent when nothing backs off is sent, and what is not wanted is forgotten, unless it is a
// deletion.
func delaysNothing(c *talk) bool {
	isForgotten := true
	for op, e := range c.memory.Ledger {
		isKept := op.Verb == reconcile.Delete || slices.Contains(c.wanted, op) || c.outcome.ComesBack()
		isForgotten = isForgotten && (isKept || e.Failed.Count == 0)
	}
	return !c.delaysNothing || isForgotten && slices.Equal(c.writes(), c.wanted)
}

// learn takes what can be learned from an answer.
func (p *player[In, W]) learn(c *talk, step *reconcile.Step, obj metav1.Object, err error) {
	key := keyOf(step.Op)
	page := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if err != nil && !(step.IsRead() && apierrors.IsNotFound(err) && !page) {
		c.learnFailure(step, err, page)
		return
	}
	have := c.seen[key]
	if step.IsRead() {
		c.read = append(c.read, step.Op)
		moved := obj != nil && (have == nil || obj.GetResourceVersion() != have.GetResourceVersion())
		c.held = c.held || moved
		switch {
		case key == p.key:
			c.lost = obj == nil || obj.GetUID() != c.object.GetUID() ||
				(obj.GetDeletionTimestamp() == nil) != (c.object.GetDeletionTimestamp() == nil)
			c.changed = c.lost || obj.GetGeneration() != c.object.GetGeneration()
		case moved, obj == nil && have != nil:
			c.surprised = append(c.surprised, key)
		}
		c.seen = c.seen.with(key, obj)
		return
	}
	c.seen = c.seen.with(key, c.live[key])
	if step.Verb == reconcile.Create { // The failures of a patch were of the one before it.
		c.drop(key.op(reconcile.Patch))
	}
	c.deleted = c.deleted || step.Verb == reconcile.Delete
	c.read, c.held, c.wrote = nil, true, true
	c.drop(step.Op)
}

// learnFailure sorts an error as the API server means it.
func (c *talk) learnFailure(step *reconcile.Step, err error, page bool) {
	op := step.Op
	if step.IsRead() {
		op, c.readFailed = step.For, true
	} else {
		c.read = nil
	}
	status, answered := err.(apierrors.APIStatus)
	isTerminating := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	switch {
	case step.IsRead(): // It is reported like a refusal of the write.
	case isTerminating:
		c.quiet, c.refused = true, true
	case !answered, status.Status().Code >= 500, page:
		c.unknown, c.quiet, c.wrote = true, true, true
	case step.Verb == reconcile.Delete && apierrors.IsNotFound(err):
		c.seen = c.seen.with(keyOf(op), nil)
		return
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid) && isUID(status),
		apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && err != error(noSubresource):
		c.quiet = true
	default:
		c.refused = true
	}
	message := ""
	if answered && !page {
		message = strings.TrimRight(status.Status().Message, ". ")
	}
	c.drop(op) // The last one counts.
	c.failures = append(c.failures, failed{op, message, isTerminating})
}

func isUID(err apierrors.APIStatus) bool {
	return err.Status().Details.Causes[0].Field == "metadata.uid"
}

func (c *talk) drop(op reconcile.Op) {
	c.failures = slices.DeleteFunc(slices.Clone(c.failures), func(f failed) bool { return f.op == op })
}
