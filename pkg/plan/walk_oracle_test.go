package plan

import (
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file has what must hold in every conversation. An oracle uses the answers that were given, and no function of
// this package that decides anything.

// A walkStepOracle reports whether step may be sent now.
type walkStepOracle struct {
	name  string
	holds func(c *walkTalk, step *Step) bool
}

var walkStepOracles = []walkStepOracle{
	{"at most 5 requests, and 3 for each previous Deployment", fewRequests},
	{"a write carries uid and resourceVersion", carriesPreconditions},
	{"nothing is written for a Foo that is gone, recreated, being deleted or renamed", respectsLiveFoo},
	{"nothing but the status is written for a Foo that is paused or invalid", respectsPause},
	{"nothing is written after a write with an unknown outcome", stopsWhenUnknown},
	{"a create waits for a live read of the Foo, and for older claimants", createsForLiveFoo},
	{"a patch changes a Deployment of the Foo that was not written for a newer spec", patchesItsOwn},
	{"a patch mentions only fields that the Foo owns", mentionsOwnFields},
	{"a delete comes after live reads of the Foo and of the replacement", deletesAfterReads},
	{"a delete removes a previous Deployment that was made for the Foo", deletesItsOwn},
	{"a delete takes away no replica that is needed", keepsServing},
	{"no write is sent twice", notTwice},
	{"no live read is sent twice without a write between", readsOnce},
	{"Ready is True only when it is", readyIsTrue},
	{"the status is about the newest generation", reportsGeneration},
}

// A walkEndOracle reports whether a conversation may end like this.
type walkEndOracle struct {
	name  string
	holds func(c *walkTalk, outcome Outcome) bool
}

var walkEndOracles = []walkEndOracle{
	{"a delay is between 0 and a minute, and 0 only when another one has ended", delayIsReasonable},
	{"what was not done comes back", failuresComeBack},
	{"what was refused is in the condition", failuresAreReported},
	{"what was refused is logged", failuresAreLogged},
	{"what backs off comes back", backoffsComeBack},
	{"what backs off is in the condition", backoffsAreReported},
	{"when it is done another sync sends nothing", staysDone},
	{"when all answers are good another sync sends nothing", repeatsNothing},
	{"the objects of caches are not changed", leavesInputsAlone},
}

func isRead(step *Step) bool { return step.Verb == ReadFoo || step.Verb == ReadDeployment }

func fewRequests(c *walkTalk, _ *Step) bool {
	return len(c.lines)-c.first < 5+3*len(c.world.cached.previous)
}

func carriesPreconditions(_ *walkTalk, step *Step) bool {
	switch step.Verb {
	case PatchDeployment:
		sent := walkParse(step.Patch).Metadata
		return sent.UID != "" && sent.ResourceVersion != "" &&
			sent.UID == step.Deployment.UID && sent.ResourceVersion == step.Deployment.ResourceVersion
	case DeleteDeployment:
		return step.Deployment.UID != "" && step.Deployment.ResourceVersion != ""
	case UpdateStatus:
		return step.Foo.UID != "" && step.Foo.ResourceVersion != ""
	}
	return true
}

func respectsLiveFoo(c *walkTalk, step *Step) bool { return isRead(step) || !c.fooLost }

func respectsPause(c *walkTalk, step *Step) bool {
	foo := c.world.cached.foo
	invalid := foo.Spec.Replicas != nil && *foo.Spec.Replicas < 0
	return isRead(step) || step.Verb == UpdateStatus || !c.fooPaused && !foo.Spec.Paused && !invalid
}

func stopsWhenUnknown(c *walkTalk, step *Step) bool { return isRead(step) || !c.unknown }

func createsForLiveFoo(c *walkTalk, step *Step) bool {
	if step.Verb != CreateDeployment {
		return true
	}
	w := c.world
	wrote := w.memory.Wrote && w.memory.UID == w.cached.foo.UID
	had := wrote || w.cached.foo.Status.ObservedGeneration != 0 || slices.ContainsFunc(w.cached.previous, isNoCopy)
	older := slices.ContainsFunc(w.rivals, func(rival *v1alpha1.Foo) bool {
		free := rival.DeletionTimestamp != nil || rival.Spec.Paused || *rival.Spec.Replicas < 0
		return !free && rival.CreationTimestamp.Before(&w.cached.foo.CreationTimestamp)
	})
	return (c.readFoo || !had) && !older
}

func patchesItsOwn(c *walkTalk, step *Step) bool {
	if step.Verb != PatchDeployment {
		return true
	}
	dep := step.Deployment
	label, _ := strconv.ParseInt(dep.Labels[v1alpha1.LabelFooGeneration], 10, 64)
	newer := label > c.world.cached.foo.Generation
	return walkControls(c.world.cached.foo, dep) && dep.DeletionTimestamp == nil && (!newer || c.readFoo)
}

// isNoCopy reports whether dep was made for the Foo under the name that it has.
func isNoCopy(dep *appsv1.Deployment) bool {
	return dep.Name != "web-9" && dep.Labels[v1alpha1.LabelMadeFor] != ""
}

// walkControls reports whether foo is the controller of dep.
func walkControls(foo *v1alpha1.Foo, dep *appsv1.Deployment) bool {
	return slices.ContainsFunc(dep.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == "samplecontroller.k8s.io/v1alpha1" && ref.Kind == "Foo" && ref.UID == foo.UID &&
			ref.Controller != nil && *ref.Controller
	})
}

func mentionsOwnFields(c *walkTalk, step *Step) bool {
	if step.Verb != PatchDeployment {
		return true
	}
	own := []string{"metadata.uid", "metadata.resourceVersion", "metadata.ownerReferences"}
	for _, label := range []string{"app.kubernetes.io/managed-by", v1alpha1.LabelMadeFor, v1alpha1.LabelFooGeneration} {
		own = append(own, "metadata.labels."+label)
	}
	if c.world.cached.foo.Spec.Replicas != nil {
		own = append(own, "spec.replicas")
	}
	if c.world.cached.foo.Spec.Image != "" {
		own = append(own, "spec.template.spec.containers")
	}
	patch := walkParse(step.Patch)
	for _, path := range patch.paths {
		if !slices.Contains(own, path) {
			return false
		}
	}
	containers := patch.Spec.Template.Spec.Containers
	return len(containers) == 0 || len(containers) == 1 && containers[0].Name == ContainerName
}

func deletesAfterReads(c *walkTalk, step *Step) bool {
	return step.Verb != DeleteDeployment || c.readFoo && (c.readDeployment || c.world.cached.deployment == nil)
}

func deletesItsOwn(c *walkTalk, step *Step) bool {
	if step.Verb != DeleteDeployment {
		return true
	}
	dep := step.Deployment
	foo := c.world.cached.foo
	return dep.Name != foo.Spec.DeploymentName && isNoCopy(dep) && walkControls(foo, dep) &&
		dep.DeletionTimestamp == nil
}

// keepsServing: the rest must have as many replicas available as the deleted Deployment had, or as the Foo wants. One
// that served once counts as if a replica were available: it may have lost its pods for a moment.
func keepsServing(c *walkTalk, step *Step) bool {
	if step.Verb != DeleteDeployment {
		return true
	}
	had := step.Deployment.Status.AvailableReplicas
	if walkServedOnce(step.Deployment) {
		had = max(had, 1)
	}
	wanted, rest := had, int32(0)
	if c.deployment != nil && walkControls(c.world.cached.foo, c.deployment) {
		if c.deployment.Spec.Replicas != nil {
			wanted = *c.deployment.Spec.Replicas
		}
		if c.deployment.DeletionTimestamp == nil {
			rest = c.deployment.Status.AvailableReplicas
		}
	}
	if c.world.cached.foo.Spec.Replicas != nil {
		wanted = *c.world.cached.foo.Spec.Replicas
	}
	for _, dep := range c.left {
		if dep.UID != step.Deployment.UID && dep.DeletionTimestamp == nil {
			rest += dep.Status.AvailableReplicas
		}
	}
	return rest >= min(wanted, had)
}

func walkServedOnce(dep *appsv1.Deployment) bool {
	return slices.ContainsFunc(dep.Status.Conditions, func(condition appsv1.DeploymentCondition) bool {
		return condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionTrue &&
			condition.Reason == "NewReplicaSetAvailable"
	})
}

func notTwice(c *walkTalk, step *Step) bool {
	same := func(line walkLine) bool { return line.op == step.Op }
	return isRead(step) || !slices.ContainsFunc(c.lines[c.first:], same)
}

func readsOnce(c *walkTalk, step *Step) bool {
	return !(step.Verb == ReadFoo && c.readFoo || step.Verb == ReadDeployment && c.readDeployment)
}

func readyIsTrue(c *walkTalk, step *Step) bool {
	if step.Verb != UpdateStatus {
		return true
	}
	ready := meta.FindStatusCondition(step.Foo.Status.Conditions, v1alpha1.ConditionReady)
	return ready == nil || ready.Status != metav1.ConditionTrue || walkIsReady(c, step.Foo, ready.Reason)
}

// walkIsReady reports whether the Deployment is complete and, unless the reason allows another one, as foo wants it.
func walkIsReady(c *walkTalk, foo *v1alpha1.Foo, reason string) bool {
	dep := c.deployment
	if dep == nil || !walkControls(foo, dep) || dep.DeletionTimestamp != nil || dep.Spec.Replicas == nil {
		return false
	}
	asObserved := reason == v1alpha1.ReasonPaused || reason == v1alpha1.ReasonFieldsOverridden
	if foo.Spec.Replicas != nil && *foo.Spec.Replicas != *dep.Spec.Replicas && !asObserved {
		return false
	}
	image := dep.Spec.Template.Spec.Containers[0].Image
	if foo.Spec.Image != "" && foo.Spec.Image != image && !asObserved {
		return false
	}
	status, wanted := dep.Status, *dep.Spec.Replicas
	return status.ObservedGeneration >= dep.Generation && status.UpdatedReplicas >= wanted &&
		status.AvailableReplicas >= wanted && status.Replicas <= wanted
}

func reportsGeneration(c *walkTalk, step *Step) bool {
	return step.Verb != UpdateStatus || step.Foo.Status.ObservedGeneration == c.world.cached.foo.Generation
}

func comesBack(outcome Outcome) bool { return outcome.Kind == Retry || outcome.Kind == Wait }

// delayIsReasonable: a delay of 0 means that the delay of a failure was over before the last answer came.
func delayIsReasonable(c *walkTalk, outcome Outcome) bool {
	if !comesBack(outcome) {
		return outcome.After == 0
	}
	over := false
	for _, attempt := range c.state.Memory.Ledger {
		over = over || !attempt.Until.After(c.at)
	}
	return outcome.After > 0 && outcome.After <= time.Minute || outcome.After == 0 && over
}

func failuresComeBack(c *walkTalk, outcome Outcome) bool {
	for _, failure := range c.failures {
		attempt, found := c.state.Memory.Ledger[failure.op]
		late := found && attempt.Until.After(walkStart) && outcome.After > max(attempt.Until.Sub(c.at), firstDelay)
		if !c.server.eventDue && (!comesBack(outcome) || late) {
			return false
		}
	}
	return true
}

// failuresAreReported: a sync that ends because of a conflict, a lost answer or another live Foo reports nothing. The
// next one does.
func failuresAreReported(c *walkTalk, outcome Outcome) bool {
	if c.quiet || c.fooChanged || outcome.Reason == NextStep {
		return true
	}
	for op, attempt := range c.state.Memory.Ledger {
		if attempt.Until.After(walkStart) && (attempt.Expected || op.Verb == UpdateStatus && c.status == nil) {
			return true
		}
	}
	for _, failure := range c.failures {
		if failure.op.Verb != UpdateStatus && !c.reports(failure.op, failure.message) {
			return false
		}
	}
	return true
}

// failuresAreLogged: the queue logs the error of a retry that is not quiet.
func failuresAreLogged(c *walkTalk, outcome Outcome) bool {
	if c.quiet || c.fooChanged {
		return true
	}
	for _, failure := range c.failures {
		ours := failure.op.Verb == CreateDeployment && c.deployment != nil // Another sync created it.
		logged := outcome.Kind == Retry && !outcome.Expected && strings.Contains(outcome.Err.Error(), failure.message)
		if !ours && !logged {
			return false
		}
	}
	return true
}

// reports returns whether the status that was sent last, or is stored, has the message of the failure of op. Something
// else is reported when the name is taken, or when the Deployment to patch is gone or not the Foo's any more.
func (c *walkTalk) reports(op Op, message string) bool {
	dep := c.deployment
	patchable := dep != nil && walkControls(c.world.cached.foo, dep) && dep.DeletionTimestamp == nil
	if op.Verb == CreateDeployment && dep != nil || op.Verb == PatchDeployment && !patchable {
		return true
	}
	status := c.status
	if status == nil {
		status = &c.world.cached.foo.Status
	}
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && strings.Contains(ready.Message, message)
}

// backingOff returns the operations of the ledger that would be sent if they did not back off, and nothing when
// an answer is bad.
func (c *walkTalk) backingOff() []Op {
	if c.bad > 0 || c.server.eventDue {
		return nil
	}
	var ops []Op
	for _, op := range walkOps(c.world.memory.Ledger) {
		wanted := func(want Op) bool { return op.Verb == WholeSync || want.Verb == op.Verb && want.Name == op.Name }
		if slices.ContainsFunc(c.wanted, wanted) && c.world.memory.Ledger[op].Until.After(walkStart) {
			ops = append(ops, op)
		}
	}
	return ops
}

// alone reports whether nothing else backs off on which it depends whether op is wanted.
func alone(op Op, backingOff []Op) bool { return op.Verb != DeleteDeployment || len(backingOff) == 1 }

// backoffsComeBack: the key comes back when a delay is over, if not earlier, and nothing is sent before.
func backoffsComeBack(c *walkTalk, outcome Outcome) bool {
	ops := c.backingOff()
	for _, op := range ops {
		sent := func(line walkLine) bool { return line.op.Verb == op.Verb && line.op.Name == op.Name }
		late := outcome.After > max(c.world.memory.Ledger[op].Until.Sub(c.at), 0)
		if slices.ContainsFunc(c.lines, sent) || !comesBack(outcome) || late && alone(op, ops) {
			return false
		}
	}
	return true
}

func backoffsAreReported(c *walkTalk, _ Outcome) bool {
	ops := c.backingOff()
	_, statusBacksOff := c.world.memory.Ledger[Op{Verb: UpdateStatus, Name: "web"}]
	for _, op := range ops {
		attempt := c.world.memory.Ledger[op]
		switch {
		case op.Verb == WholeSync, !alone(op, ops):
			continue
		case op.Verb == UpdateStatus, attempt.Expected:
			return c.status == nil
		case !c.reports(op, attempt.Report.Message) && !statusBacksOff:
			return false
		}
	}
	return true
}

// staysDone: no event is due, so what another sync would send is not sent before something else happens.
func staysDone(c *walkTalk, outcome Outcome) bool {
	return comesBack(outcome) || c.server.eventDue || c.sendsNothing(2*time.Minute)
}

// repeatsNothing: a conflict, or a cache that lags, does not end the work.
func repeatsNothing(c *walkTalk, outcome Outcome) bool {
	behind := c.world.memory.StaleFoo || c.world.memory.StaleDeployment
	for _, attempt := range c.state.Memory.Ledger {
		behind = behind || attempt.Expected
	}
	return c.bad > 0 || c.quiet || c.server.eventDue || behind && comesBack(outcome) || c.sendsNothing(time.Millisecond)
}

// sendsNothing reports whether a sync sends nothing that begins later, when the caches have caught up. If it does, that
// is added to the conversation.
func (c *walkTalk) sendsNothing(later time.Duration) bool {
	world := walkCaughtUp(c.world, c.server, c.state.Memory)
	if world == nil {
		return true
	}
	step := world.state(c.at.Add(later)).Next()
	if step != nil {
		c.lines = append(c.lines, walkLine{step.Op, step.Rule, "another sync, " + later.String() + " later"})
	}
	return step == nil
}

func leavesInputsAlone(c *walkTalk, _ Outcome) bool {
	return slices.Equal(c.previousAtStart, c.world.cached.previous)
}

// A walkFailure is a write that was not done, or that a failed read was for.
type walkFailure struct {
	op      Op
	message string
}

// note takes what can be learned from an answer.
func (c *walkTalk) note(step *Step, answer Answer) {
	if answer.Err != nil {
		c.noteFailure(step, answer.Err)
		return
	}
	switch step.Verb {
	case ReadFoo:
		c.readFoo = true
		have, live := c.world.cached.foo, answer.Foo
		c.fooLost = live == nil || live.UID != have.UID || live.DeletionTimestamp != nil ||
			live.Spec.DeploymentName != have.Spec.DeploymentName
		c.fooPaused = live != nil && live.Spec.Paused
		c.fooChanged = c.fooLost || live.Generation != have.Generation
		return
	case ReadDeployment:
		c.readDeployment = true
		c.deployment = answer.Deployment
		return
	case CreateDeployment:
		c.deployment = answer.Deployment
		c.dropFailures(Op{Verb: PatchDeployment, Name: step.Name}) // They were of the one before it.
	case PatchDeployment:
		c.deployment = answer.Deployment
	case DeleteDeployment:
		c.left = slices.DeleteFunc(slices.Clone(c.left), named(step.Name))
	}
	c.readFoo, c.readDeployment = false, false
	c.dropFailures(step.Op)
}

// noteFailure sorts an error as the API server means it.
func (c *walkTalk) noteFailure(step *Step, err error) {
	op := step.Op
	if isRead(step) {
		op = step.Prepares
	} else {
		c.readFoo, c.readDeployment = false, false
	}
	switch status, answered := err.(apierrors.APIStatus); {
	case err == walkNamespaceTerminating:
		c.quiet = true
	case !answered, status.Status().Code >= 500 && !isRead(step):
		c.unknown, c.quiet = !isRead(step), true
	case step.Verb == DeleteDeployment && apierrors.IsNotFound(err):
		return // It is gone.
	case !isRead(step) && walkIsConflict(err):
		c.quiet = true
	}
	message := ""
	if status, answered := err.(apierrors.APIStatus); answered {
		message = status.Status().Message
	}
	c.dropFailures(op) // The last one counts.
	c.failures = append(c.failures, walkFailure{op, message})
}

// walkIsConflict reports whether err means that the object is not as the write supposed.
func walkIsConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		err == walkOtherUID
}

func (c *walkTalk) dropFailures(op Op) {
	c.failures = slices.DeleteFunc(slices.Clone(c.failures), func(failure walkFailure) bool { return failure.op == op })
}
