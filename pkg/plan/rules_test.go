package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// /debug/syncs has what was observed, and what a create asks for.
func TestWhatIsShownOfAFoo(t *testing.T) {
	foo, moved := newFoo(withReplicas(3)), renamed()
	const status = "no conditions"
	for want, state := range map[string]world{
		"Foo at generation 2; no Deployment web-1": {Foo: foo},
		"Foo at generation 2; Deployment web-1, which is not the Foo's": {Foo: foo,
			Deployment: newDeployment(foo, ownedBy())},
		"Foo at generation 3; no Deployment web-3; other Deployments of the Foo: 1": {
			Foo: moved, Others: all(earlier(moved, "web-1")),
		},
		"Foo at generation 2; its Deployment web-1, written for generation 2, with 1 replicas available": {
			Foo: foo, Deployment: newDeployment(foo, available(1)),
		},
	} {
		observed, reported := state.begin(state.input()).Describe()
		if observed != want || reported != status {
			t.Errorf("%q and %q, want %q and %q", observed, reported, want, status)
		}
	}
	create := play(t, world{Foo: foo}).step(createDeployment)
	checkSent(t, "spec.replicas none -> 3, image none -> nginx:latest", create.FieldList())
}

// The API server checks these rules too; here they are for what was stored before it did.
func TestAnInvalidFoo(t *testing.T) {
	const (
		noName  = "spec.deploymentName is missing. Set the name of the Deployment to create"
		badName = "spec.deploymentName is %q, which is not a name that a Deployment can have. Use up to 253 lowercase " +
			"letters, digits, '-' and '.', beginning and ending with a letter or digit"
		tooLong = "spec.image is longer than 1024 characters. Set a shorter one, or remove it"
		spaces  = "spec.image contains spaces. Set an image without spaces, or remove it"
	)
	for _, tc := range []struct {
		name string
		with fooOption
		want string // "" when the Foo is valid.
	}{
		{name: "no deploymentName", with: withDeploymentName(""), want: noName},
		{name: "deploymentName with dots and dashes", with: withDeploymentName("a-1.b-2")},
		{name: "deploymentName in upper case", with: withDeploymentName("Web"), want: fmt.Sprintf(badName, "Web")},
		{name: "deploymentName of 253 characters", with: withDeploymentName(strings.Repeat("a", 253))},
		{
			name: "deploymentName of 254 characters", with: withDeploymentName(strings.Repeat("a", 254)),
			want: fmt.Sprintf(badName, strings.Repeat("a", 67)+"..."),
		},
		{name: "negative replicas", with: withReplicas(-1), want: negativeReplicas[:len(negativeReplicas)-len(editWeb)]},
		{name: "image of 1024 characters of two bytes", with: withImage(strings.Repeat("é", 1024))},
		{name: "image of 1025 characters", with: withImage(strings.Repeat("a", 1025)), want: tooLong},
		{name: "image with a space", with: withImage("nginx: 1"), want: spaces},
		{name: "image with a line break", with: withImage("nginx:1\n"), want: spaces},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo(tc.with)
			c := play(t, world{Foo: foo})
			if tc.want == "" {
				checkSent(t, "create "+foo.Spec.DeploymentName, c.result())
				return
			}
			checkSent(t, "Invalid", c.result())
			if diff := cmp.Diff("False Stalled Invalid: "+tc.want+editWeb, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
		})
	}
}

// withUnread adds fields that could not be decoded, and that were "x".
func withUnread(paths ...string) fooOption {
	return func(foo *v1alpha1.Foo) {
		for _, path := range paths {
			foo.Unread = append(foo.Unread, v1alpha1.UnreadField{Path: path, Value: `"x"`, Want: "an object"})
		}
	}
}

func TestAFooWithAFieldThatCannotBeReadIsInvalidUnlessItIsOfTheStatus(t *testing.T) {
	foo := newFoo(withReplicas(3))
	const cannotBeRead = ` cannot be read: it is "x", and not an object. Correct it` + editWeb
	for _, tc := range []struct {
		name    string
		unread  []string
		changes fooOption // What the decoder left out.
		have    *appsv1.Deployment
		want    string
		report  string
	}{
		{
			name: "the name, of which the reason is not that it is missing", unread: []string{"spec.deploymentName"},
			changes: withDeploymentName(""),
			want:    v1alpha1.ReasonInvalid, report: stalled + "Invalid: spec.deploymentName" + cannotBeRead,
		},
		{
			name: "the first of several", unread: []string{"status.replicas", "spec.image", "spec.paused"},
			want: v1alpha1.ReasonInvalid, report: stalled + "Invalid: spec.image" + cannotBeRead,
		},
		{
			name: "the status alone", unread: []string{"status.conditions[0].lastTransitionTime"},
			have: newDeployment(foo, scaled(9), available(3)),
			want: "get Foo, patch spec.replicas", report: available3,
		},
		{
			name: "the whole status", unread: []string{"status"},
			have: newDeployment(foo, available(3)), want: "nothing", report: available3,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo(withReplicas(3), withUnread(tc.unread...))
			if tc.changes != nil {
				tc.changes(foo)
			}
			c := play(t, world{Foo: foo, Deployment: tc.have})
			checkSent(t, tc.want, c.result())
			if c.report() != tc.report {
				t.Errorf("report:\n%s, want\n%s", c.report(), tc.report)
			}
			for _, field := range c.reported().Unread {
				if strings.HasPrefix(field.Path, "status.") || field.Path == "status" {
					t.Errorf("the status that is sent is marked as unread: %v", field)
				}
			}
			again := play(t, c.nextSync(time.Second))
			if again.last() != nil {
				t.Errorf("the next sync sends %s", wordsOf(again.last()))
			}
		})
	}
}

// Whether there was a Deployment is only known from the status.
func TestAFooWhoseStatusCannotBeReadIsReadLiveBeforeACreate(t *testing.T) {
	c := play(t, world{Foo: newFoo(withUnread("status.observedGeneration"))})
	checkSent(t, "get Foo, create web-1", c.sent())
}

// Each rule answers in words. The walk holds that the answers are those of the next request.
func TestExplain(t *testing.T) {
	foo, three := newFoo(), newFoo(withReplicas(3))
	paused, invalid := newFoo(withPaused), newFoo(withReplicas(-1))
	moving := renamed()
	failed := remembers(foo, ledger{op(createDeployment, "web-1"): until(seconds(10))})
	for _, tc := range []struct {
		name  string
		state world
		want  []string // Some of the answers.
	}{
		{
			name: "a new Foo", state: world{Foo: foo},
			want: []string{
				"paused: does not apply: spec.paused is false",
				"invalid: does not apply: the spec is valid",
				"create: sends create Deployment web-1: no Deployment has the name web-1",
				"name conflict: not reached: create comes first",
				"update status: not reached: create comes first",
			},
		},
		{
			name: "a write that backs off", state: world{Foo: foo, Memory: failed},
			want: []string{
				"create: create Deployment web-1 backs off for 10s: no Deployment has the name web-1",
				"patch drift: not reached: create comes first",
				"update status: sends update status of Foo web: the status differs, and its reason must be Refused",
			},
		},
		{
			name: "a complete Deployment", state: world{Foo: foo, Deployment: newDeployment(foo)},
			want: []string{
				"create: does not apply: Deployment web-1 exists",
				"name conflict: does not apply: Deployment web-1 is the Foo's",
				"wait for deletion: does not apply: Deployment web-1 is not being deleted",
				"patch drift: does not apply: all fields that the Foo sets have its values",
				"delete replaced: does not apply: no other Deployment was made for the Foo",
				"update status: sends update status of Foo web: the status differs, and its reason must be Available",
			},
		},
		{
			name: "drift", state: world{Foo: three, Deployment: newDeployment(three, scaled(9))},
			want: []string{
				"patch drift: sends get Foo web first, and then patch Deployment web-1: spec.replicas was 9, must be 3",
			},
		},
		{
			name: "a paused Foo", state: world{Foo: paused},
			want: []string{"paused: applies: spec.paused is true", "create: not reached: paused comes first"},
		},
		{
			name: "an invalid Foo", state: world{Foo: invalid},
			want: []string{"invalid: applies: spec.replicas is -1. Set 0 or more, or remove it"},
		},
		{
			name: "a Deployment of somebody else", state: world{
				Foo: foo, Deployment: newDeployment(foo, ownedBy()),
			},
			want: []string{
				"create: does not apply: Deployment web-1 exists",
				`name conflict: applies: Deployment "web-1" exists, but this Foo does not control it (it has no controller), ` +
					"so it is not changed",
			},
		},
		{
			name: "a Deployment that is being deleted", state: world{Foo: foo, Deployment: newDeployment(foo, deleted)},
			want: []string{"wait for deletion: applies: Deployment web-1 is being deleted"},
		},
		{
			name: "a rename that is not complete", state: world{
				Foo: moving, Deployment: newDeployment(moving, available(0)), Others: all(earlier(moving, "web-0")),
			},
			want: []string{
				"delete replaced: does not apply: Deployment web-3 must be up to date, with 3 replicas of its current template " +
					"available, before a previous one is deleted",
			},
		},
		{
			name: "a rename that is complete", state: world{
				Foo: moving, Deployment: newDeployment(moving), Others: all(earlier(moving, "web-0")),
			},
			want: []string{
				"delete replaced: sends get Foo web first, and then delete Deployment web-0: Deployment web-3 can take over, " +
					"each sync deletes one previous Deployment, number left: 1",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.state.Now = now
			expectAnswers(t, tc.state.begin(tc.state.input()), tc.want)
		})
	}
}

// expectAnswers checks that want are among the answers of the rules, each behind the name of its rule.
func expectAnswers(t *testing.T, sync *reconcile.Sync, want []string) {
	t.Helper()
	var have []string
	for _, e := range sync.Explain() {
		have = append(have, e.Rule+": "+e.Answer)
	}
	for _, answer := range want {
		if !slices.Contains(have, answer) {
			t.Errorf("want the answer\n\t%s\nof\n\t%s", answer, strings.Join(have, "\n\t"))
		}
	}
}
