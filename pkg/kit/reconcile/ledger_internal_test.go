package reconcile

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// However often something fails, its delay is a minute.
func TestTheLongestDelay(t *testing.T) {
	for _, attempts := range []int{15, 100, math.MaxInt} {
		if got := delayAfter(firstDelay, attempts, 0); got != time.Minute {
			t.Errorf("after %d attempts the delay is %s", attempts, got)
		}
	}
}

// A few bytes stand for a status: equal for equal statuses only. Times and the conditions of others do not count.
func TestDigest(t *testing.T) {
	type conditions []metav1.Condition
	type status struct {
		Replicas   any        `json:"replicas"`
		Conditions conditions `json:"conditions"`
	}
	type team struct {
		metav1.ObjectMeta
		Status *status
	}
	of := func(replicas any, all conditions) string {
		return digest(&team{Status: &status{replicas, all}})
	}
	ready, none := of(3, conditions{{Type: "Ready"}}), of(3, conditions{})
	if ready != of(3, conditions{{Type: "Ready", LastTransitionTime: metav1.Unix(2, 0)}, {Type: "Audited"}}) {
		t.Error("equal statuses have different digests")
	}
	if of(json.RawMessage(`{"b":1,"a":2}`), nil) != of(json.RawMessage(`{"a":2, "b":1}`), nil) {
		t.Error("the order of keys makes a difference, which the API server does not keep")
	}
	digests := map[string]bool{"": true, ready: true, none: true, of(4, conditions{{Type: "Ready"}}): true}
	for _, name := range []string{"Ready", "Reconciling", "Stalled"} {
		digests[of(3, conditions{{Type: name, Reason: "a"}})] = true
	}
	if len(digests) != 7 {
		t.Error("different statuses have the same digest")
	}
	type odd struct {
		metav1.ObjectMeta
		Status string
	}
	if unknown := digest(&odd{Status: "of another form"}); unknown != "" {
		t.Errorf("a status that cannot be read has the digest %q", unknown)
	}
	if unknown := digest(&metav1.ObjectMeta{}) + digest(&team{}); unknown != "" {
		t.Errorf("an object without a status has the digest %q", unknown)
	}
}
