package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/apisim"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/plan"
)

// The scenarios in docs/scenarios tell what the controller does, step by step; docs/scenarios/README.md lists
// the steps. This file plays them: with the controller's own handlers, queue and worker, on a cluster that
// is part of the test (simulation), in virtual time. To write the outputs anew, and then read the difference:
//
//	go test -run TestScenarios . -rewrite
//
// Each scenario also fails, whatever its output says, when after a block one more sync of every Foo sends
// anything, when a sync changes a cached object or panics, when a write lacks what it must carry, and when it
// makes a difference whether the event of a write comes before its answer or after it.

var rewrite = flag.Bool("rewrite", false, "write the outputs in docs/scenarios anew")

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("docs/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	withoutErrorPauses(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, problems := playInBubble(t, string(text), false, nil)
			eventsFirst, moreProblems := playInBubble(t, string(text), true, nil)
			if len(problems) == 0 {
				problems = moreProblems
			}
			for _, problem := range problems {
				t.Error(problem)
			}
			compareBlocks(t, "events come before answers", withoutPauses(got), withoutPauses(eventsFirst))
			if !*rewrite {
				compareBlocks(t, "it is played", string(text), got)
				return
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// compareBlocks compares two forms of a scenario, block by block.
func compareBlocks(t *testing.T, when, want, got string) {
	t.Helper()
	wanted, gotten := blocksOf(want), blocksOf(got)
	for i := range wanted {
		if wanted[i] != gotten[i] {
			t.Errorf("when %s, block %d is\n%s\n\nwant\n%s\n", when, i+1, gotten[i], wanted[i])
		}
	}
}

// blocksOf returns the blocks of a scenario: empty lines separate them.
func blocksOf(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

// TestScenariosNoticeFaults plays scenarios with faults planted into what surrounds the controller.
func TestScenariosNoticeFaults(t *testing.T) {
	const text = "foo web deployment=web-1\n----\n" +
		"create deployment web-1 replicas=1 image=nginx:latest\n" +
		"status web Ready=False Reconciling Creating: Creating Deployment \"web-1\"\n"
	withoutErrorPauses(t)
	for _, test := range []struct {
		name string
		// plant gets each request and whether it has been answered, and may replace the answer.
		plant   func(s *stage, r *request)
		differs bool
		problem string
	}{
		{"none", func(*stage, *request) {}, false, ""},
		{"another write than expected", func(s *stage, r *request) { r.words += " more" }, true, ""},
		{"a status that is not stored, so that it is written again and again", func(s *stage, r *request) {
			if r.verb == "status" {
				foo := s.cluster.foo(r.name)
				r.do = func() (*http.Response, error) {
					body, err := json.Marshal(foo)
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
				}
			}
		}, false, "one more sync of every Foo says"},
		{"a cached object that changes during a sync", func(s *stage, r *request) {
			s.instances[0].stores[foosResource].List()[0].(*v1alpha1.Foo).Labels = map[string]string{"changed": "yes"}
		}, false, "the sync of web changed a cached object"},
		{"a panic", func(s *stage, r *request) { panic("planted") }, true, "panicked"},
		{"a request that lacks something", func(s *stage, r *request) { r.flaw = errBoom }, true, "boom"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, problems := playInBubble(t, text, false, test.plant)
			if differs := got != text; differs != test.differs {
				t.Errorf("the output differs: %t, want %t\n%s", differs, test.differs, got)
			}
			if all := strings.Join(problems, "\n"); (test.problem == "") != (all == "") || !strings.Contains(all, test.problem) {
				t.Errorf("problems are %q, want %q", all, test.problem)
			}
		})
	}
}

func TestScenarioStepsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if !strings.Contains(string(text), "`"+step.words) {
			t.Errorf("docs/scenarios/README.md does not have the step %q", step.words)
		}
	}
}

// withoutErrorPauses takes away, for this test, the handler of errors that pauses by the real clock, which
// stands still for a test in a bubble.
func withoutErrorPauses(t *testing.T) {
	all := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = all[:1]
	t.Cleanup(func() { utilruntime.ErrorHandlers = all })
}

// withoutPauses returns a scenario without the lines about pauses.
func withoutPauses(text string) string { return aboutPauses.ReplaceAllString(text, "") }

var aboutPauses = regexp.MustCompile(`\n(.* waits for the caches|.* is tried again within .*|nothing)\b`)

// playInBubble plays a scenario in virtual time. It returns the text with the outputs that came of it, and
// what went wrong. plant, unless nil, sees each request before it is served.
func playInBubble(t *testing.T, text string, eventsFirst bool, plant func(*stage, *request)) (played string, problems []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t.Context(), plant)
		s.eventsFirst = eventsFirst
		defer s.close()
		played, problems = s.play(text), s.problems
	})
	return played, problems
}

// A stage is where a scenario is played: a cluster, and one controller or more.
type stage struct {
	ctx       context.Context
	cluster   *simulation
	instances []*instance
	plant     func(*stage, *request)
	// eventsFirst has a controller's caches see what it writes before it gets the answer. Both orders happen.
	eventsFirst bool
	problems    []string
	// blocks is the block that is being played, counted from 1.
	blocks int
	// syncs are those of this block that sent or told something.
	syncs []telling
	// soon is when a sync that only makes a break between two steps goes on, zero when there is none.
	soon time.Time
	// silent says that the present sync has not, so far.
	silent bool
	// shown are the lines that steps of this block showed.
	shown []string
}

// A telling is what a sync of a Foo sent and told, line by line.
type telling struct {
	foo   string
	lines []string
}

func newStage(ctx context.Context, plant func(*stage, *request)) *stage {
	s := &stage{ctx: ctx, cluster: newSimulation(), plant: plant}
	if plant == nil {
		s.plant = func(*stage, *request) {}
	}
	s.begin()
	return s
}

// begin starts a controller on an empty cluster.
func (s *stage) begin() {
	s.instances = nil
	s.cluster = newSimulation()
	s.cluster.Intercept(func(r *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
		for _, p := range s.instances {
			if r.User == controllerName+p.name {
				return p.serve(r, next)
			}
		}
		return next()
	})
	s.start("")
}

func (s *stage) close() {
	for _, p := range s.instances {
		p.queue.ShutDown()
	}
}

func (s *stage) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf("block %d: %s", s.blocks, fmt.Sprintf(format, args...)))
}

// play plays the blocks of text, which empty lines separate, and returns text with their outputs.
func (s *stage) play(text string) string {
	var blocks []string
	for _, block := range blocksOf(text) {
		s.blocks++
		script, _, hasSteps := strings.Cut(strings.TrimSpace(block)+"\n", "\n----\n")
		if hasSteps {
			script += "\n----\n" + strings.Join(s.block(script), "\n")
		}
		blocks = append(blocks, strings.TrimSpace(script))
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

// block plays the steps of one block and returns what came of them.
func (s *stage) block(script string) []string {
	s.syncs, s.shown = nil, nil
	for line := range strings.SplitSeq(script, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.step(line); err != nil {
			s.problem("%s: %v", line, err)
		}
	}
	s.settle()
	output := s.output()
	s.checkSettled()
	if len(output) == 0 {
		return []string{"nothing"}
	}
	return output
}

// output returns what the syncs of this block said, what has been shown, and which Foos are tried again.
func (s *stage) output() []string {
	var output []string
	for i := 0; i < len(s.syncs); {
		n := 1
		for i+n < len(s.syncs) && slices.Equal(s.syncs[i].lines, s.syncs[i+n].lines) {
			n++
		}
		output = append(output, s.syncs[i].lines...)
		if n > 1 {
			output = append(output, fmt.Sprintf("... and the same %d times more", n-1))
		}
		i += n
	}
	output = append(output, s.shown...)
	for _, p := range s.instances {
		output = append(output, p.pauses()...)
	}
	return output
}

// settle lets the caches and the controllers work until nothing is left to do at this time. Of several
// controllers each syncs once before any of them learns what the others did.
func (s *stage) settle() {
	rounds := 0
	for busy := true; busy; rounds++ {
		if rounds == 1000 {
			s.problem("it does not come to rest")
			return
		}
		for _, p := range s.instances {
			p.watch()
		}
		synctest.Wait() // For keys whose time has come.
		busy = false
		for _, p := range s.instances {
			if p.queue.Len() > 0 {
				busy = true
				p.sync()
			}
		}
		if soon := s.soon; !busy && !soon.IsZero() {
			busy, s.soon = true, time.Time{}
			time.Sleep(time.Until(soon))
		}
	}
}

// checkSettled syncs every Foo once more: that must send nothing. It leaves out a controller whose caches are
// behind, since that one may have to look again, and a namespace that is being deleted, where every try ends
// the same and none is made without a cause.
func (s *stage) checkSettled() {
	s.syncs = nil
	if s.cluster.terminating {
		return
	}
	for _, p := range s.instances {
		if !p.behind() {
			for _, foo := range s.cluster.Objects(fooResource) {
				p.queue.Add(cache.MetaObjectToName(foo.(object)))
			}
		}
	}
	s.settle()
	if len(s.syncs) > 0 {
		s.problem("one more sync of every Foo says\n%s", strings.Join(s.output(), "\n"))
	}
}

// wait lets time pass, and the controllers work whenever a key's time has come, until enough says so.
func (s *stage) wait(enough func(next time.Time) bool) {
	for {
		s.settle()
		next, any := time.Time{}, false
		for _, p := range s.instances {
			if due, ok := p.queue.next(); ok && (!any || due.Before(next)) {
				next, any = due, true
			}
		}
		if !any || enough(next) {
			return
		}
		time.Sleep(time.Until(next))
	}
}

// say adds a line to what the present sync of p says.
func (s *stage) say(p *instance, format string, args ...any) {
	if s.silent {
		s.silent = false
		s.syncs = append(s.syncs, telling{foo: p.queue.key.Name})
	}
	last := &s.syncs[len(s.syncs)-1]
	last.lines = append(last.lines, p.words(format, args...))
}

// An instance is one running controller with its caches. No informers run: watch does their work, when told to.
type instance struct {
	*Controller
	stage *stage
	ctx   context.Context
	// name is empty when there is no other.
	name   string
	stores map[string]cache.Indexer
	// come is the version up to which each cache has come.
	come map[string]int64
	// lags has the resources whose cache does not follow.
	lags map[string]bool
	// copies are of the cached objects, as they were put into the caches.
	copies map[object]object
	queue  *queue
	// failed is how the last sync ended.
	failed error
}

// start starts a controller whose caches have what is there.
func (s *stage) start(name string) *instance {
	p := &instance{stage: s, name: name, come: map[string]int64{}, lags: map[string]bool{}, copies: map[object]object{}}
	p.ctx = klog.NewContext(s.ctx, klog.New(logSink{p}))
	config := s.cluster.Config(controllerName + name)
	kube, samples := kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config)
	foos := fooinformers.NewSharedInformerFactory(samples, 0).Samplecontroller().V1alpha1().Foos()
	deployments := kubeinformers.NewSharedInformerFactory(kube, 0).Apps().V1().Deployments()
	controller, err := New(p.ctx, kube, samples, eventLog{p}, foos, deployments)
	if err != nil {
		panic(err)
	}
	p.Controller = controller
	p.queue = &queue{TypedRateLimitingInterface: controller.queue, instance: p, due: map[time.Time]bool{}, pauses: map[cache.ObjectName]pause{}}
	controller.queue = p.queue
	p.stores = map[string]cache.Indexer{foosResource: foos.Informer().GetIndexer(), deploymentsResource: deployments.Informer().GetIndexer()}
	p.relist(foosResource)
	p.relist(deploymentsResource)
	s.instances = append(s.instances, p)
	return p
}

// words are a line of output about this controller.
func (p *instance) words(format string, args ...any) string {
	line := fmt.Sprintf(format, args...)
	if p.name != "" {
		line = p.name + ": " + line
	}
	return line
}

// serve answers a request of the controller.
func (p *instance) serve(from *apisim.Request, next func() (*http.Response, error)) (*http.Response, error) {
	r := p.stage.cluster.requestOf(from, next)
	p.stage.plant(p.stage, r)
	if r.flaw != nil {
		p.stage.problem("%s: %v", r.words, r.flaw)
		return nil, r.flaw
	}
	answer, err := p.stage.cluster.serve(from, r)
	p.stage.say(p, "%s", r.words)
	if p.stage.eventsFirst {
		p.watch()
	}
	return answer, err
}

// watch brings the caches that follow up to date, and tells the controller's handlers.
func (p *instance) watch() {
	for _, change := range p.stage.cluster.changes() {
		resource := change.Resource.Resource
		if change.Version <= p.come[resource] || p.lags[resource] {
			continue
		}
		p.come[resource] = change.Version
		p.take(change)
	}
}

// behind reports whether a cache has not seen all.
func (p *instance) behind() bool {
	return slices.ContainsFunc(p.stage.cluster.changes(), func(change *apisim.Revision) bool {
		resource := change.Resource.Resource
		return p.lags[resource] && change.Version > p.come[resource]
	})
}

// take does what an informer does with a watch event.
func (p *instance) take(change *apisim.Revision) {
	store, obj, gone := p.stores[change.Resource.Resource], p.copied(change.Object), change.Type == watch.Deleted
	have, _, _ := store.GetByKey(cache.MetaObjectToName(obj).String())
	put := store.Update
	if gone {
		put = store.Delete
	}
	if err := put(obj); err != nil {
		panic(err)
	}
	p.tell(have, obj, gone)
}

// tell calls the handler for what an informer has seen; have is what its cache had, nil for nothing. The keys
// that it queues get an order of their own: the handlers' is that of a map.
func (p *instance) tell(have any, obj object, gone bool) {
	p.queue.sorting = true
	defer p.queue.sorted()
	switch obj := obj.(type) {
	case *v1alpha1.Foo:
		switch {
		case gone:
			p.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: obj})
		case have == nil:
			p.fooAdded(obj)
		default:
			p.fooChanged(have.(*v1alpha1.Foo), obj)
		}
	case *appsv1.Deployment:
		switch {
		case gone:
			p.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: obj})
		case have == nil:
			p.deploymentAdded(obj)
		default:
			p.deploymentChanged(have.(*appsv1.Deployment), obj)
		}
	}
}

// relist does what an informer does at its start, and after it lost its watch: it takes what is there now,
// and does not learn what happened to it meanwhile.
func (p *instance) relist(resource string) {
	store := p.stores[resource]
	had := map[string]object{}
	for _, obj := range store.List() {
		had[obj.(object).GetName()] = obj.(object)
	}
	var items []any
	for _, obj := range p.stage.cluster.Objects(gvrOf(resource)) {
		items = append(items, p.copied(obj))
	}
	version := p.stage.cluster.Version()
	if err := store.Replace(items, strconv.FormatInt(version, 10)); err != nil {
		panic(err)
	}
	p.come[resource] = version
	for _, item := range items {
		obj := item.(object)
		if have := had[obj.GetName()]; have != nil {
			p.tell(have, obj, false)
		} else {
			p.tell(nil, obj, false)
		}
		delete(had, obj.GetName())
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		p.tell(had[name], had[name], true)
	}
}

// copied returns what a cache keeps of obj, and remembers what that is.
func (p *instance) copied(obj runtime.Object) object {
	kept, err := plan.Trim(obj.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	p.copies[kept.(object)] = kept.(object).DeepCopyObject().(object)
	return kept.(object)
}

// sync lets the worker have the next key.
func (p *instance) sync() {
	p.stage.silent = true
	p.processNextWorkItem(p.ctx, p.ctx)
	for _, store := range p.stores {
		for _, cached := range store.List() {
			cached := cached.(object)
			if reflect.DeepEqual(p.copies[cached], cached) {
				continue
			}
			p.stage.problem("the sync of %s changed a cached object:\n%s", p.queue.key.Name, cmp.Diff(p.copies[cached], cached))
			p.copies[cached] = cached.DeepCopyObject().(object)
		}
	}
}

// pauses says, once of each pause, which Foos are tried again, or wait for caches.
func (p *instance) pauses() []string {
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(p.queue.pauses), func(a, b cache.ObjectName) int { return strings.Compare(a.Name, b.Name) }) {
		pause := p.queue.pauses[key]
		if !pause.told {
			lines = append(lines, p.words("%s", pause.words))
		}
		pause.told = true
		p.queue.pauses[key] = pause
	}
	return lines
}

// A queue is the controller's, which also remembers what it is told about pauses.
type queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	instance *instance
	// key was handed out last.
	key cache.ObjectName
	// sorting says that keys which are added go to unsorted first.
	sorting  bool
	unsorted []cache.ObjectName
	// due are the times at which keys come back.
	due map[time.Time]bool
	// pauses are the pauses that keys make now.
	pauses map[cache.ObjectName]pause
}

type pause struct {
	until time.Time
	words string
	told  bool
}

func (q *queue) Get() (cache.ObjectName, bool) {
	key, shutdown := q.TypedRateLimitingInterface.Get()
	q.key = key
	return key, shutdown
}

func (q *queue) Add(key cache.ObjectName) {
	if q.sorting {
		q.unsorted = append(q.unsorted, key)
		return
	}
	q.TypedRateLimitingInterface.Add(key)
}

// sorted adds what is unsorted by name.
func (q *queue) sorted() {
	q.sorting = false
	slices.SortFunc(q.unsorted, func(a, b cache.ObjectName) int { return strings.Compare(a.Name, b.Name) })
	for _, key := range q.unsorted {
		q.Add(key)
	}
	q.unsorted = nil
}

func (q *queue) AddRateLimited(key cache.ObjectName) {
	after := q.instance.retries.When(key)
	q.add(key, after, fmt.Sprintf("%s is tried again within %v", key.Name, roundUp(after, 5*time.Millisecond)))
}

func (q *queue) AddAfter(key cache.ObjectName, after time.Duration) {
	var wait *plan.WaitError
	var overridden *plan.OverriddenError
	switch errors.As(q.instance.failed, &wait); {
	case wait.For == plan.NextStep:
		q.instance.stage.soon = time.Now().Add(after)
		q.TypedRateLimitingInterface.AddAfter(key, after)
	case wait.For == plan.CacheBehind || wait.For == plan.CacheLacksDeployment:
		q.add(key, after, key.Name+" waits for the caches")
	case errors.As(wait, &overridden):
		q.add(key, after, fmt.Sprintf("%s is tried again within %v", key.Name, roundUp(after, time.Second)))
	default:
		q.add(key, after, fmt.Sprintf("%s is tried again within %v", key.Name, roundUp(after, 5*time.Millisecond)))
	}
}

// add starts a pause, or goes on with one that ends at the same time or is of the same words.
func (q *queue) add(key cache.ObjectName, after time.Duration, words string) {
	until := time.Now().Add(after)
	q.due[until] = true
	if have := q.pauses[key]; !have.until.Equal(until) && have.words != words {
		q.pauses[key] = pause{until: until, words: words}
	}
	q.TypedRateLimitingInterface.AddAfter(key, after)
}

// next returns the next time at which a key comes back.
func (q *queue) next() (next time.Time, ok bool) {
	for due := range q.due {
		switch {
		case !due.After(time.Now()):
			delete(q.due, due)
		case !ok || due.Before(next):
			next, ok = due, true
		}
	}
	return next, ok
}

// roundUp returns the pause that a random part was taken off to get after; pauses double from first to a minute.
func roundUp(after, first time.Duration) time.Duration {
	for first < after {
		first *= 2
	}
	return min(first, time.Minute)
}

// An eventLog says the events of an instance.
type eventLog struct{ *instance }

var _ events.EventRecorder = eventLog{}

func (r eventLog) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	r.stage.say(r.instance, "event %s %s %s: %s", regarding.(*v1alpha1.Foo).Name, eventType, reason, fmt.Sprintf(note, args...))
}

// A logSink learns from the log of an instance how its syncs end.
type logSink struct{ *instance }

func (logSink) Init(klog.RuntimeInfo)            {}
func (logSink) Enabled(int) bool                 { return true }
func (l logSink) WithName(string) klog.LogSink   { return l }
func (l logSink) WithValues(...any) klog.LogSink { return l }

func (l logSink) Info(_ int, message string, values ...any) {
	if i := slices.Index(values, any("err")); message == "Synced" && i >= 0 {
		l.failed, _ = values[i+1].(error)
		if plan.OutcomeOf(l.failed).Kind != plan.Wait {
			delete(l.queue.pauses, l.queue.key)
		}
	}
}

func (l logSink) Error(err error, message string, values ...any) {
	if message == "Sync panicked" {
		l.stage.problem("%s: %v", message, values)
	}
}
