package plan_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

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
