package plan_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// overriddenReplicas is what the controller remembers of a correction that came to nothing.
func overriddenReplicas() error {
	return &plan.WaitError{After: time.Second, For: plan.CorrectionBackoff, Err: &plan.OverriddenError{
		Deployment: "web-1", Fields: []plan.Field{{Path: "spec.replicas", Have: "5", Want: "3"}},
	}}
}

const overriddenWords = `Something else keeps changing Deployment "web-1": spec.replicas to 5 where this Foo says 3. ` +
	`Remove what it sets from this Foo, or stop it: an autoscaler, an admission policy or another controller`

func TestOverridden(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	answer := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	replicas := []plan.Field{{Path: "spec.replicas", Have: "5", Want: "3"}}
	image := plan.Field{Path: "spec.template.spec.containers[name=nginx].image", Have: "mirror/nginx:1.29", Want: "nginx:1.29"}
	noLabel := plan.Field{Path: "metadata.labels[samplecontroller.k8s.io/foo-generation]", Have: "none", Want: "2"}
	patch := &plan.Patch{Fields: replicas}

	for _, tc := range []struct {
		name    string
		answer  *appsv1.Deployment
		patch   *plan.Patch
		patches int
		want    []plan.Field // None when all is well.
	}{
		{"created as asked for", answer(), nil, 1, nil},
		{"created as asked for, as often as you like", answer(), nil, 99, nil},
		{"created with foreign data", answer(foreignData), nil, 1, nil},
		{"created with another value", answer(scaled(5)), nil, 1, replicas},
		{"created with several other values", answer(scaled(5), running("mirror/nginx:1.29")), nil, 1, append(replicas[:1:1], image)},
		{"created without a label", answer(func(dep *appsv1.Deployment) { delete(dep.Labels, v1alpha1.LabelFooGeneration) }), nil, 1, []plan.Field{noLabel}},

		{"patched as asked for", answer(), patch, 1, nil},
		{"patched three times", answer(), patch, 3, nil},
		{"patched four times", answer(), patch, 4, replicas},
		{"patched more often", answer(), patch, 99, replicas},
		{"patched once, with another value", answer(running("mirror/nginx:1.29")), patch, 1, []plan.Field{image}},
		{"patched four times, and this time with another value: the answer counts", answer(running("mirror/nginx:1.29")), patch, 4, []plan.Field{image}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unchanged(t, foo, tc.answer)
			err := plan.Overridden(foo, tc.answer, tc.patch, tc.patches)
			if tc.want == nil {
				if err != nil {
					t.Errorf("overridden: %v", err)
				}
				return
			}
			var overridden *plan.OverriddenError
			if !errors.As(err, &overridden) {
				t.Fatalf("got %v, want an OverriddenError", err)
			}
			if diff := cmp.Diff(&plan.OverriddenError{Deployment: "web-1", Fields: tc.want}, overridden); diff != "" {
				t.Errorf("wrong error (-want +got):\n%s", diff)
			}
		})
	}
}

// What the Foo does not set cannot be overridden: it is whoever's sets it.
func TestOverriddenMindsOnlyWhatTheFooSets(t *testing.T) {
	foo := newFoo()
	if err := plan.Overridden(foo, newDeployment(foo, scaled(7), running("mirror/nginx:1.29")), nil, 1); err != nil {
		t.Errorf("overridden: %v", err)
	}
}

func TestOverriddenNeedsAnAnswerThatCanBeCorrected(t *testing.T) {
	foo := newFoo(withReplicas(3))
	terminalError(t, plan.Overridden(foo, newDeployment(foo, scaled(5), withoutUID), nil, 1))
}

func TestOverriddenErrorNamesAllFieldsWithBothValues(t *testing.T) {
	err := &plan.OverriddenError{Deployment: "web-1", Fields: []plan.Field{{Path: "spec.replicas", Have: "5", Want: "3"}, {Path: "metadata.labels[a]", Have: "none", Want: "b"}}}
	const want = `Something else keeps changing Deployment "web-1": spec.replicas to 5 where this Foo says 3, metadata.labels[a] to none where this Foo says b. ` +
		`Remove what it sets from this Foo, or stop it: an autoscaler, an admission policy or another controller`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("wrong words (-want +got):\n%s", diff)
	}
}

// Between two corrections the Foo says the same, and is otherwise looked after.
func TestNextBetweenTwoCorrections(t *testing.T) {
	foo := newFoo(withReplicas(3))
	const wait = "wait for another correction: " + overriddenWords
	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"what differs is not put back", plan.Seen{Named: newDeployment(foo, scaled(5))}, wait},
		{"the words stay while nothing differs", plan.Seen{Named: newDeployment(foo)}, wait},
		{"a Deployment that is gone is created again", plan.Seen{}, "create web-1"},
		{"a Deployment that is being deleted is waited for", plan.Seen{Named: newDeployment(foo, deleted)}, "nothing"},
		{"a Deployment that is another's is refused", plan.Seen{Named: newDeployment(foo, ownedBy())}, "NotOwned"},
		{"a patch that cannot be made is an error of its own", plan.Seen{Named: newDeployment(foo, scaled(5), withoutUID)}, "Refused"},
		{"a generation that is newer asks for a look", plan.Seen{Named: newDeployment(foo, withFence("3"))}, "look at Foo"},
		{"a generation that is wrong is not put right", plan.Seen{Named: newDeployment(foo, withFence("3")), Live: &plan.Live{Foo: foo}}, wait},
		{"a paused Foo corrects nothing anyway", plan.Seen{Foo: newFoo(withPaused), Named: newDeployment(foo)}, "nothing"},
		{"an invalid Foo has other troubles", plan.Seen{Foo: newFoo(withReplicas(-1)), Named: newDeployment(foo)}, "Invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.seen.Foo == nil {
				tc.seen.Foo = foo
			}
			tc.seen.Overridden = overriddenReplicas()
			if diff := cmp.Diff(tc.want, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
		})
	}
}

// Ready is as the Deployment is; reason and message say what must be done.
func TestStatusOfWhatIsOverridden(t *testing.T) {
	const (
		yes, no = metav1.ConditionTrue, metav1.ConditionFalse
		reason  = v1alpha1.ReasonFieldsOverridden
	)
	foo := newFoo(withReplicas(3))
	for _, tc := range []struct {
		name  string
		dep   *appsv1.Deployment
		owned []*appsv1.Deployment
		ready metav1.ConditionStatus
		more  string
		tail  string
	}{
		{"all replicas available, of the number that the other one has set", newDeployment(foo, scaled(5), rollout(5, 5, 5)), nil, yes, "", ""},
		{"replicas coming up", newDeployment(foo, scaled(5), rollout(5, 5, 4)), nil, no, "Reconciling", ""},
		{"just created", newDeployment(foo, scaled(5), observedAt(0, 1)), nil, no, "Reconciling", ""},
		{"stuck", newDeployment(foo, deadlineExceeded), nil, no, "Stalled", ""},
		{"nothing differs at the moment", newDeployment(foo), nil, yes, "", ""},
		{"with an old Deployment", newDeployment(foo, rollout(3, 3, 1)), all(earlier(foo, "web-0")), no, "Reconciling", `; Deployment "web-0" is kept on purpose meanwhile, with 3 available`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := plan.Seen{Foo: foo, Named: tc.dep, Owned: tc.owned}
			status := plan.Status(seen, overriddenReplicas(), now)
			if diff := cmp.Diff(conditionsOf(foo, tc.ready, tc.more, reason, overriddenWords+tc.tail), status.Conditions); diff != "" {
				t.Errorf("wrong conditions (-want +got):\n%s", diff)
			}
			want := &plan.Event{Type: "Warning", Reason: "FieldsOverridden", Action: "Patch", Note: overriddenWords + tc.tail}
			if diff := cmp.Diff(want, plan.EventOf(&foo.Status, &status)); diff != "" {
				t.Errorf("wrong event (-want +got):\n%s", diff)
			}
			if event := plan.EventOf(&status, &status); event != nil {
				t.Errorf("a second event: %+v", event)
			}
		})
	}
}

func TestAPausedFooDoesNotSayThatItIsOverridden(t *testing.T) {
	foo := newFoo(withReplicas(3), withPaused)
	status := plan.Status(plan.Seen{Foo: foo, Named: newDeployment(foo)}, overriddenReplicas(), now)
	if reason := meta.FindStatusCondition(status.Conditions, "Ready").Reason; reason != v1alpha1.ReasonPaused {
		t.Errorf("reason %s", reason)
	}
}

// A hand that sets another number each time: the Foo's author is not warned for trying things out, and once for
// what does not end.
func TestAnAutoscalerIsToldOnce(t *testing.T) {
	foo := newFoo(withReplicas(3))
	var got []string
	patches := 0
	for range 5 {
		seen := plan.Seen{Foo: foo, Named: newDeployment(foo, scaled(5), rollout(5, 5, 5))}
		step := plan.Next(seen)
		if step.Patch == nil {
			t.Fatalf("%s, want what puts it back", stepOf(step))
		}
		seen.Named = newDeployment(foo) // The answer; it has three at once, to keep this short.
		patches++
		err := plan.Overridden(foo, seen.Named, step.Patch, patches)
		after := plan.Status(seen, err, now)
		reason, _ := plan.Said(&v1alpha1.Foo{Status: after})
		if event := plan.EventOf(&foo.Status, &after); event != nil {
			reason += " and " + event.Type + " " + event.Reason
		}
		got = append(got, reason)
		foo = foo.DeepCopy()
		foo.Status = after
	}
	want := []string{"Available and Normal Synced", "Available", "Available", "FieldsOverridden and Warning FieldsOverridden", "FieldsOverridden"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong reports (-want +got):\n%s", diff)
	}
}

// Something that deletes what is created each time is not answered each time: the first few are put right at once.
func TestADeploymentThatKeepsGoingIsNotCreatedAtOnce(t *testing.T) {
	for times := range 4 {
		if err := plan.Recreated("web-1", times); err != nil {
			t.Errorf("creation %d: %v, want none", times, err)
		}
	}
	why := plan.Recreated("web-1", 4)
	foo := newFoo(withReplicas(3), observed)
	wait := &plan.WaitError{After: time.Second, For: plan.CreationBackoff, Err: why}
	live := &plan.Live{Foo: foo}

	for _, tc := range []struct {
		name string
		seen plan.Seen
		want string
	}{
		{"it is gone", plan.Seen{Foo: foo}, "Creating"},
		{"it is gone, and the Foo has been looked at", plan.Seen{Foo: foo, Live: live}, "Creating"},
		{"it is there", plan.Seen{Foo: foo, Named: newDeployment(foo)}, "nothing"},
		{"it is there, and differs", plan.Seen{Foo: foo, Named: newDeployment(foo, scaled(9))}, "patch spec.replicas"},
		{"the name goes to another Foo", plan.Seen{Foo: foo, Claimants: foos(newFoo(withName("a")))}, "NameTaken"},
		{"one of a name between is to go", plan.Seen{Foo: foo, Live: live, Owned: all(earlier(foo, "web-0", available(1)), earlier(foo, "web-2", available(0)))}, "delete web-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.seen.Recreated = wait
			if diff := cmp.Diff(tc.want, stepOf(plan.Next(tc.seen))); diff != "" {
				t.Errorf("wrong step (-want +got):\n%s", diff)
			}
		})
	}

	// It says the same until the Deployment controller has seen the next one.
	for _, tc := range []struct {
		name   string
		dep    *appsv1.Deployment
		reason string
		words  string
	}{
		{"created again", newDeployment(foo, observedAt(0, 1), rollout(0, 0, 0)), "Creating", why.(*plan.TerminalError).Message},
		{"seen", newDeployment(foo, rollout(3, 3, 1)), "Progressing", "1 of 3 replicas available"},
	} {
		status := plan.Status(plan.Seen{Foo: foo, Named: tc.dep, Recreated: wait}, nil, now)
		if reason, message := plan.Said(&v1alpha1.Foo{Status: status}); reason != tc.reason || message != tc.words {
			t.Errorf("%s: it says %s: %s, want %s: %s", tc.name, reason, message, tc.reason, tc.words)
		}
	}

	status := plan.Status(plan.Seen{Foo: foo, Recreated: wait}, plan.Next(plan.Seen{Foo: foo, Recreated: wait}).Err, now)
	words := `Something else keeps deleting Deployment "web-1": it is created again after a pause of up to a minute. Stop that, or delete this Foo`
	if diff := cmp.Diff(conditionsOf(foo, metav1.ConditionFalse, "Reconciling", "Creating", words), status.Conditions); diff != "" {
		t.Errorf("wrong conditions (-want +got):\n%s", diff)
	}
}
