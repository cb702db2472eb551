package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// Play plays the files that match pattern and compares the results with the outputs in the files. With rewrite it
// writes the results into the files instead.
//
// In addition to a wrong output, each of these fails a scenario:
//
//   - One more sync of every object after a block sends a request or an event.
//   - A sync changes a cached object, or panics.
//   - A write lacks a precondition or the field manager.
//   - The result depends on whether the watch event of a write comes before or after the answer to the write.
func Play(t *testing.T, kind Kind, pattern string, rewrite bool) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playFile(t, &kind, file, rewrite)
		})
	}
}

func playFile(t *testing.T, kind *Kind, file string, rewrite bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, problems := playInBubble(t, string(text), player{kind: kind})
	eventsFirst, moreProblems := playInBubble(t, string(text), player{kind: kind, eventsFirst: true})
	if len(problems) == 0 {
		problems = moreProblems
	}
	problems = append(problems,
		compareBlocks("events come before answers", withoutDelays(got), withoutDelays(eventsFirst))...)
	if !rewrite {
		problems = append(problems, compareBlocks("events come after answers", string(text), got)...)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
	if !rewrite {
		return
	}
	if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// compareBlocks returns the differences of two versions of a scenario, block by block.
func compareBlocks(when, want, got string) (differences []string) {
	wantBlocks, gotBlocks := blocksOf(want), blocksOf(got)
	for i := range wantBlocks {
		if wantBlocks[i] != gotBlocks[i] {
			differences = append(differences,
				fmt.Sprintf("when %s, block %d is\n%s\n\nwant\n%s\n", when, i+1, gotBlocks[i], wantBlocks[i]))
		}
	}
	return differences
}

// blocksOf returns the blocks of a scenario: empty lines separate them.
func blocksOf(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

// withoutDelays returns a scenario without the lines about delays.
func withoutDelays(text string) string { return delayLines.ReplaceAllString(text, "") }

var delayLines = regexp.MustCompile(`\n(.* waits for the caches|.* is tried again within .*|nothing)\b`)

// A player plays scenarios in one way.
type player struct {
	kind *Kind
	// eventsFirst makes the caches of a controller see its write before it gets the answer. Real clusters have both
	// orders.
	eventsFirst bool
	// onRequest, unless nil, is called with each request before it is served.
	onRequest func(*Env, *request)
}

// playInBubble plays a scenario in virtual time. It returns the text with the outputs that the controller produced,
// and the problems that it found.
func playInBubble(t *testing.T, text string, how player) (played string, problems []string) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t.Context(), how)
		defer e.stop()
		played, problems = e.play(text), e.problems
	})
	return played, problems
}

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
	fields, err := fieldsOf(args)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{Object: fields}
	obj.SetGroupVersionKind(served.Resource.GroupVersion().WithKind(served.Kind))
	obj.SetName(args.Word(1))
	return e.send("POST", args.Word(0), "", "", obj)
}

// edit sets fields of an object to the values of args, by their paths.
func (e *Env) edit(args Arguments) error {
	fields, err := fieldsOf(args)
	return errors.Join(err, e.send("PATCH", args.Word(0), "", args.Word(1), fields))
}

// fieldsOf returns the values of args, which are JSON or text, by their paths. None is null.
func fieldsOf(args Arguments) (map[string]any, error) {
	fields, errs := map[string]any{}, []error{}
	for path, text := range args.Values("") {
		var value any
		if text != None && json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		errs = append(errs, unstructured.SetNestedField(fields, value, strings.Split(path, ".")...))
	}
	return fields, errors.Join(errs...)
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

// show shows the conditions of an object, if it has some, and the fields at and below some paths.
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
	if summary := Summary(obj); summary != "nothing" {
		line += " " + summary
	}
	e.Show("%s", line)
	for _, path := range args.Words()[2:] {
		shown := slices.DeleteFunc(slices.Sorted(maps.Keys(fields)), func(field string) bool {
			return field != path && !strings.HasPrefix(field, path+".")
		})
		if len(shown) == 0 {
			shown = []string{path}
		}
		for _, field := range shown {
			e.Show("    %s=%s", e.kind.short(field), cmp.Or(fields[field], "none"))
		}
	}
	return nil
}

// None is the value of an argument that removes a field.
const None = "-"

// Arguments are the words after the name of a step, and the values given as key=value. A step must use all of them.
type Arguments struct {
	words  []string
	values map[string]string
	used   map[string]bool
}

var argument = regexp.MustCompile(`([a-z.A-Z/0-9-]+=)?("[^"]*"|[^ ]+)`)

func parseArguments(text string) Arguments {
	args := Arguments{values: map[string]string{}, used: map[string]bool{}}
	for _, match := range argument.FindAllStringSubmatch(text, -1) {
		key, value := strings.TrimSuffix(match[1], "="), strings.Trim(match[2], `"`)
		if match[1] == "" {
			args.words = append(args.words, value)
			continue
		}
		args.values[key] = value
	}
	return args
}

// Word returns the word at i, or "" if there are not so many.
func (a Arguments) Word(i int) string {
	if i >= len(a.words) {
		return ""
	}
	a.used[a.words[i]] = true
	return a.words[i]
}

// Words returns all words.
func (a Arguments) Words() []string {
	for i := range a.words {
		a.Word(i)
	}
	return a.words
}

// Has reports whether there is such a word.
func (a Arguments) Has(word string) bool {
	a.used[word] = true
	return slices.Contains(a.words, word)
}

// Value returns the value of a key.
func (a Arguments) Value(key string) (string, bool) {
	a.used[key] = true
	value, ok := a.values[key]
	return value, ok
}

// Values returns the values of the keys that begin with prefix, without it.
func (a Arguments) Values(prefix string) map[string]string {
	values := map[string]string{}
	for key := range a.values {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			values[rest], _ = a.Value(key)
		}
	}
	return values
}

// Number returns the value of a key, or another number if it has none.
func (a Arguments) Number(key string, otherwise int32) int32 {
	text, ok := a.Value(key)
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil {
		return otherwise
	}
	return int32(n)
}

// unused returns an error if the step has not used an argument.
func (a Arguments) unused() error {
	for _, word := range append(slices.Sorted(maps.Keys(a.values)), a.words...) {
		if !a.used[word] {
			return fmt.Errorf("this step has no argument %q", word)
		}
	}
	return nil
}
