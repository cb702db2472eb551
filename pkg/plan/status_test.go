package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

const (
	// The conditions of a report, in short.
	available3   = "True Available: 3 of 3 replicas available"
	reconciling  = "False Reconciling "
	stalled      = "False Stalled "
	beingDeleted = reconciling + `WaitingForDeletion: Deployment "web-1" is being deleted. It is created again ` +
		"afterwards" + stillExists1
	pausedPrefix = "Paused: No Deployment is created, changed or deleted for this Foo while spec.paused is true. " +
		`Deployment "web-1" `
	unpause       = `. To resume: kubectl -n default patch foo web --type=merge -p '{"spec":{"paused":false}}'`
	notOwnedWeb1  = stalled + "NotOwned: "
	creatingWeb1  = `Created Deployment "web-1". Waiting for the Deployment controller to create its pods`
	waitsForSight = reconciling + "Progressing: Waiting for the Deployment controller to apply the last change "
	cannotCreate  = reconciling + `Refused: Cannot create Deployment "web-1": `
	cannotPatch   = reconciling + `Refused: Cannot patch Deployment "web-1" (3 of 5 replicas available): `
	pausedByHand  = stalled + `DeploymentPaused: spec.paused of Deployment "web-1" is true, so changes are not ` +
		"rolled out "
	resume   = ". To resume: kubectl -n default rollout resume deployment web-1"
	describe = ". See its conditions: kubectl -n default get deployment web-1 -o yaml"
	// podsForbidden is the cause in the condition of a Deployment that cannot create pods.
	podsForbidden = ": pods is forbidden"
	noSet         = stalled + `ReplicaFailure: Deployment "web-1" cannot create its ReplicaSet `
	noPods        = stalled + `ReplicaFailure: Deployment "web-1" cannot create pods `
	tooLate       = stalled + `ProgressDeadlineExceeded: Deployment "web-1" has exceeded its progress deadline: `
	seePods       = ". To see why its pods do not become available: kubectl -n default describe pods " +
		"-l 'app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-1'"
	negativeReplicas = "spec.replicas is -1. Set 0 or more, or remove it" + editWeb
	editWeb          = ". To change it: kubectl -n default edit foo web"
)

func TestStatus(t *testing.T) {
	foo, unset := newFoo(withReplicas(3)), newFoo()
	paused := newFoo(withReplicas(3), withPaused)
	dep := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	noController := notOwnedWeb1 + notOwned("web-1", "it has no controller")
	invalid := newFoo(withReplicas(-1))
	const negative = stalled + "Invalid: " + negativeReplicas

	for _, tc := range []struct {
		name    string
		foo     *v1alpha1.Foo
		dep     *appsv1.Deployment
		ledger  ledger
		replies []reply
		want    string
	}{
		{
			name: "no Deployment yet", foo: foo,
			want: reconciling + "Creating: " + creatingWeb1,
		},
		{
			name: "a Deployment that the Deployment controller has not seen", foo: foo,
			dep:  dep(observedAt(0, 1), rollout(0, 0, 0)),
			want: reconciling + "Creating: " + creatingWeb1,
		},
		{name: "a Deployment being deleted", foo: foo, dep: dep(deleted), want: beingDeleted},
		{
			name: "a Deployment deleted before the Deployment controller has seen it", foo: foo,
			dep: dep(deleted, observedAt(0, 1)), want: beingDeleted,
		},

		{
			name: "a change that the Deployment controller has not seen", foo: foo, dep: dep(observedAt(1, 2)),
			want: waitsForSight + "(3 of 3 replicas available)",
		},
		{
			name: "a ReplicaSet that cannot be made", foo: foo, dep: dep(observedAt(0, 1), rollout(0, 0, 0), noReplicaSet),
			want: noSet + "(0 of 3 replicas available)" + podsForbidden + describe,
		},
		{
			name: "a ReplicaSet that cannot be made for a change", foo: foo, dep: dep(observedAt(1, 2), noReplicaSet),
			want: noSet + "(3 of 3 replicas available)" + podsForbidden + describe,
		},
		{
			name: "no replica updated", foo: foo, dep: dep(rollout(3, 0, 3)),
			want: reconciling + "Progressing: 0 of 3 replicas updated",
		},
		{
			name: "one replica short of updated", foo: foo, dep: dep(rollout(3, 2, 3)),
			want: reconciling + "Progressing: 2 of 3 replicas updated",
		},
		{
			name: "one replica short of available", foo: foo, dep: dep(available(2)),
			want: reconciling + "Progressing: 2 of 3 replicas available",
		},
		{
			name: "an old replica still there", foo: foo, dep: dep(rollout(4, 3, 3)),
			want: reconciling + "Progressing: Waiting for 1 old replica to terminate",
		},
		{
			name: "too many replicas, and too few available", foo: foo, dep: dep(rollout(4, 3, 1)),
			want: reconciling + "Progressing: 1 of 3 replicas available",
		},
		{name: "all replicas available", foo: foo, dep: dep(), want: available3},
		{
			name: "replicas that have not ended after a scale down", foo: foo, dep: dep(rollout(4, 4, 4)),
			want: reconciling + "Progressing: Waiting for 1 old replica to terminate",
		},
		{
			name: "no replicas wanted", foo: newFoo(withReplicas(0)), dep: newDeployment(newFoo(withReplicas(0))),
			want: "True Available: 0 of 0 replicas available",
		},
		{
			name: "absent replicas are one", foo: unset, dep: newDeployment(unset, withoutReplicas),
			want: "True Available: 1 of 1 replicas available",
		},
		{
			name: "the Deployment's number counts when the Foo has none", foo: unset,
			dep: newDeployment(unset, scaled(2), rollout(2, 2, 2)), want: "True Available: 2 of 2 replicas available",
		},
		{name: "a Deployment seen at a later generation than the cache has", foo: foo, dep: dep(observedAt(2, 1)),
			want: available3},

		{
			name: "paused by a user", foo: foo, dep: dep(pausedByUser, rollout(3, 1, 2)),
			want: pausedByHand + "(2 of 3 replicas available)" + resume,
		},
		{
			name: "pods that cannot be made", foo: foo, dep: dep(replicaFailure, rollout(1, 1, 1)),
			want: noPods + "(1 of 3 replicas available)" + podsForbidden + describe,
		},
		{
			name: "pods that do not come up in time", foo: foo, dep: dep(deadlineExceeded, available(1)),
			want: tooLate + "1 of 3 replicas available" + seePods,
		},
		{
			name: "a replica failure that is over", foo: foo, want: available3,
			dep: dep(withCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "FailedCreate")),
		},
		{
			name: "a rollout that progresses", foo: foo, want: available3,
			dep: dep(withCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")),
		},
		{
			name: "a rollout that stands still for another reason", foo: foo, want: available3,
			dep: dep(withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "DeploymentPaused")),
		},
		{
			name: "a deadline that is in another condition", foo: foo, want: available3,
			dep: dep(withCondition("Scaled", corev1.ConditionFalse, "ProgressDeadlineExceeded")),
		},
		{
			name: "an outdated observation counts for nothing, whatever the conditions are", foo: foo,
			dep:  dep(observedAt(1, 2), pausedByUser, replicaFailure, deadlineExceeded),
			want: waitsForSight + "(3 of 3 replicas available)",
		},
		{
			name: "paused comes before a replica failure", foo: foo,
			dep:  dep(replicaFailure, deadlineExceeded, pausedByUser),
			want: pausedByHand + "(3 of 3 replicas available)" + resume,
		},
		{
			name: "a replica failure comes before the deadline", foo: foo, dep: dep(deadlineExceeded, replicaFailure),
			want: noPods + "(3 of 3 replicas available)" + podsForbidden + describe,
		},
		{
			name: "a missed deadline comes before missing replicas", foo: foo, dep: dep(deadlineExceeded, rollout(3, 2, 3)),
			want: tooLate + "2 of 3 replicas updated" + seePods,
		},

		{name: "an invalid Foo", foo: invalid, want: negative},
		{name: "an invalid Foo comes before the Deployment's state", foo: invalid, dep: dep(deleted), want: negative},
		{name: "an invalid Foo comes before a foreign Deployment", foo: invalid, dep: dep(ownedBy()), want: negative},
		{
			name: "a refused create", foo: foo, replies: []reply{fails(plan.CreateDeployment, forbidden)},
			want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a create that was refused a short time ago", foo: foo,
			ledger: ledger{op(plan.CreateDeployment, "web-1"): until(1)},
			want:   cannotCreate + "exceeded quota: small",
		},
		{
			name: "a create that was refused, and a Deployment by now", foo: foo, dep: dep(),
			ledger: ledger{op(plan.CreateDeployment, "web-1"): until(1)}, want: available3,
		},
		{
			name: "a refused patch comes before the Deployment's rollout", foo: foo, dep: dep(scaled(5), deadlineExceeded),
			replies: []reply{fails(plan.PatchDeployment, forbidden)}, want: cannotPatch + overQuota + lasts,
		},
		{
			name: "a refused patch comes before a Deployment that was not seen", foo: foo, dep: dep(scaled(5), unobserved),
			replies: []reply{fails(plan.PatchDeployment, forbidden)},
			want:    strings.Replace(cannotPatch, "3 of", "0 of", 1) + overQuota + lasts,
		},
		{
			name: "a patch that was refused a short time ago", foo: foo, dep: dep(scaled(5)),
			ledger: ledger{op(plan.PatchDeployment, "web-1"): until(1)},
			want:   cannotPatch + "exceeded quota: small",
		},
		{
			name: "a patch that was refused, and is not needed any more", foo: foo, dep: dep(),
			ledger: ledger{op(plan.PatchDeployment, "web-1"): until(1)}, want: available3,
		},
		{
			name: "a patch that was refused, and a deletion since", foo: foo, dep: dep(scaled(5), deleted),
			ledger: ledger{op(plan.PatchDeployment, "web-1"): until(1)}, want: beingDeleted,
		},
		{
			name: "a refused delete of what is not there any more", foo: foo, dep: dep(),
			ledger: ledger{op(plan.DeleteDeployment, "web-0"): until(1)}, want: available3,
		},
		{name: "a Deployment that is not the Foo's", foo: foo, dep: dep(ownedBy()), want: noController},
		{
			name: "a Deployment that is not the Foo's, beside a refused delete", foo: foo, dep: dep(ownedBy()),
			ledger: ledger{op(plan.DeleteDeployment, "web-0"): until(1)}, want: noController,
		},
		{
			name: "a Deployment that is not the Foo's, and a create that was refused", foo: foo, dep: dep(ownedBy()),
			ledger: ledger{op(plan.CreateDeployment, "web-1"): until(1)}, want: noController,
		},
		{
			name: "a refused read before a create", foo: newFoo(observed),
			replies: []reply{fails(plan.ReadFoo, forbidden)}, want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a refused read before a patch", foo: foo, dep: dep(withFence("9")),
			replies: []reply{fails(plan.ReadFoo, forbidden)},
			want:    strings.Replace(cannotPatch, "of 5", "of 3", 1) + overQuota + lasts,
		},
		{
			name: "a create that the server is too busy for", foo: foo,
			replies: []reply{fails(plan.CreateDeployment, apierrors.NewTooManyRequests("slow down", 1))},
			want:    cannotCreate + refusedBy + "slow down" + passes,
		},
		{
			name: "a create without an answer a short time ago", foo: foo,
			ledger: ledger{op(plan.CreateDeployment, "web-1"): plan.Attempt{
				Count: 1, Until: now.Add(1), Report: plan.ConditionError{Reason: "Refused", Message: noAnswer},
			}},
			want: cannotCreate + noAnswer,
		},
		{
			name: "a failure with a reason of its own", foo: foo,
			ledger: ledger{op(plan.CreateDeployment, "web-1"): plan.Attempt{
				Count: 1, Until: now.Add(1), Report: plan.ConditionError{Reason: "NotOwned", Message: "x", Stalled: true},
			}},
			want: stalled + "NotOwned: x",
		},
		{
			name: "a name that another Foo is leaving", foo: foo, dep: earlier(named("api", "web-1"), "web-1"),
			want: reconciling + "WaitingForName: " + ownerGone,
		},

		{name: "paused without a Deployment", foo: paused, want: "False " + pausedPrefix + "does not exist" + unpause},
		{
			name: "paused with a foreign Deployment", foo: paused, dep: dep(ownedBy()),
			want: "False " + pausedPrefix + "is not controlled by this Foo" + unpause,
		},
		{
			name: "paused while all is well", foo: paused, dep: dep(),
			want: "True " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused while replicas are missing", foo: paused, dep: dep(available(2)),
			want: "False " + pausedPrefix + "has 2 of 3 replicas available" + unpause,
		},
		{
			name: "paused while the Deployment makes no progress", foo: paused, dep: dep(deadlineExceeded),
			want: "False " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused while the Deployment is being deleted", foo: paused, dep: dep(deleted),
			want: "False " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused comes before invalid", foo: newFoo(withReplicas(-1), withPaused), dep: dep(),
			want: "True " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused comes before what failed", foo: paused, dep: dep(),
			ledger: ledger{op(plan.PatchDeployment, "web-1"): until(1)},
			want:   "True " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := plan.Memory{UID: tc.foo.UID, Generation: tc.foo.Generation, Ledger: tc.ledger}
			c := play(t, plan.State{Foo: tc.foo, Deployment: tc.dep, Memory: memory}, tc.replies...)
			if diff := cmp.Diff(tc.want, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			checkWellFormed(t, tc.foo, c)
		})
	}
}

// checkWellFormed checks the parts of a status that are the same in every report.
func checkWellFormed(t *testing.T, foo *v1alpha1.Foo, c conversation) {
	t.Helper()
	status := c.status()
	if status == nil {
		t.Fatal("nothing is reported")
	}
	if status.ObservedGeneration != foo.Generation {
		t.Errorf("observedGeneration is %d, want %d", status.ObservedGeneration, foo.Generation)
	}
	ready, second := c.ready(), ""
	for _, condition := range status.Conditions {
		if condition.Type != "Ready" {
			second = condition.Type
		}
	}
	checkConditions(t, conditionsOf(foo, ready.Status, second, ready.Reason, ready.Message), status.Conditions)
}

func TestStatusHasTheNumbersOfAnOwnedDeploymentOnly(t *testing.T) {
	stale := func(foo *v1alpha1.Foo) {
		foo.Status.Replicas, foo.Status.AvailableReplicas, foo.Status.Selector = 9, 8, "app=old"
	}
	const selector = "app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-1"
	expression := func(operator metav1.LabelSelectorOperator, values ...string) deploymentOption {
		return func(dep *appsv1.Deployment) {
			dep.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: operator, Values: values},
			}}
		}
	}
	foo := newFoo(stale)
	for _, tc := range []struct {
		name     string
		dep      *appsv1.Deployment
		replies  []reply
		replicas int32
		avail    int32
		selector string
	}{
		{name: "no Deployment", replies: []reply{fails(plan.CreateDeployment, forbidden)}},
		{name: "another owner's Deployment", dep: newDeployment(foo, ownedBy())},
		{
			name: "the Foo's own", dep: newDeployment(foo, rollout(4, 3, 2)),
			replicas: 4, avail: 2, selector: selector,
		},
		{
			name: "the Foo's own while it is being deleted", dep: newDeployment(foo, deleted, rollout(4, 3, 2)),
			replicas: 4, avail: 2, selector: selector,
		},
		{
			name: "a selector with an expression", dep: newDeployment(foo, expression(metav1.LabelSelectorOpIn, "b", "a")),
			replicas: 1, avail: 1, selector: "app in (a,b)",
		},
		{
			name: "a selector that cannot be", dep: newDeployment(foo, expression("Like")),
			replicas: 1, avail: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := *play(t, plan.State{Foo: foo, Deployment: tc.dep}, tc.replies...).status()
			got.Conditions = nil
			want := v1alpha1.FooStatus{
				ObservedGeneration: foo.Generation, Replicas: tc.replicas, AvailableReplicas: tc.avail,
				Selector: tc.selector,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusMovesTheTransitionTimeOnlyWhenAConditionFlips(t *testing.T) {
	foo := newFoo(withReplicas(3), withConditions(metav1.Condition{
		Type: "Ready", Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "No controller has seen it",
		LastTransitionTime: metav1.Unix(0, 0),
	}))
	second := func(n int) metav1.Time { return metav1.NewTime(now.Add(seconds(n))) }
	type at = map[string]metav1.Time
	refused := []reply{fails(plan.PatchDeployment, forbidden)}

	for i, tc := range []struct {
		name    string
		dep     *appsv1.Deployment
		replies []reply
		want    at
	}{
		0: {name: "from Unknown to False", want: at{"Ready": second(0), "Reconciling": second(0)}},
		1: {
			name: "another reason", dep: newDeployment(foo, rollout(3, 1, 1)),
			want: at{"Ready": second(0), "Reconciling": second(0)},
		},
		2: {
			name: "another message", dep: newDeployment(foo, available(2)),
			want: at{"Ready": second(0), "Reconciling": second(0)},
		},
		3: {
			name: "from Reconciling to Stalled", dep: newDeployment(foo, deadlineExceeded),
			want: at{"Ready": second(0), "Stalled": second(3)},
		},
		4: {name: "from False to True", dep: newDeployment(foo), want: at{"Ready": second(4)}},
		5: {name: "still True", dep: newDeployment(foo, pausedByUser,
			func(dep *appsv1.Deployment) { dep.Spec.Paused = false },
			rollout(3, 3, 3)), want: at{"Ready": second(4)}},
		6: {
			name: "from True to False", dep: newDeployment(foo, scaled(5)), replies: refused,
			want: at{"Ready": second(6), "Reconciling": second(6)},
		},
	} {
		// The fraction is dropped: the API server stores none.
		state := plan.State{Foo: foo, Deployment: tc.dep, Now: now.Add(seconds(i) + 987*time.Millisecond)}
		if c := play(t, state, tc.replies...); c.status() != nil {
			foo = foo.DeepCopy()
			foo.Status = *c.status()
		}
		got := at{}
		for _, condition := range foo.Status.Conditions {
			got[condition.Type] = condition.LastTransitionTime
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A condition flips when the answer comes that it rests on, not when the sync began.
func TestTheTransitionTimeIsThatOfTheLastAnswer(t *testing.T) {
	c := play(t, plan.State{Foo: newFoo()}, slowly(succeeds(plan.CreateDeployment), seconds(7)))
	if got, want := c.ready().LastTransitionTime, metav1.NewTime(now.Add(seconds(7))); !got.Equal(&want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatusKeepsForeignConditions(t *testing.T) {
	foreign := metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", ObservedGeneration: 1,
		LastTransitionTime: metav1.Unix(1, 0),
	}
	foo := newFoo(withConditions(foreign))
	checkConditions(t, append([]metav1.Condition{foreign}, conditionsOf(foo, metav1.ConditionFalse, "Reconciling",
		"Creating", creatingWeb1)...), play(t, plan.State{Foo: foo}).conditions())
}

// The API server refuses a status that has such a condition, and no status of the Foo could ever be written.
func TestStatusDropsConditionsThatCannotBeStoredAgain(t *testing.T) {
	good := metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.Unix(1, 0),
	}
	change := func(edit func(*metav1.Condition)) metav1.Condition {
		changed := good
		edit(&changed)
		return changed
	}
	unknown := change(func(c *metav1.Condition) { c.Type, c.Status = "D", metav1.ConditionUnknown })
	no := change(func(c *metav1.Condition) { c.Type, c.Status = "E", metav1.ConditionFalse })
	foo := newFoo(withConditions(
		good, good, unknown, no,
		change(func(c *metav1.Condition) { c.Type, c.Status = "A", "Maybe" }),
		change(func(c *metav1.Condition) { c.Type, c.Reason = "B", "" }),
		change(func(c *metav1.Condition) { c.Type, c.LastTransitionTime = "C", metav1.Time{} }),
	))
	checkConditions(t, append([]metav1.Condition{good, unknown, no}, conditionsOf(foo, metav1.ConditionFalse,
		"Reconciling", "Creating", creatingWeb1)...), play(t, plan.State{Foo: foo}).conditions())
}

// A status that is equal costs no write, so the same observations must give it byte for byte, in whatever order the
// caches list.
func TestStatusOfWhatHasNotChangedIsEqual(t *testing.T) {
	r, reports := newRandom(), 0
	someStates(t, func(t *testing.T, state plan.State) {
		var replies []reply // Nothing can be written to a Deployment, so the same is observed again.
		for _, verb := range []plan.Verb{plan.CreateDeployment, plan.PatchDeployment, plan.DeleteDeployment} {
			replies = append(replies, fails(verb, forbidden))
		}
		first := play(t, state, replies...)
		if first.status() == nil {
			return
		}
		reports++
		state.Foo = state.Foo.DeepCopy()
		state.Foo.Status = *first.status()
		for i := range 5 {
			again := shuffled(state, r)
			again.Now, again.Memory = now.Add(time.Duration(i)*time.Hour), plan.Memory{Wrote: first.end.Memory.Wrote}
			if status := play(t, again, replies...).status(); status != nil {
				t.Fatalf("another status (-first +later):\n%s", cmp.Diff(first.status(), status))
			}
		}
	})
	if reports < 150 {
		t.Errorf("only %d reports: nothing is shown", reports)
	}
}

// checkLengths checks that the messages are as long as they may be, and how they end.
func checkLengths(t *testing.T, c conversation, end string) {
	t.Helper()
	for _, condition := range c.conditions() {
		size, whole := len(condition.Message), utf8.ValidString(condition.Message)
		if size > 4096 || size < 4090 || !whole || !strings.HasSuffix(condition.Message, end) {
			t.Errorf("%s has a message of %d bytes that ends in %q", condition.Type, size, condition.Message[size-99:])
		}
	}
}

func TestStatusAndEventShortenWhatIsTooLong(t *testing.T) {
	for _, first := range []string{"", "x"} { // The cut is inside a character of one of them.
		long := first + strings.Repeat("é", 40_000)
		chain := foos(named(long, "web-1"))
		c := play(t, plan.State{Foo: newFoo(), Deployment: earlier(chain[0], "web-1"), OwnerChain: chain})
		checkLengths(t, c, "é.... Set another spec.deploymentName on this Foo: kubectl -n default edit foo web")
		moving := foos(named(long, "api-2")) // The advice has the name too.
		checkLengths(t, play(t, plan.State{
			Foo: newFoo(), Deployment: earlier(moving[0], "web-1"), OwnerChain: moving,
		}), "é...")
		note := c.event().Note
		if len(note) > 1024 || len(note) < 1018 || !strings.HasSuffix(note, "é...") || !utf8.ValidString(note) {
			t.Errorf("a note of %d bytes that ends in %q", len(note), note[len(note)-10:])
		}
	}
}

// Bytes that are no text would be stored as something else, and so differ for ever.
func TestAMessageIsText(t *testing.T) {
	broken := apierrors.NewForbidden(deployments, "web-1", errors.New("quota of \xff"))
	c := play(t, plan.State{Foo: newFoo()}, fails(plan.CreateDeployment, broken))
	if !strings.Contains(c.message(), "quota of \uFFFD.") {
		t.Errorf("the message is %q", c.message())
	}
}

// What the Deployment reports about its pods is repeated without their names: these are different in every try, and
// would cost a write each. What it reports about its progress has no cause.
func TestTheCauseOfAReplicaFailure(t *testing.T) {
	long := strings.Repeat("d", 60)
	const exceeded = "is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
	for _, tc := range []struct{ name, deployment, message, want string }{
		{name: "a quota", message: `pods "web-1-7c5ddbdf54-x2fkd" ` + exceeded, want: ": pods " + exceeded},
		{name: "a name that is invalid", message: `Pod "web-1-7c5ddbdf54-x2fkd" is invalid`, want: ": Pod is invalid"},
		{
			name:    "a webhook that names the pod",
			message: `admission webhook "a.example.com" denied the request: default/web-1-7c5ddbdf54-x2fkd has no owner.`,
			want:    `: admission webhook "a.example.com" denied the request: default/web-1-* has no owner`,
		},
		{
			name: "a pod's name that was cut", deployment: long, message: "denied: " + long[:58] + "x2fkd",
			want: ": denied: " + long + "-*",
		},
		{
			name: "a pod's name whose hash was cut", deployment: long[:50],
			message: "denied: " + long[:50] + "-7c5ddbdx2fkd", want: ": denied: " + long[:50] + "-*",
		},
		{
			name:    "other names stay",
			message: `web-1 and web-1-7c5ddbdf54 and web-1-7c5ddbdf54-abcde and web-2-7c5ddbdf54-x2fkd and x2fkd`,
			want:    `: web-1 and web-1-7c5ddbdf54 and web-1-7c5ddbdf54-abcde and web-2-7c5ddbdf54-x2fkd and x2fkd`,
		},
		{name: "no message"},
		{
			name: "a message that is too long", message: strings.Repeat("x", 5000),
			want: ": " + strings.Repeat("x", 1021),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := tc.deployment
			if name == "" {
				name = "web-1"
			}
			foo := newFoo(withDeploymentName(name), withReplicas(3))
			for condition, begins := range map[string]string{
				"FailedCreate":          "cannot create pods",
				"ReplicaSetCreateError": "cannot create its ReplicaSet",
			} {
				dep := newDeployment(foo, func(dep *appsv1.Deployment) {
					failing := appsv1.DeploymentCondition{Reason: condition, Message: tc.message}
					failing.Type, failing.Status = appsv1.DeploymentReplicaFailure, corev1.ConditionTrue
					if condition != "FailedCreate" {
						failing.Type, failing.Status = appsv1.DeploymentProgressing, corev1.ConditionFalse
					}
					dep.Status.Conditions = append(dep.Status.Conditions, failing)
				})
				want := fmt.Sprintf("Deployment %q %s (3 of 3 replicas available)%s. See its conditions: kubectl -n default get "+
					"deployment %s -o yaml", name, begins, tc.want, name)
				for _, observed := range []*appsv1.Deployment{dep, trim(t, dep)} {
					c := play(t, plan.State{Foo: foo, Deployment: observed})
					if diff := cmp.Diff(want, c.message()); diff != "" {
						t.Errorf("%s: wrong message (-want +got):\n%s", condition, diff)
					}
				}
			}
		})
	}
	foo := newFoo()
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo, deadlineExceeded)})
	if strings.Contains(c.message(), "forbidden") {
		t.Errorf("the deadline has a cause: %q", c.message())
	}
}

// The API server takes 32 conditions. The controller's own come first, then the first ones of others.
func TestStatusHasNoMoreConditionsThanTheAPIServerTakes(t *testing.T) {
	others := func(n int) []metav1.Condition {
		var conditions []metav1.Condition
		for i := range n {
			conditions = append(conditions, metav1.Condition{
				Type: fmt.Sprintf("Other%d", i), Status: metav1.ConditionTrue, Reason: "ByHand",
				LastTransitionTime: metav1.NewTime(now),
			})
		}
		return conditions
	}
	for _, tc := range []struct{ others, kept int }{{30, 30}, {31, 30}, {40, 30}} {
		foo := newFoo(withConditions(others(tc.others)...))
		want := append(others(tc.kept), conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "Creating",
			`Created Deployment "web-1". Waiting for the Deployment controller to create its pods`)...)
		checkConditions(t, want, play(t, plan.State{Foo: foo}).conditions())
	}
}

func TestReadyReason(t *testing.T) {
	foo := newFoo(withConditions(metav1.Condition{Type: "Audited", Reason: "ByHand"},
		metav1.Condition{Type: "Ready", Reason: "NameTaken", Message: "it is"}))
	if reason, message := plan.ReadyReason(foo); reason != "NameTaken" || message != "it is" {
		t.Errorf("reason %q, message %q", reason, message)
	}
	if reason, message := plan.ReadyReason(newFoo()); reason != "" || message != "" {
		t.Errorf("reason %q, message %q of a Foo that has none", reason, message)
	}
}

// What Foos see that wait for a previous Deployment. A status of an earlier spec is not compared: the one that follows
// is, with any other.
func TestSameToOthers(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus) fooOption {
		return withConditions(metav1.Condition{Type: kind, Status: status})
	}
	reason := func(reason string) fooOption {
		return withConditions(metav1.Condition{Type: "Ready", Reason: reason, Message: "it is"})
	}
	observedNow := func(foo *v1alpha1.Foo) { foo.Status.ObservedGeneration = foo.Generation }
	before, unobserved := newFoo(observedNow), newFoo(observed)
	for _, tc := range []struct {
		name          string
		before, after *v1alpha1.Foo
		same          bool
	}{
		{name: "nothing", before: before, after: newFoo(observedNow), same: true},
		{name: "Stalled", before: before, after: newFoo(observedNow, condition("Stalled", "True"))},
		{name: "not Stalled", before: before, after: newFoo(observedNow, condition("Stalled", "False")), same: true},
		{name: "Ready", before: before, after: newFoo(observedNow, condition("Ready", "True"))},
		{name: "not Ready", before: before, after: newFoo(observedNow, condition("Ready", "False")), same: true},
		{name: "another condition", before: before, after: newFoo(observedNow, condition("Audited", "True")), same: true},
		{name: "it waits for a name", before: before, after: newFoo(observedNow, reason("WaitingForName"))},
		{name: "it is in a cycle", before: before, after: newFoo(observedNow, reason("NameCycle"))},
		{name: "the progress of its rollout", before: before, after: newFoo(observedNow, reason("Progressing")), same: true},
		{name: "another spec", before: newFoo(observedNow, condition("Stalled", "True")), after: unobserved, same: true},
		{name: "the status of another spec", before: unobserved, after: before},
		{name: "another Deployment", before: before, after: newFoo(withDeploymentName("web-2"))},
		{name: "paused", before: before, after: newFoo(withPaused)},
	} {
		if got := plan.SameToOthers(tc.before, tc.after); got != tc.same {
			t.Errorf("%s: SameToOthers = %t", tc.name, got)
		}
	}
}

// The log has the reason and the message.
func TestConditionErrorIsAnError(t *testing.T) {
	err := fmt.Errorf("sync: %w", &plan.ConditionError{Reason: "NotOwned", Message: "not ours"})
	if got, want := err.Error(), "sync: NotOwned: not ours"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is written is a copy: the caches' objects are for reading.
func TestAStepSharesNothingForWritingWithTheCaches(t *testing.T) {
	foo := newFoo(withReplicas(3), withConditions(metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.Unix(1, 0),
	}))
	c := play(t, plan.State{Foo: foo})
	sent := c.step(plan.UpdateStatus).Foo
	if sent == foo || &sent.Status.Conditions[0] == &foo.Status.Conditions[0] {
		t.Error("the status is written into the Foo of the cache")
	}
	made := c.step(plan.CreateDeployment).Deployment
	if made.Spec.Replicas == foo.Spec.Replicas {
		t.Error("the new Deployment has the cached Foo's pointer to replicas: to change one is to change the other")
	}
}
