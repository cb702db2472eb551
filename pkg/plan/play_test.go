package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

// These are the requests of a sync, as Step.Request returns them.
const (
	readFoo          = "get Foo"
	readDeployment   = "get Deployment"
	createDeployment = "create Deployment"
	patchDeployment  = "patch Deployment"
	deleteDeployment = "delete Deployment"
	updateStatus     = "update status of Foo"
)

// stampGeneration is the patch of the foo-generation label alone.
const stampGeneration = "patch " + inGeneration

// A reply is what the API server answers to a request, unless it answers as the caches have it.
type reply struct {
	request string
	// answer is nil when the API server answers as the caches have it.
	answer *answer
	// after is how long the answer takes.
	after time.Duration
}

// An answer has an object that has not passed Trim, or an error.
type answer struct {
	foo        *v1alpha1.Foo
	deployment *appsv1.Deployment
	err        error
}

// object is that of the answer as the controller gets it.
func (a *answer) object() metav1.Object {
	switch {
	case a.foo != nil:
		return plan.TrimFoo(a.foo)
	case a.deployment != nil:
		return plan.TrimDeployment(a.deployment)
	}
	return nil
}

// fails is the answer of an error. Several replies to a request are given one after the other, the last one repeatedly.
func fails(request string, err error) reply {
	return reply{request: request, answer: &answer{err: err}}
}

// returns is the answer to a create or patch that something on the server's side has changed.
func returns(request string, dep *appsv1.Deployment) reply {
	return reply{request: request, answer: &answer{deployment: dep}}
}

// succeeds is the answer that a request is given without a reply.
func succeeds(request string) reply { return reply{request: request} }

// slowly is r with an answer that takes some time.
func slowly(r reply, after time.Duration) reply {
	r.after = after
	return r
}

// A server plays the API server in a conversation. It begins with what the caches have.
type server struct {
	t          *testing.T
	foo        *v1alpha1.Foo
	deployment *appsv1.Deployment
	replies    []reply
	now        time.Time
}

// reply returns the next reply to a request.
func (s *server) reply(request string) reply {
	to := func(r reply) bool { return r.request == request }
	first := slices.IndexFunc(s.replies, to)
	if first < 0 {
		return succeeds(request)
	}
	given := s.replies[first]
	if slices.ContainsFunc(s.replies[first+1:], to) {
		s.replies = slices.Delete(s.replies, first, first+1)
	}
	return given
}

// answer returns the answer to step.
func (s *server) answer(step *reconcile.Step) reconcile.Reply {
	reply := s.reply(step.Request())
	s.now = s.now.Add(reply.after)
	a := reply.answer
	if a == nil {
		a = s.good(step)
	}
	if a.deployment != nil || a.err == nil && step.Request() == readDeployment {
		s.deployment = a.deployment
	}
	return step.Answered(a.object(), a.err)
}

// good returns the answer to step when all is as the caches have it.
func (s *server) good(step *reconcile.Step) *answer {
	switch step.Request() {
	case readFoo:
		return &answer{foo: s.foo.DeepCopy()}
	case readDeployment:
		return &answer{deployment: s.deployment}
	case createDeployment:
		created := step.Body.(*appsv1.Deployment).DeepCopy()
		created.UID, created.ResourceVersion, created.Generation = "created-uid", "21", 1
		return &answer{deployment: created}
	case patchDeployment:
		patched := apply(s.t, s.deployment, step.Patch)
		patched.ResourceVersion = "22"
		return &answer{deployment: patched}
	case updateStatus:
		foo := step.Body.(*v1alpha1.Foo).DeepCopy()
		foo.ResourceVersion = "11"
		return &answer{foo: foo}
	}
	return &answer{}
}

// A conversation is a sync that was played.
type conversation struct {
	steps []*reconcile.Step
	// events were sent after the steps.
	events  []*reconcile.Event
	outcome reconcile.Outcome
	// endedAt is when the last answer came.
	endedAt time.Time
	// sync has ended, and end is what there is then, with the memory for the next sync.
	sync *reconcile.Sync
	end  world
}

// A world is what there is when a sync begins. Its objects have not passed Trim.
type world struct {
	Foo, Owner *v1alpha1.Foo
	Deployment *appsv1.Deployment
	Others     []*appsv1.Deployment
	Now        time.Time
	Jitter     float64
	Memory     reconcile.Memory
}

// input returns w as the caches have it.
func (w world) input() *plan.Input {
	in := &plan.Input{
		Foo: plan.TrimFoo(w.Foo), Deployment: plan.TrimDeployment(w.Deployment),
		Owner: func(*plan.TrimmedDeployment) *v1alpha1.Foo { return plan.TrimFoo(w.Owner) },
	}
	for _, dep := range w.Others {
		in.Others = append(in.Others, plan.TrimDeployment(dep))
	}
	return in
}

// begin returns a sync of in that has begun.
func (w world) begin(in *plan.Input) *reconcile.Sync {
	sync := plan.Foos.Sync(in)
	sync.Begin(w.Memory, w.Now, w.Jitter)
	return sync
}

// play plays a sync of w. The replies are what the API server answers where that is not as the caches have it. What
// must be true of every conversation is checked here.
func play(t *testing.T, w world, replies ...reply) conversation {
	t.Helper()
	if w.Now.IsZero() {
		w.Now = now
	}
	if w.Memory.UID == "" && w.Memory.Generation == 0 {
		w.Memory.UID, w.Memory.Generation = w.Foo.UID, w.Foo.Generation
	}
	allUnchanged(t, w)
	in := w.input()
	server := server{t: t, foo: in.Foo, deployment: w.Deployment, replies: slices.Clone(replies), now: w.Now}
	c := conversation{sync: w.begin(in)}
	for step := c.sync.Next(); step != nil; step = c.sync.Next() {
		checkStep(t, step)
		c.steps = append(c.steps, step)
		if len(c.steps) > 8 {
			t.Fatalf("too many requests: %s", c.sent())
		}
		if event := c.sync.Record(step, server.answer(step), server.now); event != nil {
			c.events = append(c.events, event)
		}
	}
	w.Foo, w.Deployment = in.Foo, server.deployment
	w.Others = slices.DeleteFunc(slices.Clone(w.Others), func(dep *appsv1.Deployment) bool {
		return !slices.ContainsFunc(in.Others, func(left *plan.TrimmedDeployment) bool {
			return left != nil && left.UID == dep.UID
		})
	})
	c.outcome, w.Memory = c.sync.End()
	c.end, c.endedAt = w, server.now
	return c
}

// checkStep checks what must be true of every step.
func checkStep(t *testing.T, step *reconcile.Step) {
	t.Helper()
	if step.Patch != nil {
		var body metav1.PartialObjectMetadata
		if err := json.Unmarshal(step.Patch, &body); err != nil {
			t.Errorf("the patch cannot be decoded: %v", err)
		}
		if string(body.UID) != step.UID || body.ResourceVersion != step.ResourceVersion {
			t.Errorf("%s carries uid %q and resourceVersion %q", step.Op, body.UID, body.ResourceVersion)
		}
	}
	if exists := !step.IsRead() && step.Verb != reconcile.Create; exists &&
		(step.UID == "" || step.ResourceVersion == "") {
		t.Errorf("%s is about uid %q and resourceVersion %q", step.Op, step.UID, step.ResourceVersion)
	}
	if step.Event != nil && (step.IsRead() || step.Verb == reconcile.Create) {
		t.Errorf("%s has the event %+v", step.Op, step.Event)
	}
}

// wordsOf returns a step in a few words.
func wordsOf(step *reconcile.Step) string {
	switch step.Verb {
	case reconcile.UpdateStatus:
		return "report"
	case reconcile.Patch:
		return "patch " + strings.Join(paths(step.Fields), " ")
	}
	if step.Request() == readFoo {
		return readFoo
	}
	return string(step.Verb) + " " + step.Name
}

// sent returns the requests of the conversation in a few words, without the update of the status.
func (c conversation) sent() string {
	var words []string
	for _, step := range c.steps {
		if step.Request() != updateStatus {
			words = append(words, wordsOf(step))
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// result is sent, with the reason when only a change of an object can help, or that there was no report.
func (c conversation) result() string {
	switch {
	case c.status() == nil:
		return c.sent() + ", no report"
	case c.outcome.Kind == reconcile.Terminal && c.sent() == "nothing":
		return c.reason()
	case c.outcome.Kind == reconcile.Terminal:
		return c.sent() + ", " + c.reason()
	}
	return c.sent()
}

// last returns the last step, or nil.
func (c conversation) last() *reconcile.Step {
	if len(c.steps) == 0 {
		return nil
	}
	return c.steps[len(c.steps)-1]
}

// step returns the step with this request, or nil.
func (c conversation) step(request string) *reconcile.Step {
	for _, step := range c.steps {
		if step.Request() == request {
			return step
		}
	}
	return nil
}

// reported returns the Foo with the status that was sent, nil when none was.
func (c conversation) reported() *v1alpha1.Foo {
	if step := c.step(updateStatus); step != nil {
		return step.Body.(*v1alpha1.Foo)
	}
	return nil
}

// created returns the Deployment that was sent, or nil.
func (c conversation) created() *appsv1.Deployment {
	if step := c.step(createDeployment); step != nil {
		return step.Body.(*appsv1.Deployment)
	}
	return nil
}

// status returns the status that was sent, nil when none was.
func (c conversation) status() *v1alpha1.FooStatus {
	if foo := c.reported(); foo != nil {
		return &foo.Status
	}
	return nil
}

// event returns the event that belongs to the status, or nil.
func (c conversation) event() *reconcile.Event {
	if step := c.step(updateStatus); step != nil {
		return step.Event
	}
	return nil
}

// conditions returns those of the status that was sent.
func (c conversation) conditions() []metav1.Condition {
	if status := c.status(); status != nil {
		return status.Conditions
	}
	return nil
}

// ready returns the Ready condition of the status that was sent; an empty one when none was.
func (c conversation) ready() metav1.Condition {
	if ready := meta.FindStatusCondition(c.conditions(), v1alpha1.ConditionReady); ready != nil {
		return *ready
	}
	return metav1.Condition{}
}

func (c conversation) reason() string  { return c.ready().Reason }
func (c conversation) message() string { return c.ready().Message }

// report returns the conditions that were sent in one line.
func (c conversation) report() string {
	ready := c.ready()
	second := ""
	for _, condition := range c.conditions() {
		if condition.Type == v1alpha1.ConditionReconciling || condition.Type == v1alpha1.ConditionStalled {
			second += " " + condition.Type
		}
	}
	return fmt.Sprintf("%s%s %s: %s", ready.Status, second, ready.Reason, ready.Message)
}

// nextSync returns the world of the next sync, which begins so long after the last answer. The caches have caught up.
func (c conversation) nextSync(after time.Duration) world {
	state := world{
		Foo: c.end.Foo, Deployment: c.end.Deployment, Others: c.end.Others, Owner: c.end.Owner,
		Now: c.endedAt.Add(after), Jitter: c.end.Jitter, Memory: c.end.Memory,
	}
	if foo := c.reported(); foo != nil {
		state.Foo = foo
	}
	return state
}

// checkSent compares what was sent.
func checkSent(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong requests (-want +got):\n%s", diff)
	}
}

// checkConditions compares the conditions that were sent.
func checkConditions(t *testing.T, want, got []metav1.Condition) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong conditions (-want +got):\n%s", diff)
	}
}

// conditionsOf returns the conditions that the status of foo consists of when it has this reason and message.
func conditionsOf(foo *v1alpha1.Foo, ready metav1.ConditionStatus, second, reason, message string) []metav1.Condition {
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: foo.Generation, LastTransitionTime: metav1.NewTime(now),
		}
	}
	conditions := []metav1.Condition{condition("Ready", ready)}
	if report, _, found := strings.Cut(message, podsForbidden); found { // Only Ready has it.
		message = report + ". The condition Ready has the cause"
	}
	if second != "" {
		conditions = append(conditions, condition(second, metav1.ConditionTrue))
	}
	return conditions
}

// ending returns how the sync ended in a few words.
func (c conversation) ending() string {
	if !c.outcome.ComesBack() {
		return c.outcome.Kind
	}
	return fmt.Sprintf("%s in %s", c.outcome.Kind, c.outcome.After)
}

// line returns the whole conversation in one line.
func (c conversation) line() string {
	report := "no report"
	if c.status() != nil {
		report = c.reason()
	}
	return fmt.Sprintf("%s; %s; %s", c.sent(), report, c.ending())
}

func checkLines(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong syncs (-want +got):\n%s", diff)
	}
}
