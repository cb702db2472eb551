package plan_test

import (
	"slices"
	"strings"
	"testing"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// Each rule answers in words. The walk holds that the answers are those of the next request.
func TestExplain(t *testing.T) {
	foo, three := newFoo(), newFoo(withReplicas(3))
	paused, invalid, before := newFoo(withPaused), newFoo(withReplicas(-1)), newFoo(observed)
	moving := renamed()
	failed := remembers(foo, ledger{op(createDeployment, "web-1"): until(seconds(10))})
	conflict := remembers(foo, ledger{op(patchDeployment, "web-1"): expectedUntil(seconds(10))})
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
			name: "a write that needs a live read first", state: world{Foo: before},
			want: []string{
				"create: sends get Foo web first, and then create Deployment web-1: no Deployment has the name web-1",
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
			name: "a conflict, after which the sync ends early", state: world{
				Foo: three, Deployment: newDeployment(three, scaled(9)), Memory: conflict,
			},
			want: []string{
				"patch drift: patch Deployment web-1 backs off for 10s: spec.replicas was 9, must be 3",
				"delete replaced: not reached: patch drift comes first",
				"update status: not reached: patch drift comes first",
			},
		},
		{
			name: "a complete Deployment", state: world{Foo: foo, Deployment: newDeployment(foo)},
			want: []string{
				"create: does not apply: Deployment web-1 exists and is the Foo's",
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
				Foo: moving, Deployment: newDeployment(moving, available(0)), Previous: all(earlier(moving, "web-0")),
			},
			want: []string{
				"delete replaced: does not apply: Deployment web-3 must be up to date, with 3 replicas of its current template " +
					"available, before a previous one is deleted",
			},
		},
		{
			name: "a rename that is complete", state: world{
				Foo: moving, Deployment: newDeployment(moving), Previous: all(earlier(moving, "web-0")),
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
