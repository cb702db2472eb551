package walktest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file follows a conversation with further syncs, in which all answers are good, until the controller is quiet.
// Then the other controllers take their turn. When nothing changes any more, the object must have what it asks for, or
// its status must give the reason. A state that was met before is not followed again.

// maxChain is how many syncs may follow. Each step of the other controllers begins a few.
const maxChain = 30

// caughtUp returns the world in which the caches show what the API server has. What was refused in that of c is not. It
// is nil when there is no sync.
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
	next.lines = append(slices.Clip(c.lines), line{
		reply: fmt.Sprintf("(%s) the next sync, after %v:", c.outcome.Kind, at.Sub(c.at)),
	})
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
		if !p.run(next, func(step *reconcile.Step) *reply {
			if !p.allowed(next, step) {
				return nil
			}
			return &good
		}) {
			return
		}
		sent := len(next.lines) > next.first
		if syncs == maxChain || sent && quiet || !delayIsReasonable(next) {
			p.note("syncs come to an end, and one for which no event is due sends nothing", next, next.ended())
			return
		}
		c, at = next, next.at
		switch {
		case !quiet:
		case p.progress(c):
			c.eventDue = true
		default:
			if !p.settled(c) {
				p.note("in the end the object has what it asks for, or its status gives the reason", c,
					"nothing changes any more; the status is "+reconcile.Summary(conditionsOf(c.live[p.key])))
			}
			return
		}
	}
}

// progress does one step of the other controllers: what is being deleted, or has an owner that is gone, is removed, and
// Progress. The object stays as long as it has a finalizer. It returns false when they have nothing to do.
func (p *player[In, W]) progress(c *talk) (changed bool) {
	owner := c.live[p.key].(W)
	for key, have := range c.live {
		isDeleted := have.GetDeletionTimestamp() != nil && len(have.GetFinalizers()) == 0
		if isDeleted || p.isGarbage(c, have) {
			c.live, changed = c.live.with(key, nil), true
			continue
		}
		if key.Kind == p.key.Kind || c.world.Stuck || p.Progress == nil {
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
	ref, alive := metav1.GetControllerOfNoCopy(obj), false
	for _, have := range c.live {
		alive = alive || ref != nil && have.GetUID() == ref.UID
	}
	return ref != nil && !alive && ref.Kind == p.key.Kind && ref.APIVersion == p.Kind.GroupVersion().String()
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

// settled reports whether the object has what it asks for, or its status gives a reason. If it is being deleted, the
// plan is for that, and it is still there.
func (p *player[In, W]) settled(c *talk) bool {
	obj := c.live[p.key].(W)
	if p.Settled != nil {
		return p.Settled(obj, c.live, c.world.Stuck)
	}
	is := ready(obj)
	return obj.GetDeletionTimestamp() == nil && observed(obj) == obj.GetGeneration() && is.Reason != "" &&
		p.mayBeReady(obj, c.live) == (is.Status == metav1.ConditionTrue)
}

// met reports whether a sync in w was followed before, and notes that it is now.
func (p *player[In, W]) met(w *World, at time.Time, quiet bool) bool {
	key := sha256.Sum256([]byte(p.encoded(w, at, quiet)))
	met := p.visited[key]
	p.visited[key] = true
	return met
}

// encoded returns all that decides what follows from w at this time. Versions and times that have passed do not count.
func (p *player[In, W]) encoded(w *World, at time.Time, quiet bool) string {
	m := w.Memory
	ledger := make(map[string]reconcile.Entry, len(m.Ledger))
	for op, e := range m.Ledger {
		e.Failed.Until = start.Add(max(e.Failed.Until.Sub(at), 0))
		e.Repeated.Until = start.Add(max(e.Repeated.Until.Sub(at), 0))
		ledger[text(op)] = e
	}
	texts := []string{encode(quiet, w.Stuck, ledger, m.UID, m.Generation, m.Wrote, []byte(m.Reported))}
	for key, have := range w.Live {
		texts = append(texts, memoized(p.memo.encoded, have, func() string {
			obj := shallowCopy(have)
			if have.GetUID() != "" && have.GetResourceVersion() != "" {
				obj.SetResourceVersion("some")
			}
			if key.Kind != p.key.Kind && have.GetUID() != "" {
				obj.SetUID("some")
			}
			if key == p.key {
				all := slices.Clone(conditionsOf(obj))
				for i := range all {
					all[i].LastTransitionTime = metav1.Time{}
				}
				reflect.ValueOf(obj).Elem().FieldByName("Status").FieldByName("Conditions").Set(reflect.ValueOf(all))
			}
			return encode(key, obj)
		}))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

func encode(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func shallowCopy(obj metav1.Object) metav1.Object {
	c := reflect.New(reflect.TypeOf(obj).Elem())
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	return c.Interface().(metav1.Object)
}

// vary plays the conversation in which all answers are good again, with what must not matter changed.
func (p *player[In, W]) vary(w *World) {
	play := func(change func(*In) bool) (string, *talk) {
		c, in := p.begin(w, start)
		if change != nil && !change(in) {
			return "", nil
		}
		p.run(c, func(*reconcile.Step) *reply { return &good })
		text := fmt.Sprint(c.lines, c.ended())
		if next := p.caughtUp(c); next != nil {
			text += p.encoded(next, c.at, false)
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

// explain notes a problem if the rules answer differently when they are asked again, or if their answers are not about
// step, the next request of c or nil. What the answers do is compared by vary.
func (p *player[In, W]) explain(c *talk, step *reconcile.Step) {
	rows := c.sync.Explain()
	if again := c.sync.Explain(); !slices.Equal(rows, again) {
		p.note("a rule that is asked twice answers the same", c, fmt.Sprint(rows, " and then ", again))
	}
	var sending, want []string
	for _, row := range rows {
		if row.Sends {
			sending = append(sending, row.Rule)
		}
	}
	if step != nil {
		want = []string{step.Rule}
	}
	if len(rows) != len(p.Plan.Rules)+1 || !slices.Equal(sending, want) {
		p.note("each rule has an answer, and one that sends is of the next request", c, fmt.Sprint(rows))
	}
}

// A memo has what does not have to be done again for the objects in the worlds of one group.
type memo struct {
	trimmed map[metav1.Object]metav1.Object
	patched map[patch]metav1.Object
	encoded map[metav1.Object]string
}

// A patch is an object and what is patched in it.
type patch struct {
	have metav1.Object
	body string
}

func memoized[K comparable, V any](memo map[K]V, key K, do func() V) V {
	value, found := memo[key]
	if !found {
		value = do()
		memo[key] = value
	}
	return value
}

// trimmed returns obj as the caches have it.
func (p *player[In, W]) trimmed(obj metav1.Object) metav1.Object {
	return memoized(p.memo.trimmed, obj, func() metav1.Object { return p.trim(obj) })
}

func (walk *Walk[In, W]) trim(obj metav1.Object) metav1.Object {
	trimmed, err := walk.Trim(deepCopy(obj))
	if err != nil {
		panic(err)
	}
	return trimmed.(metav1.Object)
}
