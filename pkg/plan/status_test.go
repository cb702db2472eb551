package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
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

func TestStatusMovesTheTransitionTimeOnlyWhenAConditionFlips(t *testing.T) {
	foo := newFoo(withReplicas(3), withConditions(metav1.Condition{
		Type: "Ready", Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "No controller has seen it",
		LastTransitionTime: metav1.Unix(0, 0),
	}))
	second := func(n int) metav1.Time { return metav1.NewTime(now.Add(seconds(n))) }
	type at = map[string]metav1.Time
	refused := []reply{fails(patchDeployment, forbidden)}

	for i, tc := range []struct {
		name    string
		dep     *appsv1.Deployment
		replies []reply
		want    at
	}{
		0: {name: "from Unknown to False", want: at{"Ready": second(0), "Reconciling": second(0)}},
		1: {
			name: "another reason", dep: newDeployment(foo, rollout(3, 1, 1)),
			want: at{"Ready": second(0), "Reconciling": second(0)},
		},
		2: {
			name: "another message", dep: newDeployment(foo, available(2)),
			want: at{"Ready": second(0), "Reconciling": second(0)},
		},
		3: {
			name: "from Reconciling to Stalled", dep: newDeployment(foo, deadlineExceeded),
			want: at{"Ready": second(0), "Stalled": second(3)},
		},
		4: {name: "from False to True", dep: newDeployment(foo), want: at{"Ready": second(4)}},
		5: {name: "still True", dep: newDeployment(foo, pausedByUser,
			func(dep *appsv1.Deployment) { dep.Spec.Paused = false },
			rollout(3, 3, 3)), want: at{"Ready": second(4)}},
		6: {
			name: "from True to False", dep: newDeployment(foo, scaled(5)), replies: refused,
			want: at{"Ready": second(6), "Reconciling": second(6)},
		},
	} {
		// The fraction is dropped: the API server stores none.
		state := world{Foo: foo, Deployment: tc.dep, Now: now.Add(seconds(i) + 987*time.Millisecond)}
		if c := play(t, state, tc.replies...); c.status() != nil {
			foo = foo.DeepCopy()
			foo.Status = *c.status()
		}
		got := at{}
		for _, condition := range foo.Status.Conditions {
			got[condition.Type] = condition.LastTransitionTime
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A condition flips when the answer comes that it rests on, not when the sync began.
func TestTheTransitionTimeIsThatOfTheLastAnswer(t *testing.T) {
	c := play(t, world{Foo: newFoo()}, slowly(succeeds(createDeployment), seconds(7)))
	if got, want := c.ready().LastTransitionTime, metav1.NewTime(now.Add(seconds(7))); !got.Equal(&want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatusKeepsForeignConditions(t *testing.T) {
	foreign := metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", ObservedGeneration: 1,
		LastTransitionTime: metav1.Unix(1, 0),
	}
	foo := newFoo(withConditions(foreign))
	checkConditions(t, append([]metav1.Condition{foreign}, conditionsOf(foo, metav1.ConditionFalse, "Reconciling",
		"Creating", creatingWeb1)...), play(t, world{Foo: foo}).conditions())
}

// The time of a condition that could not be decoded is zero. The API server refuses a status with such a condition, so
// no status of the Foo could ever be written.
func TestStatusDropsConditionsWithoutATime(t *testing.T) {
	foo := newFoo(withConditions(metav1.Condition{Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand"}))
	checkConditions(t, conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "Creating", creatingWeb1),
		play(t, world{Foo: foo}).conditions())
}

// A status that is equal costs no write, so the same observations must give it byte for byte, in whatever order the
// caches list.
func TestStatusOfWhatHasNotChangedIsEqual(t *testing.T) {
	r, reports := newRandom(), 0
	someStates(t, func(t *testing.T, state world) {
		var replies []reply // Nothing can be written to a Deployment, so the same is observed again.
		for _, verb := range []string{createDeployment, patchDeployment, deleteDeployment} {
			replies = append(replies, fails(verb, forbidden))
		}
		first := play(t, state, replies...)
		if first.status() == nil {
			return
		}
		reports++
		state.Foo = state.Foo.DeepCopy()
		state.Foo.Status = *first.status()
		for i := range 5 {
			again := shuffled(state, r)
			again.Now, again.Memory = now.Add(time.Duration(i)*time.Hour), reconcile.Memory{Wrote: first.end.Memory.Wrote}
			if status := play(t, again, replies...).status(); status != nil {
				t.Fatalf("another status (-first +later):\n%s", cmp.Diff(first.status(), status))
			}
		}
	})
	if reports < 150 {
		t.Errorf("only %d reports: nothing is shown", reports)
	}
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

// Bytes that are no text would be stored as something else, and so differ for ever.
func TestAMessageIsText(t *testing.T) {
	broken := apierrors.NewForbidden(deployments, "web-1", errors.New("quota of \xff"))
	c := play(t, world{Foo: newFoo()}, fails(createDeployment, broken))
	if !strings.Contains(c.message(), "quota of \uFFFD.") {
		t.Errorf("the message is %q", c.message())
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

// What is written is a copy: the caches' objects are for reading.
func TestAStepSharesNothingForWritingWithTheCaches(t *testing.T) {
	foo := newFoo(withReplicas(3), withConditions(metav1.Condition{
		Type: "Audited", Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.Unix(1, 0),
	}))
	c := play(t, world{Foo: foo})
	sent := c.reported()
	if sent == foo || &sent.Status.Conditions[0] == &foo.Status.Conditions[0] {
		t.Error("the status is written into the Foo of the cache")
	}
	made := c.created()
	if made.Spec.Replicas == foo.Spec.Replicas {
		t.Error("the new Deployment has the cached Foo's pointer to replicas: to change one is to change the other")
	}
}
