package reconcile_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// planOf returns the plan of a controller of Namespaces with one rule.
func planOf(rule string, ask func(*input) reconcile.Answer) *reconcile.Plan[input] {
	p := *plan
	p.Rules = []reconcile.Rule[input]{{Name: rule, Ask: ask}}
	return reconcile.New(p)
}

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
	sync := planOf("add finalizer", func(in *input) (a reconcile.Answer) {
		if len(in.Namespace.Finalizers) == 0 {
			a.Steps = append(a.Steps, reconcile.FinalizersStep(namespaceKind, &in.Namespace, []string{"a"}))
		}
		return a
	}).Sync(in)
	sync.Begin(reconcile.Memory{}, start, 0)
	sync.Record(sync.Next(), reconcile.Reply{Object: answered}, start)
	if next := sync.Next(); next != nil || sync.Object() != metav1.Object(answered) {
		t.Errorf("the next request is %v, and the object %v", next, sync.Object())
	}
	check(t, (*reconcile.Problem)(nil), step.Differs())
}

func TestStatusPatch(t *testing.T) {
	in := &input{Namespace: newTeam()}
	body := newTeam(func(t *corev1.Namespace) { t.Status.Phase = "Ready" })
	patch, err := reconcile.StatusStep(namespaceKind, &in.Namespace, body, nil, nil).StatusPatch()
	check(t, `[{"op":"replace","path":"/metadata/uid","value":"team-uid"},`+
		`{"op":"replace","path":"/metadata/resourceVersion","value":"10"},`+
		`{"op":"add","path":"/status","value":{"phase":"Ready"}}]<nil>`, fmt.Sprint(string(patch), err))
	if _, err := (&reconcile.Step{Body: child()}).StatusPatch(); err == nil {
		t.Error("a status is written that the object does not have")
	}
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

// A rule that wants one more object after each answer must not send for ever. One that wants none after the last answer
// has done nothing wrong.
func TestARuleThatIsNeverContentEndsTheSync(t *testing.T) {
	for last, want := range map[int]string{1000: reconcile.Retry, 64 + 3: reconcile.Done} {
		sync := planOf("create one more", func(in *input) (a reconcile.Answer) {
			body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}
			if in.ConfigMap != nil {
				body.Name = "after-" + in.ConfigMap.ResourceVersion
			}
			if body.Name != fmt.Sprint("after-", last) {
				a.Steps = []*reconcile.Step{reconcile.CreateStep(configMapKind, &in.ConfigMap, body)}
			}
			return a
		}).Sync(&input{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "7d9e"}}})
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

// The answers are those of the next request. At the end of a sync, they are about what it did and what it has left.
// Explain changes nothing.
func TestExplain(t *testing.T) {
	both := toCorrect()
	both.Old = old("old")
	paused := toCorrect()
	paused.Team = newTeam(annotated("paused"))
	reported := toReport()
	reported.Team = newTeam(func(t *corev1.Namespace) { t.Status.Phase = "Ready" })
	const (
		notPaused, notBroken = "paused: does not apply: somebody has set it", "broken: does not apply: somebody has set it"
		exists, n1           = "create: does not apply: it exists", "patch: does not apply: n is 1"
		noneOld              = "delete old: does not apply: the child is ready"
	)
	later := func(rule string, rules ...string) (answers []string) {
		for _, name := range rules {
			answers = append(answers, name+": not reached: "+rule+" comes first")
		}
		return answers
	}
	for _, test := range []struct {
		name    string
		setting setting
		played  bool
		want    []string
	}{
		{
			name: "a write", setting: setting{desk: toCreate()},
			want: append([]string{notPaused, notBroken, "*create: sends create ConfigMap team/child: there is none"},
				later("create", "patch", "delete old", "update status")...),
		},
		{
			name:    "a write that backs off, and rules behind it",
			setting: setting{desk: toCorrect(), memory: remembers(ledger{patchOp: failed(1499600 * time.Microsecond)})},
			want: []string{
				notPaused, notBroken, exists, "patch: patch ConfigMap team/child backs off for 1.5s: n is 9", noneOld,
				"*update status: sends update status of Namespace team: the status differs",
			},
		},
		{
			name: "a final rule", setting: setting{desk: paused},
			want: append(append([]string{"paused: applies: somebody has set it"},
				later("paused", "broken", "create", "patch", "delete old")...),
				"*update status: sends update status of Namespace team: the status differs"),
		},
		{
			name: "nothing", setting: setting{desk: reported},
			want: []string{notPaused, notBroken, exists, n1, noneOld,
				"update status: does not apply: the status is as it must be"},
		},
		{
			name: "after one with refusals", played: true,
			setting: setting{desk: both, replies: []reply{fails("patch child", forbidden), fails("report", forbidden)}},
			want: []string{notPaused, notBroken, exists, "patch: failed in this sync: n is 9",
				"delete old: done in this sync", "update status: failed in this sync: the status differs"},
		},
		{
			name: "after one with a conflict", played: true,
			setting: setting{desk: toDelete(), replies: []reply{fails("delete old", conflict)}},
			want: append([]string{notPaused, notBroken, exists, n1, "delete old: failed in this sync: the child is ready"},
				later("delete old", "update status")...),
		},
		{
			name: "after one that has ended early", played: true,
			setting: setting{desk: toCreateAgain(), replies: []reply{finds("get team", nil)}},
			want: append([]string{notPaused, notBroken, "create: not sent in this sync: there is none"},
				later("create", "patch", "delete old", "update status")...),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sync *reconcile.Sync
			if in := test.setting.desk; test.played {
				sync = play(t, test.setting).sync
			} else {
				sync = desks.Sync(&in)
				sync.Begin(test.setting.memory, start, 0)
			}
			for range 2 { // The second time shows that the first has changed nothing.
				var got []string
				for _, e := range sync.Explain() {
					answer := e.Rule + ": " + e.Answer
					if e.Sends {
						answer = "*" + answer
					}
					got = append(got, answer)
				}
				check(t, test.want, got)
			}
		})
	}
}
