package reconcile_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// A rule that wants one more object after each answer must not send for ever.
func TestARuleThatIsNeverContentEndsTheSync(t *testing.T) {
	greedy := &reconcile.Plan[input]{
		Kind:     "Namespace",
		Object:   func(in *input) reconcile.Slot { return reconcile.ObjectAt(&in.Namespace) },
		Observed: func(*input) int64 { return 0 },
		Rules: []reconcile.Rule[input]{{Name: "create one more", Ask: func(in *input) reconcile.Answer {
			name := "first"
			if in.ConfigMap != nil {
				name = "after-" + in.ConfigMap.ResourceVersion
			}
			body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			return reconcile.Answer{Steps: []*reconcile.Step{reconcile.CreateStep("ConfigMap", &in.ConfigMap, body)}}
		}}},
	}
	sync := greedy.Sync(&input{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "7d9e"}}})
	sync.Begin(reconcile.Memory{}, time.Time{}, 0)
	requests := 0
	for step := sync.Next(); step != nil && requests < 100; step = sync.Next() {
		requests++
		answer := step.Body.(*corev1.ConfigMap).DeepCopy()
		answer.UID, answer.ResourceVersion = "04cc", strconv.Itoa(requests)
		sync.Record(step, step.Answered(answer, nil), time.Time{})
	}
	outcome, _ := sync.End()
	if requests != 64 || outcome.Kind != "retry" || outcome.After != time.Minute ||
		!strings.Contains(outcome.Err.Error(), `rule "create one more"`) {
		t.Errorf("%d requests, then %+v, want 64 and a retry after a minute that names the rule", requests, outcome)
	}
}
