package reconcile_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// A desk is what the syncs of the tests of conversations observe. The object is a Namespace, team. It is to have a
// ConfigMap, child, and once that is ready, the ConfigMaps in Old are deleted. The phase of the Namespace is its
// status.
type desk struct {
	Team *corev1.Namespace
	// Observed is the generation that the status is about.
	Observed int64
	Child    *corev1.ConfigMap
	Old      []*corev1.ConfigMap
}

var desks = reconcile.New(reconcile.Plan[desk]{
	Object:             func(in *desk) reconcile.Ref { return reconcile.RefTo(namespaceKind, &in.Team) },
	ObservedGeneration: func(in *desk) int64 { return in.Observed },
	Clone: func(in desk) desk {
		in.Old = slices.Clone(in.Old)
		return in
	},
	Rules: []reconcile.Rule[desk]{
		{Name: "paused", Ask: func(in *desk) reconcile.Answer {
			return reconcile.Answer{Final: in.Team.Annotations["paused"] != "", Why: "somebody has set it"}
		}},
		{Name: "broken", Terminal: true, Ask: func(in *desk) reconcile.Answer {
			return reconcile.Answer{Final: in.Team.Annotations["broken"] != "", Why: "somebody has set it"}
		}},
		{Name: "create", Ask: (*desk).create},
		{Name: "patch", Ask: (*desk).patch},
		{Name: "delete old", Ask: (*desk).deleteOld},
	},
	Status: (*desk).status,
})

func (in *desk) want() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "child",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.Team, namespaceKind.GroupVersionKind)},
		},
		Data: map[string]string{"n": in.Team.Annotations["n"]},
	}
}

func (in *desk) create() reconcile.Answer {
	if in.Child != nil {
		return reconcile.Answer{Why: "it exists"}
	}
	step := reconcile.CreateStep(configMapKind, &in.Child, in.want())
	step.Differs, step.Undone = in.differs, in.undone
	return reconcile.Answer{Steps: []*reconcile.Step{step}, Final: true, Why: "there is none"}
}

// patch confirms the team before a correction, and before it undoes what a newer spec has asked for.
func (in *desk) patch() reconcile.Answer {
	have, want := in.Child.Data["n"], in.Team.Annotations["n"]
	if have == want {
		return reconcile.Answer{Why: "n is " + want}
	}
	fields := []reconcile.Field{{Path: "n", Have: have, Want: want}}
	step := reconcile.PatchStep(configMapKind, &in.Child, []byte(`{"data":{"n":"`+want+`"}}`), fields)
	if step.Spec = in.Observed != in.Team.Generation; !step.Spec {
		step.Event = &reconcile.Event{Reason: "Corrected"}
		step.Confirm = []reconcile.Ref{reconcile.RefTo(namespaceKind, &in.Team)}
	}
	step.Differs, step.Undone = in.differs, in.undone
	return reconcile.Answer{Steps: []*reconcile.Step{step}, Why: "n is " + have}
}

func (in *desk) deleteOld() (a reconcile.Answer) {
	for i, old := range in.Old {
		if old == nil || in.Child.Data["ready"] == "" {
			continue
		}
		step := reconcile.DeleteStep(configMapKind, &in.Old[i])
		step.Confirm = []reconcile.Ref{
			reconcile.RefTo(namespaceKind, &in.Team), reconcile.RefTo(configMapKind, &in.Child),
		}
		a.Steps = append(a.Steps, step)
	}
	a.OnlyOne, a.Why = true, "the child is ready"
	return a
}

// differs reports what admission has changed, undone that somebody undoes what was written.
func (in *desk) differs() *reconcile.Problem {
	if in.Child.Data["n"] == in.Team.Annotations["n"] {
		return nil
	}
	return &reconcile.Problem{Reason: "Admission", Message: "n is " + in.Child.Data["n"]}
}

func (in *desk) undone() *reconcile.Problem {
	return &reconcile.Problem{Reason: "Undone", Message: "again"}
}

func (in *desk) status(s *reconcile.Sync) *reconcile.Step {
	message := ""
	phase := "Ready"
	if problem := s.First(); problem != nil {
		phase, message = problem.Reason, problem.Message
	} else if in.Child != nil && in.Child.Data["empty"] != "" {
		phase = "Empty"
	}
	// Or it is written again and again.
	if string(in.Team.Status.Phase) == phase && in.Team.Annotations["restless"] == "" {
		return nil
	}
	team := in.Team.DeepCopy()
	team.Status.Phase = corev1.NamespacePhase(phase)
	is := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: phase, Message: message}}
	return reconcile.StatusStep(namespaceKind, &in.Team, team, nil, is)
}

var start = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

func newTeam(with ...func(*corev1.Namespace)) *corev1.Namespace {
	t := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team", UID: "team-uid", ResourceVersion: "10", Generation: 2, Annotations: map[string]string{"n": "1"},
	}}
	for _, edit := range with {
		edit(t)
	}
	return t
}

func annotated(key string) func(*corev1.Namespace) {
	return func(t *corev1.Namespace) { t.Annotations[key] = "true" }
}

func ending(t *corev1.Namespace) { t.DeletionTimestamp = new(metav1.Unix(1e9, 0)) }

func ofGeneration(n int64) func(*corev1.Namespace) {
	return func(t *corev1.Namespace) { t.Generation = n }
}

func child(data ...string) *corev1.ConfigMap {
	c := (&desk{Team: newTeam()}).want()
	c.UID, c.ResourceVersion, c.Data["ready"] = "child-uid", "20", "yes"
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

func old(names ...string) (all []*corev1.ConfigMap) {
	for _, name := range names {
		c := child()
		c.Name, c.UID = name, types.UID(name+"-uid")
		all = append(all, c)
	}
	return all
}

// These desks have a sync of each kind of request.
func toCreate() desk      { return desk{Team: newTeam()} }
func toCreateAgain() desk { return desk{Team: newTeam(), Observed: 2} }
func toUpdate() desk      { return desk{Team: newTeam(), Observed: 1, Child: child("n", "9")} }
func toCorrect() desk     { return desk{Team: newTeam(), Observed: 2, Child: child("n", "9")} }
func toDelete() desk      { return desk{Team: newTeam(), Observed: 2, Child: child(), Old: old("old")} }
func toReport() desk      { return desk{Team: newTeam(), Observed: 2, Child: child()} }

// What these operations are called in the ledger.
var (
	createOp = reconcile.Op{Verb: reconcile.Create, Kind: "ConfigMap", Namespace: "team", Name: "child"}
	patchOp  = reconcile.Op{Verb: reconcile.Patch, Kind: "ConfigMap", Namespace: "team", Name: "child"}
	deleteOp = reconcile.Op{Verb: reconcile.Delete, Kind: "ConfigMap", Namespace: "team", Name: "old"}
	statusOp = reconcile.Op{Verb: reconcile.UpdateStatus, Kind: "Namespace", Name: "team"}
)

type ledger = map[reconcile.Op]reconcile.Entry

// remembers returns a memory of the team with a ledger.
func remembers(l ledger) reconcile.Memory {
	return reconcile.Memory{UID: "team-uid", Generation: 2, Ledger: l}
}

// failed is an operation that was refused once, or had a conflict, and whose delay ends so long after the start.
func failed(left time.Duration) reconcile.Entry {
	report := &reconcile.Problem{Reason: "Refused", Message: "quota"}
	return reconcile.Entry{Failed: reconcile.Attempt{Count: 1, Until: start.Add(left), Report: report}}
}

func conflicted(left time.Duration) reconcile.Entry {
	return reconcile.Entry{Failed: reconcile.Attempt{Count: 1, Until: start.Add(left), Expected: true}}
}

// repeated is an operation that something keeps undoing.
func repeated(count int, left time.Duration) reconcile.Entry {
	return reconcile.Entry{Repeated: reconcile.Attempt{Count: count, Until: start.Add(left)}}
}

// A reply is the answer to a request, such as "get child", that is not as the caches have it.
type reply struct {
	to   string
	obj  metav1.Object // Nil if there is none.
	err  error
	good bool // As the caches have it.
}

func fails(to string, err error) reply         { return reply{to: to, err: err} }
func finds(to string, obj metav1.Object) reply { return reply{to: to, obj: obj} }

// A talk is a sync of a desk that was played.
type talk struct {
	steps   []*reconcile.Step
	events  []string
	status  string // What was sent of it.
	outcome reconcile.Outcome
	memory  reconcile.Memory
	sync    *reconcile.Sync
	end     desk
}

// A setting is how a sync begins.
type setting struct {
	desk    desk
	memory  reconcile.Memory
	now     time.Time
	replies []reply
}

// play plays a sync. Of several replies to one request, each is given once, and the last one from then on.
func play(t *testing.T, s setting) *talk {
	t.Helper()
	if s.now.IsZero() {
		s.now = start
	}
	in, before := s.desk, s.memory.Ledger
	in.Old = slices.Clone(in.Old)
	c := &talk{sync: desks.Sync(&in)}
	c.sync.Begin(s.memory, s.now, 0)
	replies := slices.Clone(s.replies)
	for step := c.sync.Next(); step != nil; step = c.sync.Next() {
		if again := c.sync.Next(); again.Op != step.Op {
			t.Errorf("asked twice, the next request is %s and then %s", step.Op, again.Op)
		}
		if c.steps = append(c.steps, step); len(c.steps) > 12 {
			t.Fatalf("too many requests: %s", c.line())
		}
		r := take(&replies, words(step))
		if r.good {
			r.obj = goodAnswer(&in, step)
		}
		if step.Verb == reconcile.UpdateStatus && r.err == nil {
			c.status = step.Fields[0].Want
		}
		if event := c.sync.Record(step, step.Answered(r.obj, r.err), s.now); event != nil {
			c.events = append(c.events, event.Reason)
		}
	}
	c.outcome, c.memory = c.sync.End()
	if c.end = in; c.status != "" {
		c.end.Team = c.steps[len(c.steps)-1].Body.(*corev1.Namespace)
	}
	if s.memory.UID == "team-uid" && !gocmp.Equal(before, s.memory.Ledger) {
		t.Errorf("the ledger of the caller has changed: %v", s.memory.Ledger)
	}
	return c
}

func take(replies *[]reply, to string) reply {
	is := func(r reply) bool { return r.to == to }
	first := slices.IndexFunc(*replies, is)
	if first < 0 {
		return reply{good: true}
	}
	r := (*replies)[first]
	if slices.ContainsFunc((*replies)[first+1:], is) {
		*replies = slices.Delete(*replies, first, first+1)
	}
	return r
}

// goodAnswer is that of an API server that has what the caches have.
func goodAnswer(in *desk, step *reconcile.Step) metav1.Object {
	switch step.Verb {
	case reconcile.Get:
		return step.Have()
	case reconcile.Create, reconcile.Patch:
		stored := in.want()
		stored.UID, stored.ResourceVersion = "child-uid", "21"
		if step.Verb == reconcile.Patch {
			stored.Data["ready"] = in.Child.Data["ready"]
		}
		return stored
	case reconcile.UpdateStatus:
		stored := step.Body.(*corev1.Namespace).DeepCopy()
		stored.ResourceVersion = "11"
		return stored
	}
	return nil
}

// words are a request in two words.
func words(step *reconcile.Step) string {
	if step.Verb == reconcile.UpdateStatus {
		return "report"
	}
	return string(step.Verb) + " " + step.Name
}

// line is the talk in one line: the requests, the phase that was reported, and the outcome.
func (c *talk) line() string {
	var sent []string
	report := "no report"
	for _, step := range c.steps {
		if step.Verb == reconcile.UpdateStatus {
			report = string(step.Body.(*corev1.Namespace).Status.Phase)
			continue
		}
		sent = append(sent, words(step))
	}
	ending := c.outcome.Kind
	if c.outcome.ComesBack() {
		ending += " " + c.outcome.After.String()
	}
	if c.outcome.Expected {
		ending += " as expected"
	}
	return cmp.Or(strings.Join(sent, ", "), "nothing") + "; " + report + "; " + ending
}

// rounds plays n syncs. Each begins when the delay of the one before has ended. The caches always have the same.
func rounds(t *testing.T, n int, s setting) (lines []string) {
	t.Helper()
	s.now = start
	for range n {
		c := play(t, s)
		lines = append(lines, c.line())
		s.now, s.memory = s.now.Add(c.outcome.After), c.memory
	}
	return lines
}

func check(t *testing.T, want, got any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var (
	configMaps  = corev1.Resource("configmaps")
	forbidden   = apierrors.NewForbidden(configMaps, "child", errors.New("exceeded quota: small"))
	conflict    = apierrors.NewConflict(configMaps, "child", errors.New("the object has been modified"))
	exists      = apierrors.NewAlreadyExists(configMaps, "child")
	tooMany     = apierrors.NewTooManyRequests("slow down", 1)
	serverFails = apierrors.NewInternalError(errors.New("etcd"))
	noResponse  = context.DeadlineExceeded
)

// terminating is the answer in a namespace that is being deleted.
func terminating() error {
	err := apierrors.NewForbidden(configMaps, "child", errors.New("it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func milliseconds(ns ...int) (all []time.Duration) {
	for _, n := range ns {
		all = append(all, time.Duration(n)*time.Millisecond)
	}
	return all
}
