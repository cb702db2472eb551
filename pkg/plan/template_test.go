package plan_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// The Deployments in testdata/deployments are those that versions of the controller have created, byte for byte: a
// directory for each form that they had, with a file for each Foo below. The one with the highest number is the present
// form. An upgrade must not restart the pods of users, so:
//
//   - The Deployment for a Foo must not change by accident. A change of its pod template gives new Foos other pods than
//     old ones. A change of its selector or of its made-for label leaves the Deployments of all Foos behind.
//   - If it must change, copy the directory with the highest number to the next number, and run
//     `go test ./pkg/plan -run TestTheDeploymentOfAFoo -rewrite`. Never change a directory that a release had. The
//     other test then still checks that the new version leaves the Deployments of the older ones alone. The template
//     of an existing Deployment is the user's, except for the image: do not change Drift to correct more of it. That
//     would restart the pods of all Foos of the cluster at the same time.
var rewriteDeployments = flag.Bool("rewrite", false, "rewrite the newest directory of testdata/deployments")

// renderedFoos has the Foos whose Deployments are in testdata/deployments, by the name of the file.
func renderedFoos() map[string]*v1alpha1.Foo {
	long := strings.Repeat("long.", 50) + "end" // Labels have a hash instead of a name of this length.
	return map[string]*v1alpha1.Foo{
		"minimal": newFoo(),
		"all-fields": named("shop", "shop-backend", withGeneration(7), withReplicas(3),
			withImage("registry.example.com/shop/backend@sha256:"+strings.Repeat("0123456789abcdef", 4)), withPaused),
		"no-replicas": newFoo(withReplicas(0)),
		"long-names":  newFoo(withName(long), withDeploymentName(long)),
	}
}

func TestTheDeploymentOfAFooIsTheSameInEachVersion(t *testing.T) {
	directories := deploymentDirectories(t)
	newest := directories[len(directories)-1]
	for name, foo := range renderedFoos() {
		t.Run(name, func(t *testing.T) {
			rendered, err := json.MarshalIndent(plan.Deployment(foo), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			rendered = append(rendered, '\n')
			file := filepath.Join(newest, name+".json")
			if *rewriteDeployments {
				if err := os.WriteFile(file, rendered, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(rendered)); diff != "" {
				t.Errorf("the Deployment has changed, see the comment in this file (-want +got):\n%s", diff)
			}
		})
	}
}

// A patch of the template would restart all pods. A patch of anything else would be a write for each Foo.
func TestAnUpgradeWritesNothingToTheDeploymentsOfEarlierVersions(t *testing.T) {
	for _, directory := range deploymentDirectories(t) {
		for name, foo := range renderedFoos() {
			t.Run(filepath.Base(directory)+"/"+name, func(t *testing.T) {
				stored, err := os.ReadFile(filepath.Join(directory, name+".json"))
				if err != nil {
					t.Fatal(err)
				}
				have := &appsv1.Deployment{}
				if err := json.Unmarshal(stored, have); err != nil {
					t.Fatal(err)
				}
				have.UID, have.ResourceVersion = "deployment-uid", "20"
				if patch := plan.Drift(have, foo); patch != nil {
					t.Errorf("an upgrade patches %v:\n%s", patch.Fields, patch.Body)
				}
			})
		}
	}
}

// deploymentDirectories returns the directories of testdata/deployments, the newest last.
func deploymentDirectories(t *testing.T) []string {
	t.Helper()
	directories, err := filepath.Glob("testdata/deployments/[0-9][0-9]")
	if err != nil || len(directories) == 0 {
		t.Fatalf("testdata/deployments has %d directories: %v", len(directories), err)
	}
	return directories
}
