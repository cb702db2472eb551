package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
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
	failedCreate  = reconciling + `RequestFailed: Cannot create Deployment "web-1": `
	cannotPatch   = reconciling + `Refused: Cannot patch Deployment "web-1" (3 of 5 replicas available): `
	pausedByHand  = stalled + `DeploymentPaused: spec.paused of Deployment "web-1" is true, so changes are not ` +
		"rolled out "
	resume = ". To resume: kubectl -n default rollout resume deployment web-1"
	cure   = ". Change the quota or the policy that refuses it, or ask an administrator of the cluster to do it. For " +
		"Pod " +
		"Security, see artifacts/examples/restricted and docs/policies.md"
	// podsForbidden is the cause in the condition of a Deployment that cannot create pods.
	podsForbidden = ": pods is forbidden"
	noSet         = stalled + `ReplicaFailure: Deployment "web-1" cannot create its ReplicaSet `
	noPods        = stalled + `ReplicaFailure: Deployment "web-1" cannot create pods `
	tooLate       = stalled + `ProgressDeadlineExceeded: Deployment "web-1" has exceeded its progress deadline: `
	ifItLasts     = ". If this lasts: " + describePods
	seePods       = ". To see why its pods do not become available: " + describePods
	describePods  = "kubectl -n default describe pods --show-events " +
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
			name: "a Deployment being deleted, with a field that is overridden", foo: foo, dep: dep(deleted),
			ledger: overriddenMemory(foo).Ledger, want: beingDeleted,
		},
		{
			name: "a change that the Deployment controller has not seen", foo: foo, dep: dep(observedAt(1, 2)),
			want: waitsForSight + "(3 of 3 replicas available)",
		},
		{
			name: "a ReplicaSet that cannot be made", foo: foo, dep: dep(observedAt(0, 1), rollout(0, 0, 0), noReplicaSet),
			want: noSet + "(0 of 3 replicas available)" + podsForbidden + cure,
		},
		{
			name: "one replica short of updated", foo: foo, dep: dep(rollout(3, 2, 3)),
			want: reconciling + "Progressing: 2 of 3 replicas updated" + ifItLasts,
		},
		{
			name: "one replica short of available", foo: foo, dep: dep(available(2)),
			want: reconciling + "Progressing: 2 of 3 replicas available" + ifItLasts,
		},
		{
			name: "an old replica still there", foo: foo, dep: dep(rollout(4, 3, 3)),
			want: reconciling + "Progressing: Waiting for 1 old replica to terminate" + ifItLasts,
		},
		{
			name: "too many replicas, and too few available", foo: foo, dep: dep(rollout(4, 3, 1)),
			want: reconciling + "Progressing: 1 of 3 replicas available" + ifItLasts,
		},
		{name: "all replicas available", foo: foo, dep: dep(), want: available3},
		{
			name: "replicas that have not ended after a scale down", foo: foo, dep: dep(rollout(5, 5, 5)),
			want: reconciling + "Progressing: Waiting for 2 old replicas to terminate" + ifItLasts,
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
		{
			name: "paused by a user", foo: foo, dep: dep(pausedByUser, rollout(3, 1, 2)),
			want: pausedByHand + "(2 of 3 replicas available)" + resume,
		},
		{
			name: "pods that cannot be made, and a field that is overridden", foo: foo, dep: dep(replicaFailure),
			ledger: overriddenMemory(foo).Ledger, want: stalled + "FieldsOverridden: " + overriddenMessage,
		},
		{
			name: "pods that cannot be made", foo: foo, dep: dep(replicaFailure, rollout(1, 1, 1)),
			want: noPods + "(1 of 3 replicas available)" + podsForbidden + cure,
		},
		{
			name: "pods that do not come up in time", foo: foo, dep: dep(deadlineExceeded, available(1)),
			want: tooLate + "1 of 3 replicas available" + seePods,
		},
		{
			name: "a rollout that stands still for another reason", foo: foo, want: available3,
			dep: dep(withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "DeploymentPaused")),
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
			want: noPods + "(3 of 3 replicas available)" + podsForbidden + cure,
		},
		{
			name: "a missed deadline comes before missing replicas", foo: foo, dep: dep(deadlineExceeded, rollout(3, 2, 3)),
			want: tooLate + "2 of 3 replicas updated" + seePods,
		},
		{name: "an invalid Foo", foo: invalid, want: negative},
		{
			name: "a refused create", foo: foo, replies: []reply{fails(createDeployment, forbidden)},
			want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a refused patch comes before the Deployment's rollout", foo: foo, dep: dep(scaled(5), deadlineExceeded),
			replies: []reply{fails(patchDeployment, forbidden)}, want: cannotPatch + overQuota + lasts,
		},
		{name: "a Deployment that is not the Foo's", foo: foo, dep: dep(ownedBy()), want: noController},
		{
			name: "a refused read before a create", foo: newFoo(observed),
			replies: []reply{fails(readFoo, forbidden)}, want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a create that the server is too busy for", foo: foo,
			replies: []reply{fails(createDeployment, apierrors.NewTooManyRequests("slow down", 1))},
			want:    failedCreate + "the API server has too many requests: slow down" + passes,
		},
		{
			name: "a failure with a reason of its own", foo: foo,
			ledger: ledger{op(createDeployment, "web-1"): refusedUntil(1, &reconcile.Problem{
				Reason: "NotOwned", Message: "x", Stalled: true,
			})},
			want: stalled + "NotOwned: x",
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
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := reconcile.Memory{UID: tc.foo.UID, Generation: tc.foo.Generation, Ledger: tc.ledger}
			c := play(t, world{Foo: tc.foo, Deployment: tc.dep, Memory: memory}, tc.replies...)
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

// What the Deployment reports about its pods is repeated without their names: these are different in every try, and
// would cost a write each. What it reports about its progress has no cause.
func TestTheCauseOfAReplicaFailure(t *testing.T) {
	long := strings.Repeat("d", 60)
	const exceeded = "is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
	for _, tc := range []struct{ name, deployment, message, want string }{
		{name: "a quota", message: `pods "web-1-7c5ddbdf54-x2fkd" ` + exceeded, want: ": pods " + exceeded},
		{
			name:    "a webhook that names the pod",
			message: `admission webhook "a.example.com" denied the request: default/web-1-7c5ddbdf54-x2fkd has no owner.`,
			want:    `: admission webhook "a.example.com" denied the request: default/web-1-* has no owner`,
		},
		{
			name: "a pod's name whose hash was cut", deployment: long[:50],
			message: "denied: " + long[:50] + "-7c5ddbdx2fkd", want: ": denied: " + long[:50] + "-*",
		},
		{
			name:    "other names stay",
			message: `web-1 and web-1-7c5ddbdf54-abcde and web-2-7c5ddbdf54-x2fkd and x2fkd`,
			want:    `: web-1 and web-1-7c5ddbdf54-abcde and web-2-7c5ddbdf54-x2fkd and x2fkd`,
		},
		{
			name:    "names that begin or end like a pod's stay",
			message: "7c5ddbdf54-x2fkd web-1-x2fk web-1-quota-5t8g2kk46m web-12-7c5ddbdf54-x2fkd",
			want:    ": 7c5ddbdf54-x2fkd web-1-x2fk web-1-quota-5t8g2kk46m web-12-7c5ddbdf54-x2fkd",
		},
		{
			name: "a long name that is not the pod's stays", deployment: long,
			message: "denied: " + strings.Repeat("e", 58) + "x2fkd", want: ": denied: " + strings.Repeat("e", 58) + "x2fkd",
		},
		{
			name: "a pod's name without a hash, which was cut", deployment: long[:57],
			message: "denied: " + long[:57] + "-x2fkd", want: ": denied: " + long[:57] + "-*",
		},
		{
			name: "a pod's name of which only the beginning is left", deployment: long,
			message: "denied: " + long[:58] + "x2fkd", want: ": denied: " + long + "-*",
		},
		{
			name: "the end of a long name is another one", deployment: long,
			message: "denied: " + long[:57] + "fx2fkd", want: ": denied: " + long[:57] + "fx2fkd",
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
				report := fmt.Sprintf("Deployment %q %s (3 of 3 replicas available)", name, begins)
				want, second := report+tc.want+cure, report+". The condition Ready has the cause"
				if tc.want == "" {
					want = report + ". See its conditions: kubectl -n default get deployment " + name + " -o yaml"
					second = want
				}
				note := want
				if len(note) > 1024 {
					note = note[:1021] + "..."
				}
				c := play(t, world{Foo: foo, Deployment: dep})
				got := []string{c.message(), meta.FindStatusCondition(c.conditions(), "Stalled").Message, c.event().Note}
				if diff := cmp.Diff([]string{want, second, note}, got); diff != "" {
					t.Errorf("%s: wrong messages of Ready, Stalled and the event (-want +got):\n%s", condition, diff)
				}
			}
		})
	}
	foo := newFoo()
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo, deadlineExceeded)})
	if strings.Contains(c.message(), "forbidden") {
		t.Errorf("the deadline has a cause: %q", c.message())
	}
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
		{name: "no Deployment", replies: []reply{fails(createDeployment, forbidden)}},
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
			got := *play(t, world{Foo: foo, Deployment: tc.dep}, tc.replies...).status()
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

// The time of a condition that could not be decoded is zero. The API server refuses a status with such a condition, so
// no status of the Foo could ever be written.
func TestStatusDropsConditionsWithoutATime(t *testing.T) {
	foo := newFoo(withConditions(metav1.Condition{Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand"}))
	checkConditions(t, conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "Creating", creatingWeb1),
		play(t, world{Foo: foo}).conditions())
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
		owner := named(long, "web-1")
		c := play(t, world{Foo: newFoo(), Deployment: earlier(owner, "web-1"), Owner: owner})
		checkLengths(t, c, "é.... Set another spec.deploymentName on this Foo: kubectl -n default edit foo web")
		moving := named(long, "api-2") // The advice has the name too.
		checkLengths(t, play(t, world{
			Foo: newFoo(), Deployment: earlier(moving, "web-1"), Owner: moving,
		}), "é...")
		note := c.event().Note
		if len(note) > 1024 || len(note) < 1018 || !strings.HasSuffix(note, "é...") || !utf8.ValidString(note) {
			t.Errorf("a note of %d bytes that ends in %q", len(note), note[len(note)-10:])
		}
	}
}
