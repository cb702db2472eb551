package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// foos returns Foos that stand by name.
func foos(foos ...*v1alpha1.Foo) []*v1alpha1.Foo { return foos }

// named returns a Foo of this name that names the Deployment.
func named(name, deployment string, with ...fooOption) *v1alpha1.Foo {
	return newFoo(append([]fooOption{withName(name), withUID(types.UID(name + "-uid")), withDeploymentName(deployment)}, with...)...)
}

// Whoever has the Deployment keeps it; what the others say depends on whether that one means to.
func TestNextOfANameThatAnotherFooHas(t *testing.T) {
	const (
		no                   = metav1.ConditionFalse
		reconciling, stalled = "Reconciling", "Stalled"

		had         = `Deployment "web-1" belongs to Foo "api", which names it too and had it first. Set another spec.deploymentName here, or change or delete that Foo`
		deleting    = `Deployment "web-1" belongs to Foo "api", which is being deleted`
		moving      = `Deployment "web-1" belongs to Foo "api", which keeps it until its new one, "api-2", can take over`
		whenResumed = `Deployment "web-1" belongs to Foo "api", which moves to another one, "api-2", when it is not paused any more`
		gone        = `Deployment "web-1" belongs to a Foo "api" that is gone, and its name is free when the garbage collector has removed it`
		copyOf      = `Deployment "web-1" is not this Foo's and is left alone: it belongs to samplecontroller.k8s.io/v1alpha1 Foo "api". Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true`
		cannot      = `Deployment "web-1" belongs to Foo "api", which keeps it, since it cannot move to "api-2": look at that Foo`
		rest        = "give one of them a spec.deploymentName that nobody has, and when it has moved the others can follow"
	)
	foo := newFoo()
	api := named("api", "web-1")
	dep := earlier(api, "web-1")
	leaving := named("api", "api-2")
	stuckBefore := withConditions(metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse}, metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue})
	presently := func(option fooOption) fooOption {
		return func(foo *v1alpha1.Foo) { option(foo); foo.Status.ObservedGeneration = foo.Generation }
	}
	stuck, stuckNoMore := presently(stuckBefore), presently(withConditions(metav1.Condition{Type: "Stalled", Status: metav1.ConditionFalse}))
	ofCopy := copied(earlier(api, "api-1"), "web-1")

	for _, tc := range []struct {
		name    string
		dep     *appsv1.Deployment
		holders []*v1alpha1.Foo
		more    string
		reason  string
		message string
		event   bool
	}{
		{"the holder names it too", dep, foos(api), stalled, "NameTaken", had, true},
		{"the holder names it too and is paused", dep, foos(named("api", "web-1", withPaused)), stalled, "NameTaken", had, true},
		{"the holder names it too, and it is being deleted", earlier(api, "web-1", deleted), foos(api), stalled, "NameTaken", had, true},
		{"the holder is younger", dep, foos(named("api", "web-1", createdAt(99))), stalled, "NameTaken", had, true},
		{"the holder is being deleted", dep, foos(named("api", "web-1", deletedFoo)), reconciling, "WaitingForName", deleting, false},
		{"the holder is being deleted after it has left", dep, foos(named("api", "api-2", deletedFoo)), reconciling, "WaitingForName", deleting, false},
		{"the holder has left", dep, foos(leaving), reconciling, "WaitingForName", moving, false},
		{"the holder has left for a name that another Foo has", dep, foos(leaving, named("db", "api-2")), reconciling, "WaitingForName", moving, false},
		{"the holder has left for a name in a ring of others", dep, foos(leaving, named("db", "db-2"), named("log", "api-2")), reconciling, "WaitingForName", moving, false},
		{"the holder has left and cannot move", dep, foos(named("api", "api-2", stuck)), stalled, "WaitingForName", cannot, false},
		{"the holder has left, cannot move, and is paused", dep, foos(named("api", "api-2", stuck, withPaused)), stalled, "WaitingForName", cannot, false},
		{"the holder has left and could not move at first", dep, foos(named("api", "api-2", stuckNoMore)), reconciling, "WaitingForName", moving, false},
		{"the holder has left and could not move where it was to go before", dep, foos(named("api", "api-2", stuckBefore)), reconciling, "WaitingForName", moving, false},
		{"the holder cannot move and is being deleted", dep, foos(named("api", "api-2", stuck, deletedFoo)), reconciling, "WaitingForName", deleting, false},
		{"the holder names it too and is stuck", dep, foos(named("api", "web-1", stuck)), stalled, "NameTaken", had, true},
		{"the holder has a copy there and cannot move", ofCopy, foos(named("api", "api-2", stuck)), stalled, "NotOwned", copyOf, true},
		{"a ring in which all are stuck is one", dep, foos(named("api", "api-2", stuck), foo), stalled, "NameCycle",
			`None of these can move: Foo "web" wants Deployment "web-1" of Foo "api"; Foo "api" wants Deployment "api-2" of Foo "web"; ` + rest, true},
		{"the holder has left and is paused", dep, foos(named("api", "api-2", withPaused)), reconciling, "WaitingForName", whenResumed, false},
		{"the holder has left for a name in a ring of others and is paused", dep, foos(named("api", "api-2", withPaused), named("db", "db-2")), reconciling, "WaitingForName", whenResumed, false},
		{"the holder is being deleted and paused", dep, foos(named("api", "api-2", withPaused, deletedFoo)), reconciling, "WaitingForName", deleting, false},
		{"the holder has a copy of its own Deployment there", ofCopy, foos(leaving), stalled, "NotOwned", copyOf, true},
		{"the holder has a copy there, and what it names is the Foo's", ofCopy, foos(leaving, foo), stalled, "NotOwned", copyOf, true},
		{"the holder has a copy there and is paused", ofCopy, foos(named("api", "api-2", withPaused)), stalled, "NotOwned", copyOf, true},
		{"the holder has a copy there, which goes with it", ofCopy, foos(named("api", "api-2", deletedFoo)), reconciling, "WaitingForName", deleting, false},
		{"the holder has a copy there, which it has made its own name", ofCopy, foos(api), stalled, "NameTaken", had, true},
		{"the holder has lost its mark there", earlier(api, "web-1", withoutLabels), foos(leaving), stalled, "NotOwned", copyOf, true},
		{"a ring of which one is paused is one", dep, foos(named("api", "api-2", withPaused), foo), stalled, "NameCycle",
			`None of these can move: Foo "web" wants Deployment "web-1" of Foo "api"; Foo "api" wants Deployment "api-2" of Foo "web"; ` + rest, true},
		{"the holder is gone", dep, nil, reconciling, "WaitingForName", gone, false},

		{"each has what the other wants", dep, foos(leaving, foo), stalled, "NameCycle",
			`None of these can move: Foo "web" wants Deployment "web-1" of Foo "api"; Foo "api" wants Deployment "api-2" of Foo "web"; ` + rest, true},
		{"three have what the next one wants", dep, foos(leaving, named("db", "db-2"), foo), stalled, "NameCycle",
			`None of these can move: Foo "web" wants Deployment "web-1" of Foo "api"; Foo "api" wants Deployment "api-2" of Foo "db"; Foo "db" wants Deployment "db-2" of Foo "web"; ` + rest, true},
		{"a ring that was asked for live is one too", dep, foos(leaving, newFoo(withGeneration(9))), stalled, "NameCycle",
			`None of these can move: Foo "web" wants Deployment "web-1" of Foo "api"; Foo "api" wants Deployment "api-2" of Foo "web"; ` + rest, true},
		{"an earlier Foo of the same name at the end is not the Foo itself", dep, foos(leaving, newFoo(withUID("earlier"))), reconciling, "WaitingForName", moving, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := plan.Seen{Foo: foo, Named: tc.dep, Holders: tc.holders}
			allUnchanged(t, seen)
			err := terminalError(t, plan.Next(seen).Err)
			want := &plan.TerminalError{Reason: tc.reason, Message: tc.message, Passing: tc.more == reconciling}
			if diff := cmp.Diff(want, err); diff != "" {
				t.Errorf("wrong refusal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(plan.Outcome{Kind: plan.Terminal}, plan.OutcomeOf(err)); diff != "" {
				t.Errorf("wrong outcome, since events tell of all changes (-want +got):\n%s", diff)
			}
			status := plan.Status(seen, err, now)
			if diff := cmp.Diff(conditionsOf(foo, no, tc.more, tc.reason, tc.message), status.Conditions); diff != "" {
				t.Errorf("wrong conditions (-want +got):\n%s", diff)
			}
			if status.Replicas != 0 || status.AvailableReplicas != 0 || status.Selector != "" {
				t.Errorf("the numbers are another Foo's: %+v", status)
			}
			var event *plan.Event
			if tc.event {
				event = &plan.Event{Type: "Warning", Reason: "ErrResourceExists", Action: "Create", Note: tc.message}
			}
			if diff := cmp.Diff(event, plan.EventOf(&foo.Status, &status)); diff != "" {
				t.Errorf("wrong event (-want +got):\n%s", diff)
			}

			live := *want
			live.Unseen = true
			if diff := cmp.Diff(&live, terminalError(t, plan.Found(plan.Seen{Foo: foo, Named: tc.dep, Holders: tc.holders}))); diff != "" {
				t.Errorf("wrong refusal when found by a live look (-want +got):\n%s", diff)
			}
		})
	}
}

// Each of them says so, beginning with itself.
func TestEveryMemberOfARingNamesAll(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(size, " members"), func(t *testing.T) {
			member := func(i int) *v1alpha1.Foo {
				i %= size
				return named(fmt.Sprint("foo-", i), fmt.Sprint("dep-", (i+1)%size))
			}
			for first := range size {
				seen := plan.Seen{Foo: member(first), Named: earlier(member(first+1), member(first).Spec.DeploymentName)}
				want := "None of these can move: "
				for i := range size {
					holder := member(first + i + 1)
					seen.Holders = append(seen.Holders, holder)
					want += fmt.Sprintf("Foo %q wants Deployment %q of Foo %q; ", member(first+i).Name, member(first+i).Spec.DeploymentName, holder.Name)
				}
				want += "give one of them a spec.deploymentName that nobody has, and when it has moved the others can follow"
				err := terminalError(t, plan.Next(seen).Err)
				if diff := cmp.Diff(&plan.TerminalError{Reason: v1alpha1.ReasonNameCycle, Message: want}, err); diff != "" {
					t.Errorf("foo-%d (-want +got):\n%s", first, diff)
				}
			}
		})
	}
}

// A name that nobody has goes to the oldest of those that want it.
func TestAFreeNameGoesToTheOldestClaimant(t *testing.T) {
	const taken = `NameTaken: Deployment "web-1" goes to Foo %q, which names it too and is older. Set another spec.deploymentName here, or change or delete that Foo`
	foo := newFoo(createdAt(100))
	claim := func(name string, second int64, with ...fooOption) *v1alpha1.Foo {
		return named(name, "web-1", append([]fooOption{createdAt(second)}, with...)...)
	}
	for _, tc := range []struct {
		name      string
		claimants []*v1alpha1.Foo
		first     string // "" for the Foo itself.
	}{
		{"nobody else wants it", nil, ""},
		{"a younger one wants it", foos(claim("api", 101)), ""},
		{"an older one wants it", foos(claim("zoo", 99)), "zoo"},
		{"one as old with an earlier name wants it", foos(claim("api", 100)), "api"},
		{"one as old with a later name wants it", foos(claim("zoo", 100)), ""},
		{"the oldest of several, the first of the list", foos(claim("a", 97), claim("b", 98), claim("c", 99)), "a"},
		{"the oldest of several, in the middle of the list", foos(claim("c", 99), claim("a", 97), claim("b", 98)), "a"},
		{"the oldest of several, the last of the list", foos(claim("c", 99), claim("b", 98), claim("a", 97)), "a"},
		{"of several as old the first by name", foos(claim("c", 99), claim("b", 99), claim("d", 99)), "b"},
		{"age comes before the name", foos(claim("a", 99), claim("b", 98)), "b"},
		{"an older one that is paused does not try", foos(claim("api", 99, withPaused)), ""},
		{"an older one that is being deleted does not try", foos(claim("api", 99, deletedFoo)), ""},
		{"an older one that is invalid does not try", foos(claim("api", 99, withReplicas(-1))), ""},
		{"an older one behind one that does not try", foos(claim("a", 97, withPaused), claim("b", 98)), "b"},
		{"an older one before one that does not try", foos(claim("b", 98), claim("a", 97, withPaused)), "b"},
		{"an earlier Foo of the same name is no rival", foos(claim("web", 99)), ""},
		{"one that had it before has no right to it", foos(claim("zoo", 101, observed)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := plan.Seen{Foo: foo, Claimants: tc.claimants}
			allUnchanged(t, seen)
			step := plan.Next(seen)
			want := "create web-1"
			if tc.first != "" {
				want = v1alpha1.ReasonNameTaken
			}
			if diff := cmp.Diff(want, stepOf(step)); diff != "" {
				t.Fatalf("wrong step (-want +got):\n%s", diff)
			}
			if tc.first == "" {
				return
			}
			if diff := cmp.Diff(fmt.Sprintf(taken, tc.first), step.Err.Error()); diff != "" {
				t.Errorf("wrong words (-want +got):\n%s", diff)
			}
			status := plan.Status(seen, step.Err, now)
			if v1alpha1.ConditionStalled != status.Conditions[1].Type {
				t.Errorf("wrong conditions: %+v", status.Conditions)
			}
			if event := plan.EventOf(&foo.Status, &status); event == nil || event.Reason != v1alpha1.EventResourceExists {
				t.Errorf("wrong event: %+v", event)
			}
		})
	}
}

// The order of age is only about names that are free.
func TestClaimantsDoNotMatterWhileThereIsADeployment(t *testing.T) {
	foo := newFoo(createdAt(100), withReplicas(3))
	older := foos(named("api", "web-1", createdAt(1)))
	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"the Foo's own", plan.Seen{Foo: foo, Named: newDeployment(foo), Claimants: older}, "nothing"},
		{"the Foo's own that differs", plan.Seen{Foo: foo, Named: newDeployment(foo, scaled(1)), Claimants: older}, "patch spec.replicas"},
		{"the Foo's own while it is being deleted", plan.Seen{Foo: foo, Named: newDeployment(foo, deleted), Claimants: older}, "nothing"},
		{"another Foo's", plan.Seen{Foo: foo, Named: earlier(named("db", "db-1"), "web-1"), Holders: foos(named("db", "db-1")), Claimants: older}, "WaitingForName"},
		{"a foreign one", plan.Seen{Foo: foo, Named: newDeployment(foo, ownedBy()), Claimants: older}, "NotOwned"},
		{"a free name asks for no look at a Foo that does not get it", plan.Seen{Foo: newFoo(createdAt(100), observed), Claimants: older}, "NameTaken"},
		{"a paused Foo does not care", plan.Seen{Foo: newFoo(createdAt(100), withPaused), Claimants: older}, "nothing"},
		{"an invalid Foo has other troubles", plan.Seen{Foo: newFoo(createdAt(100), withReplicas(-1)), Claimants: older}, "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
		})
	}
}

// Of two that want one name, exactly one tries, whichever of them one asks.
func TestOfAllClaimantsExactlyOneTries(t *testing.T) {
	claimants := foos(
		named("a", "web-1", createdAt(2)), named("b", "web-1", createdAt(1)), named("c", "web-1", createdAt(1)),
		named("d", "web-1", createdAt(0), withPaused), named("e", "web-1", createdAt(0), deletedFoo), named("f", "web-1", createdAt(3)),
	)
	var try []string
	for i, foo := range claimants {
		if foo.DeletionTimestamp != nil {
			continue // The controller asks for none that is being deleted.
		}
		seen := plan.Seen{Foo: foo}
		seen.Claimants = append(append(seen.Claimants, claimants[:i]...), claimants[i+1:]...)
		if plan.Next(seen).Create != nil {
			try = append(try, foo.Name)
		}
	}
	if diff := cmp.Diff([]string{"b"}, try); diff != "" {
		t.Errorf("the wrong ones try (-want +got):\n%s", diff)
	}
}

// What a live look finds may be gone before the cache has it, and then no event tells so.
func TestFoundIsLookedAtAgain(t *testing.T) {
	foo := newFoo()
	for _, tc := range []struct {
		name    string
		dep     *appsv1.Deployment
		holders []*v1alpha1.Foo
		want    plan.Outcome
		words   string
	}{
		{"our own", newDeployment(foo), nil, plan.Outcome{Kind: plan.Wait, After: 5 * time.Millisecond, Quiet: true}, "wait for the cache to show the Deployment"},
		{"a foreign one", newDeployment(foo, ownedBy()), nil, plan.Outcome{Kind: plan.Retry, Told: true}, "NotOwned: "},
		{"another Foo's", earlier(named("api", "web-1"), "web-1"), foos(named("api", "web-1")), plan.Outcome{Kind: plan.Retry, Told: true}, "NameTaken: "},
		{"that of a Foo which is gone", earlier(named("api", "web-1"), "web-1"), nil, plan.Outcome{Kind: plan.Retry, Told: true}, "WaitingForName: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := plan.Seen{Foo: foo, Named: tc.dep, Holders: tc.holders}
			allUnchanged(t, seen)
			err := plan.Found(seen)
			if diff := cmp.Diff(tc.want, plan.OutcomeOf(err)); diff != "" {
				t.Errorf("wrong outcome (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(err.Error(), tc.words) {
				t.Errorf("it says %q, want %q", err, tc.words)
			}
		})
	}
}
