package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
