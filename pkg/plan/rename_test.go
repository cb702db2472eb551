package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

const (
	kept        = `. Previous Deployment "web-1" (3 available) is kept until its replacement is available`
	movingTo3   = reconciling + `Renaming: Moving to Deployment "web-3": `
	serves      = `. Previous Deployment "web-1" keeps serving with 3 until then`
	waitingGone = `. Previous Deployment "web-1" is being deleted`
	undeleted   = `. Cannot delete previous Deployment "web-1": `
	quota2      = `. Previous Deployment "web-2" has nothing available. If it takes up a quota, you may delete it: ` +
		"kubectl -n default delete deployment web-2"
	notMade = `. Deployment "web-1-copy" has an owner reference to this Foo, but the controller did not create it ` +
		"under this name (it may be a copy), so it is neither changed nor deleted"
	taken3        = stalled + `NameTaken: Deployment "web-3" is controlled by Foo "api"`
	tooLate3      = stalled + `ProgressDeadlineExceeded: Deployment "web-3" has exceeded its progress deadline: `
	seePods3      = ". To see why its pods do not become available: " + describePods3
	ifItLasts3    = ". If this lasts: " + describePods3
	describePods3 = "kubectl -n default describe pods --show-events " +
		"-l 'app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-3'"
	readBoth  = "get Foo, get web-3, "
	deleteOld = readBoth + "delete web-1"
)

// noRoom returns the report about a web-3 whose pods are refused.
func noRoom(second string, n int) string {
	return fmt.Sprintf(`%sReplicaFailure: Deployment "web-3" cannot create pods (%d of 3 replicas available)%s`,
		second, n, podsForbidden)
}

// From the new name to the end of the previous Deployment, and what can come between.
func TestARenameFromPhaseToPhase(t *testing.T) {
	foo := renamed()
	old := earlier(foo, "web-1")
	now3 := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	between := earlier(foo, "web-2", scaled(1), available(0))
	rival := newFoo(withName("api"), withUID("api-uid"), withDeploymentName("web-3"))
	rivals := newDeployment(rival)
	deletedCopy := copied(old, "web-1-copy")
	deleted(deletedCopy)
	refusedDelete := []reply{fails(deleteDeployment, forbidden)}

	for _, tc := range []struct {
		name    string
		state   world
		replies []reply
		sent    string
		report  string
	}{
		{
			name:  "the new Deployment does not exist",
			state: world{Previous: all(old)}, sent: "get Foo, create web-3",
			report: movingTo3 + "0 of 3 replicas available" + serves,
		},
		{
			name:  "there is no room for another one",
			state: world{Previous: all(old)}, replies: []reply{fails(createDeployment, forbidden)},
			sent:   "get Foo, create web-3",
			report: reconciling + `Refused: Cannot create Deployment "web-3": ` + overQuota + kept + lasts,
		},
		{
			name:  "the new one has been changed, and what it has available may be of before",
			state: world{Deployment: now3(observedAt(1, 2)), Previous: all(old)},
			sent:  "nothing", report: movingTo3 + "3 of 3 replicas available" + serves,
		},
		{
			name:  "the new one does as well as the previous one",
			state: world{Deployment: now3(), Previous: all(old)}, sent: deleteOld, report: available3,
		},
		{
			name:    "the new one does as well as the previous one, which had fewer and must not be deleted",
			state:   world{Deployment: now3(available(2)), Previous: all(earlier(foo, "web-1", scaled(2)))},
			replies: refusedDelete, sent: deleteOld,
			report: reconciling + "Progressing: 2 of 3 replicas available" + undeleted + overQuota + lasts + ifItLasts3,
		},
		{
			name:  "a deletion had no answer a short time ago",
			state: world{Deployment: now3(), Previous: all(old), Memory: unanswered("web-1")},
			sent:  "nothing", report: available3 + undeleted + noAnswer + triesAgain,
		},

		{
			name:  "the new one's pods find no room",
			state: world{Deployment: now3(replicaFailure, rollout(1, 1, 1)), Previous: all(old)},
			sent:  "nothing", report: noRoom(reconciling, 1) + kept + cure,
		},
		{
			name: "the new one's pods find no room for too long",
			state: world{
				Deployment: now3(replicaFailure, deadlineExceeded, rollout(1, 1, 1)), Previous: all(old),
			},
			sent: "nothing", report: noRoom(stalled, 1) + kept + cure,
		},
		{
			name:   "the new one does not come up",
			state:  world{Deployment: now3(deadlineExceeded, available(1)), Previous: all(old)},
			sent:   "nothing",
			report: tooLate3 + "1 of 3 replicas available" + kept + seePods3,
		},

		{
			name:  "the new name is taken by another Foo",
			state: world{Deployment: rivals, Owner: rival, Previous: all(old)},
			sent:  "nothing", report: taken3 + kept + yields,
		},
		{
			name:  "the new one is being deleted by a user",
			state: world{Deployment: now3(deleted), Previous: all(old)},
			sent:  "nothing",
			report: reconciling + `WaitingForDeletion: Deployment "web-3" is being deleted. It is created again afterwards` +
				kept + strings.ReplaceAll(stillExists1, "web-1", "web-3"),
		},

		{
			name:   "the name was changed twice",
			state:  world{Previous: all(between, earlier(foo, "web-1", available(1)))},
			sent:   "get Foo, create web-3",
			report: movingTo3 + "0 of 3 replicas available" + strings.ReplaceAll(serves, "with 3", "with 1") + quota2,
		},
		{
			name: "the name was changed twice, and both previous ones serve",
			state: world{
				Deployment: now3(available(1)),
				Previous:   all(earlier(foo, "web-2"), earlier(foo, "web-1", available(2))),
			},
			sent: "nothing",
			report: movingTo3 + "1 of 3 replicas available" + strings.ReplaceAll(kept, "(3", "(2") +
				strings.ReplaceAll(serves, "web-1", "web-2") + ifItLasts3,
		},
		{
			name:  "the new one does as well as both previous ones",
			state: world{Deployment: now3(), Previous: all(earlier(foo, "web-2", available(2)), old)},
			sent:  deleteOld, report: available3,
		},
		{
			name: "the name was changed back",
			state: world{
				Deployment: now3(withFence("1")), Previous: all(earlier(foo, "web-2", available(2))),
			},
			sent: stampGeneration + ", " + readBoth + "delete web-2", report: available3,
		},

		{
			name:  "a copy is reported and left alone",
			state: world{Deployment: now3(), Previous: all(copied(now3(), "web-1-copy"))},
			sent:  "nothing", report: available3 + notMade,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.Foo = foo
			c := play(t, tc.state, tc.replies...)
			checkSent(t, tc.sent, c.sent())
			if diff := cmp.Diff(tc.report, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			checkWellFormed(t, foo, c)
		})
	}
}

// unanswered is what is remembered of deletions that had no answer a short time ago.
func unanswered(names ...string) reconcile.Memory {
	memory := reconcile.Memory{UID: "foo-uid", Generation: 3, Ledger: ledger{}}
	for _, name := range names {
		memory.Ledger[op(deleteDeployment, name)] = refusedUntil(seconds(1), &reconcile.Problem{
			Reason: "Refused", Message: noAnswer,
		})
	}
	return memory
}

// replicas returns a number that is set.
func replicas(n int32) *int32 { return &n }

// conditions are what the Deployment controller may have put on a previous Deployment: it is in the middle of a
// rollout, good or bad, or paused, or has no deadline.
var conditions = map[string]deploymentOption{
	"no condition":     func(*appsv1.Deployment) {},
	"it was complete":  wasComplete,
	"it progresses":    withCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated"),
	"a user paused it": func(dep *appsv1.Deployment) { pausedByUser(dep); pausedRollout(dep) },
	"it was resumed":   withCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed"),
	"it is too late":   deadlineExceeded,
	"its pods are refused": func(dep *appsv1.Deployment) {
		replicaFailure(dep)
		noReplicaSet(dep)
	},
	"it is not observed": observedAt(1, 2),
}

var pausedRollout = withCondition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused")

// A previous Deployment is deleted when the new one has at least one replica available, and as many as the smaller of
// what the Foo asks for and what the previous one is set to, or when the Foo asks for none. Without spec.replicas it
// asks for what the previous one is set to. Whether the previous one serves at the moment, and what its conditions are,
// makes no difference.
func TestWhenAPreviousDeploymentIsDeleted(t *testing.T) {
	for _, tc := range []struct {
		name string
		// asked is spec.replicas of the Foo, set that of the previous Deployment. have is what the new one has available.
		asked, set *int32
		have       int32
		deleted    bool
	}{
		{name: "as many as both numbers", asked: replicas(3), set: replicas(3), have: 3, deleted: true},
		{name: "one less than both numbers", asked: replicas(3), set: replicas(3), have: 2},
		{name: "none", asked: replicas(3), set: replicas(3), have: 0},
		{name: "as many as the previous one is set to", asked: replicas(3), set: replicas(2), have: 2, deleted: true},
		{name: "less than the previous one is set to", asked: replicas(3), set: replicas(2), have: 1},
		{name: "as many as the Foo asks for", asked: replicas(3), set: replicas(5), have: 3, deleted: true},
		{name: "less than the Foo asks for", asked: replicas(3), set: replicas(5), have: 2},
		{name: "one, and the previous one is set to none", asked: replicas(3), set: replicas(0), have: 1, deleted: true},
		{name: "none, and the previous one is set to none", asked: replicas(3), set: replicas(0), have: 0},
		{name: "one, and the previous one sets no number", asked: replicas(3), have: 1, deleted: true},
		{name: "none, and the previous one sets no number", asked: replicas(3), have: 0},
		{name: "none, and the Foo asks for none", asked: replicas(0), set: replicas(3), have: 0, deleted: true},
		{name: "none, and both ask for none", asked: replicas(0), set: replicas(0), have: 0, deleted: true},

		{name: "the Foo sets no number: as many", set: replicas(9), have: 9, deleted: true},
		{name: "the Foo sets no number: one less", set: replicas(9), have: 8},
		{name: "the Foo sets no number: one of nine", set: replicas(9), have: 1},
		{name: "the Foo sets no number: none of none", set: replicas(0), have: 0, deleted: true},
		{name: "no number at all: one", have: 1, deleted: true},
		{name: "no number at all: none", have: 0},
	} {
		foo := renamed(func(foo *v1alpha1.Foo) { foo.Spec.Replicas = tc.asked })
		for condition, with := range conditions {
			for _, serving := range []int32{0, 1, 9} {
				t.Run(fmt.Sprintf("%s; %s, %d available", tc.name, condition, serving), func(t *testing.T) {
					old := earlier(foo, "web-1", with, rollout(9, 4, serving))
					old.Spec.Replicas = tc.set
					next := newDeployment(foo, rollout(9, 9, tc.have))
					if tc.asked == nil {
						next.Spec.Replicas = new(int32(9))
					}
					want := "nothing"
					if tc.deleted {
						want = deleteOld
					}
					checkSent(t, want, play(t, world{Foo: foo, Deployment: next, Previous: all(old)}).sent())
				})
			}
		}
	}
}

// What else keeps a previous Deployment, or does not keep it, when the numbers are as they should be.
func TestWhatKeepsAPreviousDeployment(t *testing.T) {
	foo, unset := renamed(), renamed(unsetReplicas)
	old := func(with ...deploymentOption) []*appsv1.Deployment { return all(earlier(foo, "web-1", with...)) }
	of := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	web2 := func(with ...deploymentOption) *appsv1.Deployment { return earlier(foo, "web-2", with...) }
	edited := []deploymentOption{scaled(7), running("nginx:0"), withFence("0")}
	overridden := overriddenMemory(foo)

	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{name: "nothing", state: world{Deployment: of(), Previous: old()}, want: deleteOld},
		{
			name: "the new one is set to fewer than it still has", want: "nothing",
			state: world{Foo: unset, Deployment: newDeployment(unset, scaled(1), rollout(3, 3, 3)), Previous: old()},
		},
		{
			name:  "all available pods of the new one are of an earlier template",
			state: world{Deployment: of(rollout(3, 0, 3)), Previous: old()}, want: "nothing",
		},
		{
			name:  "one available pod of the new one is of an earlier template",
			state: world{Deployment: of(rollout(4, 3, 3)), Previous: old()}, want: "nothing",
		},
		{
			name:  "the new one has enough beside a pod of an earlier template",
			state: world{Deployment: of(rollout(4, 3, 4)), Previous: old()}, want: deleteOld,
		},
		{
			name:  "pods of the new one are refused, and it has too few",
			state: world{Deployment: of(replicaFailure, available(2)), Previous: old(available(0))}, want: "nothing",
		},

		{
			name:  "the status of the new one is not up to date",
			state: world{Deployment: of(observedAt(1, 2)), Previous: old()}, want: "nothing",
		},
		{
			name:  "the new one is of an unknown generation, and may not be patched yet",
			state: world{Deployment: of(withFence("x")), Previous: old(), Memory: overridden}, want: "nothing",
		},
		{name: "the new one does not exist", state: world{Previous: old(edited...)}, want: "get Foo, create web-3"},
		{name: "the new one is being deleted", state: world{Deployment: of(deleted), Previous: old()}, want: "nothing"},
		{name: "the new one is no Foo's", state: world{Deployment: of(ownedBy()), Previous: old()}, want: "NotOwned"},
		{
			name:  "the Foo is paused",
			state: world{Foo: renamed(withPaused), Deployment: of(), Previous: old()}, want: "nothing",
		},

		{name: "it is being deleted", state: world{Deployment: of(), Previous: old(deleted)}, want: "nothing"},
		{name: "it has no label", state: world{Deployment: of(), Previous: old(withoutLabels)}, want: "nothing"},
		{
			name:  "a copy is kept, and keeps nothing",
			state: world{Deployment: of(), Previous: append(old(), copied(of(scaled(9)), "a-copy"))}, want: deleteOld,
		},

		{
			name:  "of several the one that is set to most counts: it has fewer",
			state: world{Deployment: of(available(2)), Previous: append(old(scaled(1)), web2(scaled(5)))}, want: "nothing",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state.Foo == nil {
				tc.state.Foo = foo
			}
			checkSent(t, tc.want, play(t, tc.state).result())
		})
	}
}

// A complete Deployment that is too small for its previous one does not become larger by itself. A person must act.
func TestADeploymentThatIsTooSmall(t *testing.T) {
	moving := func(needed, has int) string {
		return fmt.Sprintf(`%sRenaming: Moving to Deployment "web-3" when it has %d replicas available, because previous `+
			`Deployment "web-1" is set to %[2]d. It is complete with %[3]d of %[3]d replicas available`, stalled, needed, has)
	}
	advice := func(needed int) string {
		return fmt.Sprintf(". To have %d: kubectl -n default scale deployment web-3 --replicas=%d. To go on with another "+
			"number N: kubectl -n default scale foo web --replicas=N", needed, needed)
	}
	serves := func(n int) string {
		return fmt.Sprintf(`. Previous Deployment "web-1" keeps serving with %d until then`, n)
	}
	unset, three := renamed(unsetReplicas), renamed()
	old := func(n int32, with ...deploymentOption) []*appsv1.Deployment {
		return all(earlier(three, "web-1", append([]deploymentOption{scaled(n), rollout(n, n, n)}, with...)...))
	}
	complete := func(n int32) *appsv1.Deployment { return newDeployment(unset, scaled(n), rollout(n, n, n)) }
	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{
			name:  "an autoscaler or a policy has set one",
			state: world{Deployment: complete(1), Previous: old(9)},
			want:  moving(9, 1) + serves(9) + advice(9),
		},
		{
			name:  "somebody has set none",
			state: world{Deployment: complete(0), Previous: old(9, available(2))},
			want:  moving(9, 0) + serves(2) + advice(9),
		},
		{
			name:  "the previous one has lost its pods",
			state: world{Deployment: complete(1), Previous: old(9, available(0))},
			want: moving(9, 1) + `. Previous Deployment "web-1" (0 available) is kept until its replacement is available` +
				advice(9),
		},
		{
			name: "of several the one that is set to most counts",
			state: world{Deployment: complete(4), Previous: append(
				old(5), earlier(three, "web-2", scaled(2), available(0)))},
			want: moving(5, 4) + serves(5) + quota2 + advice(5),
		},
		{
			name:  "the Foo sets the number",
			state: world{Foo: renamed(withReplicas(1)), Deployment: complete(1), Previous: old(9)},
			want:  "True Available: 1 of 1 replicas available",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state.Foo == nil {
				tc.state.Foo = unset
			}
			c := play(t, tc.state)
			if diff := cmp.Diff(tc.want, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			if c.outcome.Kind != reconcile.Done {
				t.Errorf("outcome %+v, want done: what changes is an event", c.outcome)
			}
		})
	}
}

// Something may have been written for a newer spec, under a name that the cached Foo does not have yet.
func TestTheGenerationOnEveryOwnedDeploymentCounts(t *testing.T) {
	foo := newFoo(withGeneration(3), withReplicas(3)) // Without a status, so that a create alone needs no read.
	old := func(fence string, with ...deploymentOption) *appsv1.Deployment {
		return earlier(foo, "web-"+fence, append([]deploymentOption{withFence(fence), available(5)}, with...)...)
	}
	edited := newDeployment(foo, scaled(5), withFence("2"), available(0))
	ten := newFoo(withGeneration(10))
	const patch, read = stampGeneration + " spec.replicas", "get Foo, "

	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{
			name:  "a create beside a copy needs a read",
			state: world{Previous: all(copied(old("4"), "copy"))}, want: read + "create web-1",
		},
		{name: "a patch beside an older one", state: world{Deployment: edited, Previous: all(old("2"))}, want: patch},
		{
			name:  "a patch beside one of the same",
			state: world{Deployment: edited, Previous: all(old("3"))}, want: patch,
		},
		{
			name:  "a patch beside a newer one needs a read",
			state: world{Deployment: edited, Previous: all(old("4"))}, want: read + patch,
		},
		{
			name:  "a patch beside a newer one and others",
			state: world{Deployment: edited, Previous: all(old("2"), old("4"), old("3"))}, want: read + patch,
		},
		{
			name:  "a patch beside a newer one that is being deleted",
			state: world{Deployment: edited, Previous: all(old("4", deleted))}, want: patch,
		},
		{
			name:  "a patch beside one that has no number",
			state: world{Deployment: edited, Previous: all(old("x"))}, want: patch,
		},
		{
			name:  "a number with more digits is newer: it is not compared as text",
			state: world{Foo: newFoo(withGeneration(9)), Deployment: newDeployment(newFoo(), withFence("10"))},
			want:  read + stampGeneration,
		},
		{
			name:  "a number of two digits",
			state: world{Foo: ten, Deployment: newDeployment(ten, withFence("10"))}, want: "nothing",
		},
		{
			name:  "that of a Deployment of another Foo does not count",
			state: world{Deployment: newDeployment(newFoo(withUID("other")), withFence("4"))}, want: "WaitingForName",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state.Foo == nil {
				tc.state.Foo = foo
			}
			checkSent(t, tc.want, play(t, tc.state).result())
		})
	}
}

func TestACreateHasTheReplicasOfThePreviousDeployment(t *testing.T) {
	foo := renamed(unsetReplicas, withImage("nginx:1.29"))
	dep := func(name string, with ...deploymentOption) *appsv1.Deployment { return earlier(foo, name, with...) }
	for _, tc := range []struct {
		name     string
		foo      *v1alpha1.Foo
		previous []*appsv1.Deployment
		want     int32
	}{
		{name: "there is no previous one", want: 1},
		{name: "there is one", previous: all(dep("web-1", scaled(5))), want: 5},
		{name: "there is one that has nothing available", previous: all(dep("web-1", scaled(5), available(0))), want: 5},
		{name: "there is one that was scaled to nothing", previous: all(dep("web-1", scaled(0), available(0)))},
		{
			name:     "there is one without a number, which is 1",
			previous: all(dep("web-1", withoutReplicas, available(1))), want: 1,
		},
		{name: "the Foo sets the number", foo: renamed(withReplicas(2)), previous: all(dep("web-1", scaled(5))), want: 2},
		{name: "the Foo sets none", foo: renamed(withReplicas(0)), previous: all(dep("web-1", scaled(5)))},
		{
			name:     "of several the one that is set to most",
			previous: all(dep("web-1", scaled(4), available(3)), dep("web-2", scaled(5), available(0))), want: 5,
		},
		{name: "one that is being deleted does not count", previous: all(dep("web-1", scaled(5), deleted)), want: 1},
		{name: "a copy does not count", previous: all(copied(dep("web-1", scaled(5)), "copy")), want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.foo == nil {
				tc.foo = foo
			}
			want := plan.Deployment(tc.foo)
			want.Spec.Replicas = &tc.want
			got := play(t, world{Foo: tc.foo, Previous: tc.previous}).created()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong Deployment (-want +got):\n%s", diff)
			}
			if len(tc.previous) > 0 && got.Spec.Replicas == tc.previous[0].Spec.Replicas {
				t.Error("the new Deployment shares memory with the cached one")
			}
		})
	}
}

func TestPreviousDeploymentsAreReportedWhateverElseThereIs(t *testing.T) {
	const (
		others = `. Deployment "a" has an owner reference to this Foo, but the controller did not create it under ` +
			`this name (it may be a copy), so it is neither changed nor deleted. Previous Deployment "b" is being deleted. `
		kept        = others + `Previous Deployment "c" (3 available) is kept until its replacement is available`
		keptInvalid = others + `Deployment "c" (3 available) is kept while this Foo is invalid`
	)
	foo := renamed()
	api := named("api", "api-2")
	for _, tc := range []struct {
		name    string
		state   world
		replies []reply
		want    string
	}{
		{
			name:  "it is paused",
			state: world{Foo: renamed(withPaused)},
			want: "False " + strings.ReplaceAll(pausedPrefix, "web-1", "web-3") + "does not exist" + others +
				`Previous Deployment "c" ` + "(3 available) is kept while this Foo is paused" + unpause,
		},
		{
			name:  "it is invalid",
			state: world{Foo: renamed(withReplicas(-1))},
			want:  stalled + "Invalid: spec.replicas is -1. Set 0 or more, or remove it" + keptInvalid + editWeb,
		},
		{
			name:  "it waits for a name",
			state: world{Foo: foo, Deployment: earlier(api, "web-3"), Owner: api},
			want: reconciling + `WaitingForName: Waiting for Foo "api" to move from Deployment "web-3" to "api-2"` +
				kept + describeAPI,
		},
		{
			name:  "something is refused",
			state: world{Foo: foo}, replies: []reply{fails(readFoo, tooMany)},
			want: reconciling + `RequestFailed: Cannot create Deployment "web-3": the API server has too many requests: slow down` +
				kept + passes,
		},
		{
			name: "there is no Deployment", state: world{Foo: foo},
			want: movingTo3 + "0 of 3 replicas available" + others + `Previous Deployment "c" keeps serving with 3 until then`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.Previous = all(earlier(foo, "c"), earlier(foo, "b", deleted), earlier(foo, "a", withoutLabels))
			c := play(t, tc.state, tc.replies...)
			if diff := cmp.Diff(tc.want, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			for _, condition := range c.conditions() {
				if condition.Message != c.message() {
					t.Errorf("%s has another message: %s", condition.Type, condition.Message)
				}
			}
		})
	}
}
