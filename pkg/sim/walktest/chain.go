package walktest

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file follows a conversation with further syncs, in which all answers are good, until the controller is quiet.
// Then the other controllers take their turn. When nothing changes any more, the object must have what it asks for, or
// its status must give the reason. A state that was met before is not followed again.

// maxChain is how many syncs may follow. Each step of the other controllers begins a few.
const maxChain = 30

// caughtUp returns the world in which the caches show what the API server has, without the obstacles of that of c. It is
// nil when there is no sync.
func (p *player[In, W]) caughtUp(c *talk) *World {
	if !p.isForSync(c.live[p.key]) {
		return nil
	}
	return &World{Options: c.world.Options, Cached: c.live, Live: c.live, Memory: c.memory, Stuck: c.world.Stuck}
}

// next returns the conversation of the sync after c, in w, before its first request.
func (p *player[In, W]) next(c *talk, w *World, at time.Time) *talk {
	next, _ := p.begin(w, at)
	next.versions = c.versions
	next.lines = append(slices.Clip(c.lines), line{reply: fmt.Sprintf("(%s) the next sync, after %v:", c.outcome.Kind, at.Sub(c.at))})
	next.first = len(next.lines)
	if next.object.GetUID() != c.object.GetUID() {
		return next
	}
	next.wroteBefore, next.wrote = c.wrote || next.wrote, c.wrote || next.wrote
	for _, f := range c.failures {
		if next.object.GetGeneration() == c.object.GetGeneration() && !f.terminating {
			next.before = append(next.before, f.op)
		}
	}
	return next
}

// playOut plays c to its end with good answers. It returns false when an oracle does not hold.
func (p *player[In, W]) playOut(c *talk) bool {
	for step := c.sync.Next(); step != nil; step = c.sync.Next() {
		if !p.allowed(c, step) {
			return false
		}
		p.answer(c, step, &good)
	}
	c.outcome, c.memory = c.sync.End()
	return true
}

// follow plays the syncs after c.
func (p *player[In, W]) follow(c *talk) {
	at := c.at
	for syncs := 0; ; syncs++ {
		at = at.Add(c.outcome.After)
		quiet := !c.isDue()
		if quiet {
			at = at.Add(2 * time.Minute) // Every delay has ended.
		}
		w := p.caughtUp(c)
		if w == nil || isUnwritable(w.Live) || p.met(w, at, quiet) {
			return
		}
		next := p.next(c, w, at)
		if !p.playOut(next) {
			return
		}
		sent := len(next.lines) > next.first
		if syncs == maxChain || sent && quiet || !delayIsReasonable(next) {
			p.note("syncs come to an end, and one for which no event is due sends nothing", next, next.ended())
			return
		}
		c, at = next, next.at
		if !quiet {
			continue
		}
		if !p.progress(c) {
			if !p.settled(c) {
				p.note("in the end the object has what it asks for, or its status gives the reason", c,
					"nothing changes any more; the status is "+reconcile.Summary(conditionsOf(c.live[p.key])))
			}
			return
		}
		c.eventDue = true
	}
}

// progress does one step of the other controllers: what is being deleted, or has an owner that is gone, is removed, and
// Progress. The object stays as long as it has a finalizer. It returns false when they have nothing to do.
func (p *player[In, W]) progress(c *talk) bool {
	changed := false
	owner := c.live[p.key].(W)
	for key, have := range c.live {
		isDeleted := have.GetDeletionTimestamp() != nil && len(have.GetFinalizers()) == 0
		if key.Kind == p.key.Kind && !isDeleted {
			continue
		}
		if isDeleted || p.isGarbage(c, have) {
			c.live, changed = c.live.with(key, nil), true
			continue
		}
		if c.world.Stuck || p.Progress == nil {
			continue
		}
		if obj := deepCopy(have); p.Progress(owner, obj) {
			c.put(key, obj)
			changed = true
		}
	}
	return changed
}

// isGarbage reports whether the controller of obj, of the kind of the plan, does not exist.
func (p *player[In, W]) isGarbage(c *talk, obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != p.key.Kind || ref.APIVersion != p.Kind.GroupVersion().String() {
		return false
	}
	for key, have := range c.live {
		if key.Kind == p.key.Kind && have.GetUID() == ref.UID {
			return false
		}
	}
	return true
}

// isUnwritable reports whether an object lacks what a write to it must carry. It is never written then.
func isUnwritable(objects Objects) bool {
	for _, obj := range objects {
		if obj.GetUID() == "" || obj.GetResourceVersion() == "" {
			return true
		}
	}
	return false
}

// settled reports whether the object has what it asks for, or its status gives a reason.
func (p *player[In, W]) settled(c *talk) bool {
	obj := c.live[p.key].(W)
	is := ready(obj)
	switch {
	case p.Settled != nil:
		return p.Settled(obj, c.live, c.world.Stuck)
	case obj.GetDeletionTimestamp() != nil:
		return false // The plan is for its deletion, and it is still there.
	}
	return observed(obj) == obj.GetGeneration() && is.Reason != "" &&
		p.mayBeReady(obj, c.live) == (is.Status == metav1.ConditionTrue)
}

// met reports whether a sync in w was followed before, and notes that it is now.
func (p *player[In, W]) met(w *World, at time.Time, quiet bool) bool {
	key := sha256.Sum256(p.encoded(w, at, quiet))
	met := p.visited[key]
	p.visited[key] = true
	return met
}

// encoded returns all that decides what follows from w at this time. Versions, and times that have passed, do not count.
func (p *player[In, W]) encoded(w *World, at time.Time, quiet bool) []byte {
	m := w.Memory
	ledger := make(map[string]reconcile.Entry, len(m.Ledger))
	for op, e := range m.Ledger {
		e.Failed.Until = start.Add(max(e.Failed.Until.Sub(at), 0))
		e.Repeated.Until = start.Add(max(e.Repeated.Until.Sub(at), 0))
		ledger[string(op.Verb)+op.Kind+op.Namespace+"/"+op.Name] = e
	}
	text, err := json.Marshal([]any{quiet, w.Stuck, ledger, m.UID, m.Generation, m.Wrote, []byte(m.Reported)})
	if err != nil {
		panic(err)
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.Live), compareKeys) {
		text = append(text, p.encodedObject(key, w.Live[key])...)
	}
	return text
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (p *player[In, W]) encodedObject(key Key, have metav1.Object) []byte {
	if text := p.memo.encoded[have]; text != nil {
		return text
	}
	obj := reflect.New(reflect.TypeOf(have).Elem())
	obj.Elem().Set(reflect.ValueOf(have).Elem()) // A shallow copy.
	is := obj.Interface().(metav1.Object)
	if have.GetUID() != "" && have.GetResourceVersion() != "" {
		is.SetResourceVersion("some")
	}
	if key.Kind != p.key.Kind && have.GetUID() != "" {
		is.SetUID("some")
	}
	if key == p.key {
		all := slices.Clone(conditionsOf(is))
		for i := range all {
			all[i].LastTransitionTime = metav1.Time{}
		}
		obj.Elem().FieldByName("Status").FieldByName("Conditions").Set(reflect.ValueOf(all))
	}
	text, err := json.Marshal([]any{key, is})
	if err != nil {
		panic(err)
	}
	p.memo.encoded[have] = text
	return text
}

// fight plays syncs in which somebody undoes each write at once, again and again.
func (p *player[In, W]) fight(w *World, wanted []reconcile.Op) {
	const rounds, most = 10, 5 // Three repetitions are free, and one is delayed by a second.
	if w.EventDue || w.Held || w.Admits || w.Undeletable || isUnwritable(w.Live) {
		return
	}
	for _, op := range wanted {
		if op.Verb == reconcile.Delete {
			continue
		}
		c, _ := p.begin(w, start)
		count := 0
		for range rounds {
			before := c.live[keyOf(op)]
			if !p.playOut(c) {
				return
			}
			if slices.Contains(c.sent(), op) && c.live[keyOf(op)] != nil {
				count++
				c.live = undone(c, op, before)
			}
			next := p.caughtUp(c)
			if next == nil {
				break
			}
			c = p.next(c, next, c.at.Add(10*time.Millisecond))
			c.before, c.wroteBefore = nil, false
		}
		if count > most {
			p.note("what somebody undoes again and again is repeated more slowly", c, fmt.Sprintf(
				"%s was sent in %d of %d syncs within a second", text(op), count, rounds))
		}
	}
}

// undone returns what the API server has after somebody has undone a write.
func undone(c *talk, op reconcile.Op, before metav1.Object) Objects {
	if before == nil {
		return c.live.with(keyOf(op), nil)
	}
	now := c.live[keyOf(op)]
	obj := deepCopy(before)
	if op.Verb == reconcile.Update {
		obj = withStatus(now, before, false)
	}
	branch := *c
	branch.put(keyOf(op), obj)
	c.versions = branch.versions
	return branch.live
}

// vary plays the conversation in which all answers are good again, with what must not matter changed.
func (p *player[In, W]) vary(w *World) {
	play := func(change func(*In) bool) (string, *talk) {
		c, in := p.begin(w, start)
		if change != nil && !change(in) {
			return "", nil
		}
		const tooMany = 50 // There is an oracle for that.
		for step := c.sync.Next(); step != nil && len(c.lines) < tooMany; step = c.sync.Next() {
			p.answer(c, step, &good)
		}
		c.outcome, c.memory = c.sync.End()
		text := fmt.Sprint(c.lines, c.ended())
		if next := p.caughtUp(c); next != nil {
			text += string(p.encoded(next, c.at, false))
		}
		return text, c
	}
	want, _ := play(nil)
	check := func(name string, change func(*In) bool) {
		if have, c := play(change); c != nil && have != want {
			p.note(name, c, c.ended())
		}
	}
	check("the same input gives the same conversation", nil)
	for name, change := range p.Vary {
		check(name, change)
	}
}

// askTwice asks each rule twice, up to the first final answer.
func (p *player[In, W]) askTwice(c *talk, in *In) {
	for _, rule := range p.Plan.Rules {
		first, second := rule.Ask(in), rule.Ask(in)
		if !reflect.DeepEqual(withoutFunctions(first), withoutFunctions(second)) {
			p.note("a rule that is asked twice answers the same", c, rule.Name+" answers differently")
		}
		if first.Final {
			return
		}
	}
}

// withoutFunctions returns an answer without its functions.
func withoutFunctions(a reconcile.Answer) reconcile.Answer {
	steps := a.Steps
	a.Steps = nil
	for _, step := range steps {
		plain := *step
		plain.Differs, plain.Undone = nil, nil
		a.Steps = append(a.Steps, &plain)
	}
	return a
}

// explained returns the next request of c, and notes a problem if the answers of the rules are not about it.
func (p *player[In, W]) explained(c *talk) *reconcile.Step {
	rows := c.sync.Explain()
	step := c.sync.Next()
	var sending []string
	for _, row := range rows {
		if row.Sends {
			sending = append(sending, row.Rule)
		}
	}
	switch {
	case len(rows) != len(p.Plan.Rules)+1:
		p.note("each rule has an answer", c, fmt.Sprintf("there are %d answers", len(rows)))
	case step == nil && len(sending) > 0, step != nil && !slices.Equal(sending, []string{step.Rule}):
		p.note("the rule whose answer is that it sends is the one of the next request", c, fmt.Sprint(sending))
	}
	return step
}

// A memo has what does not have to be done again, in the worlds of one group.
type memo struct {
	trimmed map[metav1.Object]metav1.Object
	patched map[patch]metav1.Object
	encoded map[metav1.Object][]byte
}

// A patch is an object and what is patched in it.
type patch struct {
	have metav1.Object
	body string
}

// trimmed returns obj as the caches have it.
func (p *player[In, W]) trimmed(obj metav1.Object) metav1.Object {
	if trimmed := p.memo.trimmed[obj]; trimmed != nil {
		return trimmed
	}
	trimmed := p.trim(obj)
	p.memo.trimmed[obj] = trimmed
	return trimmed
}

func (walk *Walk[In, W]) trim(obj metav1.Object) metav1.Object {
	trimmed, err := walk.Trim(deepCopy(obj))
	if err != nil {
		panic(err)
	}
	return trimmed.(metav1.Object)
}
