package footest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"
)

// steps are the steps of a scenario. The beginning of a line selects the step; the longest match counts.
var steps = []struct {
	words string
	do    func(e *env, args arguments) error
}{
	{"foo", (*env).foo},
	{"store foo", (*env).storeFoo},
	{"delete foo", func(e *env, args arguments) error {
		return e.cluster.delete(foosResource, args.word(0), args.has("foreground"))
	}},
	{"deployment", (*env).deployment},
	{"copy deployment", (*env).copyDeployment},
	{"edit deployment", func(e *env, args arguments) error { return e.editAll("", args, e.editDeployment) }},
	{"delete deployment", func(e *env, args arguments) error {
		return e.cluster.delete(deploymentsResource, args.word(0), args.has("foreground"))
	}},
	{"rollout", (*env).rollout},
	{"collect garbage", func(e *env, _ arguments) error { e.cluster.collectGarbage(); return nil }},
	{"lag", func(e *env, args arguments) error {
		return e.caches(args, func(c *controllerUnderTest, resource string) { c.caches[resource].paused = true })
	}},
	{"catch up", func(e *env, args arguments) error {
		return e.caches(args, func(c *controllerUnderTest, resource string) { c.caches[resource].paused = false })
	}},
	{"relist", func(e *env, args arguments) error {
		return e.caches(args, func(c *controllerUnderTest, resource string) {
			c.caches[resource].paused = false
			c.list(resource, false)
		})
	}},
	{"refuse", (*env).refuse},
	{"lose", func(e *env, args arguments) error { return e.lose(args, false) }},
	{"lose the answer to", func(e *env, args arguments) error { return e.lose(args, true) }},
	{"allow", func(e *env, _ arguments) error {
		e.cluster.refusals, e.cluster.terminating = nil, false
		return nil
	}},
	{"override", (*env).override},
	{"stop overriding", func(e *env, _ arguments) error { e.cluster.overrides = nil; return nil }},
	{"restart", (*env).restart},
	{"start over", func(e *env, _ arguments) error {
		e.stop()
		e.startOver()
		return nil
	}},
	{"start another", func(e *env, args arguments) error { e.start(args.word(0)); return nil }},
	{"wait", (*env).waitFor},
	{"wait until", (*env).waitUntilTried},
	{"sync", (*env).syncNow},
	{"show foo", (*env).showFoo},
	{"show deployment", (*env).showDeployment},
}

// StepWords returns the words that each step begins with, for a test of the documentation.
func StepWords() []string {
	var all []string
	for _, step := range steps {
		all = append(all, step.words)
	}
	return all
}

// step executes a line of a scenario.
func (e *env) step(line string) error {
	best := -1
	for i, step := range steps {
		if !strings.HasPrefix(line+" ", step.words+" ") {
			continue
		}
		if best < 0 || len(step.words) > len(steps[best].words) {
			best = i
		}
	}
	if best < 0 {
		return errors.New("no such step")
	}
	args := parseArguments(strings.TrimPrefix(line, steps[best].words))
	return errors.Join(steps[best].do(e, args), args.unused())
}

// caches calls do for the caches that args select, by resource, by controller, or both. Without a selection it calls do
// for all caches.
func (e *env) caches(args arguments, do func(c *controllerUnderTest, resource string)) error {
	named := func(c *controllerUnderTest) bool { return args.has(c.name) }
	one := slices.ContainsFunc(e.controllers, named)
	foos, deployments := args.has(foosResource), args.has(deploymentsResource)
	for _, c := range e.controllers {
		if one && !named(c) {
			continue
		}
		if foos || !deployments {
			do(c, foosResource)
		}
		if deployments || !foos {
			do(c, deploymentsResource)
		}
	}
	return nil
}

// restart replaces all controllers by a new one. What the paused caches of the first controller have, the new one has
// too, and they stay paused: a new list can be stale too, because an API server can lag.
func (e *env) restart(arguments) error {
	e.stop()
	old := e.controllers[0]
	e.controllers = nil
	c := e.start("")
	maps.Copy(c.copies, old.copies)
	for resource, cached := range old.caches {
		if !cached.paused {
			continue
		}
		next, version := c.caches[resource], cached.store.LastStoreSyncResourceVersion()
		next.paused, next.version = true, cached.version
		if err := next.store.Replace(cached.store.List(), version); err != nil {
			return err
		}
	}
	return nil
}

// refuse makes requests fail with an error. The arguments are the verb, the resource, the kind of error, the message.
func (e *env) refuse(args arguments) error {
	if args.has("terminating") {
		e.cluster.terminating = true
	}
	answer, err := refusalOf(args.word(2), args.word(3), args.word(1))
	name, _ := args.value("name")
	e.cluster.refusals = append(e.cluster.refusals, &refusal{
		verb: args.word(0), resource: args.word(1), name: name, answer: answer, once: args.has("once"),
	})
	return err
}

// lose makes requests fail without an answer. If done is true, the API server executes them and their answers are lost.
func (e *env) lose(args arguments, done bool) error {
	e.cluster.refusals = append(e.cluster.refusals, &refusal{
		verb: args.word(0), resource: args.word(1), done: done, once: args.has("once"),
		answer: func(string) error { return errNoAnswer },
	})
	return nil
}

// override changes all Deployments that controllers write, as a mutating admission policy does.
func (e *env) override(args arguments) error {
	e.editDeployment(newDeployment("any"), args) // Marks the arguments as used.
	override := func(dep *appsv1.Deployment) { e.editDeployment(dep, args) }
	e.cluster.overrides = append(e.cluster.overrides, override)
	return nil
}

// waitFor lets time pass.
func (e *env) waitFor(args arguments) error {
	pass, err := time.ParseDuration(args.word(0))
	if err != nil {
		return err
	}
	end := time.Now().Add(pass)
	e.passTime(func(next time.Time) bool { return next.After(end) })
	time.Sleep(time.Until(end))
	return nil
}

// waitUntilTried lets time pass until as many syncs of a Foo as args ask for have sent something.
func (e *env) waitUntilTried(args arguments) error {
	name := args.word(0)
	times, err := strconv.Atoi(cmp.Or(args.word(4), "1"))
	for _, word := range []string{"is", "tried", "again", "times"} {
		args.has(word)
	}
	e.runUntilIdle()
	before := len(e.syncs)
	tried := func() (n int) {
		for _, sync := range e.syncs[before:] {
			if sync.foo == name {
				n++
			}
		}
		return n
	}
	e.passTime(func(time.Time) bool { return tried() >= times })
	if tried() < times {
		return fmt.Errorf("tried again %d times", tried())
	}
	return err
}

// syncNow enqueues and syncs a Foo, as often as args ask for, although nothing has happened to it.
func (e *env) syncNow(args arguments) error {
	times, _ := strconv.Atoi(cmp.Or(args.word(1), "1"))
	args.has("times")
	for range times {
		for _, c := range e.controllers {
			c.queue.Add(cache.NewObjectName(namespace, args.word(0)))
		}
		e.runUntilIdle()
	}
	return nil
}
