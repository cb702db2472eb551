package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

const (
	kept        = `. Previous Deployment "web-1" (3 available) is kept until its replacement is available`
	kept2       = `. Previous Deployment "web-2" (2 available) is kept until its replacement is available`
	movingTo3   = reconciling + `Renaming: Moving to Deployment "web-3": `
	serves      = `. Previous Deployment "web-1" keeps serving with 3 until then`
	waitingGone = `. Previous Deployment "web-1" is being deleted`
	undeleted   = `. Cannot delete previous Deployment "web-1": `
	undeleted2  = `. Cannot delete previous Deployment "web-2": `
	notMade     = `. Deployment "web-1-copy" has an owner reference to this Foo, but the controller did not create it ` +
		"under this name (it may be a copy), so it is neither changed nor deleted"
	taken3    = stalled + `NameTaken: Deployment "web-3" is controlled by Foo "api", which also names it`
	older3    = stalled + `NameTaken: Deployment "web-3" does not exist and is left to an older Foo, which also names it`
	describe3 = ". See its conditions: kubectl -n default get deployment web-3 -o yaml"
	tooLate3  = stalled + `ProgressDeadlineExceeded: Deployment "web-3" has exceeded its progress deadline: `
	seePods3  = ". To see why its pods do not become available: kubectl -n default describe pods " +
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
	between := earlier(foo, "web-2", available(0))
	rival := newFoo(withName("api"), withUID("api-uid"), withDeploymentName("web-3"))
	rivals := newDeployment(rival)
	progressing := withCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")
	deletedCopy := copied(old, "web-1-copy")
	deleted(deletedCopy)
	refusedDelete := []reply{fails(plan.DeleteDeployment, forbidden)}

	for _, tc := range []struct {
		name    string
		state   plan.State
		replies []reply
		sent    string
		report  string
	}{
		{
			name:  "the new Deployment does not exist",
			state: plan.State{Previous: all(old)}, sent: "get Foo, create web-3",
			report: movingTo3 + "0 of 3 replicas available" + serves,
		},
		{
			name:  "there is no room for another one",
			state: plan.State{Previous: all(old)}, replies: []reply{fails(plan.CreateDeployment, forbidden)},
			sent:   "get Foo, create web-3, get web-3",
			report: reconciling + `Refused: Cannot create Deployment "web-3": ` + overQuota + kept + lasts,
		},
		{
			name:  "the new one is just created",
			state: plan.State{Deployment: now3(observedAt(0, 1), rollout(0, 0, 0)), Previous: all(old)},
			sent:  "nothing", report: movingTo3 + "0 of 3 replicas available" + serves,
		},
		{
			name:  "the new one comes up",
			state: plan.State{Deployment: now3(available(2)), Previous: all(old)},
			sent:  "nothing", report: movingTo3 + "2 of 3 replicas available" + serves,
		},
		{
			name:  "the new one has been changed, and what it has available may be of before",
			state: plan.State{Deployment: now3(observedAt(1, 2)), Previous: all(old)},
			sent:  "nothing", report: movingTo3 + "3 of 3 replicas available" + serves,
		},
		{
			name:   "the previous one loses replicas meanwhile",
			state:  plan.State{Deployment: now3(available(1)), Previous: all(earlier(foo, "web-1", available(2)))},
			sent:   "nothing",
			report: movingTo3 + "1 of 3 replicas available" + strings.ReplaceAll(serves, "3", "2"),
		},
		{
			name:  "the new one does as well as the previous one",
			state: plan.State{Deployment: now3(), Previous: all(old)}, sent: deleteOld, report: available3,
		},
		{
			name:  "the new one does as well as the previous one, which had fewer",
			state: plan.State{Deployment: now3(available(2)), Previous: all(earlier(foo, "web-1", available(2)))},
			sent:  deleteOld, report: reconciling + "Progressing: 2 of 3 replicas available",
		},
		{
			name:  "the previous one must not be deleted",
			state: plan.State{Deployment: now3(), Previous: all(old)}, replies: refusedDelete,
			sent: deleteOld, report: available3 + undeleted + overQuota + triesAgain,
		},
		{
			name:  "a deletion had no answer a short time ago",
			state: plan.State{Deployment: now3(), Previous: all(old), Memory: unanswered("web-1")},
			sent:  "nothing", report: available3 + undeleted + noAnswer + triesAgain,
		},
		{
			name:  "the previous one takes its time to end",
			state: plan.State{Deployment: now3(), Previous: all(earlier(foo, "web-1", deleted))},
			sent:  "nothing", report: available3 + waitingGone,
		},

		{
			name:  "the new one's pods find no room",
			state: plan.State{Deployment: now3(replicaFailure, rollout(1, 1, 1)), Previous: all(old)},
			sent:  "nothing", report: noRoom(reconciling, 1) + kept + describe3,
		},
		{
			name: "the new one's pods find no room, and the previous one's do not serve",
			state: plan.State{
				Deployment: now3(replicaFailure, rollout(0, 0, 0)), Previous: all(earlier(foo, "web-1", available(0))),
			},
			sent: deleteOld, report: noRoom(stalled, 0) + describe3,
		},
		{
			name: "the new one's pods find no room, and the previous one's were still coming",
			state: plan.State{
				Deployment: now3(replicaFailure, rollout(0, 0, 0)),
				Previous:   all(earlier(foo, "web-1", available(0), progressing)),
			},
			sent: deleteOld, report: noRoom(stalled, 0) + describe3,
		},
		{
			name: "the new one's pods find no room, and the previous one's did serve",
			state: plan.State{
				Deployment: now3(replicaFailure, rollout(0, 0, 0)),
				Previous:   all(earlier(foo, "web-1", available(0), wasComplete)),
			},
			sent: "nothing",
			report: noRoom(reconciling, 0) +
				strings.ReplaceAll(kept, "3", "0") + describe3,
		},
		{
			name: "the new one's pods find no room for too long",
			state: plan.State{
				Deployment: now3(replicaFailure, deadlineExceeded, rollout(1, 1, 1)), Previous: all(old),
			},
			sent: "nothing", report: noRoom(stalled, 1) + kept + describe3,
		},
		{
			name:   "the new one does not come up",
			state:  plan.State{Deployment: now3(deadlineExceeded, available(1)), Previous: all(old)},
			sent:   "nothing",
			report: tooLate3 + "1 of 3 replicas available" + kept + seePods3,
		},
		{
			name: "pods find no room although the previous one is being deleted",
			state: plan.State{
				Deployment: now3(replicaFailure, rollout(1, 1, 1)), Previous: all(earlier(foo, "web-1", deleted)),
			},
			sent: "nothing", report: noRoom(stalled, 1) + waitingGone + describe3,
		},
		{
			name: "pods find no room beside a copy, which will not make any",
			state: plan.State{
				Deployment: now3(replicaFailure, rollout(1, 1, 1)), Previous: all(copied(now3(), "web-1-copy")),
			},
			sent: "nothing", report: noRoom(stalled, 1) + notMade + describe3,
		},

		{
			name:  "the new name is taken by another Foo",
			state: plan.State{Deployment: rivals, OwnerChain: foos(rival), Previous: all(old)},
			sent:  "nothing", report: taken3 + kept + yields,
		},
		{
			name:   "the new name is no Foo's",
			state:  plan.State{Deployment: now3(ownedBy()), Previous: all(old)},
			sent:   "nothing",
			report: stalled + "NotOwned: " + notOwnedReport("web-3", "it has no controller") + kept + handOver,
		},
		{
			name:  "an older Foo names the new Deployment too",
			state: plan.State{FirstClaimant: newFoo(withName("api")), Previous: all(old)},
			sent:  "nothing", report: older3 + kept + yields + seeNaming + "web-3",
		},
		{
			name:  "the new one is being deleted by a user",
			state: plan.State{Deployment: now3(deleted), Previous: all(old)},
			sent:  "nothing",
			report: reconciling + `WaitingForDeletion: Deployment "web-3" is being deleted. It is created again afterwards` +
				kept + strings.ReplaceAll(stillExists1, "web-1", "web-3"),
		},

		{
			name:  "the name was changed twice",
			state: plan.State{Previous: all(between, old)},
			sent:  "get Foo, delete web-2, get Foo, create web-3", report: movingTo3 + "0 of 3 replicas available" + serves,
		},
		{
			name:  "the one of the name between must not be deleted",
			state: plan.State{Previous: all(between, old)}, replies: refusedDelete,
			sent:   "get Foo, delete web-2, get Foo, create web-3",
			report: movingTo3 + "0 of 3 replicas available" + serves + undeleted2 + overQuota + triesAgain,
		},
		{
			name:    "the one of the name between must not be deleted, and the last name is another Foo's",
			state:   plan.State{Deployment: rivals, OwnerChain: foos(rival), Previous: all(between, old)},
			replies: refusedDelete, sent: readBoth + "delete web-2",
			report: taken3 + kept + undeleted2 + overQuota + triesAgain + yields,
		},
		{
			name:  "the previous one has lost all replicas but one",
			state: plan.State{Deployment: now3(available(0)), Previous: all(earlier(foo, "web-1", available(1)))},
			sent:  "nothing",
			report: movingTo3 + "0 of 3 replicas available" +
				`. Previous Deployment "web-1" keeps serving with 1 until then`,
		},
		{
			name: "the name was changed twice, and both previous ones serve",
			state: plan.State{
				Deployment: now3(available(1)), Previous: all(earlier(foo, "web-2", available(2)), old),
			},
			sent:   "nothing",
			report: movingTo3 + "1 of 3 replicas available" + serves + kept2,
		},
		{
			name:  "the new one does as well as both previous ones",
			state: plan.State{Deployment: now3(), Previous: all(earlier(foo, "web-2", available(2)), old)},
			sent:  deleteOld + ", " + readBoth + "delete web-2", report: available3,
		},
		{
			name:  "the name was changed twice, and the last one is another Foo's",
			state: plan.State{Deployment: rivals, OwnerChain: foos(rival), Previous: all(between, old)},
			sent:  readBoth + "delete web-2", report: taken3 + kept + yields,
		},
		{
			name:  "the name was changed twice, and an older Foo has the last one",
			state: plan.State{FirstClaimant: newFoo(withName("api")), Previous: all(between, old)},
			sent:  "get Foo, delete web-2", report: older3 + kept + yields + seeNaming + "web-3",
		},
		{
			name: "the name was changed back",
			state: plan.State{
				Deployment: now3(withFence("1")), Previous: all(earlier(foo, "web-2", available(2))),
			},
			sent: stampGeneration + ", " + readBoth + "delete web-2", report: available3,
		},
		{
			name: "the name was changed back, and there is more to change",
			state: plan.State{
				Deployment: now3(withFence("1"), scaled(1), available(1)),
				Previous:   all(earlier(foo, "web-2", available(2))),
			},
			sent: stampGeneration + " spec.replicas",
			report: movingTo3 + "1 of 3 replicas available" +
				`. Previous Deployment "web-2" keeps serving with 2 until then`,
		},

		{
			name:  "a copy is reported and left alone",
			state: plan.State{Deployment: now3(), Previous: all(copied(now3(), "web-1-copy"))},
			sent:  "nothing", report: available3 + notMade,
		},
		{
			name:  "a copy does not hide the previous one",
			state: plan.State{Deployment: now3(), Previous: all(copied(old, "web-1-copy"), old)},
			sent:  deleteOld, report: available3 + notMade,
		},
		{
			name:  "a copy that a user deletes",
			state: plan.State{Deployment: now3(), Previous: all(deletedCopy)},
			sent:  "nothing", report: available3 + `. Previous Deployment "web-1-copy" is being deleted`,
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
func unanswered(names ...string) plan.Memory {
	memory := plan.Memory{UID: "foo-uid", Generation: 3, Ledger: ledger{}}
	for _, name := range names {
		memory.Ledger[op(plan.DeleteDeployment, name)] = plan.Attempt{
			Count: 1, Until: now.Add(seconds(1)), Report: plan.ConditionError{Reason: "Refused", Message: noAnswer},
		}
	}
	return memory
}

// When is the previous one deleted, and when does nothing happen? The live objects are the cached ones.
func TestDeletionsAfterARename(t *testing.T) {
	foo, unset, zero := renamed(), renamed(unsetReplicas), renamed(withReplicas(0))
	old := func(n int32, with ...deploymentOption) []*appsv1.Deployment {
		return all(earlier(foo, "web-1", append([]deploymentOption{available(n)}, with...)...))
	}
	of := func(foo *v1alpha1.Foo, with ...deploymentOption) *appsv1.Deployment {
		return newDeployment(foo, with...)
	}
	overridden := func(foo *v1alpha1.Foo) plan.Memory { return overriddenMemory(foo) }
	foreignMark := plan.Deployment(newFoo(withUID("other"), withDeploymentName("web-1"))).Labels[v1alpha1.LabelMadeFor]
	newMark := plan.Deployment(foo).Labels[v1alpha1.LabelMadeFor]
	edited := []deploymentOption{scaled(7), running("nginx:0"), withFence("0")}
	first := renamed(withGeneration(1))
	state := func(dep *appsv1.Deployment, previous []*appsv1.Deployment) plan.State {
		return plan.State{Foo: foo, Deployment: dep, Previous: previous}
	}

	for _, tc := range []struct {
		name  string
		state plan.State
		want  string
	}{
		{name: "as many as the previous one has, and as wanted", state: state(of(foo), old(3)), want: deleteOld},
		{
			name:  "one fewer than the previous one has, and than wanted",
			state: state(of(foo, available(2)), old(3)), want: "nothing",
		},
		{
			name:  "as many as the previous one has, which are fewer than wanted",
			state: state(of(foo, available(2)), old(2)), want: deleteOld,
		},
		{
			name:  "fewer than the previous one has, which are fewer than wanted",
			state: state(of(foo, available(1)), old(2)), want: "nothing",
		},
		{name: "more than the previous one has", state: state(of(foo, available(2)), old(1)), want: deleteOld},
		{
			name:  "as many as wanted, which are fewer than the previous one has",
			state: state(of(foo), old(5)), want: deleteOld,
		},
		{
			name:  "fewer than wanted, and the previous one has more",
			state: state(of(foo, available(2)), old(5)), want: "nothing",
		},
		{
			name: "enough for the second previous one and not for the first",
			state: state(of(foo, available(2)), all(earlier(foo, "web-1", available(3)),
				earlier(foo, "web-2", available(1)))),
			want: readBoth + "delete web-2",
		},
		{
			name:  "nothing available here or there: the previous one may come back",
			state: state(of(foo, available(0)), old(0)), want: "nothing",
		},
		{name: "something available here, nothing there", state: state(of(foo, available(1)), old(0)), want: deleteOld},
		{name: "nothing available here, something there", state: state(of(foo, available(0)), old(1)), want: "nothing"},
		{
			name:  "none wanted, and nothing available there either",
			state: plan.State{Foo: zero, Deployment: of(zero), Previous: old(0)}, want: deleteOld,
		},
		{name: "none wanted", state: plan.State{Foo: zero, Deployment: of(zero), Previous: old(3)}, want: deleteOld},
		{
			name: "absent replicas are one, and it is there",
			state: plan.State{
				Foo: unset, Deployment: of(unset, withoutReplicas, available(1)), Previous: old(3),
			},
			want: deleteOld,
		},
		{
			name: "absent replicas are one, and it is not there",
			state: plan.State{
				Foo: unset, Deployment: of(unset, withoutReplicas, available(0)), Previous: old(3),
			},
			want: "nothing",
		},
		{
			name:  "the Deployment's number counts when the Foo sets none",
			state: plan.State{Foo: unset, Deployment: of(unset, scaled(2), available(2)), Previous: old(3)}, want: deleteOld,
		},
		{
			name:  "pods of an earlier template count too",
			state: state(of(foo, rollout(3, 0, 3)), old(3)), want: deleteOld,
		},
		{
			name:  "foreign data on either does not count",
			state: state(of(foo, foreignData), old(3, foreignData)), want: deleteOld,
		},

		{name: "numbers of before the last change", state: state(of(foo, observedAt(1, 2)), old(3)), want: "nothing"},
		{
			name:  "numbers of before the last change do not count against it either",
			state: state(of(foo, observedAt(1, 2)), old(0)), want: "nothing",
		},
		{name: "numbers of the last change", state: state(of(foo, observedAt(2, 2)), old(3)), want: deleteOld},
		{
			name:  "numbers of a change that the cache has not seen",
			state: state(of(foo, observedAt(3, 2)), old(3)), want: deleteOld,
		},
		{
			name:  "numbers of an older spec: it is stamped first",
			state: state(of(foo, withFence("2")), old(3)), want: stampGeneration + ", " + deleteOld,
		},
		{
			name: "numbers of an older spec that may not be stamped yet",
			state: plan.State{
				Foo: foo, Deployment: of(foo, withFence("2")), Previous: old(3), Memory: overridden(foo),
			},
			want: "nothing",
		},
		{
			name: "numbers of an unknown spec",
			state: plan.State{
				Foo: foo, Deployment: of(foo, withFence("x")), Previous: old(3), Memory: overridden(foo),
			},
			want: "nothing",
		},
		{
			name: "numbers of an unknown spec, for the first one there is",
			state: plan.State{
				Foo: first, Deployment: of(first, withFence("x")), Previous: old(3, withFence("0")),
				Memory: overridden(first),
			},
			want: "nothing",
		},
		{
			name: "a field is overridden, and the previous one is deleted all the same",
			state: plan.State{
				Foo: foo, Deployment: of(foo, scaled(5)), Previous: old(3), Memory: overridden(foo),
			},
			want: deleteOld,
		},
		{
			name: "a field is overridden, and fewer than that are there",
			state: plan.State{
				Foo: foo, Deployment: of(foo, scaled(5)), Previous: old(5), Memory: overridden(foo),
			},
			want: "nothing",
		},

		{
			name:  "the previous one is not corrected while the new one is made",
			state: state(nil, old(3, edited...)), want: "get Foo, create web-3",
		},
		{
			name:  "the previous one is not corrected while the new one comes up",
			state: state(of(foo, available(1)), old(3, edited...)), want: "nothing",
		},
		{name: "an edited previous one is deleted as any other", state: state(of(foo), old(3, edited...)), want: deleteOld},
		{
			name:  "the new one is corrected before the previous one is deleted",
			state: state(of(foo, scaled(2)), old(3)), want: "patch spec.replicas, " + deleteOld,
		},
		{
			name: "a new one without a uid is not corrected, and blocks no deletion", want: deleteOld,
			state: state(of(foo, scaled(2), withoutUID), old(3)),
		},
		{
			name:  "a previous one that is being deleted is not deleted again",
			state: state(of(foo), old(3, deleted)), want: "nothing",
		},
		{
			name:  "the made-for label of another Foo",
			state: state(of(foo), old(3, withLabel(v1alpha1.LabelMadeFor, foreignMark))), want: "nothing",
		},
		{
			name:  "the made-for label of the new name",
			state: state(of(foo), old(3, withLabel(v1alpha1.LabelMadeFor, newMark))), want: "nothing",
		},
		{name: "no made-for label", state: state(of(foo), old(3, withoutLabels)), want: "nothing"},
		{
			name: "a copy stays, whatever it has available",
			state: state(of(foo), all(copied(of(foo, available(0)), "a-copy"),
				copied(old(3)[0], "z-copy"))),
			want: "nothing",
		},

		{
			name:  "a paused Foo's previous one stays",
			state: plan.State{Foo: renamed(withPaused), Deployment: of(foo), Previous: old(3)}, want: "nothing",
		},
		{
			name:  "an invalid Foo's previous one stays",
			state: plan.State{Foo: renamed(withReplicas(-1)), Deployment: of(foo), Previous: old(3)}, want: "Invalid",
		},
		{
			name:  "the previous one stays while the new one is being deleted",
			state: state(of(foo, deleted), old(3)), want: "nothing",
		},
		{
			name:  "the previous one stays while the new name is no Foo's",
			state: state(of(foo, ownedBy()), old(3)), want: "NotOwned",
		},
		{
			name:  "the previous one stays while the new name is another Foo's",
			state: state(of(newFoo(withUID("other"), withDeploymentName("web-3"))), old(3)), want: "WaitingForName",
		},

		{
			name:  "changed back: what was written for an older spec is stamped first, then the other one is deleted",
			state: state(of(foo, withFence("1")), all(earlier(foo, "web-2"))),
			want:  stampGeneration + ", " + readBoth + "delete web-2",
		},
		{
			name:  "changed back, and it is stamped",
			state: state(of(foo), all(earlier(foo, "web-2", withFence("2")))), want: readBoth + "delete web-2",
		},
		{
			name:  "changed back before the other one had anything available",
			state: state(of(foo), all(earlier(foo, "web-2", withFence("2"), available(0)))),
			want:  readBoth + "delete web-2",
		},
		{
			name:  "changed back while the other one serves and this one has lost its pods",
			state: state(of(foo, available(0)), all(earlier(foo, "web-2", withFence("2"), available(3)))), want: "nothing",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkSent(t, tc.want, play(t, tc.state).result())
		})
	}
}

// Of several previous ones, the one that serves best is kept until the new one can take over. One that has nothing
// available is deleted at once, whatever state the new one is in.
func TestWhatNeverServedIsDeletedFirst(t *testing.T) {
	foo := renamed()
	dep := func(name string, with ...deploymentOption) *appsv1.Deployment { return earlier(foo, name, with...) }
	none, some := available(0), available(1)
	serves, never := dep("web-1"), dep("web-2", none)
	both := all(serves, never)
	rival := newFoo(withName("api"), withUID("api-uid"), withDeploymentName("web-3"))
	const (
		then   = ", get Foo, create web-3"
		delete = readBoth + "delete web-2"
	)

	for _, tc := range []struct {
		name  string
		state plan.State
		want  string
	}{
		{
			name:  "the new Deployment does not exist",
			state: plan.State{Previous: both}, want: "get Foo, delete web-2" + then,
		},
		{
			name:  "the new one comes up",
			state: plan.State{Previous: both, Deployment: newDeployment(foo, some)}, want: delete,
		},
		{
			name:  "the new one could take over",
			state: plan.State{Previous: both, Deployment: newDeployment(foo)}, want: delete + ", " + deleteOld,
		},
		{
			name:  "the new one differs",
			state: plan.State{Previous: both, Deployment: newDeployment(foo, scaled(9))},
			want:  delete + ", patch spec.replicas, " + deleteOld,
		},
		{
			name:  "the new one is being deleted",
			state: plan.State{Previous: both, Deployment: newDeployment(foo, deleted)}, want: delete,
		},
		{
			name:  "the new name is no Foo's",
			state: plan.State{Previous: both, Deployment: newDeployment(foo, ownedBy())}, want: delete + ", NotOwned",
		},
		{
			name:  "the new name is another Foo's",
			state: plan.State{Previous: both, Deployment: newDeployment(rival), OwnerChain: foos(rival)},
			want:  delete + ", NameTaken",
		},
		{
			name:  "an older Foo names the new Deployment too",
			state: plan.State{Previous: both, FirstClaimant: rival}, want: "get Foo, delete web-2, NameTaken",
		},
		{
			name: "the whole sync backs off",
			state: plan.State{Previous: both, Memory: plan.Memory{UID: foo.UID, Generation: 3,
				Ledger: ledger{wholeSync: expectedUntil(1)}}},
			want: "nothing, no report",
		},
		{name: "the Foo is paused", state: plan.State{Foo: renamed(withPaused), Previous: both}, want: "nothing"},
		{name: "the Foo is invalid", state: plan.State{Foo: renamed(withReplicas(-1)), Previous: both}, want: "Invalid"},

		{
			name:  "one that has nothing available is kept when it is the only one",
			state: plan.State{Previous: all(never)}, want: "get Foo, create web-3",
		},
		{
			name:  "one that serves is kept beside one that serves better",
			state: plan.State{Previous: all(dep("web-1", some), dep("web-2"))}, want: "get Foo, create web-3",
		},
		{
			name:  "the one between may be first by name",
			state: plan.State{Previous: all(dep("web-1", none), dep("web-2", some))}, want: "get Foo, delete web-1" + then,
		},
		{
			name:  "one after the other, by name",
			state: plan.State{Previous: all(dep("web-5", none), dep("web-4", none), serves)},
			want:  "get Foo, delete web-4, get Foo, delete web-5" + then,
		},
		{
			name:  "when none has anything, the first that was made is kept",
			state: plan.State{Previous: all(dep("web-1", none, madeAt(2)), dep("web-2", none, madeAt(1)))},
			want:  "get Foo, delete web-1" + then,
		},
		{
			name:  "it was not made first because it is first in the list",
			state: plan.State{Previous: all(dep("web-2", none, madeAt(1)), dep("web-1", none, madeAt(2)))},
			want:  "get Foo, delete web-1" + then,
		},
		{
			name:  "when all were made at once, the first by name is kept",
			state: plan.State{Previous: all(dep("web-2", none, madeAt(1)), dep("web-1", none, madeAt(1)))},
			want:  "get Foo, delete web-2" + then,
		},
		{
			name:  "what it has available comes before when it was made",
			state: plan.State{Previous: all(dep("web-1", none, madeAt(1)), dep("web-2", some, madeAt(2)))},
			want:  "get Foo, delete web-1" + then,
		},
		{
			name:  "when none has anything, one that was complete is kept",
			state: plan.State{Previous: all(dep("web-1", none, madeAt(1)), dep("web-2", none, wasComplete, madeAt(2)))},
			want:  "get Foo, delete web-1" + then,
		},
		{
			name:  "when none has anything, all that were complete are kept",
			state: plan.State{Previous: all(dep("web-1", none, wasComplete), dep("web-2", none, wasComplete))},
			want:  "get Foo, create web-3",
		},
		{
			name:  "one that was complete is not deleted: the cached one that serves may be gone",
			state: plan.State{Previous: all(serves, dep("web-2", none, wasComplete))}, want: "get Foo, create web-3",
		},
		{
			name:  "one that is being deleted is not deleted again",
			state: plan.State{Previous: all(serves, dep("web-2", none, deleted))}, want: "get Foo, create web-3",
		},
		{
			name:  "one that is being deleted does not serve",
			state: plan.State{Previous: all(dep("web-1", deleted), never)}, want: "get Foo, create web-3",
		},
		{
			name:  "a copy is not deleted",
			state: plan.State{Previous: all(serves, copied(never, "web-4"))}, want: "get Foo, create web-3",
		},
		{
			name:  "a copy does not serve",
			state: plan.State{Previous: all(copied(serves, "web-4"), never)}, want: "get Foo, create web-3",
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

// The delete carries the uid and resourceVersion that were observed, so the step has the object itself.
func TestADeletionHasTheVeryDeployment(t *testing.T) {
	foo := renamed()
	old := earlier(foo, "web-2", available(0))
	for name, state := range map[string]plan.State{
		"replaced":     {Foo: foo, Deployment: newDeployment(foo), Previous: all(copied(old, "copy"), old)},
		"never served": {Foo: foo, Previous: all(earlier(foo, "web-1"), old, earlier(foo, "web-4"))},
	} {
		if step := play(t, state).step(plan.DeleteDeployment); step == nil || step.Deployment != old {
			t.Errorf("%s: %s, want the very Deployment that was observed", name, wordsOf(step))
		}
	}
}

// Something may have been written for a newer spec, under a name that the cached Foo does not have yet.
func TestTheGenerationOnEveryOwnedDeploymentCounts(t *testing.T) {
	foo := newFoo(withGeneration(3), withReplicas(3)) // Without a status, so that a create alone needs no read.
	old := func(fence string, with ...deploymentOption) *appsv1.Deployment {
		return earlier(foo, "web-"+fence, append([]deploymentOption{withFence(fence), available(5)}, with...)...)
	}
	stamped := func(fence string) *appsv1.Deployment { return newDeployment(foo, withFence(fence), available(0)) }
	edited := newDeployment(foo, scaled(5), available(0))
	live := func(with ...fooOption) []reply {
		return []reply{finds(newFoo(append([]fooOption{withGeneration(3)}, with...)...))}
	}
	const patch, read, end = "patch spec.replicas", "get Foo, ", "get Foo, no report"

	for _, tc := range []struct {
		name    string
		state   plan.State
		replies []reply
		want    string
	}{
		{name: "a create beside any needs a read", state: plan.State{Previous: all(old("2"))}, want: read + "create web-1"},
		{
			name:  "a create beside a copy needs a read",
			state: plan.State{Previous: all(copied(old("4"), "copy"))}, want: read + "create web-1",
		},
		{
			name:  "a create beside one being deleted needs a read: the Foo may be gone too",
			state: plan.State{Previous: all(old("4", deleted))}, want: read + "create web-1",
		},
		{name: "a patch beside an older one", state: plan.State{Deployment: edited, Previous: all(old("2"))}, want: patch},
		{
			name:  "a patch beside one of the same",
			state: plan.State{Deployment: edited, Previous: all(old("3"))}, want: patch,
		},
		{
			name:  "a patch beside a newer one needs a read",
			state: plan.State{Deployment: edited, Previous: all(old("4"))}, want: read + patch,
		},
		{
			name:  "a patch beside a newer one and others",
			state: plan.State{Deployment: edited, Previous: all(old("2"), old("4"), old("3"))}, want: read + patch,
		},
		{
			name:  "a patch beside the copy of a newer one",
			state: plan.State{Deployment: edited, Previous: all(copied(old("4"), "copy"))}, want: patch,
		},
		{
			name:  "a patch beside a newer one that is being deleted",
			state: plan.State{Deployment: edited, Previous: all(old("4", deleted))}, want: patch,
		},
		{
			name:  "a patch beside one that has no number",
			state: plan.State{Deployment: edited, Previous: all(old("x"))}, want: patch,
		},
		{
			name: "a patch that backs off beside a newer one",
			state: plan.State{
				Deployment: edited, Previous: all(old("4")), Memory: overriddenMemory(foo),
			},
			want: "nothing",
		},
		{
			name:  "nothing to be patched beside a newer one",
			state: plan.State{Deployment: stamped("3"), Previous: all(old("4"))}, want: "nothing",
		},
		{
			name:  "the named one's is newer",
			state: plan.State{Deployment: stamped("4"), Previous: all(old("2"))}, want: read + stampGeneration,
		},
		{
			name:  "that of a Deployment of another Foo does not count",
			state: plan.State{Deployment: newDeployment(newFoo(withUID("other")), withFence("4"))}, want: "WaitingForName",
		},

		{
			name:  "the Foo is really newer",
			state: plan.State{Deployment: edited, Previous: all(old("4"))}, replies: live(withGeneration(4)), want: end,
		},
		{
			name:  "the Foo is gone",
			state: plan.State{Deployment: edited, Previous: all(old("4"))}, replies: []reply{finds(nil)}, want: end,
		},
		{
			name:  "the Foo is being deleted",
			state: plan.State{Deployment: edited, Previous: all(old("4"))}, replies: live(deletedFoo), want: end,
		},
		{
			name:  "the Foo is another",
			state: plan.State{Deployment: edited, Previous: all(old("4"))}, replies: live(withUID("new")), want: end,
		},
		{
			name:  "the label is wrong, and there is something to create",
			state: plan.State{Previous: all(old("4"))}, want: read + "create web-1",
		},
		{
			name:  "the label is wrong, and the new one could take over",
			state: plan.State{Deployment: newDeployment(foo), Previous: all(old("4"))},
			want:  read + "get web-1, delete web-4",
		},
		{
			name:  "a paused Foo needs no read",
			state: plan.State{Foo: newFoo(withGeneration(3), withPaused), Previous: all(old("4"))}, want: "nothing",
		},
		{
			name:  "an invalid Foo needs no read",
			state: plan.State{Foo: newFoo(withGeneration(3), withReplicas(-1)), Previous: all(old("4"))}, want: "Invalid",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state.Foo == nil {
				tc.state.Foo = foo
			}
			checkSent(t, tc.want, play(t, tc.state, tc.replies...).result())
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
			name:     "of several the one with most available",
			previous: all(dep("web-1", scaled(5), available(2)), dep("web-2", scaled(4), available(3))), want: 4,
		},
		{
			name:     "of equal ones the first that was made",
			previous: all(dep("web-1", scaled(5), madeAt(2)), dep("web-2", scaled(4), madeAt(1))), want: 4,
		},
		{
			name:     "of those made at once the first by name",
			previous: all(dep("web-2", scaled(4), madeAt(1)), dep("web-1", scaled(5), madeAt(1))), want: 5,
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
			got := play(t, plan.State{Foo: tc.foo, Previous: tc.previous}).step(plan.CreateDeployment).Deployment
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong Deployment (-want +got):\n%s", diff)
			}
			if len(tc.previous) > 0 && got.Spec.Replicas == tc.previous[0].Spec.Replicas {
				t.Error("the new Deployment shares memory with the cached one")
			}
		})
	}
}

// The numbers and the selector are those of the named one alone, whatever the previous one has.
func TestTheStatusOfARenamedFooHasTheNumbersOfTheNewDeployment(t *testing.T) {
	const selector = "samplecontroller.k8s.io/deployment="
	foo := renamed(func(foo *v1alpha1.Foo) {
		foo.Status.Replicas, foo.Status.AvailableReplicas = 3, 3
		foo.Status.Selector = "controller=web," + selector + "web-1"
	})
	refused := []reply{fails(plan.CreateDeployment, forbidden)}
	for _, tc := range []struct {
		name    string
		named   *appsv1.Deployment
		replies []reply
		want    v1alpha1.FooStatus
	}{
		{name: "the Deployment does not exist", replies: refused, want: v1alpha1.FooStatus{ObservedGeneration: 3}},
		{
			name: "it comes up", named: newDeployment(foo, rollout(2, 2, 1)),
			want: v1alpha1.FooStatus{
				ObservedGeneration: 3, Replicas: 2, AvailableReplicas: 1,
				Selector: "app=nginx,controller=web," + selector + "web-3",
			},
		},
		{
			name: "it is another Foo's", named: newDeployment(newFoo(withUID("other"))),
			want: v1alpha1.FooStatus{ObservedGeneration: 3},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := plan.State{Foo: foo, Deployment: tc.named, Previous: all(earlier(foo, "web-1"))}
			got := *play(t, state, tc.replies...).status()
			got.Conditions = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("wrong status (-want +got):\n%s", diff)
			}
		})
	}
}

// A paused Foo keeps what it would replace otherwise.
func TestAPausedFooReportsThePreviousDeploymentAsKept(t *testing.T) {
	foo := renamed(withPaused)
	c := play(t, plan.State{Foo: foo, Deployment: newDeployment(foo), Previous: all(earlier(foo, "web-1"))})
	want := "True " + strings.ReplaceAll(pausedPrefix, "web-1", "web-3") + "has 3 of 3 replicas available" +
		`. Previous Deployment "web-1" (3 available) is kept while this Foo is paused` + unpause
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}

// Whatever else there is to report, it is kept until the new one can take over, and to be deleted from then on.
func TestAPreviousDeploymentIsKeptUntilTheNewOneCanTakeOver(t *testing.T) {
	foo := renamed()
	nothingWorks := plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
		op(plan.PatchDeployment, "web-3"): until(1), op(plan.CreateDeployment, "web-3"): until(1),
		op(plan.DeleteDeployment, "web-1"): {Count: 1, Until: now.Add(1), Report: plan.ConditionError{Message: "x"}},
	}}
	other := newDeployment(renamed(withUID("other")))
	for _, tc := range []struct {
		name  string
		named *appsv1.Deployment
		want  string
	}{
		{name: "it could take over", named: newDeployment(foo), want: undeleted + "x" + triesAgain},
		{name: "it has one available too few", named: newDeployment(foo, available(2)), want: serves},
		{name: "it was written for an older spec", named: newDeployment(foo, withFence("2")), want: kept},
		{name: "it was written for an unknown spec", named: newDeployment(foo, withoutLabels), want: kept},
		{name: "its numbers are of before the last change", named: newDeployment(foo, observedAt(1, 2)), want: serves},
		{name: "it is being deleted", named: newDeployment(foo, deleted), want: kept},
		{name: "it is another Foo's", named: other, want: kept},
		{name: "it is no Foo's", named: newDeployment(foo, ownedBy()), want: kept},
		{name: "the Deployment does not exist", want: kept},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, plan.State{
				Foo: foo, Deployment: tc.named, Previous: all(earlier(foo, "web-1")), Memory: nothingWorks,
			})
			checkSent(t, "nothing", c.sent())
			message := c.message()
			if !strings.Contains(message, tc.want) || strings.Count(message, `"web-1"`) != 1 {
				t.Errorf("the message is %q, want %q in it", message, tc.want)
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
		state   plan.State
		replies []reply
		want    string
	}{
		{
			name:  "it is paused",
			state: plan.State{Foo: renamed(withPaused)},
			want: "False " + strings.ReplaceAll(pausedPrefix, "web-1", "web-3") + "does not exist" + others +
				`Previous Deployment "c" ` + "(3 available) is kept while this Foo is paused" + unpause,
		},
		{
			name:  "it is invalid",
			state: plan.State{Foo: renamed(withReplicas(-1))},
			want:  stalled + "Invalid: spec.replicas is -1. Set 0 or more, or remove it" + keptInvalid + editWeb,
		},
		{
			name:  "it waits for a name",
			state: plan.State{Foo: foo, Deployment: earlier(api, "web-3"), OwnerChain: foos(api)},
			want: reconciling + `WaitingForName: Waiting for Foo "api" to move from Deployment "web-3" to "api-2"` +
				kept + ". See: kubectl -n default describe foo api",
		},
		{
			name:  "something is refused",
			state: plan.State{Foo: foo}, replies: []reply{fails(plan.ReadFoo, tooMany)},
			want: reconciling + `Refused: Cannot create Deployment "web-3": ` + refusedBy + "slow down" +
				kept + passes,
		},
		{
			name: "there is no Deployment", state: plan.State{Foo: foo},
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

// Names have up to 253 characters, and of previous Deployments there may be any number.
func TestPreviousDeploymentsDoNotMakeAMessageTooLong(t *testing.T) {
	foo := renamed()
	state := plan.State{Foo: foo}
	for i := range 40 {
		name := strings.Repeat("x", 250) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		state.Previous = append(state.Previous, earlier(foo, name))
	}
	message := play(t, state).message()
	if len(message) != 4096 || !strings.HasPrefix(message,
		`Moving to Deployment "web-3": 0 of 3 replicas available. `) || !strings.HasSuffix(message, "...") {
		t.Errorf("a message of %d bytes that ends in %q", len(message), message[max(0, len(message)-10):])
	}
}

// From one name to the next, through all that the caches have on the way: each step is taken once.
func TestTheRequestsOfARename(t *testing.T) {
	foo := renamed()
	old := all(earlier(foo, "web-1"))
	memory := plan.Memory{UID: foo.UID, Generation: foo.Generation, Wrote: true}
	var got []string
	for _, state := range []plan.State{
		{Previous: old},
		{Previous: old, Deployment: newDeployment(foo, unobserved)},
		{Previous: old, Deployment: newDeployment(foo, available(0))},
		{Previous: old, Deployment: newDeployment(foo, available(2))},
		{Previous: old, Deployment: newDeployment(foo)},
		{Previous: all(earlier(foo, "web-1", deleted)), Deployment: newDeployment(foo)},
		{Deployment: newDeployment(foo)},
	} {
		state.Foo, state.Memory = foo, memory
		c := play(t, state)
		got = append(got, c.line())
		memory = c.end.Memory
		if c.status() != nil {
			foo = c.step(plan.UpdateStatus).Foo
		}
	}
	checkLines(t, []string{
		"get Foo, create web-3; Renaming; done",
		"nothing; no report; done",
		"nothing; Renaming; done",
		"nothing; Renaming; done",
		"get Foo, get web-3, delete web-1; Available; done",
		"nothing; Available; done",
		"nothing; Available; done",
	}, got)
}

// A policy may give the Deployment fewer replicas than the Foo sets: they do not replace what the previous one has.
func TestADeploymentThatIsKeptSmallReplacesNothing(t *testing.T) {
	foo := renamed()
	c := play(t, plan.State{
		Foo: foo, Deployment: newDeployment(foo, scaled(1), rollout(1, 1, 1)), Previous: all(earlier(foo, "web-1")),
		Memory: overriddenMemory(foo),
	})
	if diff := cmp.Diff("nothing; FieldsOverridden; wait in 1s", c.line()); diff != "" {
		t.Errorf("wrong sync (-want +got):\n%s", diff)
	}
}

// Whatever is observed: what is deleted was made for the Foo under its name, is not the last that serves, and the Foo
// and the Deployment that replaces it were read just before.
func TestNothingIsDeletedThatMayBeNeeded(t *testing.T) {
	deletes := 0
	someStates(t, func(t *testing.T, state plan.State) {
		c := play(t, state)
		left := append(all(c.end.Deployment), state.Previous...)
		var read []string
		for _, step := range c.steps {
			switch step.Verb {
			case plan.ReadFoo, plan.ReadDeployment:
				read = append(read, wordsOf(step))
				continue
			case plan.DeleteDeployment:
				deletes++
				checkDeletion(t, state, step.Deployment, left)
				named := c.end.Deployment != nil && state.Deployment != nil
				if len(read) == 0 || read[0] != "get Foo" || named && len(read) != 2 {
					t.Errorf("before %s: %s", wordsOf(step), read)
				}
			}
			read = nil
		}
	})
	if deletes < 20 {
		t.Errorf("only %d deletes: the states are too good to show anything", deletes)
	}
}

// checkDeletion checks that dep was the Foo's to delete, and that of the others one has as much available, or as much
// as is wanted.
func checkDeletion(t *testing.T, state plan.State, dep *appsv1.Deployment, others []*appsv1.Deployment) {
	t.Helper()
	made := state.Foo.DeepCopy()
	made.Spec.DeploymentName = dep.Name
	madeFor := plan.Deployment(made).Labels[v1alpha1.LabelMadeFor]
	if dep.Name == state.Foo.Spec.DeploymentName || state.Foo.Spec.Paused || !plan.Owns(state.Foo, dep) ||
		dep.DeletionTimestamp != nil || dep.Labels[v1alpha1.LabelMadeFor] != madeFor {
		t.Errorf("%s was deleted", dep.Name)
	}
	for i, other := range others {
		if other == nil || other == dep || !plan.Owns(state.Foo, other) || other.DeletionTimestamp != nil {
			continue
		}
		has, wanted := other.Status.AvailableReplicas, int32(1)
		if other.Spec.Replicas != nil {
			wanted = *other.Spec.Replicas
		}
		if has >= dep.Status.AvailableReplicas || i == 0 && has >= wanted {
			return
		}
	}
	t.Errorf("%s had %d available, and nothing else has", dep.Name, dep.Status.AvailableReplicas)
}

// What could not be deleted is left alone until its delay ends, and then the key comes back, whatever else there is to
// do.
func TestASyncGoesOnWithoutWhatCannotBeDeleted(t *testing.T) {
	foo := renamed()
	old, between := earlier(foo, "web-1"), earlier(foo, "web-2", available(0))
	none := available(0)
	web3 := newDeployment(foo)
	lastly := ledger{op(plan.CreateDeployment, "web-3"): until(time.Minute)}

	for _, tc := range []struct {
		name  string
		state plan.State
		more  ledger
		want  string
	}{
		{
			name:  "the new one is to be created",
			state: plan.State{Previous: all(old, between)}, want: "get Foo, create web-3; Renaming; wait in 1s",
		},
		{
			name:  "the new one differs",
			state: plan.State{Previous: all(old, between), Deployment: newDeployment(foo, scaled(9), available(1))},
			want:  "patch spec.replicas; Renaming; wait in 1s",
		},
		{
			name:  "the new one can take over",
			state: plan.State{Previous: all(between), Deployment: web3}, want: "nothing; Available; wait in 1s",
		},
		{
			name:  "there is another one that is to be deleted",
			state: plan.State{Previous: all(old, between), Deployment: web3},
			want:  deleteOld + "; Available; wait in 1s",
		},
		{
			name:  "there is another one that is to be deleted, behind it",
			state: plan.State{Previous: all(between, earlier(foo, "web-5")), Deployment: web3},
			want:  readBoth + "delete web-5; Available; wait in 1s",
		},
		{
			name:  "there is another one that could not be deleted, before it",
			state: plan.State{Previous: all(earlier(foo, "web-0", none), between), Deployment: web3},
			want:  "nothing; Available; wait in 1ms",
		},
		{
			name:  "there is another one that could not be deleted",
			state: plan.State{Previous: all(earlier(foo, "web-4", none), between), Deployment: web3},
			want:  "nothing; Available; wait in 1ms",
		},
		{
			name:  "it is needed again",
			state: plan.State{Previous: all(between), Deployment: newDeployment(foo, none)},
			want:  "nothing; Progressing; done",
		},
		{
			name:  "the new name is no Foo's",
			state: plan.State{Previous: all(old, between), Deployment: newDeployment(foo, ownedBy())},
			want:  "nothing; NotOwned; wait in 1s",
		},
		{
			name:  "the Foo is paused",
			state: plan.State{Foo: renamed(withPaused), Previous: all(old, between)}, want: "nothing; Paused; done",
		},
		{
			name:  "a field is overridden: the first retry counts",
			state: plan.State{Previous: all(between), Deployment: web3},
			more:  ledger{again(plan.PatchDeployment, "web-3"): {Until: now.Add(time.Minute), Report: overriddenReplicas}},
			want:  "nothing; FieldsOverridden; wait in 1s",
		},
		{
			name:  "a create backs off, too",
			state: plan.State{Previous: all(old, between)}, more: lastly, want: "nothing; Refused; wait in 1s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state.Foo == nil {
				tc.state.Foo = foo
			}
			tc.state.Memory = plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
				op(plan.DeleteDeployment, "web-2"): until(time.Second),
				op(plan.DeleteDeployment, "web-4"): until(time.Millisecond),
				op(plan.DeleteDeployment, "web-0"): until(time.Millisecond),
				op(plan.DeleteDeployment, "web-9"): until(1), // It is not there.
			}}
			for op, attempt := range tc.more {
				tc.state.Memory.Ledger[op] = attempt
			}
			if diff := cmp.Diff(tc.want, play(t, tc.state).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
}

// One that could not be deleted and is needed again is one that is kept. Its backoff is not lost.
func TestWhatIsNeededAgainIsNotReportedAsUndeleted(t *testing.T) {
	foo := renamed()
	memory := plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
		op(plan.DeleteDeployment, "web-1"): {Count: 3, Until: now.Add(seconds(4)), Report: plan.ConditionError{
			Reason: "Refused", Message: overQuota,
		}},
	}}
	for _, tc := range []struct {
		name  string
		named *appsv1.Deployment
		want  string
	}{
		{name: "not needed", named: newDeployment(foo), want: available3 + undeleted + overQuota + triesAgain},
		{
			name: "needed again", named: newDeployment(foo, available(2)),
			want: movingTo3 + "2 of 3 replicas available" + serves,
		},
		{name: "not needed any more", named: newDeployment(foo), want: available3 + undeleted + overQuota + triesAgain},
	} {
		c := play(t, plan.State{Foo: foo, Deployment: tc.named, Previous: all(earlier(foo, "web-1")), Memory: memory})
		if diff := cmp.Diff(tc.want, c.report()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		checkSent(t, "nothing", c.sent())
		memory = c.end.Memory
	}
}

// A deletion that was a conflict backs off without a report.
func TestADeletionThatWasAConflictIsNotReported(t *testing.T) {
	foo := renamed()
	c := play(t, plan.State{
		Foo: foo, Deployment: newDeployment(foo, available(1)), Previous: all(earlier(foo, "web-1")),
		Memory: plan.Memory{UID: foo.UID, Generation: 3, Ledger: ledger{
			op(plan.DeleteDeployment, "web-1"): expectedUntil(seconds(1)),
		}},
	})
	if want := movingTo3 + "1 of 3 replicas available" + serves; c.report() != want {
		t.Errorf("got %q, want %q", c.report(), want)
	}
	if condition := c.ready(); condition.Status != "False" {
		t.Errorf("ready is %s", condition.Status)
	}
}
