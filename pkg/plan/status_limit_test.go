package plan_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/plan"
)

// The API server takes 32 conditions. Of the others the last ones are dropped, wherever the controller's own stand.
func TestTheConditionsThatAreDroppedAreTheLastOnesOfOthers(t *testing.T) {
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "ByHand", LastTransitionTime: metav1.NewTime(now),
		}
	}
	ready, others := condition("Ready"), []metav1.Condition(nil)
	for i := range 40 {
		others = append(others, condition(fmt.Sprint("Other", i)))
	}
	for _, tc := range []struct {
		name       string
		conditions []metav1.Condition
		owned      bool
		want       []string // The last types that are kept.
	}{
		{name: "Ready is the first", conditions: append([]metav1.Condition{ready}, others...), owned: true,
			want: []string{"Other29", "Other30"}},
		{name: "Ready is the last", conditions: append(others[:40:40], ready), owned: true,
			want: []string{"Other30", "Ready"}},
		{name: "Ready and Stalled are new", conditions: others, want: []string{"Other29", "Ready", "Stalled"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo(withReplicas(3), withConditions(tc.conditions...))
			dep := newDeployment(foo)
			if !tc.owned {
				ownedBy()(dep)
			}
			kept := play(t, plan.State{Foo: foo, Deployment: dep}).conditions()
			if len(kept) != 32 {
				t.Fatalf("%d conditions, want 32", len(kept))
			}
			for i, want := range tc.want {
				if got := kept[32-len(tc.want)+i].Type; got != want {
					t.Errorf("condition %d is %s, want %s", 32-len(tc.want)+i, got, want)
				}
			}
		})
	}
}
