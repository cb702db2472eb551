package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

func TestNext(t *testing.T) {
	foo, before := newFoo(), newFoo(observed)
	wrote := reconcile.Memory{Wrote: true, UID: foo.UID, Generation: foo.Generation}
	newer := newDeployment(foo, withFence("3"))
	three := newFoo(withReplicas(3))
	twelve := newFoo(withGeneration(12))

	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{
			name:  "a new Foo gets its Deployment without a live read",
			state: world{Foo: foo}, want: "create web-1",
		},
		{
			name:  "a Foo reported on before may be gone by now, so it is read before its Deployment is created again",
			state: world{Foo: before}, want: "get Foo, create web-1",
		},
		{
			name:  "a Foo we wrote for is read even when the cache has no status yet",
			state: world{Foo: foo, Memory: wrote}, want: "get Foo, create web-1",
		},

		{
			name:  "a Deployment that is as it should be is left alone",
			state: world{Foo: foo, Deployment: newDeployment(foo)}, want: "nothing",
		},
		{
			name:  "a Deployment with foreign data is left alone",
			state: world{Foo: foo, Deployment: newDeployment(foo, foreignData)}, want: "nothing",
		},
		{
			name:  "a Deployment that differs is patched",
			state: world{Foo: three, Deployment: newDeployment(foo)}, want: "get Foo, patch spec.replicas",
		},
		{
			name:  "a Deployment that has no uid is not patched",
			state: world{Foo: three, Deployment: newDeployment(foo, withoutUID)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted is waited for",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted is not corrected",
			state: world{Foo: three, Deployment: newDeployment(foo, deleted)}, want: "nothing",
		},
		{
			name:  "a Deployment that is being deleted needs no read of a newer Foo",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted, withFence("3"))}, want: "nothing",
		},

		{
			name:  "a Deployment written for a newer Foo than the cache has: the Foo is read, and the label is wrong",
			state: world{Foo: foo, Deployment: newer}, want: "get Foo, " + stampGeneration,
		},
		{
			name:  "so it is when we wrote it ourselves",
			state: world{Foo: foo, Deployment: newer, Memory: wrote}, want: "get Foo, " + stampGeneration,
		},
		{
			name:  "an older generation on the Deployment is brought up to date at once",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("1"))}, want: stampGeneration,
		},
		{
			name:  "a generation that is no number is corrected at once",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("9x"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name:  "a generation too large for a number is corrected at once",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("99999999999999999999"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name:  "a generation of several digits is read as a number",
			state: world{Foo: twelve, Deployment: newDeployment(twelve)}, want: "nothing",
		},
		{
			name:  "the largest generation is newer",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("9223372036854775807"))},
			want:  "get Foo, " + stampGeneration,
		},
		{
			name: "a generation with more digits is newer, not compared as text",
			state: world{
				Foo: newFoo(withGeneration(9)), Deployment: newDeployment(foo, withFence("10")),
			},
			want: "get Foo, " + stampGeneration,
		},

		{
			name:  "a foreign Deployment is left alone",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy())}, want: "NotOwned",
		},
		{
			name:  "a foreign Deployment is left alone even while it is being deleted",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy(), deleted)}, want: "NotOwned",
		},
		{
			name:  "a foreign Deployment is left alone whatever generation it has",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy(), withFence("3"))}, want: "NotOwned",
		},

		{
			name:  "an invalid Foo gets no Deployment",
			state: world{Foo: newFoo(withReplicas(-1))}, want: "Invalid",
		},
		{
			name:  "an invalid Foo corrects nothing",
			state: world{Foo: newFoo(withReplicas(-1)), Deployment: newDeployment(foo)}, want: "Invalid",
		},
		{
			name:  "an invalid Foo is not read",
			state: world{Foo: newFoo(withReplicas(-1), observed)}, want: "Invalid",
		},

		{
			name:  "a paused Foo gets no Deployment",
			state: world{Foo: newFoo(withPaused)}, want: "nothing",
		},
		{
			name:  "a paused Foo is not read",
			state: world{Foo: newFoo(withPaused, observed)}, want: "nothing",
		},
		{
			name:  "a paused Foo corrects nothing",
			state: world{Foo: newFoo(withPaused, withReplicas(3)), Deployment: newDeployment(foo)},
			want:  "nothing",
		},
		{
			name:  "a paused Foo needs no read for a newer generation",
			state: world{Foo: newFoo(withPaused), Deployment: newer}, want: "nothing",
		},
		{
			name:  "a paused Foo has no conflict with a foreign Deployment",
			state: world{Foo: newFoo(withPaused), Deployment: newDeployment(foo, ownedBy())}, want: "nothing",
		},
		{
			name:  "a paused Foo may be invalid",
			state: world{Foo: newFoo(withPaused, withReplicas(-1))}, want: "nothing",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := play(t, tc.state)
			checkSent(t, tc.want, c.result())
			if created := c.created(); created != nil {
				if diff := cmp.Diff(plan.Deployment(tc.state.Foo), created); diff != "" {
					t.Errorf("not the Foo's Deployment (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// /debug/syncs has what was observed, and what a create asks for.
func TestWhatIsShownOfAFoo(t *testing.T) {
	foo, moved := newFoo(withReplicas(3)), renamed()
	const status = "no conditions"
	for want, state := range map[string]world{
		"Foo at generation 2; no Deployment web-1":                      {Foo: foo},
		"Foo at generation 2; Deployment web-1, which is not the Foo's": {Foo: foo, Deployment: newDeployment(foo, ownedBy())},
		"Foo at generation 3; no Deployment web-3; other Deployments of the Foo: 1": {
			Foo: moved, Previous: all(earlier(moved, "web-1")),
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

// The rules are in this order. Those behind a final one do not count.
func TestTheOrderOfTheRules(t *testing.T) {
	foo := renamed()
	serving := all(earlier(foo, "web-1"))
	for _, tc := range []struct {
		name  string
		state world
		want  string
	}{
		{
			name:  "paused before invalid",
			state: world{Foo: renamed(withPaused, withReplicas(-1)), Previous: serving}, want: "nothing; Paused; done",
		},
		{
			name:  "invalid before all that writes",
			state: world{Foo: renamed(withReplicas(-1)), Previous: serving}, want: "nothing; Invalid; terminal",
		},
		{
			name:  "a create is final: nothing is deleted in the same sync for what has just been created",
			state: world{Foo: renamed(withReplicas(0)), Previous: serving},
			want:  "get Foo, create web-3; Renaming; done",
		},
		{
			name:  "a name conflict before a deletion is waited for",
			state: world{Foo: foo, Deployment: newDeployment(foo, ownedBy(), deleted, scaled(9))},
			want:  "nothing; NotOwned; terminal",
		},
		{
			name:  "a deletion is waited for before drift is patched",
			state: world{Foo: foo, Deployment: newDeployment(foo, deleted, scaled(9)), Previous: serving},
			want:  "nothing; WaitingForDeletion; done",
		},
		{
			name:  "drift is patched before what is replaced is deleted, in one sync",
			state: world{Foo: foo, Deployment: newDeployment(foo, withFence("2")), Previous: serving},
			want:  stampGeneration + ", " + deleteOld + "; Available; done",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, play(t, tc.state).line()); diff != "" {
				t.Errorf("wrong sync (-want +got):\n%s", diff)
			}
		})
	}
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
		{name: "deploymentName of one character", with: withDeploymentName("a")},
		{name: "deploymentName with dots and dashes", with: withDeploymentName("a-1.b-2")},
		{name: "deploymentName in upper case", with: withDeploymentName("Web"), want: fmt.Sprintf(badName, "Web")},
		{name: "deploymentName ending in a dash", with: withDeploymentName("web-"), want: fmt.Sprintf(badName, "web-")},
		{name: "deploymentName of 253 characters", with: withDeploymentName(strings.Repeat("a", 253))},
		{
			name: "deploymentName of 254 characters", with: withDeploymentName(strings.Repeat("a", 254)),
			want: fmt.Sprintf(badName, strings.Repeat("a", 67)+"..."),
		},
		{name: "no replicas", with: withReplicas(0)},
		{name: "negative replicas", with: withReplicas(-1), want: negativeReplicas[:len(negativeReplicas)-len(editWeb)]},
		{name: "image of 1024 characters", with: withImage(strings.Repeat("a", 1024))},
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
