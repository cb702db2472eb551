package plan_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// many returns n previous Deployments of foo. Their names begin with prefix.
func many(foo *v1alpha1.Foo, n int, prefix string, with ...deploymentOption) []*appsv1.Deployment {
	var deps []*appsv1.Deployment
	for i := range n {
		deps = append(deps, earlier(foo, fmt.Sprintf("%s-%03d", prefix, i), with...))
	}
	return deps
}

// deletedBy returns the names of the Deployments that the conversation has asked to delete.
func deletedBy(c conversation) []string {
	var names []string
	for _, step := range c.steps {
		if step.Verb == plan.DeleteDeployment {
			names = append(names, step.Name)
		}
	}
	return names
}

// untilQuiet plays syncs as the queue would run them: after a deletion, which is an event, and after a delay that the
// sync asked for. It returns the conversations.
func untilQuiet(t *testing.T, state plan.State, replies ...reply) []conversation {
	t.Helper()
	var conversations []conversation
	for range 100 {
		c := play(t, state, replies...)
		conversations = append(conversations, c)
		before := len(state.Previous)
		state, replies = c.nextSync(c.outcome.After), nil
		if len(state.Previous) == before && c.outcome.Kind != plan.Retry && c.outcome.Kind != plan.Wait {
			return conversations
		}
	}
	t.Fatal("still not quiet after 100 syncs")
	return nil
}

// Anybody who may create Deployments can give a Foo any number of them. One sync deletes a limited number, the syncs
// after it delete the rest, and nothing is left behind.
func TestManyPreviousDeploymentsAreDeletedInSeveralSyncs(t *testing.T) {
	foo := renamed()
	const n = 2*plan.MaxPrevious + 20
	for _, tc := range []struct {
		name  string
		state plan.State
		left  []string
	}{
		{
			name:  "the new one has taken over",
			state: plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: many(foo, n, "old")},
		},
		{
			name: "another one serves",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, available(0)),
				Previous: append(many(foo, n, "old", available(0)), earlier(foo, "web-1")),
			},
			left: []string{"web-1"},
		},
		{
			name: "several are kept, which are first by name",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, available(1)),
				Previous: append(many(foo, plan.MaxPrevious, "a", available(2)), many(foo, n, "b", available(0))...),
			},
			left: names(many(foo, plan.MaxPrevious, "a")),
		},
		{
			name: "several were complete, which are first by name",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo, available(0)), Previous: append(
					many(foo, plan.MaxPrevious, "a", available(0), wasComplete), many(foo, n, "b", available(0))...),
			},
			left: names(many(foo, plan.MaxPrevious, "a")),
		},
		{
			name: "there are copies, which are first by name",
			state: plan.State{
				Foo: foo, Deployment: newDeployment(foo),
				Previous: append(manyCopies(foo, plan.MaxPrevious), many(foo, n, "old")...),
			},
			left: names(manyCopies(foo, plan.MaxPrevious)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conversations := untilQuiet(t, tc.state)
			for _, c := range conversations {
				if got := len(deletedBy(c)); got > plan.MaxPrevious {
					t.Errorf("one sync deletes %d Deployments", got)
				}
			}
			last := conversations[len(conversations)-1]
			if diff := cmp.Diff(tc.left, names(last.end.Previous)); diff != "" {
				t.Errorf("wrong Deployments are left (-want +got):\n%s", diff)
			}
		})
	}
}

// manyCopies returns n Deployments that foo controls and that were not made for it.
func manyCopies(foo *v1alpha1.Foo, n int) []*appsv1.Deployment {
	var deps []*appsv1.Deployment
	for i := range n {
		deps = append(deps, copied(newDeployment(foo), fmt.Sprintf("copy-%03d", i)))
	}
	return deps
}

// names returns the names of deps, sorted.
func names(deps []*appsv1.Deployment) []string {
	var names []string
	for _, dep := range deps {
		names = append(names, dep.Name)
	}
	slices.Sort(names)
	return names
}

// The limit is exact, and the one that docs/operations.md has: as many Deployments as one sync considers are all
// deleted by one sync.
func TestUpTo50PreviousDeploymentsAreDeletedByOneSync(t *testing.T) {
	foo := renamed()
	for _, n := range []int{49, 50, 51} {
		c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: many(foo, n, "old")})
		if got, want := len(deletedBy(c)), min(n, 50); got != want {
			t.Errorf("of %d previous Deployments %d are deleted, want %d", n, got, want)
		}
	}
}

// What serves is never left out: it gives its number of replicas to the new Deployment, is reported, and stays.
func TestWhatServesIsNeverLeftOut(t *testing.T) {
	foo := renamed(unsetReplicas)
	for _, tc := range []struct {
		name    string
		serving *appsv1.Deployment
		others  []*appsv1.Deployment
	}{
		{
			name:    "it has most available replicas",
			serving: earlier(foo, "zz", scaled(7), rollout(7, 7, 7)),
			others:  many(foo, 200, "old", available(2)),
		},
		{
			name:    "it was complete",
			serving: earlier(foo, "zz", scaled(7), rollout(7, 7, 0), wasComplete),
			others:  many(foo, 200, "old", available(0)),
		},
		{
			name:    "it is the oldest",
			serving: earlier(foo, "zz", scaled(7), rollout(7, 7, 0), madeAt(1)),
			others:  many(foo, 200, "old", available(0), madeAt(2)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := plan.State{Foo: foo, Previous: append(tc.others, tc.serving)}
			c := play(t, state)
			if create := c.step(plan.CreateDeployment); create == nil || *create.Deployment.Spec.Replicas != 7 {
				t.Errorf("the new Deployment is not created with the number of the one that serves: %v", create)
			}
			for _, c := range untilQuiet(t, state) {
				if slices.Contains(deletedBy(c), "zz") {
					t.Fatal("the one that serves is deleted")
				}
			}
		})
	}
}

// Where the cache lists the one that serves makes no difference.
func TestWhatServesIsNeverLeftOutWhereverItIsInTheList(t *testing.T) {
	foo := renamed()
	others := many(foo, 70, "zz", available(1))
	for at := range len(others) + 1 {
		state := plan.State{
			Foo: foo, Deployment: newDeployment(foo, available(0)),
			Previous: slices.Insert(slices.Clone(others), at, earlier(foo, "web-1")),
		}
		if got := play(t, state).message(); !strings.Contains(got, serves) {
			t.Fatalf("in place %d: the message does not name the one that serves: %s", at, got)
		}
	}
}

// What is only reported has the places that what can be deleted leaves. Of several, the first by name have them.
func TestOf50PreviousDeploymentsTheLastPlacesAreForWhatIsOnlyReported(t *testing.T) {
	foo := renamed()
	kept, beingDeleted := many(foo, 20, "kept", available(2)), many(foo, 40, "deleted", deleted)
	slices.Reverse(beingDeleted)
	message := play(t, plan.State{
		Foo: foo, Deployment: newDeployment(foo, available(0)), Previous: slices.Concat(kept, beingDeleted),
	}).message()
	for i, dep := range slices.Backward(beingDeleted) {
		want := i >= 10
		if got := strings.Contains(message, fmt.Sprintf("%q is being deleted", dep.Name)); got != want {
			t.Errorf("%s is reported: %t, want %t", dep.Name, got, want)
		}
	}
	for _, dep := range kept {
		if !strings.Contains(message, dep.Name) {
			t.Errorf("%s is not reported", dep.Name)
		}
	}
}

// The status names what serves, however many others there are.
func TestWhatServesIsReportedAmongMany(t *testing.T) {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, available(1)),
		Previous: append(many(foo, 200, "zz", available(2)), earlier(foo, "web-1")),
	}
	if got := play(t, state).message(); !strings.Contains(got, serves) {
		t.Errorf("the message does not name the one that serves: %s", got)
	}
}

// A Deployment that a sync leaves out still shows that the cached Foo is old.
func TestThePreviousDeploymentsThatAreLeftOutCountForTheGeneration(t *testing.T) {
	foo := renamed()
	newer := earlier(foo, "zz", available(2), withFence("4"))
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(5), available(1)),
		Previous: append(many(foo, 200, "old", available(2)), newer),
	}
	c := play(t, state)
	if want := "get Foo, patch spec.replicas"; c.sent() != want {
		t.Errorf("sent %s, want %s", c.sent(), want)
	}
}

// The order in which the cache lists the Deployments makes no difference.
func TestTheChoiceOfPreviousDeploymentsDoesNotDependOnTheirOrder(t *testing.T) {
	foo := renamed()
	for seed := range int64(5) {
		r := rand.New(rand.NewSource(seed))
		state := plan.State{Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: mixed(r, foo)}
		first := play(t, state)
		state.Previous = slices.Clone(state.Previous)
		slices.Reverse(state.Previous)
		if again := play(t, state); again.sent() != first.sent() || again.report() != first.report() {
			t.Fatalf("seed %d: first\n%s\n%s\nthen\n%s\n%s", seed, first.sent(), first.report(), again.sent(), again.report())
		}
	}
}

// mixed returns more previous Deployments of foo than one sync considers, of all kinds. One of them serves: web-1.
func mixed(r *rand.Rand, foo *v1alpha1.Foo) []*appsv1.Deployment {
	deps := all(earlier(foo, "web-1", available(3), wasComplete, madeAt(1)))
	for i := range plan.MaxPrevious + 5 + r.Intn(60) {
		with := []deploymentOption{available(int32(r.Intn(4))), madeAt(int64(2 + r.Intn(5)))}
		if r.Intn(3) == 0 {
			with = append(with, wasComplete)
		}
		dep := earlier(foo, fmt.Sprintf("old-%03d", i), with...)
		switch r.Intn(20) {
		case 0:
			dep = copied(dep, fmt.Sprintf("copy-%03d", i))
		case 1:
			deleted(dep)
		}
		deps = append(deps, dep)
	}
	r.Shuffle(len(deps), func(i, j int) { deps[i], deps[j] = deps[j], deps[i] })
	return deps
}

// Nothing is lost: each Deployment that a sync deletes would be deleted if it were alone with the one that serves, and
// as long as there is such a one, a sync deletes as many as it may.
func TestASyncDeletesAsManyOfThePreviousDeploymentsAsItMay(t *testing.T) {
	foo := renamed()
	for seed := range int64(15) {
		r := rand.New(rand.NewSource(seed))
		dep := newDeployment(foo, available(int32(r.Intn(4))))
		if r.Intn(3) == 0 {
			replicaFailure(dep)
		}
		previous := mixed(r, foo)
		serving := previous[slices.IndexFunc(previous, func(dep *appsv1.Deployment) bool { return dep.Name == "web-1" })]
		var deletable []string
		for _, other := range previous {
			pair := all(serving, other)
			if other == serving {
				pair = all(serving)
			}
			if slices.Contains(deletedBy(play(t, plan.State{Foo: foo, Deployment: dep, Previous: pair})), other.Name) {
				deletable = append(deletable, other.Name)
			}
		}
		got := deletedBy(play(t, plan.State{Foo: foo, Deployment: dep, Previous: previous}))
		for _, name := range got {
			if !slices.Contains(deletable, name) {
				t.Errorf("seed %d: %s is deleted", seed, name)
			}
		}
		if atLeast := min(len(deletable), plan.MaxPrevious-1); len(got) < atLeast || len(got) > plan.MaxPrevious {
			t.Errorf("seed %d: %d of %d are deleted, want %d to %d", seed, len(got), len(deletable), atLeast, plan.MaxPrevious)
		}
	}
}

// When all deletions are refused, the same Deployments are tried again, each after its own backoff, and the report
// stays the same. Once they are no longer refused, all are deleted.
func TestRefusedDeletionsOfManyPreviousDeploymentsAreTriedAgain(t *testing.T) {
	foo := renamed()
	const n = plan.MaxPrevious + 30
	state := plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: many(foo, n, "old")}
	var message string
	tried := map[string]bool{}
	for i := range 10 {
		c := play(t, state, fails(plan.DeleteDeployment, forbidden))
		if c.outcome.Kind != plan.Retry {
			t.Fatalf("sync %d ends with %+v", i, c.outcome)
		}
		for _, name := range deletedBy(c) {
			tried[name] = true
		}
		if i == 0 {
			message = c.message()
		} else if c.status() != nil {
			t.Fatalf("sync %d writes another status: %s\nafter: %s", i, c.message(), message)
		}
		state = c.nextSync(c.outcome.After + time.Millisecond)
	}
	if len(tried) != plan.MaxPrevious {
		t.Errorf("%d Deployments were tried, want the same %d in each sync", len(tried), plan.MaxPrevious)
	}
	conversations := untilQuiet(t, state)
	if left := conversations[len(conversations)-1].end.Previous; len(left) > 0 {
		t.Errorf("left: %v", names(left))
	}
}

// A Deployment that is left out for a while does not lose its backoff: it is still the Foo's.
func TestAPreviousDeploymentThatIsLeftOutKeepsItsBackoff(t *testing.T) {
	foo := renamed()
	leftOut := op(plan.DeleteDeployment, "old-079")
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, available(0)), Previous: many(foo, plan.MaxPrevious+30, "old"),
		Memory: plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{leftOut: until(time.Second)}},
	}
	c := play(t, state)
	if _, kept := c.end.Memory.Ledger[leftOut]; !kept {
		t.Error("the backoff of a Deployment that the Foo still has was forgotten")
	}
}

// wholeSyncAllocations returns how many allocations one sync of a Foo takes that has n previous Deployments, all to be
// deleted.
func wholeSyncAllocations(n int, with ...deploymentOption) float64 {
	foo := renamed()
	state := plan.State{
		Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: many(foo, n, "old", with...), Now: now,
	}
	state.Memory = state.Memory.For(foo, now)
	return testing.AllocsPerRun(3, func() {
		fresh := state
		for step := fresh.Next(); step != nil; step = fresh.Next() {
			fresh.Record(step, plan.Answer{Foo: step.Foo, Deployment: fresh.Deployment}, now)
		}
		fresh.Outcome()
	})
}

// The work of one sync has a limit: behind it each Deployment only costs what the choice takes.
func TestTheWorkOfASyncWithManyPreviousDeploymentsIsLimited(t *testing.T) {
	const perDeployment = 20 // Allocations. The hash of its label takes most of them.
	few := wholeSyncAllocations(2*plan.MaxPrevious, available(0))
	for _, n := range []int{200, 400, 4000} {
		if got, limit := wholeSyncAllocations(n, available(0)), few+float64(perDeployment*n); got > limit {
			t.Errorf("%.0f allocations for %d previous Deployments, want at most %.0f", got, n, limit)
		}
	}
}

// Below the limit, a sync has a few steps for each Deployment. Each step considers all of them once, and has an event
// for the one that it deletes: four times as many cost less than sixteen times as much.
func TestAStepHasAnEventForTheDeploymentThatItDeletesOnly(t *testing.T) {
	few, many := wholeSyncAllocations(10, available(0)), wholeSyncAllocations(40, available(0))
	if many > 9*few {
		t.Errorf("%.0f allocations for 10 previous Deployments, %.0f for 40", few, many)
	}
}
