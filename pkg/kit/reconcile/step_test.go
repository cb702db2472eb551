package reconcile_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// A step about the object itself is a JSON merge patch: custom resources take no other. The answer replaces the object.
func TestFinalizersStep(t *testing.T) {
	in := &input{Namespace: newTeam()}
	step := reconcile.FinalizersStep(namespaceKind, &in.Namespace, []string{"a"})
	check(t, `{"metadata":{"finalizers":["a"],"resourceVersion":"10","uid":"team-uid"}}`, string(step.Patch))
	if !step.JSONMerge || !step.Spec || step.FieldList() != "metadata.finalizers" {
		t.Errorf("the step is %+v", step)
	}
	check(t, &reconcile.Problem{
		Reason: reconcile.Overridden, Advice: "Stop it",
		Message: "Another client, or a webhook, keeps changing the finalizers of this Namespace",
	}, step.Undone())
	check(t, step.Undone(), step.Differs())
	answered := newTeam(func(t *corev1.Namespace) { t.Finalizers = []string{"a"} })
	p := reconcile.New(reconcile.Plan[input]{
		Object: plan.Object, ObservedGeneration: plan.ObservedGeneration, Status: noStatus,
		Rules: []reconcile.Rule[input]{{Name: "add finalizer", Ask: func(in *input) (a reconcile.Answer) {
			if len(in.Namespace.Finalizers) == 0 {
				a.Steps = append(a.Steps, reconcile.FinalizersStep(namespaceKind, &in.Namespace, []string{"a"}))
			}
			return a
		}}},
	})
	sync := p.Sync(in)
	sync.Begin(reconcile.Memory{}, start, 0)
	sync.Record(sync.Next(), reconcile.Reply{Object: answered}, start)
	if next := sync.Next(); next != nil || sync.Object() != metav1.Object(answered) {
		t.Errorf("the next request is %v, and the object %v", next, sync.Object())
	}
	check(t, (*reconcile.Problem)(nil), step.Differs())
}

// What a step changes, for the log and for people.
func TestFieldList(t *testing.T) {
	step := &reconcile.Step{Fields: []reconcile.Field{{Path: "a", Have: "1", Want: "2"}, {Path: "b"}}}
	check(t, "a 1 -> 2, b", step.FieldList())
}

// The event of a status is about a new reason of Ready: a warning about what a person must act on, and that it is Ready
// at last.
func TestTheEventOfAStatus(t *testing.T) {
	conditions := func(status metav1.ConditionStatus, reason, other string) []metav1.Condition {
		all := []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: "why"}}
		if other != "" {
			all = append(all, metav1.Condition{Type: other, Status: metav1.ConditionTrue, Reason: reason, Message: "why"})
		}
		return all
	}
	for _, test := range []struct {
		name    string
		was, is []metav1.Condition
		want    string
		summary string
	}{
		{name: "no condition", summary: "no conditions"},
		{name: "Ready", is: conditions("True", "Available", ""), want: "Normal Available", summary: "Ready=True Available: why"},
		{
			name: "Ready as before", was: conditions("False", "Available", ""), is: conditions("True", "Available", ""),
			summary: "Ready=True Available: why",
		},
		{
			name: "another reason", was: conditions("True", "Old", ""), is: conditions("True", "Available", ""),
			want: "Normal Available", summary: "Ready=True Available: why",
		},
		{
			name: "progress", is: conditions("False", "Progressing", "Reconciling"),
			summary: "Reconciling, Ready=False Progressing: why",
		},
		{
			name: "Stalled", is: conditions("False", "NotOwned", "Stalled"), want: "Warning NotOwned",
			summary: "Stalled, Ready=False NotOwned: why",
		},
		{
			name: "a refusal", is: conditions("False", reconcile.Refused, "Reconciling"), want: "Warning Refused",
			summary: "Reconciling, Ready=False Refused: why",
		},
		{
			name: "a failure", is: conditions("False", reconcile.RequestFailed, "Reconciling"), want: "Warning RequestFailed",
			summary: "Reconciling, Ready=False RequestFailed: why",
		},
		{
			name: "undone", is: conditions("False", reconcile.Overridden, "Reconciling"), want: "Warning Overridden",
			summary: "Reconciling, Ready=False Overridden: why",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			in := &input{Namespace: newTeam()}
			step := reconcile.StatusStep(namespaceKind, &in.Namespace, newTeam(), test.was, test.is)
			check(t, "status "+reconcile.Summary(test.was)+" -> "+test.summary, step.FieldList())
			check(t, []any{"status", test.summary}, step.Log)
			if event := step.Event; event != nil {
				got = event.Type + " " + event.Reason
				if event.Note != "why" || event.Action != "Report "+event.Reason {
					t.Errorf("the event is %+v", event)
				}
			}
			check(t, test.want, got)
		})
	}
}

// A text of a user or of a proxy is stored as it is sent, or its object would differ for ever.
func TestClip(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{text: "abcdef", limit: 6, want: "abcdef"}, {text: "abcdefg", limit: 6, want: "abc..."},
		{text: "aé\u00e9\u00e9", limit: 6, want: "aé..."}, {text: "a\xffb", limit: 6, want: "a\uFFFDb"},
	} {
		if got := reconcile.Clip(test.text, test.limit); got != test.want || !utf8.ValidString(got) {
			t.Errorf("%q clipped to %d is %q, want %q", test.text, test.limit, got, test.want)
		}
	}
	problem := reconcile.Problem{Reason: "Refused", Message: strings.Repeat("a", 5000), Advice: "Stop"}
	if got := len(problem.Report().Message); got != 4096 {
		t.Errorf("a message of %d bytes", got)
	}
}
