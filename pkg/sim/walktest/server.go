package walktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file has the API server: what it answers when all is well, and every bad answer.

// A reply is one way to answer a request.
type reply struct {
	name string
	// change is what somebody else does first to the object, which exists; it returns nil for one that is gone. appears
	// returns what somebody else creates first. Nil is nothing.
	change  func(have metav1.Object) metav1.Object
	appears func() metav1.Object
	// err is the answer, nil that of a server for which all is well. done means that the request is done all the same, and
	// fake that it is not, although the answer is good.
	err        error
	done, fake bool
	// admits means that a webhook changes what is written, prunes that conditions are not stored, due that an event
	// follows.
	admits, prunes, due bool
}

// good is the answer of a server for which all is well.
var good = reply{name: "done"}

// matters reports whether the reply differs from a good one.
func (r *reply) matters(c *talk, step *reconcile.Step) bool {
	have := c.live[keyOf(step.Op)]
	return (r.change == nil || have != nil) && (r.appears == nil || have == nil)
}

// answer answers step, and notes what can be learned from it.
func (p *player[In, W]) answer(c *talk, step *reconcile.Step, r *reply) {
	key := keyOf(step.Op)
	p.current = c
	switch have := c.live[key]; {
	case r.change != nil && have != nil:
		c.put(key, r.change(deepCopy(have)))
		c.eventDue = true
	case r.appears != nil:
		c.put(key, r.appears())
		c.eventDue = true
	}
	var obj metav1.Object
	err := r.err
	if (err == nil || r.done) && !r.fake {
		var refused error
		obj, refused = p.do(c, step, r)
		switch {
		case refused != nil:
			err = refused
		case r.done:
			obj, c.eventDue = nil, true // The controller does not know that this write is its own.
		}
	}
	c.eventDue, c.admitted = c.eventDue || r.due, c.admitted || r.admits
	c.at = c.at.Add(20 * time.Millisecond) // Longer than the first delay.
	c.lines = append(c.lines, line{op: step.Op, rule: step.Rule, reply: r.name})
	if step.Verb == reconcile.UpdateStatus {
		c.status = step.Body
	}
	p.learn(c, step, obj, err)
	if obj != nil && err == nil {
		obj = p.trimmed(obj)
	}
	c.sync.Record(step, step.Answered(obj, err), c.at)
}

// put stores obj, which nobody else has, in a new version. If it is nil, there is none any more.
func (c *talk) put(key Key, obj metav1.Object) metav1.Object {
	if obj != nil && obj.GetResourceVersion() != "" {
		c.versions++
		obj.SetResourceVersion(fmt.Sprint(100 + c.versions))
	}
	c.live = c.live.with(key, obj)
	return obj
}

// do does what step asks for.
func (p *player[In, W]) do(c *talk, step *reconcile.Step, r *reply) (metav1.Object, error) {
	key, admits := keyOf(step.Op), r.admits || c.world.Admits
	have := c.live[key]
	switch {
	case step.Verb == reconcile.Create && have != nil && !step.Idempotent:
		return nil, apierrors.NewAlreadyExists(resource, step.Name)
	case step.Verb == reconcile.Create:
		obj := deepCopy(step.Body)
		obj.SetNamespace(step.Namespace)
		obj.SetUID(types.UID(fmt.Sprint("created-", c.versions)))
		obj.SetResourceVersion("new")
		obj.SetGeneration(1)
		return c.put(key, p.admit(step, obj, admits)), nil
	case have == nil:
		return nil, apierrors.NewNotFound(resource, step.Name)
	case step.IsRead():
		return have, nil
	case step.Verb == reconcile.Patch:
		obj := p.patched(have, step)
		switch {
		case obj.GetUID() != have.GetUID():
			return nil, invalid(step.Name, "metadata.uid")
		case obj.GetResourceVersion() != have.GetResourceVersion():
			return nil, conflict(step.Name)
		}
		obj = p.admit(step, deepCopy(obj), admits)
		if !reflect.DeepEqual(field(obj, "Spec"), field(have, "Spec")) {
			obj.SetGeneration(have.GetGeneration() + 1)
		}
		if c.put(key, obj); obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
			c.live = c.live.with(key, nil) // It was its last finalizer.
		}
		return obj, nil
	case step.UID != "" && step.UID != string(have.GetUID()),
		step.ResourceVersion != "" && step.ResourceVersion != have.GetResourceVersion():
		return nil, conflict(step.Name)
	case step.Verb == reconcile.Delete && c.world.Undeletable:
		return nil, forbidden(step.Name)
	case step.Verb == reconcile.Delete:
		c.live = c.live.with(key, nil)
		return nil, nil
	}
	return c.put(key, withStatus(have, step.Body, r.prunes)), nil
}

// admit is the webhook that changes an object on its way in.
func (p *player[In, W]) admit(step *reconcile.Step, obj metav1.Object, admits bool) metav1.Object {
	if child := p.child(keyOf(step.Op)); admits && child.Admit != nil {
		child.Admit(obj)
	}
	return obj
}

// patched returns have after a patch.
func (p *player[In, W]) patched(have metav1.Object, step *reconcile.Step) metav1.Object {
	return memoized(p.memo.patched, patch{have, string(step.Patch)}, func() metav1.Object {
		before, err := json.Marshal(have)
		var after []byte
		var patchErr error
		if step.JSONMerge {
			after, patchErr = jsonpatch.MergePatch(before, step.Patch)
		} else {
			after, patchErr = strategicpatch.StrategicMergePatch(before, step.Patch, have)
		}
		obj := reflect.New(reflect.TypeOf(have).Elem()).Interface()
		if err = errors.Join(err, patchErr, json.Unmarshal(after, obj)); err != nil {
			panic(err)
		}
		return obj.(metav1.Object)
	})
}

// withStatus returns have with the status of body.
func withStatus(have, body metav1.Object, prunes bool) metav1.Object {
	obj := deepCopy(have)
	status := reflect.ValueOf(obj).Elem().FieldByName("Status")
	status.Set(reflect.ValueOf(deepCopy(body)).Elem().FieldByName("Status"))
	if prunes {
		status.FieldByName("Conditions").SetZero()
	}
	return obj
}

var resource = schema.GroupResource{Group: "walk.test", Resource: "objects"}

func conflict(name string) error {
	return apierrors.NewConflict(resource, name, errors.New("object was modified"))
}

func forbidden(name string) error {
	return apierrors.NewForbidden(resource, name, errors.New("no permission"))
}

func invalid(name, field string) error {
	err := apierrors.NewInvalid(schema.GroupKind{Kind: "Object"}, name, nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: field}}
	return err
}

func terminating(name string) error {
	err := apierrors.NewForbidden(resource, name, errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// noSubresource is the answer to a status write if the definition of the kind has no status subresource.
var noSubresource = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound,
	Message: "the server could not find the requested resource",
}}

// bad returns every bad answer to step.
func (p *player[In, W]) bad(step *reconcile.Step) []reply {
	return memoized(p.replies, step.Op, func() []reply { return append(failures(step), p.othersFirst(step.Op)...) })
}

// failures are answers that are not good.
func failures(step *reconcile.Step) []reply {
	name := step.Name
	broken, noAnswer := apierrors.NewInternalError(errors.New("something broke")), errors.New("connection reset by peer")
	replies := []reply{
		{name: "403", err: forbidden(name)},
		{name: "429", err: apierrors.NewTooManyRequests("too many requests", 1)},
		{name: "500, and it was not done", err: broken}, {name: "no answer, and it was not done", err: noAnswer},
		// What client-go makes of a page that is not of an API server.
		{name: "404, the page of a proxy", err: apierrors.NewGenericServerResponse(
			404, string(step.Verb), resource, name, "404 page not found", 0, true)},
	}
	if step.IsRead() {
		return replies
	}
	replies = append(replies, reply{name: "409, a conflict", err: conflict(name)},
		reply{name: "500, but it was done", err: broken, done: true},
		reply{name: "no answer, but it was done", err: noAnswer, done: true})
	if step.Verb == reconcile.Delete {
		// client-go takes any answer with code 200 for a success, and does not read it.
		return append(replies, reply{name: "200, the page of a proxy", fake: true})
	}
	replies = append(replies, reply{name: "422, invalid", err: invalid(name, "spec")})
	switch step.Verb {
	case reconcile.Create:
		replies = append(replies, reply{name: "409, it exists", err: apierrors.NewAlreadyExists(resource, name)},
			reply{name: "404, not found", err: apierrors.NewNotFound(resource, name)},
			reply{name: "403, the namespace is being deleted", err: terminating(name), due: true}, // And the object with it.
			reply{name: "403, the namespace is being deleted, which is wrong", err: terminating(name)})
	case reconcile.Patch:
		replies = append(replies, reply{name: "404, not found", err: apierrors.NewNotFound(resource, name)},
			reply{name: "422, another uid", err: invalid(name, "metadata.uid")})
	case reconcile.UpdateStatus:
		replies = append(replies, reply{name: "404, no status subresource", err: noSubresource},
			reply{name: "done, but the conditions were dropped", prunes: true})
	}
	return replies
}

// othersFirst are answers after somebody else was faster.
func (p *player[In, W]) othersFirst(op reconcile.Op) []reply {
	gone := func(metav1.Object) metav1.Object { return nil }
	same := func(obj metav1.Object) metav1.Object { return obj }
	replies := []reply{{name: "after it was deleted", change: gone}, {name: "after it got another version", change: same}}
	key, isRead, isCreate := keyOf(op), op.Verb == reconcile.Get, op.Verb == reconcile.Create
	child := p.child(key)
	if key == p.key {
		for i, live := range p.lives()[1:] { // The first is gone.
			// A write has preconditions, so one change is like another.
			if isRead || i == 0 || i == len(p.Changes) {
				replies = append(replies, reply{name: "after it " + live.name, change: live.do})
			}
		}
		return replies
	}
	if child.Admit != nil && (isCreate || op.Verb == reconcile.Patch) {
		replies = append(replies, reply{name: "done, but changed on its way in", admits: true})
	}
	for i, e := range slices.Concat([]Edit[metav1.Object]{asWanted}, strangers[:4], child.Edits) {
		if isRead && i > 0 {
			replies = append(replies, reply{name: "after it became " + e.Name, change: func(obj metav1.Object) metav1.Object {
				e.Do(obj)
				return obj
			}})
		}
		if (isRead || isCreate) && i < 3 && child.Want != nil && p.childKey(child) == key {
			replies = append(replies, reply{name: "after somebody has created it " + e.Name, appears: func() metav1.Object {
				obj := p.wanted(child)
				e.Do(obj)
				return obj
			}})
		}
	}
	return replies
}
