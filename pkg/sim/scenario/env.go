package scenario

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

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
