package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file follows a conversation with further syncs, in which all answers are good, until the controller is quiet.
// Then the other controllers take their turn: pods become available, and what is being deleted is removed. When nothing
// changes any more, the Foo must have what it asks for, or its status must give the reason. A state that was met before
// is not followed again.

// maxChain is how many syncs may follow. Each step of the other controllers begins a few.
const maxChain = 20

const walkNeverQuiet = "syncs come to an end"

// follow plays the syncs after a conversation that ended with outcome.
func (walk *walker) follow(c *walkTalk, outcome Outcome) {
	server, memory, at := c.server, c.state.Memory, c.at
	server.capped, server.undeletable = false, false // Obstacles are removed.
	done := !comesBack(outcome)
	for syncs := 0; ; syncs++ {
		at = at.Add(outcome.After)
		world := walkCaughtUp(c.world, server, memory)
		if world == nil || world.unwritable() || walk.met(world, at, done && !c.server.eventDue) {
			return
		}
		next := newTalk(world, at, nil)
		next.later = true
		next.lines = append(slices.Clip(c.lines), walkLine{
			reply: fmt.Sprintf("sync after %v, %s", at.Sub(c.at), outcome.Kind),
		})
		next.first = len(next.lines)
		if !walk.playOut(next) {
			return
		}
		sent := len(next.lines) > next.first
		outcome = next.state.Outcome()
		switch {
		case syncs == maxChain, sent && done && !c.server.eventDue, !delayIsReasonable(next, outcome):
			walk.note(walkNeverQuiet, next, outcome)
			return
		}
		c, server, memory, at = next, next.server, next.state.Memory, next.at
		done = !comesBack(outcome)
		if !done {
			continue
		}
		at = at.Add(2 * time.Minute) // Every delay has ended.
		if !sent && !server.progress(world) {
			if !walkSettled(world) {
				c.later = true
				walk.note("in the end the Foo has what it asks for, or its status gives the reason", c, outcome)
			}
			return
		}
		c.server.eventDue = c.server.eventDue || !sent
	}
}

// playOut plays c to its end with good answers. It returns false when an oracle does not hold.
func (walk *walker) playOut(c *walkTalk) bool {
	for step := c.state.Next(); step != nil; step = c.state.Next() {
		if !walk.allowed(c, step) {
			return false
		}
		c.answer(step, &walkGood)
	}
	return true
}

// progress does one step of the other controllers. It returns false when they have nothing to do.
func (server *walkServer) progress(w *walkWorld) bool {
	changed := false
	for _, have := range server.deployments {
		ref := FooReference(have)
		garbage := ref != nil && ref.UID != server.foo.UID && ref.UID != walkHolder.UID && ref.UID != walkRing.UID
		if have.DeletionTimestamp != nil || garbage {
			server.remove(have.Name)
			changed = true
			continue
		}
		if have.Name != server.foo.Spec.DeploymentName || w.stuck || walkComplete(have) {
			continue
		}
		dep := have.DeepCopy()
		walkRollout(replicasOf(dep))(dep)
		walkProgressing(corev1.ConditionTrue, "NewReplicaSetAvailable")(dep)
		dep.ResourceVersion = server.version()
		server.store(dep)
		changed = true
	}
	return changed
}

// walkComplete reports whether the Deployment controller has nothing to do.
func walkComplete(dep *appsv1.Deployment) bool {
	wanted, status := replicasOf(dep), &dep.Status
	return status.ObservedGeneration >= dep.Generation && status.UpdatedReplicas == wanted &&
		status.AvailableReplicas == wanted && status.Replicas == wanted && walkServedOnce(dep)
}

// unwritable reports whether a Deployment lacks what a write to it must carry. It is never written then.
func (w *walkWorld) unwritable() bool {
	return slices.ContainsFunc(w.server.deployments, func(dep *appsv1.Deployment) bool {
		return dep.UID == "" || dep.ResourceVersion == ""
	})
}

// walkSettled reports whether the Foo has what it asks for in w, or its status gives the reason.
func walkSettled(w *walkWorld) bool {
	foo, dep := w.cached.foo, w.cached.deployment
	talk := walkTalk{deployment: dep}
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || foo.Status.ObservedGeneration != foo.Generation {
		return false
	}
	blocked := dep == nil && len(w.rivals) > 0 || dep != nil && !walkControls(foo, dep) || w.stuck ||
		foo.Spec.Replicas != nil && *foo.Spec.Replicas < 0
	switch {
	case foo.Spec.Paused:
		return ready.Reason == v1alpha1.ReasonPaused
	case blocked:
		return ready.Status == "False" || walkIsReady(&talk, foo, ready.Reason)
	}
	left := slices.ContainsFunc(w.cached.previous, isNoCopy)
	return !left && ready.Status == "True" && ready.Reason == v1alpha1.ReasonAvailable &&
		len(foo.Status.Conditions) == 1 && walkIsReady(&talk, foo, ready.Reason) &&
		foo.Status.AvailableReplicas == dep.Status.AvailableReplicas
}

// met reports whether a sync in w was followed before, and notes that it is now.
func (walk *walker) met(w *walkWorld, at time.Time, done bool) bool {
	walk.encoder = encodeWorld(walk.encoder[:0], w, at, done)
	hash := fnv.New64a()
	hash.Write(walk.encoder)
	key := hash.Sum64()
	if walk.visited[key] {
		return true
	}
	walk.visited[key] = true
	return false
}

// A walkEncoder appends values, each so that its end can be seen.
type walkEncoder []byte

func (e *walkEncoder) text(values ...string) {
	for _, value := range values {
		*e = append(append(*e, value...), 0)
	}
}

func (e *walkEncoder) numbers(values ...int64) {
	for _, value := range values {
		*e = append(strconv.AppendInt(*e, value, 10), 0)
	}
}

func (e *walkEncoder) flags(values ...bool) {
	for _, value := range values {
		*e = strconv.AppendBool(*e, value)
	}
}

// encodeWorld appends all that decides what follows from w at this time. Versions, and times that have passed, do not
// count.
func encodeWorld(e walkEncoder, w *walkWorld, at time.Time, done bool) walkEncoder {
	e.flags(done, w.stuck)
	rivals := slices.Clone(w.rivals)
	slices.SortFunc(rivals, func(a, b *v1alpha1.Foo) int { return cmp.Compare(a.Name, b.Name) })
	for _, rival := range rivals {
		e.text(rival.Name)
		e.flags(rival.DeletionTimestamp != nil, rival.Spec.Paused, *rival.Spec.Replicas < 0)
	}
	e.foo(w.cached.foo)
	deployments := slices.Clone(w.server.deployments)
	slices.SortFunc(deployments, func(a, b *appsv1.Deployment) int { return cmp.Compare(a.Name, b.Name) })
	for _, dep := range deployments {
		e.deployment(dep)
	}
	memory := &w.memory
	e.flags(memory.UID == w.cached.foo.UID, memory.Generation == w.cached.foo.Generation, memory.Wrote,
		memory.StaleFoo, memory.StaleDeployment)
	e.text(memory.Reported)
	for _, op := range walkOps(memory.Ledger) {
		attempt := memory.Ledger[op]
		e.text(string(op.Verb), op.Name, attempt.Report.Reason, attempt.Report.Message)
		e.numbers(int64(attempt.Count), int64(max(attempt.Until.Sub(at), 0)))
		e.flags(op.Again, attempt.Expected, attempt.Report.Stalled)
	}
	return e
}

// walkOps returns the operations in ledger in a fixed order.
func walkOps(ledger map[Op]Attempt) []Op {
	ops := make([]Op, 0, len(ledger))
	for op := range ledger {
		ops = append(ops, op)
	}
	slices.SortFunc(ops, func(a, b Op) int {
		again := 0
		if a.Again != b.Again {
			again = -1
			if a.Again {
				again = 1
			}
		}
		return cmp.Or(cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Name, b.Name), again)
	})
	return ops
}

func (e *walkEncoder) foo(foo *v1alpha1.Foo) {
	spec, status := &foo.Spec, &foo.Status
	e.text(string(foo.UID), spec.DeploymentName, spec.Image, status.Selector)
	e.flags(spec.Paused, spec.Replicas == nil)
	if spec.Replicas != nil {
		e.numbers(int64(*spec.Replicas))
	}
	e.numbers(foo.Generation, status.ObservedGeneration, int64(status.Replicas), int64(status.AvailableReplicas))
	for _, condition := range status.Conditions {
		e.text(condition.Type, string(condition.Status), condition.Reason, condition.Message)
		e.numbers(condition.ObservedGeneration)
	}
}

func (e *walkEncoder) deployment(dep *appsv1.Deployment) {
	status := &dep.Status
	e.text(dep.Name, imageOf(dep))
	e.text(dep.Labels[labelManagedBy], dep.Labels[v1alpha1.LabelMadeFor], dep.Labels[v1alpha1.LabelFooGeneration])
	e.flags(dep.UID == "", dep.ResourceVersion == "", dep.DeletionTimestamp != nil)
	e.numbers(dep.Generation, int64(replicasOf(dep)), status.ObservedGeneration, int64(status.Replicas),
		int64(status.UpdatedReplicas), int64(status.AvailableReplicas))
	for _, ref := range dep.OwnerReferences {
		e.text(ref.APIVersion, ref.Kind, string(ref.UID))
		e.flags(isSet(ref.Controller), isSet(ref.BlockOwnerDeletion))
	}
	for _, condition := range status.Conditions {
		e.text(string(condition.Type), string(condition.Status), condition.Reason)
	}
}
