package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// renamed is a Foo of generation 3 that names web-3; what it named at first was web-1, and perhaps web-2 for
// a moment.
func renamed(with ...fooOption) *v1alpha1.Foo {
	return newFoo(append([]fooOption{withDeploymentName("web-3"), withGeneration(3), withReplicas(3), observed}, with...)...)
}

// available is a Deployment all of whose replicas are there, n of them available.
func available(n int32) deploymentOption { return rollout(3, 3, n) }

// unsetReplicas is a Foo that does not say how many.
func unsetReplicas(foo *v1alpha1.Foo) { foo.Spec.Replicas = nil }

func all(deps ...*appsv1.Deployment) []*appsv1.Deployment { return deps }

// perform does with seen what the controller does: when Next wants a look at the Foo it gives it live, it takes
// the step, which the API server answers with refusal once or else does, goes on when that was a delete, and reports. It
// returns in words what was done, and the status; nil when there is nothing to report.
func perform(t *testing.T, seen plan.Seen, live *v1alpha1.Foo, refusal error) (string, *v1alpha1.FooStatus) {
	t.Helper()
	allUnchanged(t, seen)
	var did []string
	for range 10 {
		step := plan.Next(seen)
		did = append(did, stepOf(step))
		err := step.Err
		refuse := func(verb, deployment string) {
			err = &plan.WriteError{Verb: verb, Deployment: deployment, Err: refusal}
		}
		switch {
		case step.Leave:
			return strings.Join(did, ", "), nil
		case step.LookAtFoo:
			seen.Live = &plan.Live{Foo: live}
			continue
		case step.Create != nil && refusal != nil:
			refuse("create", step.Create.Name)
		case step.Create != nil:
			seen.Named = step.Create
		case step.Patch != nil:
			seen.Named = apply(t, seen.Named, step.Patch)
		case step.Delete != nil && refusal != nil:
			refuse("delete", step.Delete.Name)
			seen.Undeleted = map[string]*plan.WaitError{step.Delete.Name: {After: time.Second, For: plan.DeletionBackoff, Err: err}}
			refusal = nil
			continue
		case step.Delete != nil:
			seen.Owned = slices.DeleteFunc(slices.Clone(seen.Owned), func(dep *appsv1.Deployment) bool { return dep == step.Delete })
			if err == nil {
				continue
			}
		}
		if len(did) > 1 && did[len(did)-1] == "nothing" {
			did = did[:len(did)-1]
		}
		status := plan.Status(seen, err, now)
		return strings.Join(did, ", "), &status
	}
	t.Fatalf("no end: %s", strings.Join(did, ", "))
	return "", nil
}

// From the new name to the end of the old one, and what can come between.
func TestARenameFromPhaseToPhase(t *testing.T) {
	const (
		yes, no              = metav1.ConditionTrue, metav1.ConditionFalse
		reconciling, stalled = "Reconciling", "Stalled"

		kept      = `; Deployment "web-1" is kept on purpose meanwhile, with 3 available`
		creating  = `Creating Deployment "web-3"`
		gone      = `; Deployment "web-1" is being deleted`
		later     = "wait for another deletion: delete Deployment "
		undeleted = `; Deployment "web-1" could not be deleted, trying again: `
		notOurs   = `; Deployment "web-1-copy" has this Foo as its owner, but was not made for it under that name, and is left alone`
	)
	foo := renamed()
	old := earlier(foo, "web-1")
	named := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	deadline := withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	rival := newFoo(withName("api"), withUID("api-uid"), withDeploymentName("web-3"))
	rivals := newDeployment(rival)

	for _, tc := range []struct {
		name    string
		seen    plan.Seen
		refusal error
		did     string
		ready   metav1.ConditionStatus
		more    string
		reason  string
		message string
	}{
		{"there is none of the new name", plan.Seen{Owned: all(old)}, nil,
			"look at Foo, create web-3", no, reconciling, "Creating", creating + kept},
		{"there is no room for another one", plan.Seen{Owned: all(old)}, forbidden,
			"look at Foo, create web-3", no, reconciling, "Refused", `Cannot create Deployment "web-3", trying again: deployments.apps "web-1" is forbidden: exceeded quota: small` + kept},
		{"the new one is just created", plan.Seen{Named: named(observedAt(0, 1), rollout(0, 0, 0)), Owned: all(old)}, nil,
			"nothing", no, reconciling, "Creating", creating + kept},
		{"the new one comes up", plan.Seen{Named: named(rollout(3, 3, 2)), Owned: all(old)}, nil,
			"nothing", no, reconciling, "Progressing", "2 of 3 replicas available" + kept},
		{"the new one has been changed, and what it has available may be of before", plan.Seen{Named: named(observedAt(1, 2)), Owned: all(old)}, nil,
			"nothing", no, reconciling, "Progressing", "Waiting for the Deployment controller to see the last change; 3 replicas available" + kept},
		{"the old one loses replicas meanwhile", plan.Seen{Named: named(rollout(3, 3, 1)), Owned: all(earlier(foo, "web-1", available(2)))}, nil,
			"nothing", no, reconciling, "Progressing", `1 of 3 replicas available; Deployment "web-1" is kept on purpose meanwhile, with 2 available`},
		{"the new one does as well as the old one", plan.Seen{Named: named(), Owned: all(old)}, nil,
			"look at Foo, delete web-1", yes, "", "Available", "3 of 3 replicas available"},
		{"the new one does as well as the old one, which had fewer", plan.Seen{Named: named(rollout(3, 3, 2)), Owned: all(earlier(foo, "web-1", available(2)))}, nil,
			"look at Foo, delete web-1", no, reconciling, "Progressing", "2 of 3 replicas available"},
		{"the old one must not be deleted", plan.Seen{Named: named(), Owned: all(old)}, forbidden,
			"look at Foo, delete web-1, " + later + `web-1: deployments.apps "web-1" is forbidden: exceeded quota: small`, yes, "", "Available", "3 of 3 replicas available" + undeleted + `deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"the deletion has no answer", plan.Seen{Named: named(), Owned: all(old)}, errors.New("connection reset"),
			"look at Foo, delete web-1, " + later + "web-1: connection reset", yes, "", "Available", "3 of 3 replicas available" + undeleted + "the API server gave no answer"},
		{"the old one takes its time to go", plan.Seen{Named: named(), Owned: all(earlier(foo, "web-1", deleted))}, nil,
			"nothing", yes, "", "Available", "3 of 3 replicas available" + gone},

		{"the new one's pods find no room", plan.Seen{Named: named(replicaFailure, rollout(1, 1, 1)), Owned: all(old)}, nil,
			"nothing", no, reconciling, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 1 of 3 replicas available. "kubectl describe replicaset" says why` + kept},
		{"the new one's pods find no room, and the old one's do not serve", plan.Seen{Named: named(replicaFailure, rollout(0, 0, 0)), Owned: all(earlier(foo, "web-1", available(0)))}, nil,
			"look at Foo, delete web-1", no, stalled, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 0 of 3 replicas available. "kubectl describe replicaset" says why`},
		{"the new one's pods find no room, and the old one's were still coming", plan.Seen{Named: named(replicaFailure, rollout(0, 0, 0)),
			Owned: all(earlier(foo, "web-1", available(0), withCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")))}, nil,
			"look at Foo, delete web-1", no, stalled, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 0 of 3 replicas available. "kubectl describe replicaset" says why`},
		{"the new one's pods find no room, and the old one's did serve", plan.Seen{Named: named(replicaFailure, rollout(0, 0, 0)), Owned: all(earlier(foo, "web-1", available(0), wasComplete))}, nil,
			"nothing", no, reconciling, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 0 of 3 replicas available. "kubectl describe replicaset" says why; Deployment "web-1" is kept on purpose meanwhile, with 0 available`},
		{"the new one's pods find no room for too long", plan.Seen{Named: named(replicaFailure, deadline, rollout(1, 1, 1)), Owned: all(old)}, nil,
			"nothing", no, stalled, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 1 of 3 replicas available. "kubectl describe replicaset" says why` + kept},
		{"the new one does not come up", plan.Seen{Named: named(deadline, rollout(3, 3, 1)), Owned: all(old)}, nil,
			"nothing", no, stalled, "ProgressDeadlineExceeded", `Deployment "web-3" makes no progress: 1 of 3 replicas available. "kubectl describe pod" says why` + kept},
		{"pods find no room although the old one is going", plan.Seen{Named: named(replicaFailure, rollout(1, 1, 1)), Owned: all(earlier(foo, "web-1", deleted))}, nil,
			"nothing", no, stalled, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 1 of 3 replicas available. "kubectl describe replicaset" says why` + gone},
		{"pods find no room beside a copy, which will not make any", plan.Seen{Named: named(replicaFailure, rollout(1, 1, 1)), Owned: all(copied(named(), "web-1-copy"))}, nil,
			"nothing", no, stalled, "ReplicaFailure", `Deployment "web-3" cannot create its pods: 1 of 3 replicas available. "kubectl describe replicaset" says why` + notOurs},

		{"the new name is taken by another Foo", plan.Seen{Named: rivals, Holders: foos(rival), Owned: all(old)}, nil,
			"NameTaken", no, stalled, "NameTaken", `Deployment "web-3" belongs to Foo "api", which names it too and had it first. Set another spec.deploymentName here, or change or delete that Foo` + kept},
		{"the new name is no Foo's", plan.Seen{Named: named(ownedBy()), Owned: all(old)}, nil,
			"NotOwned", no, stalled, "NotOwned", `Deployment "web-3" is not this Foo's and is left alone: it has no controller. Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true` + kept},
		{"the new name goes to an older Foo", plan.Seen{Claimants: foos(newFoo(withName("api"))), Owned: all(old)}, nil,
			"NameTaken", no, stalled, "NameTaken", `Deployment "web-3" goes to Foo "api", which names it too and is older. Set another spec.deploymentName here, or change or delete that Foo` + kept},
		{"the new one is being deleted by somebody", plan.Seen{Named: named(deleted), Owned: all(old)}, nil,
			"nothing", no, reconciling, "WaitingForDeletion", `Deployment "web-3" is being deleted and will be created again when it is gone` + kept},

		{"the name was changed twice", plan.Seen{Owned: all(earlier(foo, "web-2", available(0)), old)}, nil,
			"look at Foo, delete web-2, create web-3", no, reconciling, "Creating", creating + kept},
		{"the one of the name between must not be deleted", plan.Seen{Owned: all(earlier(foo, "web-2", available(0)), old)}, forbidden,
			"look at Foo, delete web-2, create web-3 and " + later + `web-2: deployments.apps "web-1" is forbidden: exceeded quota: small`, no, reconciling, "Creating", creating + kept +
				`; Deployment "web-2" could not be deleted, trying again: deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"the one of the name between must not be deleted, and the last one is another Foo's", plan.Seen{Named: rivals, Holders: foos(rival), Owned: all(earlier(foo, "web-2", available(0)), old)}, forbidden,
			"look at Foo, delete web-2, NameTaken", no, stalled, "NameTaken", `Deployment "web-3" belongs to Foo "api", which names it too and had it first. Set another spec.deploymentName here, or change or delete that Foo` + kept +
				`; Deployment "web-2" could not be deleted, trying again: deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"the name was changed twice, and both old ones serve", plan.Seen{Named: named(rollout(3, 3, 1)), Owned: all(earlier(foo, "web-2", available(2)), old)}, nil,
			"nothing", no, reconciling, "Progressing", "1 of 3 replicas available" + kept + `; Deployment "web-2" is kept on purpose meanwhile, with 2 available`},
		{"the new one does as well as both old ones", plan.Seen{Named: named(), Owned: all(earlier(foo, "web-2", available(2)), old)}, nil,
			"look at Foo, delete web-1, delete web-2", yes, "", "Available", "3 of 3 replicas available"},
		{"the name was changed twice, and the last one is another Foo's", plan.Seen{Named: rivals, Holders: foos(rival), Owned: all(earlier(foo, "web-2", available(0)), old)}, nil,
			"look at Foo, delete web-2, NameTaken", no, stalled, "NameTaken", `Deployment "web-3" belongs to Foo "api", which names it too and had it first. Set another spec.deploymentName here, or change or delete that Foo` + kept},
		{"the name was changed twice, and the last one goes to an older Foo", plan.Seen{Claimants: foos(newFoo(withName("api"))), Owned: all(earlier(foo, "web-2", available(0)), old)}, nil,
			"look at Foo, delete web-2, NameTaken", no, stalled, "NameTaken", `Deployment "web-3" goes to Foo "api", which names it too and is older. Set another spec.deploymentName here, or change or delete that Foo` + kept},
		{"the name was changed back", plan.Seen{Named: named(withFence("1")), Owned: all(earlier(foo, "web-2", available(2)))}, nil,
			"patch metadata.labels[samplecontroller.k8s.io/foo-generation]", yes, "", "Available", "3 of 3 replicas available"},
		{"the name was changed back, and there is more to change", plan.Seen{Named: named(withFence("1"), scaled(1), available(1)), Owned: all(earlier(foo, "web-2", available(2)))}, nil,
			"patch metadata.labels[samplecontroller.k8s.io/foo-generation] spec.replicas", no, reconciling, "Progressing", `1 of 3 replicas available; Deployment "web-2" is kept on purpose meanwhile, with 2 available`},

		{"a copy is reported and left alone", plan.Seen{Named: named(), Owned: all(copied(named(), "web-1-copy"))}, nil,
			"nothing", yes, "", "Available", "3 of 3 replicas available" + notOurs},
		{"a copy does not hide the old one", plan.Seen{Named: named(), Owned: all(copied(old, "web-1-copy"), old)}, nil,
			"look at Foo, delete web-1", yes, "", "Available", "3 of 3 replicas available" + notOurs},
		{"a copy that somebody deletes", plan.Seen{Named: named(), Owned: all(func() *appsv1.Deployment { dep := copied(old, "web-1-copy"); deleted(dep); return dep }())}, nil,
			"nothing", yes, "", "Available", `3 of 3 replicas available; Deployment "web-1-copy" is being deleted`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.seen.Foo = foo
			did, status := perform(t, tc.seen, foo, tc.refusal)
			if diff := cmp.Diff(tc.did, did); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
			if status == nil {
				t.Fatal("nothing is reported")
			}
			if diff := cmp.Diff(conditionsOf(foo, tc.ready, tc.more, tc.reason, tc.message), status.Conditions); diff != "" {
				t.Errorf("wrong conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// When does the old one go, and when does nothing? The live Foo is the cached one.
func TestNextAfterARename(t *testing.T) {
	foo, unset := renamed(), renamed(unsetReplicas)
	old := func(n int32, with ...deploymentOption) []*appsv1.Deployment {
		return all(earlier(foo, "web-1", append([]deploymentOption{available(n)}, with...)...))
	}
	of := func(foo *v1alpha1.Foo, with ...deploymentOption) *appsv1.Deployment {
		return newDeployment(foo, with...)
	}
	overridden := &plan.WaitError{For: plan.CorrectionBackoff, Err: &plan.OverriddenError{}}
	const stamp = "patch metadata.labels[samplecontroller.k8s.io/foo-generation]"

	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"as many as the old one has, and as wanted", plan.Seen{Foo: foo, Named: of(foo, available(3)), Owned: old(3)}, "delete web-1"},
		{"one fewer than the old one has, and than wanted", plan.Seen{Foo: foo, Named: of(foo, available(2)), Owned: old(3)}, "nothing"},
		{"as many as the old one has, which are fewer than wanted", plan.Seen{Foo: foo, Named: of(foo, available(2)), Owned: old(2)}, "delete web-1"},
		{"fewer than the old one has, which are fewer than wanted", plan.Seen{Foo: foo, Named: of(foo, available(1)), Owned: old(2)}, "nothing"},
		{"more than the old one has", plan.Seen{Foo: foo, Named: of(foo, available(2)), Owned: old(1)}, "delete web-1"},
		{"as many as wanted, which are fewer than the old one has", plan.Seen{Foo: foo, Named: of(foo, available(3)), Owned: old(5)}, "delete web-1"},
		{"fewer than wanted, and the old one has more", plan.Seen{Foo: foo, Named: of(foo, available(2)), Owned: old(5)}, "nothing"},
		{"enough for the second old one and not for the first", plan.Seen{Foo: foo, Named: of(foo, available(2)), Owned: all(earlier(foo, "web-1", available(3)), earlier(foo, "web-2", available(1)))}, "delete web-2"},
		{"nothing available here or there: the old one may come back", plan.Seen{Foo: foo, Named: of(foo, available(0)), Owned: old(0)}, "nothing"},
		{"something available here, nothing there", plan.Seen{Foo: foo, Named: of(foo, available(1)), Owned: old(0)}, "delete web-1"},
		{"nothing available here, something there", plan.Seen{Foo: foo, Named: of(foo, available(0)), Owned: old(1)}, "nothing"},
		{"none wanted, and nothing available there either", plan.Seen{Foo: renamed(withReplicas(0)), Named: of(renamed(withReplicas(0))), Owned: old(0)}, "delete web-1"},
		{"none wanted", plan.Seen{Foo: renamed(withReplicas(0)), Named: of(renamed(withReplicas(0))), Owned: old(3)}, "delete web-1"},
		{"absent replicas are one, and it is there", plan.Seen{Foo: unset, Named: of(unset, withoutReplicas, available(1)), Owned: old(3)}, "delete web-1"},
		{"absent replicas are one, and it is not there", plan.Seen{Foo: unset, Named: of(unset, withoutReplicas, available(0)), Owned: old(3)}, "nothing"},
		{"the Deployment's number counts when the Foo does not say", plan.Seen{Foo: unset, Named: of(unset, scaled(2), available(2)), Owned: old(3)}, "delete web-1"},
		{"pods of an earlier template count too", plan.Seen{Foo: foo, Named: of(foo, rollout(3, 0, 3)), Owned: old(3)}, "delete web-1"},
		{"foreign data on either does not count", plan.Seen{Foo: foo, Named: of(foo, foreignData), Owned: old(3, foreignData)}, "delete web-1"},

		{"numbers of before the last change", plan.Seen{Foo: foo, Named: of(foo, observedAt(1, 2)), Owned: old(3)}, "nothing"},
		{"numbers of before the last change say nothing against it either", plan.Seen{Foo: foo, Named: of(foo, observedAt(1, 2)), Owned: old(0)}, "nothing"},
		{"numbers of the last change", plan.Seen{Foo: foo, Named: of(foo, observedAt(2, 2)), Owned: old(3)}, "delete web-1"},
		{"numbers of a change that the cache has not seen", plan.Seen{Foo: foo, Named: of(foo, observedAt(3, 2)), Owned: old(3)}, "delete web-1"},
		{"numbers of an older spec", plan.Seen{Foo: foo, Named: of(foo, withFence("2")), Owned: old(3)}, stamp},
		{"numbers of an older spec that may not be replaced yet", plan.Seen{Foo: foo, Named: of(foo, withFence("2")), Owned: old(3), Overridden: overridden}, overridden.Error()},
		{"numbers of nobody knows which spec", plan.Seen{Foo: foo, Named: of(foo, withFence("x")), Owned: old(3), Overridden: overridden}, overridden.Error()},
		{"numbers of nobody knows which spec, for the first one there is", plan.Seen{Foo: renamed(withGeneration(1)), Named: of(renamed(withGeneration(1)), withFence("x")), Owned: old(3, withFence("0")), Overridden: overridden}, overridden.Error()},
		{"somebody else decides about a field, and the old one goes all the same", plan.Seen{Foo: foo, Named: of(foo, scaled(5)), Owned: old(3), Overridden: overridden}, "delete web-1 and " + overridden.Error()},
		{"somebody else decides about a field, and fewer than that are there", plan.Seen{Foo: foo, Named: of(foo, scaled(5)), Owned: old(5), Overridden: overridden}, overridden.Error()},

		{"the old one is not repaired while the new one is made", plan.Seen{Foo: foo, Owned: old(3, scaled(7), running("nginx:0"), withFence("0"))}, "create web-3"},
		{"the old one is not repaired while the new one comes up", plan.Seen{Foo: foo, Named: of(foo, available(1)), Owned: old(3, scaled(7), running("nginx:0"), withFence("0"))}, "nothing"},
		{"an edited old one goes as any other", plan.Seen{Foo: foo, Named: of(foo), Owned: old(3, scaled(7), running("nginx:0"), withFence("0"))}, "delete web-1"},
		{"the new one is repaired before the old one goes", plan.Seen{Foo: foo, Named: of(foo, scaled(2)), Owned: old(3)}, "patch spec.replicas"},
		{"a new one without a uid is not repaired, and the old one stays", plan.Seen{Foo: foo, Named: of(foo, scaled(2), withoutUID), Owned: old(3)}, "Refused"},
		{"an old one that is going is not deleted again", plan.Seen{Foo: foo, Named: of(foo), Owned: old(3, deleted)}, "nothing"},
		{"another Foo's mark is not this one's", plan.Seen{Foo: foo, Named: of(foo), Owned: old(3, withLabel(v1alpha1.LabelMadeFor, plan.Deployment(newFoo(withUID("other"), withDeploymentName("web-1"))).Labels[v1alpha1.LabelMadeFor]))}, "nothing"},
		{"the mark of the new name is not that of the old one", plan.Seen{Foo: foo, Named: of(foo), Owned: old(3, withLabel(v1alpha1.LabelMadeFor, plan.Deployment(foo).Labels[v1alpha1.LabelMadeFor]))}, "nothing"},
		{"one without a mark may be anybody's", plan.Seen{Foo: foo, Named: of(foo), Owned: old(3, withoutLabels)}, "nothing"},
		{"a copy stays, whatever it has available", plan.Seen{Foo: foo, Named: of(foo), Owned: all(copied(of(foo, available(0)), "a-copy"), copied(old(3)[0], "z-copy"))}, "nothing"},

		{"a paused Foo's old one stays", plan.Seen{Foo: renamed(withPaused), Named: of(foo), Owned: old(3)}, "nothing"},
		{"an invalid Foo's old one stays", plan.Seen{Foo: renamed(withReplicas(-1)), Named: of(foo), Owned: old(3)}, "Invalid"},
		{"the old one stays while the new one is being deleted", plan.Seen{Foo: foo, Named: of(foo, deleted), Owned: old(3)}, "nothing"},
		{"the old one stays while the new name is no Foo's", plan.Seen{Foo: foo, Named: of(foo, ownedBy()), Owned: old(3)}, "NotOwned"},
		{"the old one stays while the new name is another Foo's", plan.Seen{Foo: foo, Named: of(newFoo(withUID("other"), withDeploymentName("web-3"))), Owned: old(3)}, "WaitingForName"},

		{"changed back: what was written for an older spec is stamped first", plan.Seen{Foo: foo, Named: of(foo, withFence("1")), Owned: all(earlier(foo, "web-2"))}, stamp},
		{"changed back: then the other one goes", plan.Seen{Foo: foo, Named: of(foo), Owned: all(earlier(foo, "web-2", withFence("2")))}, "delete web-2"},
		{"changed back before the other one had anything available", plan.Seen{Foo: foo, Named: of(foo), Owned: all(earlier(foo, "web-2", withFence("2"), available(0)))}, "delete web-2"},
		{"changed back while the other one serves and this one has lost its pods", plan.Seen{Foo: foo, Named: of(foo, available(0)), Owned: all(earlier(foo, "web-2", withFence("2"), available(3)))}, "nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			allUnchanged(t, tc.seen)
			tc.seen.Live = &plan.Live{Foo: tc.seen.Foo}
			if diff := cmp.Diff(tc.want, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
		})
	}
}

// Of several old ones, the one that serves best is kept until the new one can take over. One that has nothing
// available goes at once, whatever is the matter with the new one.
func TestNextRemovesAnAbandonedDeploymentFirst(t *testing.T) {
	foo := renamed()
	dep := func(name string, with ...deploymentOption) *appsv1.Deployment { return earlier(foo, name, with...) }
	none, some := available(0), available(1)
	serves, abandoned := dep("web-1"), dep("web-2", none)
	rival := newFoo(withName("api"), withUID("api-uid"), withDeploymentName("web-3"))
	held := &plan.WaitError{For: plan.Backoff}

	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"there is none of the new name", plan.Seen{Owned: all(serves, abandoned)}, "delete web-2"},
		{"the new one comes up", plan.Seen{Owned: all(serves, abandoned), Named: newDeployment(foo, some)}, "delete web-2"},
		{"the new one could take over", plan.Seen{Owned: all(serves, abandoned), Named: newDeployment(foo)}, "delete web-2"},
		{"the new one differs", plan.Seen{Owned: all(serves, abandoned), Named: newDeployment(foo, scaled(9))}, "delete web-2"},
		{"the new one is being deleted", plan.Seen{Owned: all(serves, abandoned), Named: newDeployment(foo, deleted)}, "delete web-2"},
		{"the new name is no Foo's", plan.Seen{Owned: all(serves, abandoned), Named: newDeployment(foo, ownedBy())}, "delete web-2"},
		{"the new name is another Foo's", plan.Seen{Owned: all(serves, abandoned), Named: newDeployment(rival), Holders: foos(rival)}, "delete web-2"},
		{"the new name goes to an older Foo", plan.Seen{Owned: all(serves, abandoned), Claimants: foos(rival)}, "delete web-2"},
		{"it is too early for another try", plan.Seen{Owned: all(serves, abandoned), Held: held}, "wait for another try"},
		{"the Foo is paused", plan.Seen{Foo: renamed(withPaused), Owned: all(serves, abandoned)}, "nothing"},
		{"the Foo is invalid", plan.Seen{Foo: renamed(withReplicas(-1)), Owned: all(serves, abandoned)}, "Invalid"},

		{"one that has nothing available is kept when it is the only one", plan.Seen{Owned: all(abandoned)}, "create web-3"},
		{"one that serves is kept beside one that serves better", plan.Seen{Owned: all(dep("web-1", some), dep("web-2"))}, "create web-3"},
		{"the one between may be first by name", plan.Seen{Owned: all(dep("web-1", none), dep("web-2", some))}, "delete web-1"},
		{"one after the other, by name", plan.Seen{Owned: all(dep("web-5", none), dep("web-4", none), serves)}, "delete web-4"},
		{"when none has anything, the first that was made is kept", plan.Seen{Owned: all(dep("web-1", none, madeAt(2)), dep("web-2", none, madeAt(1)))}, "delete web-1"},
		{"it was not made first because it is first in the list", plan.Seen{Owned: all(dep("web-2", none, madeAt(1)), dep("web-1", none, madeAt(2)))}, "delete web-1"},
		{"when all were made at once, the first by name is kept", plan.Seen{Owned: all(dep("web-2", none, madeAt(1)), dep("web-1", none, madeAt(1)))}, "delete web-2"},
		{"what it has available comes before when it was made", plan.Seen{Owned: all(dep("web-1", none, madeAt(1)), dep("web-2", some, madeAt(2)))}, "delete web-1"},
		{"one that is being deleted is not deleted again", plan.Seen{Owned: all(serves, dep("web-2", none, deleted))}, "create web-3"},
		{"one that is being deleted does not serve", plan.Seen{Owned: all(dep("web-1", deleted), abandoned)}, "create web-3"},
		{"a copy is nothing to delete", plan.Seen{Owned: all(serves, copied(abandoned, "web-4"))}, "create web-3"},
		{"a copy is nothing that serves", plan.Seen{Owned: all(copied(serves, "web-4"), abandoned)}, "create web-3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.seen.Foo == nil {
				tc.seen.Foo = foo
			}
			allUnchanged(t, tc.seen)
			tc.seen.Live = &plan.Live{Foo: tc.seen.Foo}
			if diff := cmp.Diff(tc.want, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
		})
	}
}

// A Deployment that has its name back may only lack the stamp of the new spec. The patch that puts it on starts no
// rollout, so that no event but its own follows: the next step is there at once.
func TestAStampedDeploymentTakesOverAtOnce(t *testing.T) {
	foo := renamed()
	seen := plan.Seen{Foo: foo, Named: newDeployment(foo, withFence("1")), Owned: all(earlier(foo, "web-2"))}
	seen.Named = apply(t, seen.Named, plan.Next(seen).Patch)
	if step := plan.Next(seen); !step.LookAtFoo {
		t.Errorf("%s, want a look before the other one is deleted", stepOf(step))
	}
}

// The cached Foo may be one that has got its old name back: nothing is deleted on the word of a cache.
func TestNextDeletesOnlyForALiveFoo(t *testing.T) {
	foo := renamed()
	for name, seen := range map[string]plan.Seen{
		"a replaced one":   {Foo: foo, Named: newDeployment(foo), Owned: all(earlier(foo, "web-1"))},
		"an abandoned one": {Foo: foo, Owned: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0)))},
		"while something is overridden": {Foo: foo, Named: newDeployment(foo), Owned: all(earlier(foo, "web-1")),
			Overridden: &plan.WaitError{For: plan.CorrectionBackoff, Err: errors.New("overridden")}},
	} {
		t.Run(name, func(t *testing.T) {
			if step := plan.Next(seen); !step.LookAtFoo || step.Delete != nil {
				t.Errorf("without a look: %s", stepOf(step))
			}
			for _, tc := range []struct {
				name string
				live *v1alpha1.Foo
				want bool
			}{
				{"is the same", renamed(), true},
				{"is the same, with another status", renamed(func(foo *v1alpha1.Foo) { foo.Status.ObservedGeneration, foo.ResourceVersion = 3, "99" }), true},
				{"is gone", nil, false},
				{"is another of the name", renamed(withUID("new")), false},
				{"is being deleted", renamed(deletedFoo), false},
				{"has a newer spec", renamed(withGeneration(4)), false},
				{"has an older spec, which cannot be", renamed(withGeneration(2)), false},
			} {
				seen.Live = &plan.Live{Foo: tc.live}
				step := plan.Next(seen)
				if (step.Delete != nil) != tc.want || step.Leave == tc.want || step.LookAtFoo {
					t.Errorf("the Foo %s: %s", tc.name, stepOf(step))
				}
			}
		})
	}
}

// The delete carries the uid and resourceVersion that were seen, so the object itself must come back.
func TestNextReturnsTheVeryDeploymentToDelete(t *testing.T) {
	foo := renamed()
	old := earlier(foo, "web-2", available(0))
	for name, seen := range map[string]plan.Seen{
		"replaced":  {Foo: foo, Named: newDeployment(foo), Owned: all(copied(old, "copy"), old)},
		"abandoned": {Foo: foo, Owned: all(earlier(foo, "web-1"), old, earlier(foo, "web-4"))},
	} {
		seen.Live = &plan.Live{Foo: foo}
		if step := plan.Next(seen); step.Delete != old {
			t.Errorf("%s: %s, want the very Deployment that was seen", name, stepOf(step))
		}
	}
}

// Somebody may have acted on a newer spec, under a name that the cached Foo does not know yet.
func TestNextMindsTheGenerationOnEveryOwnedDeployment(t *testing.T) {
	foo := newFoo(withGeneration(3), withReplicas(3)) // Without a status, so that a create alone asks for no look.
	old := func(fence string, with ...deploymentOption) *appsv1.Deployment {
		return earlier(foo, "web-"+fence, append([]deploymentOption{withFence(fence)}, with...)...)
	}
	named := func(fence string) *appsv1.Deployment { return newDeployment(foo, withFence(fence), available(0)) }
	edited := newDeployment(foo, scaled(5), available(0))
	live := func(with ...fooOption) *plan.Live {
		return &plan.Live{Foo: newFoo(append([]fooOption{withGeneration(3)}, with...)...)}
	}

	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"a create beside any asks for a look", plan.Seen{Owned: all(old("2"))}, "look at Foo"},
		{"a create beside a copy", plan.Seen{Owned: all(copied(old("4"), "copy"))}, "create web-1"},
		{"a create beside one being deleted", plan.Seen{Owned: all(old("4", deleted))}, "create web-1"},
		{"a patch beside an older one", plan.Seen{Named: edited, Owned: all(old("2"))}, "patch spec.replicas"},
		{"a patch beside one of the same", plan.Seen{Named: edited, Owned: all(old("3"))}, "patch spec.replicas"},
		{"a patch beside a newer one asks for a look", plan.Seen{Named: edited, Owned: all(old("4"))}, "look at Foo"},
		{"a patch beside a newer one and others", plan.Seen{Named: edited, Owned: all(old("2"), old("4"), old("3"))}, "look at Foo"},
		{"a patch beside the copy of a newer one", plan.Seen{Named: edited, Owned: all(copied(old("4"), "copy"))}, "patch spec.replicas"},
		{"a patch beside a newer one that is being deleted", plan.Seen{Named: edited, Owned: all(old("4", deleted))}, "patch spec.replicas"},
		{"a patch beside one that is of no number", plan.Seen{Named: edited, Owned: all(old("x"))}, "patch spec.replicas"},
		{"a correction that has to wait beside a newer one", plan.Seen{Named: edited, Owned: all(old("4")), Overridden: overriddenReplicas()}, overriddenReplicas().Error()},
		{"nothing to be patched beside a newer one", plan.Seen{Named: named("3"), Owned: all(old("4"))}, "nothing"},
		{"the named one's is newer", plan.Seen{Named: named("4"), Owned: all(old("2"))}, "look at Foo"},
		{"that of a Deployment of another Foo says nothing", plan.Seen{Named: newDeployment(newFoo(withUID("other")), withFence("4"))}, "WaitingForName"},

		{"the Foo is really newer", plan.Seen{Named: edited, Owned: all(old("4")), Live: live(withGeneration(4))}, "leave"},
		{"the Foo is gone", plan.Seen{Named: edited, Owned: all(old("4")), Live: &plan.Live{}}, "leave"},
		{"the Foo is being deleted", plan.Seen{Named: edited, Owned: all(old("4")), Live: live(deletedFoo)}, "leave"},
		{"the Foo is another", plan.Seen{Named: edited, Owned: all(old("4")), Live: live(withUID("new"))}, "leave"},
		{"the label is wrong", plan.Seen{Named: edited, Owned: all(old("4")), Live: live()}, "patch spec.replicas"},
		{"the label is wrong, and there is something to create", plan.Seen{Owned: all(old("4")), Live: live()}, "create web-1"},
		{"the label is wrong, and the new one could take over", plan.Seen{Named: newDeployment(foo), Owned: all(old("4")), Live: live()}, "delete web-4"},
		{"a paused Foo does not mind", plan.Seen{Foo: newFoo(withGeneration(3), withPaused), Owned: all(old("4"))}, "nothing"},
		{"an invalid Foo does not mind", plan.Seen{Foo: newFoo(withGeneration(3), withReplicas(-1)), Owned: all(old("4"))}, "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.seen.Foo == nil {
				tc.seen.Foo = foo
			}
			allUnchanged(t, tc.seen)
			if diff := cmp.Diff(tc.want, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextCreatesWithTheReplicasOfTheOldDeployment(t *testing.T) {
	foo := renamed(unsetReplicas, withImage("nginx:1.29"))
	dep := func(name string, with ...deploymentOption) *appsv1.Deployment { return earlier(foo, name, with...) }
	for _, tc := range []struct {
		name  string
		foo   *v1alpha1.Foo
		owned []*appsv1.Deployment
		want  int32
	}{
		{"there is no old one", foo, nil, 1},
		{"there is one", foo, all(dep("web-1", scaled(5))), 5},
		{"there is one that has nothing available", foo, all(dep("web-1", scaled(5), available(0))), 5},
		{"there is one that was scaled to nothing", foo, all(dep("web-1", scaled(0), available(0))), 0},
		{"there is one that does not say, which is 1", foo, all(dep("web-1", withoutReplicas, available(1))), 1},
		{"the Foo says how many", renamed(withReplicas(2)), all(dep("web-1", scaled(5))), 2},
		{"the Foo says none", renamed(withReplicas(0)), all(dep("web-1", scaled(5))), 0},
		{"of several the one with most available", foo, all(dep("web-1", scaled(5), available(2)), dep("web-2", scaled(4), available(3))), 4},
		{"of equal ones the first that was made", foo, all(dep("web-1", scaled(5), madeAt(2)), dep("web-2", scaled(4), madeAt(1))), 4},
		{"of those made at once the first by name", foo, all(dep("web-2", scaled(4), madeAt(1)), dep("web-1", scaled(5), madeAt(1))), 5},
		{"one that is being deleted does not count", foo, all(dep("web-1", scaled(5), deleted)), 1},
		{"a copy does not count", foo, all(copied(dep("web-1", scaled(5)), "copy")), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := plan.Seen{Foo: tc.foo, Owned: tc.owned, Live: &plan.Live{Foo: tc.foo}}
			allUnchanged(t, seen)
			want := plan.Deployment(tc.foo)
			want.Spec.Replicas = &tc.want
			got := plan.Next(seen).Create
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong Deployment (-want +got):\n%s", diff)
			}
			if got != nil && len(tc.owned) > 0 && got.Spec.Replicas == tc.owned[0].Spec.Replicas {
				t.Error("the new Deployment shares memory with the cached one")
			}
		})
	}
}

// The numbers and the selector are those of the named one alone, whatever the old one has.
func TestStatusOfARenamedFooHasTheNumbersOfTheNewDeployment(t *testing.T) {
	foo := renamed(func(foo *v1alpha1.Foo) {
		foo.Status.Replicas, foo.Status.AvailableReplicas, foo.Status.Selector = 3, 3, "controller=web,samplecontroller.k8s.io/deployment=web-1"
	})
	old := earlier(foo, "web-1")
	for _, tc := range []struct {
		name  string
		named *appsv1.Deployment
		want  v1alpha1.FooStatus
	}{
		{"there is none", nil, v1alpha1.FooStatus{ObservedGeneration: 3}},
		{"it comes up", newDeployment(foo, rollout(2, 2, 1)), v1alpha1.FooStatus{ObservedGeneration: 3, Replicas: 2, AvailableReplicas: 1,
			Selector: "app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-3"}},
		{"it is another Foo's", newDeployment(newFoo(withUID("other"))), v1alpha1.FooStatus{ObservedGeneration: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := plan.Status(plan.Seen{Foo: foo, Named: tc.named, Owned: all(old)}, nil, now)
			got.Conditions = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong status (-want +got):\n%s", diff)
			}
		})
	}
}

// Not a word of one that is about to be deleted: it is not kept, and not going yet.
func TestAnOldDeploymentIsKeptUntilTheNewOneCanTakeOver(t *testing.T) {
	foo := renamed()
	const kept = `; Deployment "web-1" is kept on purpose meanwhile, with 3 available`
	for _, tc := range []struct {
		name  string
		named *appsv1.Deployment
		want  string
	}{
		{"it could take over", newDeployment(foo), ""},
		{"it has one available too few", newDeployment(foo, available(2)), kept},
		{"it was written for an older spec", newDeployment(foo, withFence("2")), kept},
		{"it was written for nobody knows which spec", newDeployment(foo, withoutLabels), kept},
		{"its numbers are of before the last change", newDeployment(foo, observedAt(1, 2)), kept},
		{"it is being deleted", newDeployment(foo, deleted), kept},
		{"it is another Foo's", newDeployment(newFoo(withUID("other"), withGeneration(3), withReplicas(3))), kept},
		{"it is no Foo's", newDeployment(foo, ownedBy()), kept},
		{"there is none", nil, kept},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := &plan.TerminalError{Reason: "X", Message: "x"} // Whatever else there is to say.
			status := plan.Status(plan.Seen{Foo: foo, Named: tc.named, Owned: all(earlier(foo, "web-1"))}, err, now)
			if diff := cmp.Diff("x"+tc.want, status.Conditions[0].Message); diff != "" {
				t.Errorf("wrong message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOldDeploymentsAreToldWhateverTheFooSays(t *testing.T) {
	owned := func(foo *v1alpha1.Foo) []*appsv1.Deployment {
		return all(earlier(foo, "c"), earlier(foo, "b", deleted), earlier(foo, "a", withoutLabels))
	}
	const tail = `; Deployment "a" has this Foo as its owner, but was not made for it under that name, and is left alone; Deployment "b" is being deleted` +
		`; Deployment "c" is kept on purpose meanwhile, with 3 available`
	foo := renamed()
	for _, tc := range []struct {
		name string
		foo  *v1alpha1.Foo
		err  error
		want string
	}{
		{"it is paused", renamed(withPaused), nil, "Nothing is written while spec.paused is true; there is no Deployment"},
		{"it is invalid", foo, &plan.TerminalError{Reason: "Invalid", Message: "mend it"}, "mend it"},
		{"it waits for a name", foo, &plan.TerminalError{Reason: "WaitingForName", Message: "wait", Passing: true}, "wait"},
		{"something went wrong", foo, errors.New("x"), "Trying again: the API server gave no answer"},
		{"there is no Deployment", foo, nil, `Creating Deployment "web-3"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := plan.Seen{Foo: tc.foo, Owned: owned(tc.foo)}
			allUnchanged(t, seen)
			for _, condition := range plan.Status(seen, tc.err, now).Conditions {
				if diff := cmp.Diff(tc.want+tail, condition.Message); diff != "" {
					t.Errorf("%s has the wrong message (-want +got):\n%s", condition.Type, diff)
				}
			}
		})
	}
}

// Names have up to 253 characters, and of old Deployments there may be any number.
func TestOldDeploymentsDoNotMakeAMessageTooLong(t *testing.T) {
	foo := renamed()
	seen := plan.Seen{Foo: foo}
	for i := range 40 {
		seen.Owned = append(seen.Owned, earlier(foo, strings.Repeat("x", 250)+string(rune('a'+i%26))+string(rune('a'+i/26))))
	}
	status := plan.Status(seen, nil, now)
	message := meta.FindStatusCondition(status.Conditions, "Ready").Message
	if len(message) != 4096 || !strings.HasPrefix(message, `Creating Deployment "web-3"; `) || !strings.HasSuffix(message, "...") {
		t.Errorf("a message of %d bytes that ends in %q", len(message), message[max(0, len(message)-10):])
	}
}

// From one name to the next, through all that the caches show on the way: each step is taken once.
func TestARenameTakesFourRequests(t *testing.T) {
	foo := renamed()
	foo.Status = plan.Status(plan.Seen{Foo: foo, Named: earlier(foo, "web-1")}, nil, now)
	old := all(earlier(foo, "web-1"))
	var got []string
	for _, seen := range []plan.Seen{
		{Owned: old},
		{Owned: old, Named: newDeployment(foo, observedAt(0, 1), rollout(0, 0, 0))},
		{Owned: old, Named: newDeployment(foo, rollout(3, 3, 0))},
		{Owned: old, Named: newDeployment(foo, rollout(3, 3, 2))},
		{Owned: old, Named: newDeployment(foo)},
		{Owned: all(earlier(foo, "web-1", deleted)), Named: newDeployment(foo)},
		{Named: newDeployment(foo)},
	} {
		seen.Foo = foo
		did, status := perform(t, seen, foo, nil)
		if did != "nothing" {
			got = append(got, strings.Split(did, ", ")...)
		}
		foo = foo.DeepCopy()
		foo.Status = *status
	}
	if diff := cmp.Diff([]string{"look at Foo", "create web-3", "look at Foo", "delete web-1"}, got); diff != "" {
		t.Errorf("wrong requests (-want +got):\n%s", diff)
	}
}

// A delete whose uid or resourceVersion is no longer that of the Deployment is answered so, and the next look
// shows more; a refusal is told.
func TestOutcomeOfARefusedDelete(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer error
		want   plan.Outcome
	}{
		{"it was edited meanwhile", conflict, plan.Outcome{Kind: plan.Retry, Quiet: true}},
		{"it is gone", notFound, plan.Outcome{Kind: plan.Retry, Quiet: true}},
		{"a policy refuses", forbidden, plan.Outcome{Kind: plan.Retry, Told: true}},
		{"the server fails", apierrors.NewInternalError(errors.New("x")), plan.Outcome{Kind: plan.Retry, Told: true}},
		{"the server gives no answer", errors.New("connection reset"), plan.Outcome{Kind: plan.Retry, Told: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.OutcomeOf(&plan.WriteError{Verb: "delete", Deployment: "web-1", Err: tc.answer})); diff != "" {
				t.Errorf("wrong outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is seen: what is deleted was made for the Foo under its name, is not the last that serves, and the Foo
// has been asked for.
func TestNextDeletesNothingThatMayBeNeeded(t *testing.T) {
	deletes := 0
	someSeen(t, func(t *testing.T, seen plan.Seen) {
		if step := plan.Next(seen); step.Delete != nil {
			t.Errorf("%s without a look", stepOf(step))
		}
		seen.Live = &plan.Live{Foo: seen.Foo}
		dep := plan.Next(seen).Delete
		if dep == nil {
			return
		}
		deletes++
		made := seen.Foo.DeepCopy()
		made.Spec.DeploymentName = dep.Name
		switch {
		case dep.Name == seen.Foo.Spec.DeploymentName, seen.Foo.Spec.Paused, !plan.Owns(seen.Foo, dep), dep.DeletionTimestamp != nil,
			dep.Labels[v1alpha1.LabelMadeFor] != plan.Deployment(made).Labels[v1alpha1.LabelMadeFor]:
			t.Errorf("%s was deleted", dep.Name)
		}
		serving := dep.Status.AvailableReplicas // What is left must have as much, or as much as is wanted.
		for _, other := range append(seen.Owned, seen.Named) {
			if other != nil && other != dep && plan.Owns(seen.Foo, other) && other.DeletionTimestamp == nil {
				if other.Status.AvailableReplicas >= serving || other == seen.Named && other.Spec.Replicas != nil && other.Status.AvailableReplicas >= *other.Spec.Replicas {
					return
				}
			}
		}
		t.Errorf("%s had %d available, and nothing else has", dep.Name, serving)
	})
	if deletes < 20 {
		t.Errorf("only %d deletes: what is seen is too good to show anything", deletes)
	}
}

// Each sync makes one request but for a look, and comes to an end.
func TestNextTakesOneStepAtATime(t *testing.T) {
	someSeen(t, func(t *testing.T, seen plan.Seen) {
		for _, live := range []*plan.Live{nil, {}, {Foo: seen.Foo}} {
			seen.Live = live
			step := plan.Next(seen)
			steps := 0
			for _, taken := range []bool{step.Create != nil, step.Patch != nil, step.Delete != nil, step.LookAtFoo, step.Leave} {
				if taken {
					steps++
				}
			}
			if steps > 1 || live != nil && step.LookAtFoo {
				t.Errorf("with the live look %v: %s", live, stepOf(step))
			}
		}
	})
}

// What could not be deleted is left alone until its time, and then the key comes back, whatever else there is to do.
func TestNextGoesOnWithoutWhatCannotBeDeleted(t *testing.T) {
	foo := renamed()
	old, between, shorter := earlier(foo, "web-1"), earlier(foo, "web-2", available(0)), earlier(foo, "web-4", available(0))
	why := &plan.WriteError{Verb: "delete", Deployment: "web-2", Err: errors.New("refused")}
	overridden := &plan.WaitError{After: time.Minute, For: plan.CorrectionBackoff, Err: errors.New("overridden")}
	const later = " and wait for another deletion: delete Deployment web-2: refused"

	for _, tc := range []struct {
		name  string
		seen  plan.Seen
		want  string
		after time.Duration
	}{
		{"the new one is to be created", plan.Seen{Owned: all(old, between)}, "create web-3" + later, time.Second},
		{"the new one differs", plan.Seen{Owned: all(old, between), Named: newDeployment(foo, scaled(9))}, "patch spec.replicas" + later, time.Second},
		{"the new one can take over", plan.Seen{Owned: all(between), Named: newDeployment(foo)}, strings.TrimPrefix(later, " and "), time.Second},
		{"there is another one that is to go", plan.Seen{Owned: all(old, between), Named: newDeployment(foo)}, "delete web-1" + later, time.Second},
		{"there is another one that is to go, behind it", plan.Seen{Owned: all(between, earlier(foo, "web-5")), Named: newDeployment(foo)}, "delete web-5" + later, time.Second},
		{"there is another one that could not be deleted, before it", plan.Seen{Owned: all(earlier(foo, "web-0", available(0)), between), Named: newDeployment(foo)}, "wait for another deletion: delete Deployment web-0: refused", time.Millisecond},
		{"there is another one that could not be deleted", plan.Seen{Owned: all(shorter, between), Named: newDeployment(foo)}, "wait for another deletion: delete Deployment web-4: refused", time.Millisecond},
		{"it is needed again", plan.Seen{Owned: all(between), Named: newDeployment(foo, available(0))}, "nothing", 0},
		{"the new name is no Foo's", plan.Seen{Owned: all(old, between), Named: newDeployment(foo, ownedBy())}, "NotOwned", time.Second},
		{"the Foo is paused", plan.Seen{Foo: renamed(withPaused), Owned: all(old, between)}, strings.TrimPrefix(later, " and "), time.Second},
		{"a field is overridden", plan.Seen{Owned: all(between), Named: newDeployment(foo), Overridden: overridden}, "wait for another correction: overridden", time.Minute},
		{"it is too early for a create, too", plan.Seen{Owned: all(old, between), Held: overridden}, "wait for another correction: overridden", time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.seen.Foo == nil {
				tc.seen.Foo = foo
			}
			allUnchanged(t, tc.seen)
			tc.seen.Live = &plan.Live{Foo: tc.seen.Foo}
			tc.seen.Undeleted = map[string]*plan.WaitError{
				"web-2": {After: time.Second, For: plan.DeletionBackoff, Err: why},
				"web-4": {After: time.Millisecond, For: plan.DeletionBackoff, Err: &plan.WriteError{Verb: "delete", Deployment: "web-4", Err: errors.New("refused")}},
				"web-0": {After: time.Millisecond, For: plan.DeletionBackoff, Err: &plan.WriteError{Verb: "delete", Deployment: "web-0", Err: errors.New("refused")}},
				"web-9": {After: 1, For: "a Deployment that is not there"},
			}
			step := plan.Next(tc.seen)
			if diff := cmp.Diff(tc.want, stepOf(step)); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
			if outcome := plan.OutcomeOf(step.Err); outcome.After != tc.after || outcome.Quiet {
				t.Errorf("outcome %+v, want a wait of %s that is told", outcome, tc.after)
			}
		})
	}
}

// One that could not be deleted and is needed again is one that is kept.
func TestWhatIsNeededAgainIsNotSaidToBeUndeleted(t *testing.T) {
	foo := renamed()
	seen := plan.Seen{Foo: foo, Named: newDeployment(foo), Owned: all(earlier(foo, "web-1")), Undeleted: map[string]*plan.WaitError{
		"web-1": {After: time.Second, For: plan.DeletionBackoff, Err: &plan.WriteError{Verb: "delete", Deployment: "web-1", Err: forbidden}},
	}}
	says := func(want string) {
		t.Helper()
		if _, message := plan.Said(&v1alpha1.Foo{Status: plan.Status(seen, nil, now)}); message != want {
			t.Errorf("it says %q, want %q", message, want)
		}
	}
	says(`3 of 3 replicas available; Deployment "web-1" could not be deleted, trying again: deployments.apps "web-1" is forbidden: exceeded quota: small`)
	seen.Named = newDeployment(foo, available(2))
	says(`2 of 3 replicas available; Deployment "web-1" is kept on purpose meanwhile, with 3 available`)
}
