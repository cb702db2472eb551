package reconcile_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// A rule that wants one more object after each answer must not send for ever. One that wants none after the last answer
// has done nothing wrong.
func TestARuleThatIsNeverContentEndsTheSync(t *testing.T) {
	for last, want := range map[int]string{1000: reconcile.Retry, 64 + 3: reconcile.Done} {
		greedy := reconcile.New(reconcile.Plan[input]{
			Object:             func(in *input) reconcile.Ref { return reconcile.RefTo(namespaceKind, &in.Namespace) },
			ObservedGeneration: func(*input) int64 { return 0 },
			Rules: []reconcile.Rule[input]{{Name: "create one more", Ask: func(in *input) (a reconcile.Answer) {
				body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
				if in.ConfigMap != nil {
					body.Name = "after-" + in.ConfigMap.ResourceVersion
				}
				if body.Name != fmt.Sprint("after-", last) {
					a.Steps = []*reconcile.Step{reconcile.CreateStep(configMapKind, &in.ConfigMap, body)}
				}
				return a
			}}},
			Status: noStatus,
		})
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
		if requests != 64+3 || outcome.Kind != want || want == reconcile.Retry && (outcome.After != time.Minute ||
			outcome.For != reconcile.Backoff || !strings.Contains(outcome.Err.Error(), `rule "create one more"`)) {
			t.Errorf("%d requests, then %+v, want 67 and %s, a retry after a minute with the name of the rule",
				requests, outcome, want)
		}
		if observed, status := sync.Describe(); observed+status != "" {
			t.Errorf("a plan that describes nothing has %q and %q", observed, status)
		}
	}
}

// A mistake in a plan ends the process when it starts, and not the first sync that meets it.
func TestNewRefusesAPlanThatCannotSync(t *testing.T) {
	named := func(names ...string) func(*reconcile.Plan[input]) {
		return func(p *reconcile.Plan[input]) {
			p.Rules = nil
			for _, name := range names {
				p.Rules = append(p.Rules, reconcile.Rule[input]{Name: name, Ask: func(*input) (a reconcile.Answer) { return a }})
			}
		}
	}
	for name, edit := range map[string]func(*reconcile.Plan[input]){
		"no object":                 func(p *reconcile.Plan[input]) { p.Object = nil },
		"no observed":               func(p *reconcile.Plan[input]) { p.ObservedGeneration = nil },
		"no status":                 func(p *reconcile.Plan[input]) { p.Status = nil },
		"no function":               func(p *reconcile.Plan[input]) { p.Rules = []reconcile.Rule[input]{{Name: "a"}} },
		"no name":                   named(""),
		"two rules of one name":     named("a", "b", "a"),
		"the name of the last rule": named("update status"),
	} {
		p := *plan
		edit(&p)
		if message := fmt.Sprint(panicOf(func() { reconcile.New(p) })); !strings.Contains(message, "plan needs") {
			t.Errorf("%s: New panics with %s", name, message)
		}
	}
	if message := panicOf(func() { new(reconcile.Plan[input]).Sync(&input{}) }); message != "make the plan with New" {
		t.Errorf("a plan that New has not checked: %v", message)
	}
}

func panicOf(f func()) (message any) {
	defer func() { message = recover() }()
	f()
	return nil
}
