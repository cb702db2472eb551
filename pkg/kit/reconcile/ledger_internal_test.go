package reconcile

import (
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
	of := func(replicas int, seconds int64, others string) string {
		return digest(map[string]any{"status": map[string]any{"replicas": replicas, "conditions": []metav1.Condition{
			{Type: "Ready", LastTransitionTime: metav1.Unix(seconds, 0)}, {Type: "Audited", Reason: others},
		}}})
	}
	if of(3, 1, "a") == "" || of(3, 1, "a") != of(3, 2, "b") {
		t.Error("equal statuses have different digests")
	}
	if of(3, 1, "a") == of(4, 1, "a") {
		t.Error("different statuses have the same digest")
	}
}
