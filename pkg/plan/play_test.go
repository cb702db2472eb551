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
	"example.com/foo-controller/pkg/plan"
)

// A reply is what the API server answers to a request, unless it answers as the caches have it.
type reply struct {
	verb plan.Verb
	// answer is nil when the API server answers as the caches have it.
	answer *answer
	// after is how long the answer takes.
	after time.Duration
}

// An answer is a plan.Answer whose Deployment has not passed Trim.
type answer struct {
	foo        *v1alpha1.Foo
	deployment *appsv1.Deployment
	owner      *v1alpha1.Foo
	err        error
}

// fails is the answer of an error. Several replies for a verb are given one after the other, the last one repeatedly.
func fails(verb plan.Verb, err error) reply { return reply{verb: verb, answer: &answer{err: err}} }

// finds is the answer to a live read of the Foo; nil is "not found".
func finds(foo *v1alpha1.Foo) reply {
	return reply{verb: plan.ReadFoo, answer: &answer{foo: foo}}
}

// findsDeployment is the answer to a live read of the Deployment; nil is "not found".
func findsDeployment(dep *appsv1.Deployment) reply {
	return reply{verb: plan.ReadDeployment, answer: &answer{deployment: dep}}
}

// returns is the answer to a create or patch that something on the server's side has changed.
func returns(verb plan.Verb, dep *appsv1.Deployment) reply {
	return reply{verb: verb, answer: &answer{deployment: dep}}
}

// succeeds is the answer that a request is given without a reply.
func succeeds(verb plan.Verb) reply { return reply{verb: verb} }

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
	owner      *v1alpha1.Foo
	replies    []reply
	now        time.Time
}

// reply returns the next reply for a verb.
func (s *server) reply(verb plan.Verb) reply {
	of := func(r reply) bool { return r.verb == verb }
	first := slices.IndexFunc(s.replies, of)
	if first < 0 {
		return succeeds(verb)
	}
	given := s.replies[first]
	if slices.ContainsFunc(s.replies[first+1:], of) {
		s.replies = slices.Delete(s.replies, first, first+1)
	}
	return given
}

// answer returns the answer to step. All objects pass Trim, as they do in the controller.
func (s *server) answer(step *plan.Step) plan.Answer {
	reply := s.reply(step.Verb)
	s.now = s.now.Add(reply.after)
	a := reply.answer
	if a == nil {
		a = s.good(step)
	}
	if a.deployment != nil || a.err == nil && step.Verb == plan.ReadDeployment {
		s.deployment = a.deployment
	}
	return plan.Answer{
		Foo: plan.TrimFoo(a.foo), Deployment: plan.TrimDeployment(a.deployment), Owner: a.owner, Err: a.err,
	}
}

// good returns the answer to step when all is as the caches have it.
func (s *server) good(step *plan.Step) *answer {
	switch step.Verb {
	case plan.ReadFoo:
		return &answer{foo: s.foo.DeepCopy()}
	case plan.ReadDeployment:
		if s.deployment == nil {
			return &answer{}
		}
		return &answer{deployment: s.deployment, owner: s.owner}
	case plan.CreateDeployment:
		created := step.Create.DeepCopy()
		created.UID, created.ResourceVersion, created.Generation = "created-uid", "21", 1
		return &answer{deployment: created}
	case plan.PatchDeployment:
		patched := apply(s.t, s.deployment, step.Patch)
		patched.ResourceVersion = "22"
		return &answer{deployment: patched}
	case plan.UpdateStatus:
		foo := step.Foo.DeepCopy()
		foo.ResourceVersion = "11"
		return &answer{foo: foo}
	}
	return &answer{}
}

// A conversation is a sync that was played.
type conversation struct {
	steps []*plan.Step
	// events were sent after the steps.
	events  []*plan.Event
	outcome plan.Outcome
	// endedAt is when the last answer came.
	endedAt time.Time
	// state is the State at the end, and end what there is then, with the memory for the next sync.
	state plan.State
	end   world
}

// A world is what there is when a sync begins: a plan.State whose objects have not passed Trim.
type world struct {
	Foo, Owner *v1alpha1.Foo
	Deployment *appsv1.Deployment
	Previous   []*appsv1.Deployment
	Now        time.Time
	Jitter     float64
	Memory     plan.Memory
}

// state returns w as the caches have it.
func (w world) state() plan.State {
	state := plan.State{
		Foo: plan.TrimFoo(w.Foo), Owner: plan.TrimFoo(w.Owner), Deployment: plan.TrimDeployment(w.Deployment),
		Now: w.Now, Jitter: w.Jitter, Memory: w.Memory.For(w.Foo, w.Now),
	}
	for _, dep := range w.Previous {
		state.Previous = append(state.Previous, plan.TrimDeployment(dep))
	}
	return state
}

// previous returns the previous Deployment of this name. There is one.
func (w world) previous(name string) *appsv1.Deployment {
	return w.Previous[slices.IndexFunc(w.Previous, func(dep *appsv1.Deployment) bool { return dep.Name == name })]
}

// after returns w after a sync that has ended with state.
func (w world) after(state plan.State) world {
	w.Foo, w.Owner, w.Memory = state.Foo, state.Owner, state.Memory
	w.Previous = slices.DeleteFunc(slices.Clone(w.Previous), func(dep *appsv1.Deployment) bool {
		return !slices.ContainsFunc(state.Previous, func(left *plan.Observed) bool { return left.UID == dep.UID })
	})
	return w
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
	state := w.state()
	observedUnchanged(t, w, state)
	server := server{
		t: t, foo: state.Foo, deployment: w.Deployment, owner: state.Owner, replies: slices.Clone(replies), now: w.Now,
	}
	var c conversation
	for step := next(t, &state); step != nil; step = next(t, &state) {
		checkStep(t, &state, step, c.steps)
		c.steps = append(c.steps, step)
		if len(c.steps) > 8 {
			t.Fatalf("too many requests: %s", c.sent())
		}
		answer := server.answer(step)
		if event := step.EventAfter(answer); event != nil {
			c.events = append(c.events, event)
		}
		state.Record(step, answer, server.now)
	}
	c.outcome = state.Outcome()
	if again := state.Outcome(); !cmp.Equal(c.outcome, again, sameError) {
		t.Errorf("Outcome first returns %+v, then %+v", c.outcome, again)
	}
	checkOutcome(t, c.outcome)
	w.Deployment = server.deployment
	c.state, c.end, c.endedAt = state, w.after(state), server.now
	return c
}

// next returns the next step. It asks twice: asking changes nothing.
func next(t *testing.T, state *plan.State) *plan.Step {
	t.Helper()
	first, second := state.Next(), state.Next()
	if diff := cmp.Diff(wordsOf(first), wordsOf(second)); diff != "" {
		t.Errorf("asked for the next step twice (-first +second):\n%s", diff)
	}
	return second
}

// checkStep checks what must be true of every step, given those before it.
func checkStep(t *testing.T, state *plan.State, step *plan.Step, before []*plan.Step) {
	t.Helper()
	read := step.Verb == plan.ReadFoo || step.Verb == plan.ReadDeployment
	for _, earlier := range slices.Backward(before) {
		if earlier.Op == step.Op {
			t.Errorf("%s is sent twice", step.Op)
		}
		if read && earlier.Verb != plan.ReadFoo && earlier.Verb != plan.ReadDeployment {
			break // A write makes what was read before it old.
		}
	}
	var subject metav1.ObjectMeta
	switch step.Verb {
	case plan.PatchDeployment:
		var body metav1.PartialObjectMetadata
		if err := json.Unmarshal(step.Patch.Body, &body); err != nil {
			t.Errorf("the patch cannot be decoded: %v", err)
		}
		subject = body.ObjectMeta
	case plan.DeleteDeployment:
		subject = step.Deployment.ObjectMeta
		if !slices.Contains(state.Previous, step.Deployment) {
			t.Errorf("%s is not about the version that was observed", step.Op)
		}
	case plan.UpdateStatus:
		subject = step.Foo.ObjectMeta
		if step.Foo == state.Foo {
			t.Error("the status is written into the Foo of the cache")
		}
	}
	exists := step.Verb == plan.PatchDeployment || step.Verb == plan.DeleteDeployment || step.Verb == plan.UpdateStatus
	if exists && (subject.UID == "" || subject.ResourceVersion == "") {
		t.Errorf("%s carries uid %q and resourceVersion %q", step.Op, subject.UID, subject.ResourceVersion)
	}
	if step.Event != nil && (read || step.Verb == plan.CreateDeployment) {
		t.Errorf("%s has the event %+v", step.Op, step.Event)
	}
	if step.Rule == "" || step.Foo == nil || step.Name == "" || step.Again {
		t.Errorf("%s of rule %q, Foo %v, again %t", step.Op, step.Rule, step.Foo, step.Again)
	}
	if read != (step.For != plan.Op{}) {
		t.Errorf("%s is for %q", step.Op, step.For)
	}
}

// checkOutcome checks what must be true of every outcome.
func checkOutcome(t *testing.T, outcome plan.Outcome) {
	t.Helper()
	bad := false
	switch outcome.Kind {
	case plan.Done, plan.Terminal:
		bad = outcome.After != 0 || outcome.Err != nil
	case plan.Retry:
		bad = outcome.Err == nil
	case plan.Wait:
		bad = outcome.Reason == ""
	default:
		bad = true
	}
	if bad || outcome.After < 0 || outcome.After > time.Minute {
		t.Errorf("an outcome that makes no sense: %+v", outcome)
	}
}

// sameError compares errors by their text, nil being only nil.
var sameError = cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })

// wordsOf returns a step in a few words.
func wordsOf(step *plan.Step) string {
	if step == nil {
		return ""
	}
	switch step.Verb {
	case plan.ReadFoo:
		return "get Foo"
	case plan.ReadDeployment:
		return "get " + step.Name
	case plan.CreateDeployment:
		return "create " + step.Name
	case plan.PatchDeployment:
		return "patch " + strings.Join(paths(step.Patch.Fields), " ")
	case plan.DeleteDeployment:
		return "delete " + step.Name
	}
	return "report"
}

// sent returns the requests of the conversation in a few words, without the update of the status.
func (c conversation) sent() string {
	var words []string
	for _, step := range c.steps {
		if step.Verb != plan.UpdateStatus {
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
	case c.outcome.Kind == plan.Terminal && c.sent() == "nothing":
		return c.reason()
	case c.outcome.Kind == plan.Terminal:
		return c.sent() + ", " + c.reason()
	}
	return c.sent()
}

// last returns the last step, or nil.
func (c conversation) last() *plan.Step {
	if len(c.steps) == 0 {
		return nil
	}
	return c.steps[len(c.steps)-1]
}

// step returns the step of this verb, or nil.
func (c conversation) step(verb plan.Verb) *plan.Step {
	for _, step := range c.steps {
		if step.Verb == verb {
			return step
		}
	}
	return nil
}

// status returns the status that was sent, nil when none was.
func (c conversation) status() *v1alpha1.FooStatus {
	if step := c.step(plan.UpdateStatus); step != nil {
		return &step.Foo.Status
	}
	return nil
}

// event returns the event that belongs to the status, or nil.
func (c conversation) event() *plan.Event {
	if step := c.step(plan.UpdateStatus); step != nil {
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
		Foo: c.end.Foo, Deployment: c.end.Deployment, Previous: c.end.Previous, Owner: c.end.Owner,
		Now: c.endedAt.Add(after), Jitter: c.end.Jitter, Memory: c.end.Memory,
	}
	if status := c.status(); status != nil {
		state.Foo = c.step(plan.UpdateStatus).Foo
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
	text := string(c.outcome.Kind)
	if c.outcome.Kind == plan.Retry || c.outcome.Kind == plan.Wait {
		text += fmt.Sprintf(" in %s", c.outcome.After)
	}
	if c.outcome.Expected {
		text += " as expected"
	}
	if c.outcome.Kind == plan.Done && c.outcome.Reason == plan.CacheStale {
		text += ", stale"
	}
	return text
}

// line returns the whole conversation in one line.
func (c conversation) line() string {
	report := "no report"
	if c.status() != nil {
		report = c.reason()
	}
	return fmt.Sprintf("%s; %s; %s", c.sent(), report, c.ending())
}

// rounds plays n syncs. Each begins when the delay of the one before has ended; the caches always have the same.
func rounds(t *testing.T, n int, state world, replies ...reply) []string {
	t.Helper()
	var lines []string
	state.Now = now
	for range n {
		c := play(t, state, replies...)
		lines = append(lines, c.line())
		state.Now, state.Memory = c.endedAt.Add(c.outcome.After), c.end.Memory
	}
	return lines
}

func checkLines(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong syncs (-want +got):\n%s", diff)
	}
}

// delays plays syncs until a request of this verb was sent n+1 times, and returns how long it took from each to the
// next. The caches always have the same.
func delays(t *testing.T, n int, state world, verb plan.Verb, replies ...reply) []time.Duration {
	t.Helper()
	var waits []time.Duration
	var last time.Time
	state.Now = now
	for range 10 * n {
		c := play(t, state, replies...)
		if c.step(verb) != nil {
			if !last.IsZero() {
				waits = append(waits, state.Now.Sub(last))
			}
			last = state.Now
		}
		if len(waits) == n {
			return waits
		}
		state.Now, state.Memory = c.endedAt.Add(c.outcome.After), c.end.Memory
	}
	t.Fatalf("%s was sent only %d times", verb, len(waits))
	return nil
}

func milliseconds(ns ...int) []time.Duration {
	var all []time.Duration
	for _, n := range ns {
		all = append(all, time.Duration(n)*time.Millisecond)
	}
	return all
}
