package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

const (
	nameTaken = `Deployment "web-1" is controlled by Foo "api", which also names it` + yields
	yields    = ". Set another spec.deploymentName on this Foo: kubectl -n default edit foo web"
	// seeNaming is followed by the name of the Deployment.
	seeNaming = ". To see the Foos that name it: kubectl -n default get foos --field-selector=spec.deploymentName="
	ownerGone = `Waiting for the garbage collector to delete Deployment "web-1": its Foo "api" no longer exists` +
		stillExists1
	// stillExists1 is what to do when Deployment web-1 is not deleted.
	stillExists1 = `. If Deployment "web-1" still exists after some minutes, check its finalizers: kubectl -n default ` +
		"get deployment web-1 -o yaml"
	cycleBegins = "These Foos wait for each other's Deployments, so none can move: "
	cycleEnd    = ". Set spec.deploymentName of one of them to a name that no Deployment has, and the others follow: " +
		"kubectl -n default edit foo "
)

// The Foo that has the Deployment keeps it; what the others report depends on whether that one is going to move.
func TestANameThatAnotherFooHas(t *testing.T) {
	const (
		describeAPI = "kubectl -n default describe foo api"
		deleting    = `Waiting until Foo "api", which is being deleted, and its Deployment "web-1" no longer exist. ` +
			`If Foo "api" still exists after some minutes, check its finalizers: kubectl -n default get foo api -o yaml`
		moving  = `Waiting for Foo "api" to move from Deployment "web-1" to "api-2". See: ` + describeAPI
		resumed = `Deployment "web-1" is controlled by Foo "api", which is paused and so does not move to Deployment ` +
			`"api-2". To resume Foo "api": kubectl -n default patch foo api --type=merge -p '{"spec":{"paused":false}}'`
		cannot = `Deployment "web-1" is controlled by Foo "api", which cannot move to Deployment "api-2". Resolve ` +
			`what Foo "api" reports, or set another spec.deploymentName on this Foo. See: ` + describeAPI
		cycle2 = cycleBegins + `Foo "web" waits for Deployment "web-1" of Foo "api"; Foo "api" waits for Deployment ` +
			`"api-2" of Foo "web"` + cycleEnd + "web"
		cycle3 = cycleBegins + `Foo "web" waits for Deployment "web-1" of Foo "api"; Foo "api" waits for Deployment ` +
			`"api-2" of Foo "db"; Foo "db" waits for Deployment "db-2" of Foo "web"` + cycleEnd + "web"
	)
	copyOf := notOwned("web-1", `its controller is samplecontroller.k8s.io/v1alpha1 Foo "api"`)
	foo := newFoo()
	api := named("api", "web-1")
	dep := earlier(api, "web-1")
	leaving := named("api", "api-2")
	stalledBefore := withConditions(metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse},
		metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue})
	presently := func(option fooOption) fooOption {
		return func(foo *v1alpha1.Foo) { option(foo); foo.Status.ObservedGeneration = foo.Generation }
	}
	isStalled := presently(stalledBefore)
	stalledNoMore := presently(withConditions(metav1.Condition{Type: "Stalled", Status: metav1.ConditionFalse}))
	ofCopy := copied(earlier(api, "api-1"), "web-1")
	type row struct {
		name   string
		dep    *appsv1.Deployment
		chain  []*v1alpha1.Foo
		second string
		reason string
		want   string
	}
	taken := func(name string, dep *appsv1.Deployment, chain ...*v1alpha1.Foo) row {
		return row{name: name, dep: dep, chain: chain, second: "Stalled", reason: "NameTaken", want: nameTaken}
	}
	waits := func(name string, dep *appsv1.Deployment, want string, chain ...*v1alpha1.Foo) row {
		return row{name: name, dep: dep, chain: chain, second: "Reconciling", reason: "WaitingForName", want: want}
	}
	foreign := func(name string, dep *appsv1.Deployment, chain ...*v1alpha1.Foo) row {
		return row{name: name, dep: dep, chain: chain, second: "Stalled", reason: "NotOwned", want: copyOf}
	}
	cycle := func(name string, dep *appsv1.Deployment, want string, chain ...*v1alpha1.Foo) row {
		return row{name: name, dep: dep, chain: chain, second: "Stalled", reason: "NameCycle", want: want}
	}
	paused := func(name string, chain ...*v1alpha1.Foo) row {
		return row{name: name, dep: dep, chain: chain, second: "Stalled", reason: "WaitingForName", want: resumed}
	}
	keeps := func(name string, chain ...*v1alpha1.Foo) row {
		return row{name: name, dep: dep, chain: chain, second: "Stalled", reason: "WaitingForName", want: cannot}
	}

	for _, tc := range []row{
		taken("the owner names it too", dep, api),
		taken("the owner names it too and is paused", dep, named("api", "web-1", withPaused)),
		taken("the owner names it too, and it is being deleted", earlier(api, "web-1", deleted), api),
		taken("the owner is younger", dep, named("api", "web-1", createdAt(99))),
		waits("the owner is being deleted", dep, deleting, named("api", "web-1", deletedFoo)),
		waits("the owner is being deleted after it has left", dep, deleting, named("api", "api-2", deletedFoo)),
		waits("the owner has left", dep, moving, leaving),
		waits("the owner has left for a name that another Foo has", dep, moving, leaving, named("db", "api-2")),
		waits("the owner has left for a name in a cycle of others", dep, moving, leaving, named("db", "db-2"),
			named("log", "api-2")),
		keeps("the owner has left and cannot move", named("api", "api-2", isStalled)),
		keeps("the owner has left, cannot move, and is paused", named("api", "api-2", isStalled, withPaused)),
		waits("the owner has left and could not move at first", dep, moving, named("api", "api-2", stalledNoMore)),
		waits("the owner has left and could not move to the name before", dep, moving,
			named("api", "api-2", stalledBefore)),
		waits("the owner cannot move and is being deleted", dep, deleting,
			named("api", "api-2", isStalled, deletedFoo)),
		taken("the owner names it too and is stalled", dep, named("api", "web-1", isStalled)),
		foreign("the owner has a copy there and cannot move", ofCopy, named("api", "api-2", isStalled)),
		cycle("a cycle in which all are stalled is one", dep, cycle2, named("api", "api-2", isStalled), foo),
		paused("the owner has left and is paused", named("api", "api-2", withPaused)),
		paused("the owner has left for a name in a cycle of others and is paused",
			named("api", "api-2", withPaused), named("db", "db-2")),
		waits("the owner is being deleted and paused", dep, deleting,
			named("api", "api-2", withPaused, deletedFoo)),
		foreign("the owner has a copy of its own Deployment there", ofCopy, leaving),
		foreign("the owner has a copy there, and what it names is the Foo's", ofCopy, leaving, foo),
		foreign("the owner has a copy there and is paused", ofCopy, named("api", "api-2", withPaused)),
		waits("the owner has a copy there, which is deleted with it", ofCopy, deleting,
			named("api", "api-2", deletedFoo)),
		taken("the owner has a copy there, which it names now", ofCopy, api),
		foreign("the made-for label there is gone", earlier(api, "web-1", withoutLabels), leaving),
		cycle("a cycle of which one is paused is one", dep, cycle2, named("api", "api-2", withPaused), foo),
		waits("the owner is gone", dep, ownerGone),

		cycle("each has what the other wants", dep, cycle2, leaving, foo),
		cycle("three have what the next one wants", dep, cycle3, leaving, named("db", "db-2"), foo),
		cycle("a cycle that ends with a newer version of the Foo is one too", dep, cycle2, leaving,
			newFoo(withGeneration(9))),
		waits("an earlier Foo of the same name at the end is not the Foo itself", dep, moving, leaving,
			newFoo(withUID("earlier"))),
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, plan.State{Foo: foo, Deployment: tc.dep, OwnerChain: tc.chain})
			checkConditions(t, conditionsOf(foo, metav1.ConditionFalse, tc.second, tc.reason, tc.want), c.conditions())
			if want := (plan.Outcome{Kind: plan.Terminal}); c.outcome != want || len(c.steps) != 1 {
				t.Errorf("%s, want no request and %+v, since every change is an event", c.line(), want)
			}
			status := c.status()
			if status.Replicas != 0 || status.AvailableReplicas != 0 || status.Selector != "" {
				t.Errorf("the numbers are another Foo's: %+v", status)
			}
			var event *plan.Event
			if tc.reason != "WaitingForName" {
				event = &plan.Event{
					Type: "Warning", Reason: "ErrResourceExists", Action: "Report " + tc.reason + " of generation 2", Note: tc.want,
				}
			}
			if diff := cmp.Diff(event, c.event()); diff != "" {
				t.Errorf("wrong event (-want +got):\n%s", diff)
			}

			// A live read after a refused create finds the same: it is reported, and read again.
			found := play(t, plan.State{Foo: foo}, fails(plan.CreateDeployment, exists),
				findsDeployment(tc.dep, tc.chain...))
			checkConditions(t, c.conditions(), found.conditions())
			if found.outcome.Kind != plan.Retry || found.outcome.Expected {
				t.Errorf("found by a live read: outcome %+v, want a retry that is logged", found.outcome)
			}
			if what := tc.reason + ": "; found.outcome.Err == nil || !isCause(found.outcome.Err, what, tc.want) {
				t.Errorf("found by a live read: error %v, want %s%s", found.outcome.Err, what, tc.want)
			}
		})
	}
}

// isCause reports whether the log has the reason, and of the message all but what to do.
func isCause(err error, reason, message string) bool {
	cause, found := strings.CutPrefix(err.Error(), reason)
	return found && strings.HasPrefix(message, cause+". ")
}

// Each of them reports all, beginning with itself.
func TestEveryMemberOfACycleNamesAll(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(size, " members"), func(t *testing.T) {
			member := func(i int) *v1alpha1.Foo {
				i %= size
				return named(fmt.Sprint("foo-", i), fmt.Sprint("dep-", (i+1)%size))
			}
			for first := range size {
				state := plan.State{
					Foo:        member(first),
					Deployment: earlier(member(first+1), member(first).Spec.DeploymentName),
				}
				var waits []string
				for i := range size {
					owner := member(first + i + 1)
					state.OwnerChain = append(state.OwnerChain, owner)
					waits = append(waits, fmt.Sprintf("Foo %q waits for Deployment %q of Foo %q",
						member(first+i).Name, member(first+i).Spec.DeploymentName, owner.Name))
				}
				want := "False Stalled NameCycle: " + cycleBegins + strings.Join(waits, "; ") + cycleEnd + state.Foo.Name
				if diff := cmp.Diff(want, play(t, state).report()); diff != "" {
					t.Errorf("foo-%d (-want +got):\n%s", first, diff)
				}
			}
		})
	}
}

// When no Deployment has the name, the oldest Foo that names it creates one.
func TestTheOldestClaimantGetsAFreeName(t *testing.T) {
	const taken = `False Stalled NameTaken: Deployment "web-1" does not exist and is left to an older Foo, which also ` +
		"names it"
	foo := newFoo(createdAt(100))
	claim := func(name string, second int64, with ...fooOption) *v1alpha1.Foo {
		return named(name, "web-1", append([]fooOption{createdAt(second)}, with...)...)
	}
	for _, tc := range []struct {
		name      string
		claimants []*v1alpha1.Foo
		first     string // "" for the Foo itself.
	}{
		{name: "nobody else names it"},
		{name: "a younger one names it", claimants: foos(claim("api", 101))},
		{name: "an older one names it", claimants: foos(claim("zoo", 99)), first: "zoo"},
		{name: "one as old with an earlier name names it", claimants: foos(claim("api", 100)), first: "api"},
		{name: "one as old with a later name names it", claimants: foos(claim("zoo", 100))},
		{
			name:      "the oldest of several, the first of the list",
			claimants: foos(claim("a", 97), claim("b", 98), claim("c", 99)), first: "a",
		},
		{
			name:      "the oldest of several, in the middle of the list",
			claimants: foos(claim("c", 99), claim("a", 97), claim("b", 98)), first: "a",
		},
		{
			name:      "the oldest of several, the last of the list",
			claimants: foos(claim("c", 99), claim("b", 98), claim("a", 97)), first: "a",
		},
		{
			name:      "of several as old the first by name",
			claimants: foos(claim("c", 99), claim("b", 99), claim("d", 99)), first: "b",
		},
		{name: "age comes before the name", claimants: foos(claim("a", 99), claim("b", 98)), first: "b"},
		{name: "an older one that is paused does not try", claimants: foos(claim("api", 99, withPaused))},
		{name: "an older one that is being deleted does not try", claimants: foos(claim("api", 99, deletedFoo))},
		{name: "an older one that is invalid does not try", claimants: foos(claim("api", 99, withReplicas(-1)))},
		{
			name:      "an older one behind one that does not try",
			claimants: foos(claim("a", 97, withPaused), claim("b", 98)), first: "b",
		},
		{
			name:      "an older one before one that does not try",
			claimants: foos(claim("b", 98), claim("a", 97, withPaused)), first: "b",
		},
		{name: "an earlier Foo of the same name is no rival", claimants: foos(claim("web", 99))},
		{name: "the Foo itself is no rival", claimants: foos(foo)},
		{name: "one that had it before has no right to it", claimants: foos(claim("zoo", 101, observed))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, plan.State{Foo: foo, FirstClaimant: firstOf(append(tc.claimants, foo))})
			if tc.first == "" {
				checkSent(t, "create web-1", c.result())
				return
			}
			checkSent(t, "NameTaken", c.result())
			want := taken + yields + seeNaming + "web-1"
			if diff := cmp.Diff(want, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			if event := c.event(); event == nil || event.Reason != v1alpha1.EventResourceExists {
				t.Errorf("wrong event: %+v", event)
			}
		})
	}
}

// The order of age is only about names that are free.
func TestClaimantsDoNotCountWhileThereIsADeployment(t *testing.T) {
	foo := newFoo(createdAt(100), withReplicas(3))
	older := named("api", "web-1", createdAt(1))
	db := named("db", "db-1")
	for _, tc := range []struct {
		name  string
		state plan.State
		want  string
	}{
		{name: "the Foo's own", state: plan.State{Foo: foo, Deployment: newDeployment(foo)}, want: "nothing"},
		{
			name:  "the Foo's own that differs",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, scaled(1))}, want: "patch spec.replicas",
		},
		{
			name:  "the Foo's own while it is being deleted",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "another Foo's",
			state: plan.State{Foo: foo, Deployment: earlier(db, "web-1"), OwnerChain: foos(db)}, want: "WaitingForName",
		},
		{name: "a foreign one", state: plan.State{Foo: foo, Deployment: newDeployment(foo, ownedBy())}, want: "NotOwned"},
		{
			name:  "a free name needs no read of a Foo that does not get it",
			state: plan.State{Foo: newFoo(createdAt(100), observed)}, want: "NameTaken",
		},
		{name: "a paused Foo", state: plan.State{Foo: newFoo(createdAt(100), withPaused)}, want: "nothing"},
		{name: "an invalid Foo", state: plan.State{Foo: newFoo(createdAt(100), withReplicas(-1))}, want: "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.FirstClaimant = older
			checkSent(t, tc.want, play(t, tc.state).result())
		})
	}
}

// The claim of a new Foo may not be entered yet.
func TestAYoungerFirstClaimantDoesNotGetTheName(t *testing.T) {
	foo := newFoo(createdAt(100))
	for second, want := range map[int64]string{99: "NameTaken", 100: "NameTaken", 101: "create web-1"} {
		c := play(t, plan.State{Foo: foo, FirstClaimant: named("api", "web-1", createdAt(second))})
		checkSent(t, want, c.result())
	}
}

// Of all that name one Deployment, exactly one tries to create it, in whatever order they are synced.
func TestOfAllClaimantsExactlyOneTries(t *testing.T) {
	claimants := foos(
		named("a", "web-1", createdAt(2)), named("b", "web-1", createdAt(1)), named("c", "web-1", createdAt(1)),
		named("d", "web-1", createdAt(0), withPaused), named("e", "web-1", createdAt(0), deletedFoo),
		named("f", "web-1", createdAt(3)),
	)
	var try []string
	for _, foo := range claimants {
		if foo.DeletionTimestamp != nil {
			continue // Such a Foo is not synced.
		}
		state := plan.State{Foo: foo, FirstClaimant: firstOf(claimants)}
		if play(t, state).step(plan.CreateDeployment) != nil {
			try = append(try, foo.Name)
		}
	}
	if diff := cmp.Diff([]string{"b"}, try); diff != "" {
		t.Errorf("the wrong ones try (-want +got):\n%s", diff)
	}
}

// In a long cycle each report would depend on the next one, so that of a long chain must be the same whatever the
// others report.
func TestTheReportOfALongChainDoesNotDependOnOthers(t *testing.T) {
	foo := newFoo()
	reports := map[string]bool{}
	for _, with := range []fooOption{isReadyNow, isStalledNow, withPaused} {
		var chain []*v1alpha1.Foo
		for i := range plan.MaxChain {
			chain = append(chain, named(fmt.Sprint("foo-", i), fmt.Sprint("next-", i), with))
		}
		dep := earlier(named("foo-0", "web-1"), "web-1")
		reports[play(t, plan.State{Foo: foo, Deployment: dep, OwnerChain: chain}).report()] = true
		chain = chain[:plan.MaxChain-1]
		if short := play(t, plan.State{Foo: foo, Deployment: dep, OwnerChain: chain}).report(); reports[short] {
			t.Errorf("a shorter chain has the same report: %s", short)
		}
	}
	const want = `False Reconciling WaitingForName: Deployment "web-1" is controlled by Foo "foo-0", which waits for ` +
		"others, in a chain of at least 50 Foos" + yields
	if len(reports) != 1 || !reports[want] {
		t.Errorf("reports %v, want only %s", reports, want)
	}
}

func isReadyNow(foo *v1alpha1.Foo) {
	foo.Status.ObservedGeneration = foo.Generation
	withConditions(metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue})(foo)
}

func isStalledNow(foo *v1alpha1.Foo) {
	foo.Status.ObservedGeneration = foo.Generation
	withConditions(metav1.Condition{Type: "Stalled", Status: metav1.ConditionTrue})(foo)
}
