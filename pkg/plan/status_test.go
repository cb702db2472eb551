package plan_test

import (
	"errors"
	"fmt"
	"math/rand"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// conditionsOf returns the conditions that a Status for foo consists of when it says these words.
func conditionsOf(foo *v1alpha1.Foo, ready metav1.ConditionStatus, more, reason, message string) []metav1.Condition {
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: foo.Generation, LastTransitionTime: metav1.NewTime(now)}
	}
	conditions := []metav1.Condition{condition("Ready", ready)}
	if more != "" {
		conditions = append(conditions, condition(more, metav1.ConditionTrue))
	}
	return conditions
}

func TestStatus(t *testing.T) {
	const (
		yes, no              = metav1.ConditionTrue, metav1.ConditionFalse
		stalled, reconciling = "Stalled", "Reconciling"

		refused       = `Cannot create Deployment "web-1", trying again: `
		beingDeleted  = `Deployment "web-1" is being deleted and will be created again when it is gone`
		pausedMessage = "Nothing is written while spec.paused is true; "
		resume        = `. "kubectl rollout resume deployment web-1" lets it go on`
	)
	foo := newFoo(withReplicas(3))
	paused := newFoo(withReplicas(3), withPaused)
	terminal := &plan.TerminalError{Reason: "Invalid", Message: "spec.replicas is negative"}
	dep := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }

	for _, tc := range []struct {
		name    string
		foo     *v1alpha1.Foo
		dep     *appsv1.Deployment
		err     error
		ready   metav1.ConditionStatus
		more    string
		reason  string
		message string
	}{
		{"no Deployment yet", foo, nil, nil, no, reconciling, "Creating", `Creating Deployment "web-1"`},
		{"a Deployment that nobody has looked at", foo, dep(observedAt(0, 1), rollout(0, 0, 0)), nil, no, reconciling, "Creating", `Creating Deployment "web-1"`},
		{"a Deployment being deleted", foo, dep(deleted), nil, no, reconciling, "WaitingForDeletion", beingDeleted},
		{"a Deployment deleted before anybody looked at it", foo, dep(deleted, observedAt(0, 1)), nil, no, reconciling, "WaitingForDeletion", beingDeleted},

		{"a change that the Deployment controller has not seen", foo, dep(observedAt(1, 2)), nil, no, reconciling, "Progressing",
			"Waiting for the Deployment controller to see the last change; 3 replicas available"},
		{"a ReplicaSet that cannot be made", foo, dep(observedAt(0, 1), rollout(0, 0, 0), noReplicaSet), nil, no, stalled, "ReplicaFailure",
			`Deployment "web-1" cannot create its ReplicaSet: 0 of 3 replicas available. "kubectl describe deployment web-1" says why`},
		{"a ReplicaSet that cannot be made for a change", foo, dep(observedAt(1, 2), noReplicaSet), nil, no, stalled, "ReplicaFailure",
			`Deployment "web-1" cannot create its ReplicaSet: 3 of 3 replicas available. "kubectl describe deployment web-1" says why`},
		{"no replica updated", foo, dep(rollout(3, 0, 3)), nil, no, reconciling, "Progressing", "0 of 3 replicas updated"},
		{"one replica short of updated", foo, dep(rollout(3, 2, 3)), nil, no, reconciling, "Progressing", "2 of 3 replicas updated"},
		{"one replica short of available", foo, dep(rollout(3, 3, 2)), nil, no, reconciling, "Progressing", "2 of 3 replicas available"},
		{"an old replica still there", foo, dep(rollout(4, 3, 3)), nil, no, reconciling, "Progressing", "4 replicas where 3 are wanted"},
		{"all replicas available", foo, dep(), nil, yes, "", "Available", "3 of 3 replicas available"},
		{"replicas that have still to go after a scale down", foo, dep(rollout(4, 4, 4)), nil, no, reconciling, "Progressing", "4 replicas where 3 are wanted"},
		{"no replicas wanted", foo, dep(scaled(0), rollout(0, 0, 0)), nil, yes, "", "Available", "0 of 0 replicas available"},
		{"absent replicas are one", foo, dep(withoutReplicas, rollout(1, 1, 1)), nil, yes, "", "Available", "1 of 1 replicas available"},
		{"the Deployment's number counts, not the Foo's", foo, dep(scaled(2), rollout(2, 2, 2)), nil, yes, "", "Available", "2 of 2 replicas available"},
		{"a Deployment seen at a later generation than the cache has", foo, dep(observedAt(2, 1)), nil, yes, "", "Available", "3 of 3 replicas available"},

		{"paused by a user", foo, dep(pausedByUser, rollout(3, 1, 2)), nil, no, stalled, "DeploymentPaused", `Deployment "web-1" is paused: 2 of 3 replicas available` + resume},
		{"pods that cannot be made", foo, dep(replicaFailure, rollout(1, 1, 1)), nil, no, stalled, "ReplicaFailure",
			`Deployment "web-1" cannot create its pods: 1 of 3 replicas available. "kubectl describe replicaset" says why`},
		{"pods that do not come up in time", foo, dep(deadlineExceeded, rollout(3, 3, 1)), nil, no, stalled, "ProgressDeadlineExceeded",
			`Deployment "web-1" makes no progress: 1 of 3 replicas available. "kubectl describe pod" says why`},
		{"a replica failure that is over", foo, dep(withCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "FailedCreate")), nil, yes, "", "Available", "3 of 3 replicas available"},
		{"a rollout that progresses", foo, dep(withCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")), nil, yes, "", "Available", "3 of 3 replicas available"},
		{"a rollout that stands still for another reason", foo, dep(withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "DeploymentPaused")), nil, yes, "", "Available", "3 of 3 replicas available"},
		{"a deadline that another condition tells of", foo, dep(withCondition("Scaled", corev1.ConditionFalse, "ProgressDeadlineExceeded")), nil, yes, "", "Available", "3 of 3 replicas available"},
		{"an outdated observation counts for nothing, stuck or not", foo, dep(observedAt(1, 2), pausedByUser, replicaFailure, deadlineExceeded), nil,
			no, reconciling, "Progressing", "Waiting for the Deployment controller to see the last change; 3 replicas available"},
		{"paused comes before a replica failure", foo, dep(replicaFailure, deadlineExceeded, pausedByUser), nil,
			no, stalled, "DeploymentPaused", `Deployment "web-1" is paused: 3 of 3 replicas available` + resume},
		{"a replica failure comes before the deadline", foo, dep(deadlineExceeded, replicaFailure), nil,
			no, stalled, "ReplicaFailure", `Deployment "web-1" cannot create its pods: 3 of 3 replicas available. "kubectl describe replicaset" says why`},
		{"a missed deadline comes before missing replicas", foo, dep(deadlineExceeded, rollout(3, 2, 3)), nil,
			no, stalled, "ProgressDeadlineExceeded", `Deployment "web-1" makes no progress: 2 of 3 replicas updated. "kubectl describe pod" says why`},

		{"a terminal error", foo, nil, terminal, no, stalled, "Invalid", "spec.replicas is negative"},
		{"a terminal error comes before the Deployment's state", foo, dep(deleted), fmt.Errorf("sync: %w", terminal), no, stalled, "Invalid", "spec.replicas is negative"},
		{"a refused create", foo, nil, &plan.WriteError{Verb: "create", Deployment: "web-1", Err: forbidden}, no, reconciling, "Refused", refused + `deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"a refused patch comes before the Deployment's state", foo, dep(deleted), fmt.Errorf("sync: %w", &plan.WriteError{Verb: "patch", Deployment: "web-1", Err: forbidden}), no, reconciling, "Refused",
			`Cannot patch Deployment "web-1", trying again: ` + `deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"a refused delete", foo, dep(), &plan.WriteError{Verb: "delete", Deployment: "web-0", Err: forbidden}, yes, "", "Available", "3 of 3 replicas available"},
		{"a Deployment that is not the Foo's", foo, dep(ownedBy()), nil, no, stalled, "NotOwned",
			`Deployment "web-1" is not this Foo's and is left alone: it has no controller. Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true`},
		{"a Deployment that is not the Foo's, beside a refused delete", foo, dep(ownedBy()), &plan.WriteError{Verb: "delete", Deployment: "web-0", Err: forbidden}, no, stalled, "NotOwned",
			`Deployment "web-1" is not this Foo's and is left alone: it has no controller. Set another spec.deploymentName, delete that Deployment, or hand it over by an owner reference to this Foo with controller: true`},
		{"something else that failed", foo, dep(), forbidden, no, reconciling, "Refused", `Trying again: deployments.apps "web-1" is forbidden: exceeded quota: small`},
		{"something else that had no answer", foo, nil, errors.New("connection reset"), no, reconciling, "Refused", "Trying again: the API server gave no answer"},
		{"a name that another Foo is leaving", foo, dep(), fmt.Errorf("sync: %w", &plan.TerminalError{Reason: "WaitingForName", Message: "soon", Passing: true}), no, reconciling, "WaitingForName", "soon"},
		{"a server that gives no answer", foo, dep(), &plan.WriteError{Verb: "create", Deployment: "web-1", Err: &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40123}, Err: errors.New("refused")}},
			no, reconciling, "Refused", refused + "the API server gave no answer"},

		{"paused without a Deployment", paused, nil, nil, no, "", "Paused", pausedMessage + "there is no Deployment"},
		{"paused with a foreign Deployment", paused, dep(ownedBy()), nil, no, "", "Paused", pausedMessage + "the Deployment is not this Foo's"},
		{"paused while all is well", paused, dep(), nil, yes, "", "Paused", pausedMessage + "3 of 3 replicas available"},
		{"paused while replicas are missing", paused, dep(rollout(3, 3, 2)), nil, no, "", "Paused", pausedMessage + "2 of 3 replicas available"},
		{"paused while the Deployment is stuck", paused, dep(deadlineExceeded), nil, no, "", "Paused", pausedMessage + "3 of 3 replicas available"},
		{"paused while the Deployment is being deleted", paused, dep(deleted), nil, no, "", "Paused", pausedMessage + "3 of 3 replicas available"},
		{"paused comes before errors", paused, dep(), terminal, yes, "", "Paused", pausedMessage + "3 of 3 replicas available"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unchanged(t, tc.foo, tc.dep)
			status := plan.Status(plan.Seen{Foo: tc.foo, Named: tc.dep}, tc.err, now)
			if diff := cmp.Diff(conditionsOf(tc.foo, tc.ready, tc.more, tc.reason, tc.message), status.Conditions); diff != "" {
				t.Errorf("wrong conditions (-want +got):\n%s", diff)
			}
			if status.ObservedGeneration != tc.foo.Generation {
				t.Errorf("observedGeneration is %d, want %d", status.ObservedGeneration, tc.foo.Generation)
			}
		})
	}
}

func TestStatusHasTheNumbersOfAnOwnedDeploymentOnly(t *testing.T) {
	stale := func(foo *v1alpha1.Foo) {
		foo.Status.Replicas, foo.Status.AvailableReplicas, foo.Status.Selector = 9, 8, "app=old"
	}
	foo := newFoo(stale)
	for _, tc := range []struct {
		name                string
		dep                 *appsv1.Deployment
		replicas, available int32
		selector            string
	}{
		{"no Deployment", nil, 0, 0, ""},
		{"somebody else's Deployment", newDeployment(foo, ownedBy()), 0, 0, ""},
		{"the Foo's own", newDeployment(foo, rollout(4, 3, 2)), 4, 2, "app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-1"},
		{"the Foo's own while it is being deleted", newDeployment(foo, deleted, rollout(4, 3, 2)), 4, 2, "app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-1"},
		{"a selector with an expression", newDeployment(foo, func(dep *appsv1.Deployment) {
			dep.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}}}}
		}), 1, 1, "app in (a,b)"},
		{"a selector that cannot be", newDeployment(foo, func(dep *appsv1.Deployment) {
			dep.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
		}), 1, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := plan.Status(plan.Seen{Foo: foo, Named: tc.dep}, nil, now)
			got.Conditions = nil
			want := v1alpha1.FooStatus{ObservedGeneration: foo.Generation, Replicas: tc.replicas, AvailableReplicas: tc.available, Selector: tc.selector}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusMovesTheTransitionTimeOnlyWhenAConditionFlips(t *testing.T) {
	foo := newFoo(withReplicas(3), withConditions(metav1.Condition{
		Type: "Ready", Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "Waiting for controller", LastTransitionTime: metav1.Unix(0, 0),
	}))
	second := func(n int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(n) * time.Second)) }
	type at = map[string]metav1.Time

	for i, tc := range []struct {
		name string
		dep  *appsv1.Deployment
		err  error
		want at
	}{
		0: {"from Unknown to False", nil, nil, at{"Ready": second(0), "Reconciling": second(0)}},
		1: {"another reason", newDeployment(foo, rollout(3, 1, 1)), nil, at{"Ready": second(0), "Reconciling": second(0)}},
		2: {"another message", newDeployment(foo, rollout(3, 3, 2)), nil, at{"Ready": second(0), "Reconciling": second(0)}},
		3: {"from Reconciling to Stalled", newDeployment(foo, deadlineExceeded), nil, at{"Ready": second(0), "Stalled": second(3)}},
		4: {"from False to True", newDeployment(foo), nil, at{"Ready": second(4)}},
		5: {"still True", newDeployment(foo, scaled(2), rollout(2, 2, 2)), nil, at{"Ready": second(4)}},
		6: {"from True to False", nil, errors.New("reset"), at{"Ready": second(6), "Reconciling": second(6)}},
	} {
		// The fraction is dropped: the API server stores none.
		foo.Status = plan.Status(plan.Seen{Foo: foo, Named: tc.dep}, tc.err, second(i).Add(987*time.Millisecond))
		got := at{}
		for _, condition := range foo.Status.Conditions {
			got[condition.Type] = condition.LastTransitionTime
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestStatusKeepsForeignConditions(t *testing.T) {
	foreign := metav1.Condition{Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", ObservedGeneration: 1, LastTransitionTime: metav1.Unix(1, 0)}
	foo := newFoo(withConditions(foreign))
	unchanged(t, foo, nil)
	want := append([]metav1.Condition{foreign}, conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "Creating", `Creating Deployment "web-1"`)...)
	if diff := cmp.Diff(want, plan.Status(plan.Seen{Foo: foo}, nil, now).Conditions); diff != "" {
		t.Errorf("wrong conditions (-want +got):\n%s", diff)
	}
}

// The API server refuses a status that has such a condition, and the Foo would never be reported on.
func TestStatusDropsConditionsThatCannotBeStoredAgain(t *testing.T) {
	good := metav1.Condition{Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.Unix(1, 0)}
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
	want := append([]metav1.Condition{good, unknown, no}, conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "Creating", `Creating Deployment "web-1"`)...)
	if diff := cmp.Diff(want, plan.Status(plan.Seen{Foo: foo}, nil, now).Conditions); diff != "" {
		t.Errorf("wrong conditions (-want +got):\n%s", diff)
	}
}

// A status that is equal costs no write, so the same observations must give it byte for byte, in whatever order
// the caches list.
func TestStatusOfWhatHasNotChangedIsEqual(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	someSeen(t, func(t *testing.T, seen plan.Seen) {
		err := plan.Next(seen).Err
		first := plan.Status(seen, err, now)
		for i := range 10 {
			seen.Foo.Status = first
			again := shuffled(seen, r)
			if diff := cmp.Diff(first, plan.Status(again, err, now.Add(time.Duration(i)*time.Hour))); diff != "" {
				t.Fatalf("another status:\n%s", diff)
			}
		}
	})
}

func TestStatusAndEventShortenWhatIsTooLong(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	status := plan.Status(plan.Seen{Foo: newFoo()}, &plan.TerminalError{Reason: v1alpha1.ReasonNotOwned, Message: long}, now)
	for _, condition := range status.Conditions {
		if size := len(condition.Message); size > 4096 || !strings.HasSuffix(condition.Message, "é...") || !utf8.ValidString(condition.Message) {
			t.Errorf("%s has a message of %d bytes that ends in %q", condition.Type, size, condition.Message[size-10:])
		}
	}
	if note := plan.EventOf(&v1alpha1.FooStatus{}, &status).Note; len(note) > 1024 || !strings.HasSuffix(note, "é...") || !utf8.ValidString(note) {
		t.Errorf("a note of %d bytes that ends in %q", len(note), note[len(note)-10:])
	}
}

// Pods' names and times are different in every try, and would cost a write each.
func TestStatusRepeatsNoWordsOfTheDeployment(t *testing.T) {
	foo := newFoo()
	for name, stuck := range map[string]deploymentOption{"replica failure": replicaFailure, "deadline": deadlineExceeded} {
		for _, condition := range plan.Status(plan.Seen{Foo: foo, Named: newDeployment(foo, stuck)}, nil, now).Conditions {
			if strings.Contains(condition.Message, "abc") {
				t.Errorf("%s: %q", name, condition.Message)
			}
		}
	}
}

func TestSaid(t *testing.T) {
	foo := newFoo(withConditions(metav1.Condition{Type: "Audited", Reason: "ByHand"}, metav1.Condition{Type: "Ready", Reason: "NameTaken", Message: "it is"}))
	if reason, message := plan.Said(foo); reason != "NameTaken" || message != "it is" {
		t.Errorf("reason %q, message %q", reason, message)
	}
	if reason, message := plan.Said(newFoo()); reason != "" || message != "" {
		t.Errorf("reason %q, message %q of a Foo that has none", reason, message)
	}
}
