package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

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
	refusedDelete := []reply{fails(deleteDeployment, forbidden)}

	for _, tc := range []struct {
		name    string
		state   world
		replies []reply
		sent    string
		report  string
	}{
		{
			name:  "the new one has been changed, and what it has available may be of before",
			state: world{Deployment: now3(observedAt(1, 2)), Others: all(old)},
			sent:  "nothing", report: movingTo3 + "3 of 3 replicas available" + serves,
		},
		{
			name:    "the new one does as well as the previous one, which had fewer and must not be deleted",
			state:   world{Deployment: now3(available(2)), Others: all(earlier(foo, "web-1", scaled(2)))},
			replies: refusedDelete, sent: deleteOld,
			report: reconciling + "Progressing: 2 of 3 replicas available" + undeleted + overQuota + lasts + ifItLasts3,
		},
		{
			name:  "the previous one does not serve",
			state: world{Deployment: now3(available(1)), Others: all(earlier(foo, "web-1", available(0)))},
			sent:  "nothing",
			report: reconciling + `Progressing: Moving to Deployment "web-3": 1 of 3 replicas available` +
				strings.ReplaceAll(kept, "(3", "(0") + ifItLasts3,
		},
		{
			name:  "the new one is rolled out once more, so those that it has available end",
			state: world{Deployment: now3(rollout(4, 1, 3)), Others: all(old)},
			sent:  "nothing", report: movingTo3 + "1 of 3 replicas updated" + serves + ifItLasts3,
		},
		{
			name:  "the new one's pods find no room",
			state: world{Deployment: now3(replicaFailure, rollout(1, 1, 1)), Others: all(old)},
			sent:  "nothing", report: noRoom(reconciling, 1) + kept + cure,
		},
		{
			name:  "the new one is being deleted by a user",
			state: world{Deployment: now3(deleted), Others: all(old)},
			sent:  "nothing",
			report: reconciling + `WaitingForDeletion: Deployment "web-3" is being deleted. It is created again afterwards` +
				kept + strings.ReplaceAll(stillExists1, "web-1", "web-3"),
		},
		{
			name:   "the name was changed twice",
			state:  world{Others: all(between, earlier(foo, "web-1", available(1)))},
			sent:   "get Foo, create web-3",
			report: movingTo3 + "0 of 3 replicas available" + strings.ReplaceAll(serves, "with 3", "with 1") + quota2,
		},
		{
			name: "the name was changed twice, and both previous ones serve",
			state: world{
				Deployment: now3(available(1)),
				Others:     all(earlier(foo, "web-2"), earlier(foo, "web-1", available(2))),
			},
			sent: "nothing",
			report: movingTo3 + "1 of 3 replicas available" + strings.ReplaceAll(kept, "(3", "(2") +
				strings.ReplaceAll(serves, "web-1", "web-2") + ifItLasts3,
		},
		{
			name: "the deletion of the first of both previous ones backs off",
			state: world{
				Deployment: now3(), Others: all(earlier(foo, "web-2", available(2)), old),
				Memory: remembers(foo, ledger{op(deleteDeployment, "web-1"): until(seconds(10))}),
			},
			sent:   strings.ReplaceAll(deleteOld, "web-1", "web-2"),
			report: available3 + undeleted + "exceeded quota: small" + triesAgain,
		},
		{
			name:  "the new one does as well as both previous ones",
			state: world{Deployment: now3(), Others: all(earlier(foo, "web-2", available(2)), old)},
			sent:  deleteOld, report: available3,
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

// The deletion of a previous Deployment that is refused is worth a Warning, unless there is one already.
func TestTheEventOfARefusedDeletion(t *testing.T) {
	foo := renamed()
	for name, tc := range map[string]struct {
		memory reconcile.Memory
		want   string
	}{
		"the Foo is available": {want: "Refused"},
		"and something else":   {memory: overriddenMemory(foo), want: "FieldsOverridden"},
	} {
		state := world{Foo: foo, Deployment: newDeployment(foo), Others: all(earlier(foo, "web-1")), Memory: tc.memory}
		if event := play(t, state, fails(deleteDeployment, forbidden)).event(); event.Reason != tc.want {
			t.Errorf("%s: the event is %+v, want %s", name, event, tc.want)
		}
	}
}

// replicas returns a number that is set.
func replicas(n int32) *int32 { return &n }

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
		{name: "as many as the previous one is set to", asked: replicas(3), set: replicas(2), have: 2, deleted: true},
		{name: "as many as the Foo asks for", asked: replicas(3), set: replicas(5), have: 3, deleted: true},
		{name: "one, and the previous one is set to none", asked: replicas(3), set: replicas(0), have: 1, deleted: true},
		{name: "none, and the previous one is set to none", asked: replicas(3), set: replicas(0), have: 0},
		{name: "one, and the previous one sets no number", asked: replicas(3), have: 1, deleted: true},
		{name: "none, and the previous one sets no number", asked: replicas(3), have: 0},
		{name: "none, and the Foo asks for none", asked: replicas(0), set: replicas(3), have: 0, deleted: true},
		{name: "the Foo sets no number: as many", set: replicas(9), have: 9, deleted: true},
		{name: "the Foo sets no number: one less", set: replicas(9), have: 8},
		{name: "the Foo sets no number: none of none", set: replicas(0), have: 0, deleted: true},
		{name: "no number at all: one", have: 1, deleted: true},
		{name: "no number at all: none", have: 0},
	} {
		foo := renamed(func(foo *v1alpha1.Foo) { foo.Spec.Replicas = tc.asked })
		for _, serving := range []int32{0, 9} {
			t.Run(fmt.Sprintf("%s; %d available", tc.name, serving), func(t *testing.T) {
				old := earlier(foo, "web-1", deadlineExceeded, rollout(9, 4, serving))
				old.Spec.Replicas = tc.set
				next := newDeployment(foo, rollout(9, 9, tc.have))
				if tc.asked == nil {
					next.Spec.Replicas = new(int32(9))
				}
				want := "nothing"
				if tc.deleted {
					want = deleteOld
				}
				checkSent(t, want, play(t, world{Foo: foo, Deployment: next, Others: all(old)}).sent())
			})
		}
	}
}

// What else keeps a previous Deployment, or does not keep it, when the numbers are as they should be.
func TestWhatKeepsAPreviousDeployment(t *testing.T) {
	foo, unset := renamed(), renamed(unsetReplicas)
	old := func(with ...deploymentOption) []*appsv1.Deployment { return all(earlier(foo, "web-1", with...)) }
	of := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	overridden := overriddenMemory(foo)

	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{name: "nothing", state: world{Deployment: of(), Others: old()}, want: deleteOld},
		{
			name: "the new one is set to fewer than it still has", want: "nothing",
			state: world{Foo: unset, Deployment: newDeployment(unset, scaled(1), rollout(3, 3, 3)), Others: old()},
		},
		{
			name:  "one available pod of the new one is of an earlier template",
			state: world{Deployment: of(rollout(4, 3, 3)), Others: old()}, want: "nothing",
		},
		{
			name:  "the status of the new one is not up to date",
			state: world{Deployment: of(observedAt(1, 2)), Others: old()}, want: "nothing",
		},
		{
			name:  "the new one is of an unknown generation, and may not be patched yet",
			state: world{Deployment: of(withFence("x")), Others: old(), Memory: overridden}, want: "nothing",
		},
		{name: "it is being deleted", state: world{Deployment: of(), Others: old(deleted)}, want: "nothing"},
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
			name:  "the previous one has lost its pods",
			state: world{Deployment: complete(1), Others: old(9, available(0))},
			want: moving(9, 1) + `. Previous Deployment "web-1" (0 available) is kept until its replacement is available` +
				advice(9),
		},
		{
			name: "of several the one that is set to most counts",
			state: world{Deployment: complete(4), Others: append(
				old(5), earlier(three, "web-2", scaled(2), available(0)))},
			want: moving(5, 4) + serves(5) + quota2 + advice(5),
		},
		{
			name:  "the Foo sets the number",
			state: world{Foo: renamed(withReplicas(1)), Deployment: complete(1), Others: old(9)},
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
			state: world{Others: all(copied(old("4"), "copy"))}, want: read + "create web-1",
		},
		{
			name:  "a patch beside one of the same",
			state: world{Deployment: edited, Others: all(old("3"))}, want: patch,
		},
		{
			name:  "a patch beside a newer one and others",
			state: world{Deployment: edited, Others: all(old("2"), old("4"), old("3"))}, want: read + patch,
		},
		{
			name:  "a number of two digits",
			state: world{Foo: ten, Deployment: newDeployment(ten, withFence("10"))}, want: "nothing",
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
		{name: "the Foo sets the number", foo: renamed(withReplicas(2)), previous: all(dep("web-1", scaled(5))), want: 2},
		{name: "the Foo sets none", foo: renamed(withReplicas(0)), previous: all(dep("web-1", scaled(5)))},
		{
			name:     "of several the one that is set to most",
			previous: all(dep("web-1", scaled(4), available(3)), dep("web-2", scaled(5), available(0))), want: 5,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.foo == nil {
				tc.foo = foo
			}
			want := plan.Deployment(tc.foo)
			want.Spec.Replicas = &tc.want
			got := play(t, world{Foo: tc.foo, Others: tc.previous}).created()
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
			name: "there is no Deployment", state: world{Foo: foo},
			want: movingTo3 + "0 of 3 replicas available" + others + `Previous Deployment "c" keeps serving with 3 until then`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.Others = all(earlier(foo, "c"), earlier(foo, "b", deleted), earlier(foo, "a", withoutLabels))
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
