package scenario

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// user is the user name of everybody except the controllers, and namespace that of all objects that have one.
const (
	user      = "user"
	namespace = "default"
)

// An Env is where a scenario is played: a cluster, and one controller or more. The API server serves the requests of
// the user unchanged. Those of a controller are described for the output, and may be refused or lost.
type Env struct {
	Server *apiserver.Server
	// Overrides change each object that a controller writes, as a mutating admission policy does.
	Overrides []func(Object)

	player
	ctx         context.Context
	controllers []*controller
	problems    []string
	// refusals answer requests of controllers in place of the API server.
	refusals []*refusal
	// terminating is true while the namespace is being deleted.
	terminating bool
	// blocks is the block that is being played, counted from 1.
	blocks int
	// syncs are the syncs of this block that sent a request or an event.
	syncs []syncLog
	// resumeAt is when a sync continues after its next-step delay. It is zero if no sync waits for its next step.
	resumeAt time.Time
	// sent has a line for each request and event of the current sync.
	sent []string
	// shown are the lines that steps of this block showed.
	shown []string
}

// A syncLog has a line for each request and event that a sync of an object sent.
type syncLog struct {
	name  string
	lines []string
}

func newEnv(ctx context.Context, how player) *Env {
	e := &Env{player: how, ctx: ctx}
	if e.onRequest == nil {
		e.onRequest = func(*Env, *request) {}
	}
	e.startOver()
	return e
}

// startOver starts a controller on an empty cluster.
func (e *Env) startOver() {
	e.controllers, e.refusals, e.Overrides, e.terminating = nil, nil, nil, false
	e.Server = apiserver.New(e.kind.Served...)
	e.Server.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		for _, c := range e.controllers {
			if r.User == c.user {
				return c.serve(r, next)
			}
		}
		return next()
	})
	e.Server.Admit(func(a *apiserver.Admission) error {
		for _, override := range e.Overrides {
			if obj, ok := a.Object.(Object); ok && a.User != user {
				override(obj)
			}
		}
		return nil
	})
	e.start("")
}

// stop stops all controllers.
func (e *Env) stop() {
	for _, c := range e.controllers {
		c.stop()
	}
}

func (e *Env) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf("block %d: %s", e.blocks, fmt.Sprintf(format, args...)))
}

// play plays the blocks of text, which empty lines separate, and returns text with their outputs.
func (e *Env) play(text string) string {
	var blocks []string
	for _, block := range blocksOf(text) {
		e.blocks++
		script, _, hasSteps := strings.Cut(strings.TrimSpace(block)+"\n", "\n----\n")
		if hasSteps {
			script += "\n----\n" + strings.Join(e.playBlock(script), "\n")
		}
		blocks = append(blocks, strings.TrimSpace(script))
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

// playBlock plays the steps of one block and returns its output.
func (e *Env) playBlock(script string) []string {
	e.syncs, e.shown = nil, nil
	for line := range strings.SplitSeq(script, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := e.step(line); err != nil {
			e.problem("%s: %v", line, err)
		}
	}
	e.Idle()
	output := e.output()
	e.checkIdempotent()
	if len(output) == 0 {
		return []string{"nothing"}
	}
	return output
}

// output returns the lines of the syncs of this block, those that were shown, and the objects that come back after a
// delay.
func (e *Env) output() []string {
	var output []string
	for i := 0; i < len(e.syncs); {
		n := 1
		for i+n < len(e.syncs) && slices.Equal(e.syncs[i].lines, e.syncs[i+n].lines) {
			n++
		}
		output = append(output, e.syncs[i].lines...)
		if n > 1 {
			output = append(output, fmt.Sprintf("... and the same %d times more", n-1))
		}
		i += n
	}
	output = append(output, e.shown...)
	for _, c := range e.controllers {
		output = append(output, c.newDelays()...)
	}
	return output
}

// Idle lets the caches and the controllers work until nothing is left to do at this time.
func (e *Env) Idle() {
	for round := 0; e.runOnce(); round++ {
		if round == 1000 {
			e.problem("the controllers do not become idle")
			return
		}
	}
}

// runOnce lets each controller sync once, before any of them sees the writes of the others. It reports whether a key
// was queued.
func (e *Env) runOnce() bool {
	synctest.Wait() // For keys whose delay is over.
	for _, c := range e.controllers {
		c.collect(c.runOthers)
		c.updateCaches()
	}
	busy := false
	for _, c := range e.controllers {
		if c.Queue.Workqueue.Len() > 0 {
			busy = true
			c.sync()
		}
	}
	if resumeAt := e.resumeAt; !busy && !resumeAt.IsZero() {
		busy, e.resumeAt = true, time.Time{}
		time.Sleep(time.Until(resumeAt))
	}
	return busy
}

// checkIdempotent syncs every object once more, which must send nothing. It skips a controller with stale caches, which
// may have to read live again. It also skips a namespace that is being deleted, where every attempt fails and each sync
// may try again.
func (e *Env) checkIdempotent() {
	e.syncs = nil
	if e.terminating {
		return
	}
	for _, c := range e.controllers {
		if !c.behind() {
			c.enqueueAll()
		}
	}
	e.Idle()
	if len(e.syncs) > 0 {
		e.problem("one more sync of every object sends\n%s", strings.Join(e.output(), "\n"))
	}
}

// passTime lets time pass until enough returns true. Whenever the delay of a key is over, the controllers run.
func (e *Env) passTime(enough func(next time.Time) bool) {
	for {
		e.Idle()
		next, found := e.nextDue()
		if !found || enough(next) {
			return
		}
		time.Sleep(time.Until(next))
	}
}

// nextDue returns the next time at which a key is requeued.
func (e *Env) nextDue() (next time.Time, found bool) {
	for _, c := range e.controllers {
		if due, ok := c.nextDue(); ok && (!found || due.Before(next)) {
			next, found = due, true
		}
	}
	return next, found
}

// log adds a line to those of the current sync of c.
func (e *Env) log(c *controller, format string, args ...any) {
	e.sent = append(e.sent, c.line(format, args...))
}

// enqueueAll enqueues every object of the kind.
func (c *controller) enqueueAll() {
	for _, obj := range c.env.Server.Objects(c.env.kind.Served[0].Resource) {
		c.Queue.Add(cache.MetaObjectToName(obj.(Object)))
	}
}

// rollout writes the status of a Deployment as the Deployment controller does. All replicas are available unless args
// give other numbers.
func (e *Env) rollout(args Arguments) error {
	return e.Edit("deployments", "status", args.Word(0), func(obj Object) {
		dep := obj.(*appsv1.Deployment)
		dep.Status = rolloutStatus(dep, args)
	})
}

func rolloutStatus(dep *appsv1.Deployment, args Arguments) appsv1.DeploymentStatus {
	n := *dep.Spec.Replicas
	status := appsv1.DeploymentStatus{
		ObservedGeneration: dep.Generation,
		UpdatedReplicas:    args.Number("updated", n),
		AvailableReplicas:  args.Number("available", n),
	}
	status.ReadyReplicas = status.AvailableReplicas
	status.Replicas = args.Number("replicas", max(status.UpdatedReplicas, status.AvailableReplicas))
	progressing := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated",
	}
	// A rollout that was complete once stays complete until the pod template changes.
	wasComplete := slices.ContainsFunc(dep.Status.Conditions, func(cond appsv1.DeploymentCondition) bool {
		return cond.Reason == "NewReplicaSetAvailable"
	})
	if status.UpdatedReplicas >= n && (status.AvailableReplicas >= n || wasComplete) {
		progressing.Reason = "NewReplicaSetAvailable"
	}
	if args.Has("stuck") {
		progressing.Status, progressing.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
	}
	status.Conditions = []appsv1.DeploymentCondition{progressing}
	if args.Has("failing") {
		status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		})
	}
	return status
}

// A refusal answers requests of one verb for one resource, or one object.
type refusal struct {
	verb, resource string
	name           string // Empty for all objects.
	answer         func(name string) error
	done           bool // The API server executes the request nevertheless.
	once           bool // Only the next such request is answered.
}

var errNoAnswer = errors.New("dial tcp 10.0.0.1:443: i/o timeout")

// refuse makes requests fail with an error. The arguments are the verb, the resource, the kind of error, the message.
func (e *Env) refuse(args Arguments) error {
	served := e.kind.served(args.Word(1))
	if served == nil {
		return fmt.Errorf("no such resource: %q", args.Word(1))
	}
	if args.Has("terminating") {
		e.terminating = true
	}
	answer, err := refusalOf(served, args.Word(2), args.Word(3))
	name, _ := args.Value("name")
	e.refusals = append(e.refusals, &refusal{
		verb: args.Word(0), resource: served.Resource.Resource, name: name, answer: answer, once: args.Has("once"),
	})
	return err
}

// refusalOf returns a function that makes the error for a refused request, with this kind and message.
func refusalOf(served *apiserver.Kind, kind, message string) (func(name string) error, error) {
	gr, reason := served.Resource.GroupResource(), errors.New(message)
	switch kind {
	case "forbidden":
		return func(name string) error { return apierrors.NewForbidden(gr, name, reason) }, nil
	case "invalid":
		gk := schema.GroupKind{Group: gr.Group, Kind: served.Kind}
		errs := field.ErrorList{field.Forbidden(field.NewPath("spec"), message)}
		return func(name string) error { return apierrors.NewInvalid(gk, name, errs) }, nil
	case "conflict":
		return func(name string) error { return Modified(gr, name) }, nil
	case "broken":
		return func(string) error { return apierrors.NewInternalError(reason) }, nil
	case "throttled":
		return func(string) error { return apierrors.NewTooManyRequests(message, 0) }, nil
	case "terminating":
		return func(name string) error { return terminating(gr, name) }, nil
	}
	return nil, fmt.Errorf("no such answer: %q", kind)
}

// Modified returns the conflict with which an API server answers a write of an older version.
func Modified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New("the object has been modified; please apply your changes to the "+
		"latest version and try again"))
}

func terminating(gr schema.GroupResource, name string) error {
	err := apierrors.NewForbidden(gr, name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// lose makes requests fail without an answer. If done is true, the API server executes them and their answers are lost.
func (e *Env) lose(args Arguments, done bool) error {
	e.refusals = append(e.refusals, &refusal{
		verb: args.Word(0), resource: args.Word(1), done: done, once: args.Has("once"),
		answer: func(string) error { return errNoAnswer },
	})
	return nil
}

// answer answers a request of a controller, and adds the error of the answer to its line.
func (e *Env) answer(r *request) (*http.Response, error) {
	refused := e.refused(r)
	if refused == nil {
		return r.execute()
	}
	if refused.done {
		answer, err := r.execute()
		if err != nil || answer.StatusCode >= http.StatusBadRequest {
			return answer, err
		}
		answer.Body.Close()
	}
	err := refused.answer(r.name)
	if errors.Is(err, errNoAnswer) {
		r.line += " -> no answer"
		return nil, err
	}
	answer, err := r.Refuse(err)
	r.line += " -> " + reasonOf(answer)
	return answer, err
}

// execute passes r on to the API server.
func (r *request) execute() (*http.Response, error) {
	answer, err := r.next()
	if err != nil {
		return nil, err
	}
	if reason := reasonOf(answer); reason != "" {
		r.line += " -> " + reason
	}
	return answer, nil
}

// refused returns the refusal that answers such a request, or nil if the API server answers it.
func (e *Env) refused(r *request) *refusal {
	i := slices.IndexFunc(e.refusals, func(f *refusal) bool {
		return f.verb == r.verb && f.resource == r.Resource.Resource && (f.name == "" || f.name == r.name)
	})
	if i < 0 {
		return nil
	}
	found := e.refusals[i]
	if found.once {
		e.refusals = slices.Delete(e.refusals, i, i+1)
	}
	return found
}

// reasonOf returns the reason in an answer that is an error, or "" for a success.
func reasonOf(answer *http.Response) string {
	if answer.StatusCode < http.StatusBadRequest {
		return ""
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	status := &metav1.Status{}
	if err := cmp.Or(err, runtime.DecodeInto(decoder, body, status)); err != nil {
		return err.Error()
	}
	return string(status.Reason)
}

// delays are when the keys of a controller come back.
type delays struct {
	// synced is the key of the last sync.
	synced cache.ObjectName
	// due are the times at which keys come back.
	due map[time.Time]bool
	// of are the delays of the keys that have not succeeded since then.
	of map[cache.ObjectName]delay
}

// A delay is the time until a key comes back, as the output describes it.
type delay struct {
	until time.Time
	line  string
	shown bool
}

func newDelays() delays {
	return delays{due: map[time.Time]bool{}, of: map[cache.ObjectName]delay{}}
}

// A delaying is one of the other queues of a controller. It records when its keys are due.
type delaying struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	*delays
}

func (d delaying) AddAfter(key cache.ObjectName, after time.Duration) {
	if after > 0 {
		d.due[time.Now().Add(after)] = true
	}
	d.TypedRateLimitingInterface.AddAfter(key, after)
}

// nextDue returns the next time at which a key comes back.
func (d *delays) nextDue() (next time.Time, found bool) {
	for due := range d.due {
		switch {
		case !due.After(time.Now()):
			delete(d.due, due)
		case !found || due.Before(next):
			next, found = due, true
		}
	}
	return next, found
}

// recordDelay records when the key of the last sync comes back, and why.
func (c *controller) recordDelay(outcome kit.Outcome) {
	key := c.synced
	if outcome.Kind != reconcile.Wait {
		delete(c.of, key)
	}
	if !outcome.ComesBack() {
		return
	}
	until, line := time.Now().Add(outcome.After), fmt.Sprintf("%s is tried again within %v", key.Name, outcome.After)
	switch outcome.For {
	case reconcile.NextStep: // The sync continues at once. A user does not notice this delay.
		c.env.resumeAt = until
		return
	case reconcile.CacheStale:
		if !c.behind() { // The key comes back after a write. The next sync finds nothing to do.
			return
		}
		line = key.Name + " waits for the caches"
	}
	c.due[until] = true
	// A delay with the same end or the same text is already in the output.
	if have := c.of[key]; !have.until.Equal(until) && have.line != line {
		c.of[key] = delay{until: until, line: line}
	}
}

// newDelays returns a line for each delay that has not been shown yet.
func (c *controller) newDelays() []string {
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(c.of), compareNames) {
		have := c.of[key]
		if !have.shown {
			lines = append(lines, c.line("%s", have.line))
		}
		have.shown = true
		c.of[key] = have
	}
	return lines
}
