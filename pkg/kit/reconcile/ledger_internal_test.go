package reconcile

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDelayAfter(t *testing.T) {
	for _, tc := range []struct {
		name     string
		first    time.Duration
		attempts int
		random   float64
		want     time.Duration
	}{
		{name: "the first", first: firstDelay, attempts: 1, want: 5 * time.Millisecond},
		{name: "the second", first: firstDelay, attempts: 2, want: 10 * time.Millisecond},
		{name: "the fourteenth", first: firstDelay, attempts: 14, want: 40960 * time.Millisecond},
		{name: "the fifteenth", first: firstDelay, attempts: 15, want: time.Minute},
		{name: "the hundredth", first: firstDelay, attempts: 100, want: time.Minute},
		{name: "as many as can be counted", first: firstDelay, attempts: math.MaxInt, want: time.Minute},
		{name: "the first long one", first: firstLongDelay, attempts: 1, want: time.Second},
		{name: "the sixth long one", first: firstLongDelay, attempts: 6, want: 32 * time.Second},
		{name: "the seventh long one", first: firstLongDelay, attempts: 7, want: time.Minute},
		{name: "a random part of a half", first: firstLongDelay, attempts: 1, random: 0.5, want: 900 * time.Millisecond},
		{name: "a random part of a half of the longest", first: firstDelay, attempts: 99, random: 0.5,
			want: 54 * time.Second},
		{name: "almost the whole random part", first: firstLongDelay, attempts: 1, random: 0.999999999,
			want: 800 * time.Millisecond},
		{name: "a random part of the shortest", first: firstDelay, attempts: 1, random: 0.25, want: 4750 * time.Microsecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := delayAfter(tc.first, tc.attempts, tc.random); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A refusal lasts until somebody removes its cause. What is normal work, or was not answered, passes soon.
func TestFirstDelayOf(t *testing.T) {
	for _, tc := range []struct {
		name     string
		err      error
		expected bool
		want     time.Duration
	}{
		{name: "a policy or quota refuses", err: forbidden, want: firstLongDelay},
		{name: "the server is busy", err: withCode(429), want: firstLongDelay},
		{name: "an object cannot be written", err: &Problem{}, want: firstDelay},
		{name: "a conflict", err: withCode(409), expected: true, want: firstDelay},
		{name: "a conflict that is no normal work any more", err: withCode(409), want: firstLongDelay},
		{name: "the server fails", err: withCode(500), want: firstDelay},
		{name: "there is no answer", err: dial, want: firstDelay},
	} {
		if got := firstDelayOf(tc.err, tc.expected); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
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
