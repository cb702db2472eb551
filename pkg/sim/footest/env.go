package footest

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

// An env is where a scenario is played: a cluster, and one controller or more.
type env struct {
	player
	ctx         context.Context
	cluster     *cluster
	controllers []*controllerUnderTest
	problems    []string
	// blocks is the block that is being played, counted from 1.
	blocks int
	// syncs are the syncs of this block that sent a request or an event.
	syncs []syncLog
	// resumeAt is when a sync continues after its next-step delay. It is zero if no sync waits for its next step.
	resumeAt time.Time
	// quiet is true until the current sync sends something.
	quiet bool
	// shown are the lines that steps of this block showed.
	shown []string
}

// A syncLog has a line for each request and event that a sync of a Foo sent.
type syncLog struct {
	foo   string
	lines []string
}

func newEnv(ctx context.Context, how player) *env {
	e := &env{player: how, ctx: ctx}
	if e.onRequest == nil {
		e.onRequest = func(*env, *request) {}
	}
	e.startOver()
	return e
}

// startOver starts a controller on an empty cluster.
func (e *env) startOver() {
	e.controllers = nil
	e.cluster = newCluster()
	e.cluster.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		for _, c := range e.controllers {
			if r.User == controllerName+c.name {
				return c.serve(r, next)
			}
		}
		return next()
	})
	e.start("")
}

// stop stops all controllers.
func (e *env) stop() {
	for _, c := range e.controllers {
		c.queue.ShutDown()
		c.names.ShutDown()
	}
}

func (e *env) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf("block %d: %s", e.blocks, fmt.Sprintf(format, args...)))
}

// play plays the blocks of text, which empty lines separate, and returns text with their outputs.
func (e *env) play(text string) string {
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
func (e *env) playBlock(script string) []string {
	e.syncs, e.shown = nil, nil
	for line := range strings.SplitSeq(script, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := e.step(line); err != nil {
			e.problem("%s: %v", line, err)
		}
	}
	e.runUntilIdle()
	output := e.output()
	e.checkIdempotent()
	if len(output) == 0 {
		return []string{"nothing"}
	}
	return output
}

// output returns the lines of the syncs of this block, the lines that were shown, and the Foos that are requeued after
// a delay.
func (e *env) output() []string {
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

// runUntilIdle lets the caches and the controllers work until nothing is left to do at this time.
func (e *env) runUntilIdle() {
	for round := 0; e.runOnce(); round++ {
		if round == 1000 {
			e.problem("the controllers do not become idle")
			return
		}
	}
}

// runOnce lets each controller sync once, before any of them sees the writes of the others. It reports whether a key
// was queued.
func (e *env) runOnce() bool {
	synctest.Wait() // For keys whose delay is over.
	for _, c := range e.controllers {
		c.names.addDue()
		c.updateCaches()
	}
	busy := false
	for _, c := range e.controllers {
		if c.queue.Len() > 0 {
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

// checkIdempotent syncs every Foo once more, which must send nothing. It skips a controller with stale caches, which
// may have to read live again. It also skips a namespace that is being deleted, where every attempt fails and each sync
// may try again.
func (e *env) checkIdempotent() {
	e.syncs = nil
	if e.cluster.terminating {
		return
	}
	for _, c := range e.controllers {
		if !c.behind() {
			c.enqueueAll()
		}
	}
	e.runUntilIdle()
	if len(e.syncs) > 0 {
		e.problem("one more sync of every Foo sends\n%s", strings.Join(e.output(), "\n"))
	}
}

// passTime lets time pass until enough returns true. Whenever the delay of a key is over, the controllers run.
func (e *env) passTime(enough func(next time.Time) bool) {
	for {
		e.runUntilIdle()
		next, found := e.nextDue()
		if !found || enough(next) {
			return
		}
		time.Sleep(time.Until(next))
	}
}

// nextDue returns the next time at which a key is requeued.
func (e *env) nextDue() (next time.Time, found bool) {
	for _, c := range e.controllers {
		if due, ok := c.queue.nextDue(); ok && (!found || due.Before(next)) {
			next, found = due, true
		}
	}
	return next, found
}

// log adds a line to the log of the current sync of c.
func (e *env) log(c *controllerUnderTest, format string, args ...any) {
	if e.quiet {
		e.quiet = false
		e.syncs = append(e.syncs, syncLog{foo: c.queue.key.Name})
	}
	last := &e.syncs[len(e.syncs)-1]
	last.lines = append(last.lines, c.line(format, args...))
}

// enqueueAll enqueues every Foo.
func (c *controllerUnderTest) enqueueAll() {
	for _, foo := range c.env.cluster.Objects(fooResource) {
		c.queue.Add(cache.MetaObjectToName(foo.(object)))
	}
}
