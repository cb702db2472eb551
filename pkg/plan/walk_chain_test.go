package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file follows a conversation with further syncs, in which all answers are good, until the controller is quiet.
// Then the other controllers take their turn: pods become available, and what is being deleted is removed. When nothing
// changes any more, the Foo must have what it asks for, or its status must give the reason. A state that was met before
// is not followed again.

// maxChain is how many syncs may follow. Each step of the other controllers begins a few.
const maxChain = 20

const walkNeverQuiet = "syncs come to an end, and one for which no event is due sends nothing"

// follow plays the syncs after a conversation that ended with outcome.
func (walk *walker) follow(c *walkTalk, outcome Outcome) {
	server, at := c.server, c.at
	server.capped, server.undeletable = false, false // Obstacles are removed.
	for syncs := 0; ; syncs++ {
		at = at.Add(outcome.After)
		quiet := !c.isDue(outcome)
		if quiet {
			at = at.Add(2 * time.Minute) // Every delay has ended.
		}
		world := walkCaughtUp(c.world, server, c.state.Memory)
		if world == nil || world.unwritable() || walk.met(world, at, quiet) {
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
		if syncs == maxChain || sent && quiet || !delayIsReasonable(next, outcome) {
			walk.note(walkNeverQuiet, next, outcome)
			return
		}
		c, server, at = next, next.server, next.at
		if !quiet {
			continue
		}
		if !server.progress(world) {
			if !walkSettled(world) {
				walk.note("in the end the Foo has what it asks for, or its status gives the reason", c, outcome)
			}
			return
		}
		c.server.eventDue = true
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
		walkDeploymentController(dep)
		dep.ResourceVersion = server.version()
		server.store(dep)
		changed = true
	}
	return changed
}

// walkComplete reports whether the Deployment controller has nothing to do.
func walkComplete(dep *appsv1.Deployment) bool {
	wanted, status := *dep.Spec.Replicas, &dep.Status
	return status.ObservedGeneration >= dep.Generation && status.UpdatedReplicas == wanted &&
		status.AvailableReplicas == wanted && status.Replicas == wanted
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
	blocked := dep != nil && !walkControls(foo, dep) || w.stuck
	left := len(w.server.previous()) > 0
	switch {
	case foo.Spec.Paused:
		return ready.Reason == v1alpha1.ReasonPaused
	case foo.Spec.Replicas != nil && *foo.Spec.Replicas < 0:
		return ready.Reason == v1alpha1.ReasonInvalid
	case left && w.server.nobodyMissesPrevious():
		return false
	case blocked:
		return ready.Status == "False" || walkIsReady(&talk, foo, ready.Reason)
	case left: // The Foo sets no number, and the Deployment has fewer than the previous one is set to.
		return ready.Status == "False" && ready.Reason == v1alpha1.ReasonRenaming && foo.Spec.Replicas == nil
	}
	return ready.Status == "True" && ready.Reason == v1alpha1.ReasonAvailable &&
		len(foo.Status.Conditions) == 1 && walkIsReady(&talk, foo, ready.Reason) &&
		foo.Status.AvailableReplicas == dep.Status.AvailableReplicas
}

// met reports whether a sync in w was followed before, and notes that it is now.
func (walk *walker) met(w *walkWorld, at time.Time, quiet bool) bool {
	key := sha256.Sum256(encodeWorld(w, at, quiet))
	met := walk.visited[key]
	walk.visited[key] = true
	return met
}

// encodeWorld returns all that decides what follows from w at this time. Versions, and times that have passed, do not
// count.
func encodeWorld(w *walkWorld, at time.Time, quiet bool) []byte {
	const version = "some"
	foo := *w.cached.foo
	foo.ResourceVersion, foo.Status.Conditions = version, slices.Clone(foo.Status.Conditions)
	for i := range foo.Status.Conditions {
		foo.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	deployments := map[string]appsv1.Deployment{}
	for _, have := range w.server.deployments {
		dep := *have
		if dep.UID != "" && dep.ResourceVersion != "" {
			dep.UID, dep.ResourceVersion = version, version
		}
		deployments[dep.Name] = dep
	}
	memory, ledger := &w.memory, map[string]Attempt{}
	for op, attempt := range memory.Ledger {
		attempt.Until = walkStart.Add(max(attempt.Until.Sub(at), 0))
		ledger[fmt.Sprint(op, op.Again)] = attempt
	}
	text, err := json.Marshal([]any{
		quiet, w.stuck, foo, deployments, ledger, memory.UID, memory.Generation, memory.Wrote, []byte(memory.Reported),
	})
	if err != nil {
		panic(err)
	}
	return text
}
