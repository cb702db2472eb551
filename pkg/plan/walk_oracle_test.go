package plan

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	{"at most 8 requests", fewRequests},
	{"a write carries uid and resourceVersion", carriesPreconditions},
	{"nothing is written for a Foo that is gone, recreated, being deleted or renamed", respectsLiveFoo},
	{"nothing but the status is written for a Foo that is paused or invalid", respectsPause},
	{"nothing is written after a write with an unknown outcome", stopsWhenUnknown},
	{"a create for a Foo that may have had a Deployment comes after a live read of the Foo", createsForLiveFoo},
	{"a write that has failed is repeated only after a live read of what it writes", readsBeforeRepeating},
	{"a patch changes a Deployment of the Foo, for a new spec or after a live read of the Foo", patchesItsOwn},
	{"a patch mentions only fields that the Foo owns", mentionsOwnFields},
	{"a delete comes after live reads of the Foo and of the replacement", deletesAfterReads},
	{"a delete removes a previous Deployment that was made for the Foo", deletesItsOwn},
	{"a previous Deployment is deleted only when nobody can miss it", deletesWhatNobodyMisses},
	{"at most one previous Deployment is deleted", deletesOne},
	{"no write is sent twice", notTwice},
	{"no live read is sent twice without a write between", readsOnce},
	{"nothing is read after a live read that failed", readsUpToAFailure},
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
	{"when all answers are good another sync sends nothing", repeatsNothing},
}

func isRead(step *Step) bool { return step.Verb == ReadFoo || step.Verb == ReadDeployment }

func fewRequests(c *walkTalk, _ *Step) bool {
	return len(c.lines)-c.first < 8
}

func carriesPreconditions(_ *walkTalk, step *Step) bool {
	switch step.Verb {
	case PatchDeployment:
		sent := metav1.PartialObjectMetadata{}
		return json.Unmarshal(step.Patch.Body, &sent) == nil && sent.UID != "" && sent.ResourceVersion != "" &&
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
	return c.readFoo || !had
}

// readsBeforeRepeating: a deletion has an oracle of its own, and comes after live reads in any case.
func readsBeforeRepeating(c *walkTalk, step *Step) bool {
	memory := c.world.memory.For(c.world.cached.foo, walkStart)
	failed := slices.ContainsFunc(c.failures, func(failure walkFailure) bool { return failure.op == step.Op })
	switch {
	case memory.Ledger[step.Op].Count == 0 && !failed:
		return true
	case step.Verb == UpdateStatus:
		return c.readFoo
	}
	return c.readDeployment
}

// patchesItsOwn: what undoes a change of somebody else, or was written for a newer spec than the cached one, needs a
// live read of the Foo. What its spec asks for needs none: a Deployment of an older spec, or one without our labels.
func patchesItsOwn(c *walkTalk, step *Step) bool {
	if step.Verb != PatchDeployment {
		return true
	}
	dep := step.Deployment
	label, err := strconv.ParseInt(dep.FooGeneration, 10, 64)
	isUpdate := err == nil && label < c.world.cached.foo.Generation || dep.FooGeneration == "" && dep.MadeFor == ""
	return walkControls(c.world.cached.foo, dep) && dep.DeletionTimestamp == nil && (isUpdate || c.readFoo)
}

// isNoCopy reports whether dep was made for the Foo under the name that it has.
func isNoCopy(dep *appsv1.Deployment) bool {
	return dep.Name != "web-9" && dep.Labels[v1alpha1.LabelMadeFor] != ""
}

// walkControls reports whether foo is the controller of dep.
func walkControls(foo *v1alpha1.Foo, dep metav1.Object) bool {
	return slices.ContainsFunc(dep.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
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
	fields := map[string]any{}
	err := json.Unmarshal(step.Patch.Body, &fields)
	isForeign := func(path string) bool { return !slices.Contains(own, path) }
	containers := walkPatched(c.deployment, step.Patch).Spec.Template.Spec.Containers
	return err == nil && !slices.ContainsFunc(walkPaths("", fields), isForeign) && len(containers) == 1
}

// walkPaths returns where the values in fields are. A list counts as one value.
func walkPaths(prefix string, fields map[string]any) []string {
	var paths []string
	for name, value := range fields {
		if inner, ok := value.(map[string]any); ok {
			paths = append(paths, walkPaths(prefix+name+".", inner)...)
			continue
		}
		paths = append(paths, prefix+name)
	}
	return paths
}

func deletesAfterReads(c *walkTalk, step *Step) bool {
	return step.Verb != DeleteDeployment || c.readFoo && c.readDeployment
}

func deletesItsOwn(c *walkTalk, step *Step) bool {
	if step.Verb != DeleteDeployment {
		return true
	}
	dep := step.Deployment
	foo := c.world.cached.foo
	return dep.Name != foo.Spec.DeploymentName && dep.Name != "web-9" && dep.MadeFor != "" &&
		walkControls(foo, dep) && dep.DeletionTimestamp == nil
}

// deletesWhatNobodyMisses asks the API server, and not the cache.
func deletesWhatNobodyMisses(c *walkTalk, step *Step) bool {
	return step.Verb != DeleteDeployment || c.server.nobodyMissesPrevious()
}

// nobodyMissesPrevious reports whether nobody can miss the previous Deployments. The Deployment of the name, at the
// current generation and observed, must have at least one available pod of its current template, since those of earlier
// ones are about to end, and at least as many as the smaller of two numbers: what the Foo asks for, and what the previous
// one is set to; of several the one that is set to most counts. A Foo without a number asks for what the previous one is
// set to. Nothing is needed for a Foo that asks for none.
func (server *walkServer) nobodyMissesPrevious() bool {
	foo := server.foo
	if foo == nil || server.find(foo.Spec.DeploymentName) == nil {
		return false
	}
	dep, set := server.find(foo.Spec.DeploymentName), int32(0)
	for _, previous := range server.previous() {
		set = max(set, *previous.Spec.Replicas)
	}
	asked := set
	if foo.Spec.Replicas != nil {
		asked = *foo.Spec.Replicas
	}
	isCurrent := dep.Labels[v1alpha1.LabelFooGeneration] == strconv.FormatInt(foo.Generation, 10) &&
		dep.Status.ObservedGeneration >= dep.Generation
	current, _ := walkPods(dep)
	available := min(current, *dep.Spec.Replicas) // Others are about to end.
	return walkControls(foo, dep) && dep.DeletionTimestamp == nil && isCurrent &&
		(asked == 0 || available >= 1 && available >= min(asked, set))
}

// previous returns the previous Deployments: made for the Foo under another name, and not being deleted.
func (server *walkServer) previous() []*appsv1.Deployment {
	return slices.DeleteFunc(slices.Clone(server.deployments), func(dep *appsv1.Deployment) bool {
		return server.foo == nil || dep.Name == server.foo.Spec.DeploymentName || dep.DeletionTimestamp != nil ||
			!isNoCopy(dep) || !walkControls(server.foo, dep)
	})
}

func deletesOne(c *walkTalk, step *Step) bool {
	deletion := func(line walkLine) bool { return line.op.Verb == DeleteDeployment }
	return step.Verb != DeleteDeployment || !slices.ContainsFunc(c.lines[c.first:], deletion)
}

func notTwice(c *walkTalk, step *Step) bool {
	same := func(line walkLine) bool { return line.op == step.Op }
	return isRead(step) || !slices.ContainsFunc(c.lines[c.first:], same)
}

func readsOnce(c *walkTalk, step *Step) bool {
	return !(step.Verb == ReadFoo && c.readFoo || step.Verb == ReadDeployment && c.readDeployment)
}

// readsUpToAFailure: each read may hang.
func readsUpToAFailure(c *walkTalk, step *Step) bool { return !isRead(step) || !c.readFailed }

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
	if c.quiet || c.fooChanged {
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
// else is reported when the name is taken, or when the Deployment to patch is gone, changed or not the Foo's any more.
func (c *walkTalk) reports(op Op, message string) bool {
	dep := c.deployment
	patchable := dep != nil && walkControls(c.world.cached.foo, dep) && dep.DeletionTimestamp == nil && !c.surprised
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

// backingOff returns the operations of the ledger that would be sent if they did not back off. It returns nothing when
// an answer is bad, or when a live read may have shown that they are not wanted any more.
func (c *walkTalk) backingOff() []Op {
	if c.bad > 0 || c.server.eventDue || c.surprised {
		return nil
	}
	var ops []Op
	for op := range c.world.memory.Ledger {
		wanted := func(want Op) bool { return want.Verb == op.Verb && want.Name == op.Name }
		if slices.ContainsFunc(c.wanted, wanted) && c.world.memory.Ledger[op].Until.After(walkStart) {
			ops = append(ops, op)
		}
	}
	return ops
}

// alone reports whether nothing else backs off on which it depends whether op is wanted.
func alone(op Op, backingOff []Op) bool { return op.Verb != DeleteDeployment || len(backingOff) == 1 }

// backoffsComeBack: the key comes back when a delay is over, if not earlier, and nothing is sent before. The event of a
// deletion brings it back too.
func backoffsComeBack(c *walkTalk, outcome Outcome) bool {
	ops := c.backingOff()
	for _, op := range ops {
		sent := func(line walkLine) bool { return line.op.Verb == op.Verb && line.op.Name == op.Name }
		late := outcome.After > max(c.world.memory.Ledger[op].Until.Sub(c.at), 0)
		lost := !comesBack(outcome) && !c.deleted
		if slices.ContainsFunc(c.lines, sent) || lost || late && alone(op, ops) {
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
		case statusBacksOff, attempt.Expected:
			return c.status == nil
		case alone(op, ops) && !c.reports(op, attempt.Report.Message):
			return false
		}
	}
	return true
}

// isDue reports whether the key comes back by itself after a sync that ended with outcome, or because of an event.
func (c *walkTalk) isDue(outcome Outcome) bool {
	return comesBack(outcome) || c.server.eventDue || c.server.held
}

// repeatsNothing: a conflict, or a cache that lags, does not end the work, and of several previous Deployments a sync
// deletes one.
func repeatsNothing(c *walkTalk, outcome Outcome) bool {
	behind := c.world.server.held || c.deleted && len(c.server.previous()) > 0
	for _, attempt := range c.state.Memory.Ledger {
		behind = behind || attempt.Expected
	}
	return c.bad > 0 || c.quiet || c.server.eventDue || behind && c.isDue(outcome) || c.sendsNothing()
}

// sendsNothing reports whether a sync a moment later, when the caches have caught up, sends nothing. If it does, that
// is added to the conversation.
func (c *walkTalk) sendsNothing() bool {
	world := walkCaughtUp(c.world, c.server, c.state.Memory)
	if world == nil {
		return true
	}
	step := world.state(c.at.Add(time.Millisecond)).Next()
	if step != nil {
		c.lines = append(c.lines, walkLine{step.Op, step.Rule, "another sync"})
	}
	return step == nil
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
		c.server.held = c.server.held || live != nil && live.ResourceVersion != have.ResourceVersion
		return
	case ReadDeployment:
		have, live := c.deployment, c.server.find(step.Name)
		c.surprised = live != nil && (have == nil || live.ResourceVersion != have.ResourceVersion)
		c.server.held = c.server.held || c.surprised
		c.deployment, c.readDeployment = live, true
		return
	case CreateDeployment:
		c.deployment = c.server.find(step.Name)
		c.dropFailures(Op{Verb: PatchDeployment, Name: step.Name}) // They were of the one before it.
	case PatchDeployment:
		c.deployment = c.server.find(step.Name)
	case DeleteDeployment:
		c.deleted = true
	}
	c.readFoo, c.readDeployment, c.server.held = false, false, true
	c.dropFailures(step.Op)
}

// noteFailure sorts an error as the API server means it.
func (c *walkTalk) noteFailure(step *Step, err error) {
	op := step.Op
	if isRead(step) {
		op, c.readFailed = step.For, true
	} else {
		c.readFoo, c.readDeployment = false, false
	}
	isPage := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch status, answered := err.(apierrors.APIStatus); {
	case err == walkNamespaceTerminating:
		c.quiet = true
	case isRead(step): // It is reported like a refusal of the write.
	case !answered, status.Status().Code >= 500, isPage:
		c.unknown, c.quiet = true, true
	case step.Verb == DeleteDeployment && apierrors.IsNotFound(err):
		return // It is gone.
	case walkIsConflict(err):
		c.quiet = true
	}
	message := ""
	if status, answered := err.(apierrors.APIStatus); answered && !isPage {
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
