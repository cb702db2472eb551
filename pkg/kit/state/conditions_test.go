package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var began = time.Unix(1e9, 0)

// text returns conditions as text: type, status, generation, reason, message, and the seconds since began.
func text(conditions []metav1.Condition) string {
	var all []string
	for _, c := range conditions {
		all = append(all, fmt.Sprintf("%s=%s %d %s %q %v", c.Type, c.Status, c.ObservedGeneration, c.Reason, c.Message,
			c.LastTransitionTime.Sub(began).Seconds()))
	}
	return strings.Join(all, ", ")
}

// TestConditions sets one report after the other, ten seconds apart, each about the next generation.
func TestConditions(t *testing.T) {
	foreign := metav1.Condition{Type: "Paid", Status: "True", Reason: "Yes", LastTransitionTime: metav1.NewTime(began)}
	conditions := []metav1.Condition{foreign}
	for i, step := range []struct {
		report Report
		want   string
	}{
		{
			report: Report{True: Reconciling, Reason: "Creating", Message: "not there yet"},
			want:   `Ready=False 1 Creating "not there yet" 10, Reconciling=True 1 Creating "not there yet" 10`,
		},
		{
			report: Report{True: Reconciling, Reason: "Progressing", Message: "1 of 2"},
			want:   `Ready=False 2 Progressing "1 of 2" 10, Reconciling=True 2 Progressing "1 of 2" 10`,
		},
		{report: Report{True: Ready, Reason: "Available", Message: "2 of 2"}, want: `Ready=True 3 Available "2 of 2" 30`},
		{
			report: Report{True: Stalled, Reason: "Refused", Message: "quota"},
			want:   `Ready=False 4 Refused "quota" 40, Stalled=True 4 Refused "quota" 40`,
		},
		{
			report: Report{True: Reconciling, Reason: "Progressing", Message: "1 of 2"},
			want:   `Ready=False 5 Progressing "1 of 2" 40, Reconciling=True 5 Progressing "1 of 2" 50`,
		},
		{
			report: Report{True: Stalled, Reason: "Refused", Message: "a long story", Brief: "a story"},
			want:   `Ready=False 6 Refused "a long story" 40, Stalled=True 6 Refused "a story" 60`,
		},
		{report: Report{True: "", Reason: "Paused", Message: "by its owner"}, want: `Ready=False 7 Paused "by its owner" 40`},
	} {
		t.Run(step.report.Reason, func(t *testing.T) {
			before := text(conditions)
			now := began.Add(time.Duration(i+1)*10*time.Second + 999*time.Millisecond)
			next := Conditions(conditions, step.report, int64(i+1), now)
			if got := text(conditions); got != before {
				t.Errorf("the argument was changed from\n%s to\n%s", before, got)
			}
			if diff := cmp.Diff(text([]metav1.Condition{foreign})+", "+step.want, text(next)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if again := Conditions(next, step.report, int64(i+1), now.Add(time.Hour)); text(again) != text(next) {
				t.Errorf("the same report once more:\n%s, before\n%s", text(again), text(next))
			}
			conditions = next
		})
	}
}
