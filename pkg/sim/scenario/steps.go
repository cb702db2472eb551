package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// A Step is a step of a scenario. The beginning of a line selects the step; the longest match counts.
type Step struct {
	Words string
	Do    func(e *Env, args Arguments) error
}

// steps are those for all kinds.
var steps = []Step{
	{"create", (*Env).create},
	{"edit", (*Env).edit},
	{"delete", (*Env).delete},
	{"rollout", (*Env).rollout},
	{"collect garbage", func(e *Env, _ Arguments) error { e.collectGarbage(); return nil }},
	{"lag", func(e *Env, args Arguments) error {
		return e.caches(args, func(_ *controller, cached *cached) { cached.paused = true })
	}},
	{"catch up", func(e *Env, args Arguments) error {
		return e.caches(args, func(_ *controller, cached *cached) { cached.paused = false })
	}},
	{"relist", func(e *Env, args Arguments) error {
		return e.caches(args, func(c *controller, cached *cached) {
			cached.paused = false
			c.list(cached, false)
		})
	}},
	{"refuse", (*Env).refuse},
	{"lose", func(e *Env, args Arguments) error { return e.lose(args, false) }},
	{"lose the answer to", func(e *Env, args Arguments) error { return e.lose(args, true) }},
	{"allow", func(e *Env, _ Arguments) error { e.refusals, e.terminating = nil, false; return nil }},
	{"stop overriding", func(e *Env, _ Arguments) error { e.Overrides = nil; return nil }},
	{"restart", (*Env).restart},
	{"start over", func(e *Env, _ Arguments) error {
		e.stop()
		e.startOver()
		return nil
	}},
	{"start another", func(e *Env, args Arguments) error { e.start(args.Word(0)); return nil }},
	{"wait", (*Env).waitFor},
	{"wait until", (*Env).waitUntilTried},
	{"sync", (*Env).syncNow},
	{"show", (*Env).show},
}

// StepWords returns the words that each step of a kind begins with, for a test of its documentation.
func StepWords(kind Kind) []string {
	var all []string
	for _, step := range slices.Concat(steps, kind.Steps) {
		all = append(all, step.Words)
	}
	return all
}

// step executes a line of a scenario.
func (e *Env) step(line string) error {
	var best *Step
	for _, step := range slices.Concat(steps, e.kind.Steps) {
		if strings.HasPrefix(line+" ", step.Words+" ") && (best == nil || len(step.Words) > len(best.Words)) {
			best = &step
		}
	}
	if best == nil {
		return errors.New("no such step")
	}
	args := parseArguments(strings.TrimPrefix(line, best.Words))
	return errors.Join(best.Do(e, args), args.unused())
}

// send sends a request of the user.
func (e *Env) send(verb, resource, subresource, name string, body any) error {
	served := e.kind.served(resource)
	if served == nil {
		return fmt.Errorf("no such resource: %q", resource)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	path := []string{"/apis", served.Resource.Group, served.Resource.Version}
	if served.Resource.Group == "" {
		path = []string{"/api", served.Resource.Version}
	}
	if !served.ClusterScoped {
		path = append(path, "namespaces", namespace)
	}
	for _, part := range []string{served.Resource.Resource, name, subresource} {
		if part != "" {
			path = append(path, part)
		}
	}
	contentType := "application/json"
	if verb == "PATCH" {
		contentType = "application/merge-patch+json"
	}
	client := kubernetes.NewForConfigOrDie(e.Server.Config(user)).CoreV1().RESTClient() // The path is absolute.
	return client.Verb(verb).AbsPath(path...).SetHeader("Content-Type", contentType).Body(bytes.NewReader(text)).
		Do(context.Background()).Error()
}

// Add creates an object as the user.
func (e *Env) Add(resource string, obj Object) error {
	served := e.kind.served(resource)
	obj.SetResourceVersion("")
	obj.GetObjectKind().SetGroupVersionKind(served.Resource.GroupVersion().WithKind(served.Kind))
	return e.send("POST", resource, "", "", obj)
}

// Edit updates an object or its subresource as the user.
func (e *Env) Edit(resource, subresource, name string, edit func(Object)) error {
	served := e.kind.served(resource)
	have := e.Object(resource, name)
	if have == nil {
		return apierrors.NewNotFound(served.Resource.GroupResource(), name)
	}
	changed := have.DeepCopyObject().(Object)
	changed.GetObjectKind().SetGroupVersionKind(served.Resource.GroupVersion().WithKind(served.Kind))
	edit(changed)
	return e.send("PUT", resource, subresource, name, changed)
}

// Object returns a stored object, or nil.
func (e *Env) Object(resource, name string) Object {
	served := e.kind.served(resource)
	if served == nil {
		return nil
	}
	obj, _ := e.Server.Object(served.Resource, namespaceOf(served), name).(Object)
	return obj
}

// create creates an object with the values of args, by their paths.
func (e *Env) create(args Arguments) error {
	served := e.kind.served(args.Word(0))
	if served == nil {
		return fmt.Errorf("no such kind: %q", args.Word(0))
	}
	obj := fieldsOf(args)
	obj["apiVersion"], obj["kind"] = served.Resource.GroupVersion().String(), served.Kind
	set(obj, "metadata.name", args.Word(1))
	return e.send("POST", args.Word(0), "", "", obj)
}

// edit sets fields of an object to the values of args, by their paths.
func (e *Env) edit(args Arguments) error {
	return e.send("PATCH", args.Word(0), "", args.Word(1), fieldsOf(args))
}

func fieldsOf(args Arguments) map[string]any {
	fields := map[string]any{}
	for path, text := range args.Values("") {
		var value any = text
		if text == None {
			value = nil
		} else if json.Valid([]byte(text)) {
			value = json.RawMessage(text)
		}
		set(fields, path, value)
	}
	return fields
}

func set(fields map[string]any, path string, value any) {
	first, rest, nested := strings.Cut(path, ".")
	if !nested {
		fields[first] = value
		return
	}
	if fields[first] == nil {
		fields[first] = map[string]any{}
	}
	set(fields[first].(map[string]any), rest, value)
}

func (e *Env) delete(args Arguments) error {
	policy := metav1.DeletePropagationBackground
	if args.Has("foreground") {
		policy = metav1.DeletePropagationForeground
	}
	return e.send("DELETE", args.Word(0), "", args.Word(1), &metav1.DeleteOptions{PropagationPolicy: &policy})
}

// collectGarbage lets the garbage collector work until it has nothing left to do.
func (e *Env) collectGarbage() {
	ctx, stop := context.WithCancel(context.Background())
	go apiserver.RunGarbageCollector(ctx, e.Server, 0)
	synctest.Wait()
	stop()
	synctest.Wait()
}

// caches calls do for the caches that args select, by resource, by controller, or both. Without a selection it calls do
// for all caches.
func (e *Env) caches(args Arguments, do func(*controller, *cached)) error {
	named := func(c *controller) bool { return args.Has(c.name) }
	one, some := slices.ContainsFunc(e.controllers, named), false
	for _, served := range e.kind.Served {
		some = args.Has(served.Resource.Resource) || some
	}
	for _, c := range e.controllers {
		for _, cached := range c.caches {
			if (!one || named(c)) && (!some || args.Has(cached.kind.Resource.Resource)) {
				do(c, cached)
			}
		}
	}
	return nil
}

// restart replaces all controllers by a new one. What the paused caches of the first controller have, the new one has
// too, and they stay paused: a new list can be stale too, because an API server can lag.
func (e *Env) restart(Arguments) error {
	e.stop()
	old := e.controllers[0]
	e.controllers = nil
	c := e.start("")
	maps.Copy(c.copies, old.copies)
	for i, had := range old.caches {
		if !had.paused {
			continue
		}
		next, version := c.caches[i], had.store.LastStoreSyncResourceVersion()
		next.paused, next.version = true, had.version
		if err := next.store.Replace(had.store.List(), version); err != nil {
			return err
		}
	}
	return nil
}

// waitFor lets time pass.
func (e *Env) waitFor(args Arguments) error {
	pass, err := time.ParseDuration(args.Word(0))
	if err != nil {
		return err
	}
	end := time.Now().Add(pass)
	e.passTime(func(next time.Time) bool { return next.After(end) })
	time.Sleep(time.Until(end))
	return nil
}

// waitUntilTried lets time pass until as many syncs of an object as args ask for have sent something.
func (e *Env) waitUntilTried(args Arguments) error {
	name := args.Word(0)
	times, err := strconv.Atoi(cmp.Or(args.Word(4), "1"))
	for _, word := range []string{"is", "tried", "again", "times"} {
		args.Has(word)
	}
	e.Idle()
	before := len(e.syncs)
	tried := func() (n int) {
		for _, sync := range e.syncs[before:] {
			if sync.name == name {
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

// syncNow enqueues and syncs an object, as often as args ask for, although nothing has happened to it.
func (e *Env) syncNow(args Arguments) error {
	times, _ := strconv.Atoi(cmp.Or(args.Word(1), "1"))
	args.Has("times")
	key := cache.NewObjectName(namespaceOf(&e.kind.Served[0]), args.Word(0))
	for range times {
		for _, c := range e.controllers {
			c.Queue.Add(key)
		}
		e.Idle()
	}
	return nil
}

// Show adds a line to the output of the block, after those of the controllers.
func (e *Env) Show(format string, args ...any) {
	e.shown = append(e.shown, fmt.Sprintf(format, args...))
}

// show shows the conditions of an object, if it has some, and the fields at some paths.
func (e *Env) show(args Arguments) error {
	e.Idle()
	words := append(args.Words(), "", "")
	obj := e.Object(words[0], words[1])
	if obj == nil {
		e.Show("there is no %s %s", words[0], words[1])
		return nil
	}
	text, err := json.Marshal(obj)
	var content any
	if err := errors.Join(err, json.Unmarshal(text, &content)); err != nil {
		return err
	}
	fields := map[string]string{}
	flatten("", content, fields)
	line := words[0] + " " + words[1]
	if len(statusOf(obj).Conditions) > 0 {
		line += " " + Summary(obj)
	}
	for _, path := range args.Words()[2:] {
		line += fmt.Sprintf(" %s=%s", path, cmp.Or(fields[path], "none"))
	}
	e.Show("%s", line)
	return nil
}
