package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// The owner of the name has moved to another Deployment, and is Ready there. What it still has to do is to delete its
// previous one, and its status has why that takes long.
func TestANameWhoseOwnerHasMovedAndIsReady(t *testing.T) {
	api := named("api", "api-2", withConditions(metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue}),
		func(foo *v1alpha1.Foo) { foo.Status.ObservedGeneration = foo.Generation })
	c := play(t, plan.State{Foo: newFoo(), Deployment: earlier(api, "web-1"), OwnerChain: foos(api)})
	want := reconciling + `WaitingForName: Foo "api" has moved to Deployment "api-2", but its previous Deployment ` +
		`"web-1" is not deleted yet. See: kubectl -n default describe foo api`
	if diff := cmp.Diff(want, c.report()); diff != "" {
		t.Errorf("wrong report (-want +got):\n%s", diff)
	}
}
