package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The definition of Foo, with changes that break stored objects or clients, and with some that do not.
func TestCompare(t *testing.T) {
	const file = "../../../artifacts/crd/samplecontroller.k8s.io_foos.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const foos = "foos.samplecontroller.k8s.io"
	for _, test := range []struct {
		name, old, new string
		want           []string
	}{
		{name: "nothing"},
		{
			name: "another kind", old: "kind: Foo\n", new: "kind: Bar\n",
			want: []string{foos + `: kind is "Bar", was "Foo"`},
		},
		{
			name: "not served", old: "served: true", new: "served: false",
			want: []string{foos + " v1alpha1: served is false, was true"},
		},
		{
			name: "a field goes", old: "              paused:\n", new: "              pausing:\n",
			want: []string{foos + " v1alpha1 .spec.paused: the field is gone"},
		},
		{
			name: "a limit is tighter", old: "minimum: 0\n", new: "minimum: 1\n",
			want: []string{foos + " v1alpha1 .spec.replicas: minimum is 1, was 0"},
		},
		{
			name: "a default changes", old: "            default: {}\n", new: "            default:\n              replicas: " +
				"1\n",
			want: []string{foos + ` v1alpha1 .status: default is {"replicas":1}, was {}`},
		},
		{
			name: "a field is required", old: "            - deploymentName\n", new: "            - deploymentName\n         " +
				"   - image\n",
			want: []string{foos + ` v1alpha1 .spec: required has more "image"`},
		},
		{
			name: "a choice of values", old: "                maxLength: 1024\n", new: "                maxLength: 1024\n    " +
				"            enum: [nginx]\n",
			want: []string{foos + ` v1alpha1 .spec.image: enum has more "nginx"`},
		},
		{
			name: "one more rule", old: "                minimum: 0\n",
			new: "                minimum: 0\n                x-kubernetes-validations: [{rule: self < 3, message: at most " +
				"2}]\n",
			want: []string{foos + ` v1alpha1 .spec.replicas: x-kubernetes-validations has more {"rule":"self < 3"}`},
		},
		{
			name: "another scope", old: "scope: Namespaced", new: "scope: Cluster",
			want: []string{foos + `: scope is "Cluster", was "Namespaced"`},
		},
		{
			name: "another version", old: "name: v1alpha1\n", new: "name: v1\n",
			want: []string{foos + " v1alpha1: the version is gone"},
		},
		{
			name: "no selectable field", old: "jsonPath: .spec.deploymentName\n    served", new: "jsonPath: .spec.image\n    " +
				"served",
			want: []string{foos + ` v1alpha1: selectableFields lacks {"jsonPath":".spec.deploymentName"}`},
		},
		{
			name: "no subresource", old: "      status: {}\n", new: "",
			want: []string{foos + " v1alpha1 the subresource: status is nothing, was {}"},
		},
		{
			name: "another list kind", old: "listKind: FooList", new: "listKind: Foos",
			want: []string{foos + `: listKind is "Foos", was "FooList"`},
		},
		{name: "a limit of nothing", old: "                minimum: 0\n",
			new: "                minimum: 0\n                multipleOf: null\n"},
		{name: "a limit is looser", old: "maxLength: 1024\n", new: "maxLength: 2048\n"},
		{name: "one more field", old: "              paused:\n",
			new: "              color:\n                type: string\n              paused:\n"},
		{name: "a description", old: "description: ", new: "description: Now "},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := strings.Replace(string(text), test.old, test.new, 1)
			if changed == string(text) && test.name != "nothing" {
				t.Fatalf("%s has no %q", filepath.Base(file), test.old)
			}
			got, err := compare(text, []byte(changed))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, []string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What breaks users needs a line in the file of exceptions. Then it can become the promise.
func TestABreakingChangeNeedsALine(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(file, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const before = "kind: CustomResourceDefinition\nmetadata: {name: foos}\nspec: {scope: Namespaced}\n"
	check := func(update bool, want string) {
		t.Helper()
		if err := run(update, []string{"crd.yaml"}); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("update %t: %v, want %q", update, err, want)
		}
	}
	write("crd.yaml", before)
	check(false, "") // Nothing is promised yet.
	check(true, "")
	check(false, "")
	write("crd.yaml", strings.Replace(before, "Namespaced", "Cluster", 1))
	const line = `foos: scope is "Cluster", was "Namespaced"`
	check(false, line)
	check(true, line)
	write("api/except.txt", "# As announced.\n"+line+"\n")
	check(false, "-update crd.yaml")
	check(true, "")
	check(false, "")
}
