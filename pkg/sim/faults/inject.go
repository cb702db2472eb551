package faults

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "unsafe" // For go:linkname.

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// Injected is a schedule that was injected into a server. It may be used concurrently.
type Injected struct {
	schedule Schedule
	server   *apiserver.Server
	user     string
	began    time.Time

	mu       sync.Mutex
	seen     []int // For each fault, how many of its requests, events or lists came so far.
	happened []Fault
	// down is when the API server has restarted, and oldest the version from which on it can continue a watch.
	down    time.Time
	oldest  int64
	outages map[string]*outage // By resource. A new one is a copy of that of "", which all share.
}

// An outage is what is wrong with the watches of a resource.
type outage struct {
	until   time.Time     // Nothing is watched or listed before.
	expires bool          // After it, no watch can continue from a version of before.
	oldest  int64         // The version from which on a watch can continue.
	stale   time.Duration // How old the next list is.
}

var errLost = errors.New("read tcp 10.0.0.1:443: connection reset by peer")

// Inject injects the faults into the requests and watches of a user from now on. The requests of all users get the
// latency; answers and events only those of this user. The trace of the server has a line for each fault that happens.
// Inject panics if a Kind is unknown, or lacks what it needs.
func (s Schedule) Inject(server *apiserver.Server, user string) *Injected {
	for _, f := range s.Faults {
		if err := f.validate(); err != nil {
			panic("faults: " + err.Error())
		}
	}
	i := &Injected{
		schedule: s, server: server, user: user, began: time.Now(), seen: make([]int, len(s.Faults)),
		outages: map[string]*outage{"": {}},
	}
	server.Intercept(i.intercept) // Before the watches break, because their clients come back at once.
	server.InterceptEvents(i.interceptEvent)
	for _, f := range s.Faults {
		switch {
		case f.Nth > 0:
		case f.Kind == Restart || f.Kind == ClockSkew:
			i.happens(f, "")
		case f.Kind == WatchBroken || f.Kind == Expired:
			i.happens(f, "")
			i.takeDown(f.Resource, f)
		}
	}
	return i
}

// Happened returns the faults that have happened so far.
func (i *Injected) Happened() []Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.happened)
}

// happens records a fault that happens to what, and lets the API server restart, or its clock jump.
func (i *Injected) happens(f Fault, what string) {
	i.server.Note("fault: %s%s", f, what)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.happened = append(i.happened, f)
	switch f.Kind {
	case ClockSkew:
		i.server.SkewClock(f.For)
	case Restart:
		i.down, i.oldest = later(i.down, time.Now().Add(f.For)), i.server.Version()
		i.server.BreakWatches(i.user, "", errLost)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// due returns the faults that happen to this request, event or list.
func (i *Injected) due(subject, verb, resource string, what any) []Fault {
	i.mu.Lock()
	var due, happen []Fault
	for n, f := range i.schedule.Faults {
		if f.Kind.subject() != subject || f.Resource != "" && f.Resource != resource || !f.counts(verb) {
			continue
		}
		i.seen[n]++
		first, isDue := i.seen[n] == 1, i.seen[n] == f.Nth
		if f.Nth == 0 {
			isDue = f.isRepeated(time.Since(i.began))
		}
		if isDue {
			due = append(due, f)
		}
		if isDue && (first || f.Nth > 0) {
			happen = append(happen, f)
		}
	}
	i.mu.Unlock()
	for _, f := range happen {
		i.happens(f, fmt.Sprintf(" (%v)", what))
	}
	return due
}

// counts reports whether the fault is about requests with this verb.
func (f Fault) counts(verb string) bool {
	if f.Verb != "" || f.Kind.subject() == event || f.Kind.subject() == list {
		return f.Verb == "" || f.Verb == verb
	}
	return verb != "list" && verb != "watch"
}

// isRepeated reports whether a fault that happens to each request, event or list still does.
func (f Fault) isRepeated(since time.Duration) bool {
	switch f.Kind {
	case LostBefore, LostAfter, Refused, Page:
		return f.For == 0 || since < f.For
	case LateAnswer, LateEvent, StaleList:
		return true
	}
	return false
}

// latency delays something. The delay depends on the time and on what is sent, and not on what was sent before.
func (i *Injected) latency(r *apiserver.Request, what ...any) error {
	if i.schedule.Latency == 0 {
		return nil
	}
	return r.Sleep(time.Duration(i.schedule.source(what...).Int64N(int64(i.schedule.Latency))))
}

// selects returns what distinguishes two informers of one resource. The rest of a query has random timeouts.
func selects(r *apiserver.Request) string {
	return r.Query.Get("labelSelector") + "|" + r.Query.Get("fieldSelector") + "|" + r.HTTP.Header.Get("Accept")
}

// source returns random numbers that depend on the seed, the time, what is given, and nothing else. In a bubble of
// testing/synctest they are the same in each run.
func (s Schedule) source(what ...any) *rand.Rand {
	hash := fnv.New64a()
	fmt.Fprintln(hash, append(what, s.Seed)...)
	return rand.New(rand.NewPCG(hash.Sum64(), uint64(time.Now().UnixNano())))
}

func (i *Injected) intercept(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	if err := i.latency(r, r.User, r, selects(r), string(r.Body)); err != nil {
		return nil, err
	}
	if r.User != i.user {
		return next()
	}
	resource := strings.TrimSuffix(r.Resource.Resource+"/"+r.Subresource, "/")
	i.due(server, r.Verb, resource, r)
	if i.isDown() {
		return nil, errLost
	}
	for _, f := range i.due(request, r.Verb, resource, r) {
		inner := next
		next = func() (*http.Response, error) { return f.happenTo(r, inner) }
	}
	if r.Verb == "list" || r.Verb == "watch" {
		return i.watch(r, next)
	}
	answer, err := next()
	if err != nil {
		return nil, err
	}
	return unlessLost(answer, i.latency(r, "answer", r.User, r, string(r.Body)))
}

// unlessLost returns an answer, or drops it because of an error.
func unlessLost(answer *http.Response, err error) (*http.Response, error) {
	if err == nil {
		return answer, nil
	}
	answer.Body.Close()
	return nil, err
}

func (i *Injected) isDown() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return time.Now().Before(i.down)
}

// happenTo lets a fault happen to a request.
func (f Fault) happenTo(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	switch f.Kind {
	case LostBefore:
		return nil, errLost
	case Refused:
		retryAfter := 0 // Seconds, after which client-go sends the request again. The controller gets other errors.
		if f.Code == http.StatusTooManyRequests {
			retryAfter = 1
		}
		return r.Refuse(apierrors.NewGenericServerResponse(
			f.Code, r.HTTP.Method, r.Resource.GroupResource(), r.Name, "a fault", retryAfter, false))
	}
	if f.Kind == Page {
		return f.page(r), nil
	}
	answer, err := next()
	switch {
	case err != nil:
		return nil, err
	case f.Kind == LostAfter:
		return unlessLost(answer, errLost)
	case f.Kind == LateAnswer:
		return unlessLost(answer, r.Sleep(f.For))
	}
	return answer, nil
}

// page returns the answer of a proxy.
func (f Fault) page(r *apiserver.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", f.Code, http.StatusText(f.Code)), StatusCode: f.Code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r.HTTP,
		Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html></html>")),
	}
}

// watch answers a list or a watch.
func (i *Injected) watch(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	switch err := i.interrupted(r); {
	case errors.Is(err, errLost):
		return nil, err
	case err != nil:
		return r.Refuse(err)
	}
	if age := i.age(r); age > 0 {
		if r.Verb == "watch" {
			return r.Refuse(noWatchList)
		}
		i.makeStale(r, age)
	}
	if r.Verb == "watch" && i.schedule.Latency > 0 { // client-go chooses the duration at random.
		seconds := 300 + i.schedule.source(r.User, r, selects(r)).IntN(300)
		r.Query.Set("timeoutSeconds", strconv.Itoa(seconds))
	}
	return next()
}

// interrupted returns the error that an outage answers a list or a watch with.
func (i *Injected) interrupted(r *apiserver.Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	o := i.outageOf(r.Resource.Resource)
	version, _ := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64)
	isResumed := r.Verb == "watch" && version > 0 && r.Query.Get("sendInitialEvents") == "" // Without one it begins now.
	switch {
	case time.Now().Before(o.until):
		return errLost
	case o.expires:
		o.expires, o.oldest = false, i.server.Version()+1
	}
	if !isResumed { // A list. Its client continues from there, also if nothing has changed since the outage.
		o.oldest = min(o.oldest, i.server.Version())
	}
	if isResumed && version < max(o.oldest, i.oldest) {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))
	}
	return nil
}

// age returns how old the answer to a list is. client-go asks for a watch list first, and sends the list when that is
// refused.
func (i *Injected) age(r *apiserver.Request) time.Duration {
	if r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "" {
		return 0
	}
	due := i.due(list, r.Verb, r.Resource.Resource, r)
	i.mu.Lock()
	defer i.mu.Unlock()
	o := i.outageOf(r.Resource.Resource)
	for _, f := range due {
		o.stale = f.For
	}
	age := o.stale
	if r.Verb == "list" {
		o.stale = 0
	}
	return age
}

// noWatchList is the error of an API server without watch lists. client-go then sends a list.
var noWatchList = apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "",
	field.ErrorList{field.Forbidden(field.NewPath("sendInitialEvents"),
		"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")})

// makeStale makes a list return the objects of some time ago, if its client accepts them.
func (i *Injected) makeStale(r *apiserver.Request, age time.Duration) {
	asked := r.Query.Get("resourceVersion")
	if asked == "" || r.Query.Get("continue") != "" || r.Query.Get("resourceVersionMatch") == "Exact" {
		return // The client wants the latest version, more of another list, or just this version.
	}
	version, then := i.server.Version(), time.Now().Add(-age)
	for _, rev := range slices.Backward(i.server.History()) {
		if !rev.Time.After(then) {
			break
		}
		version = rev.Version - 1
	}
	oldest, _ := strconv.ParseInt(asked, 10, 64)
	r.Query.Set("resourceVersion", strconv.FormatInt(max(version, oldest, 1), 10))
	r.Query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
}

// outageOf returns the outage of a resource. The caller holds the lock.
func (i *Injected) outageOf(resource string) *outage {
	if i.outages[resource] == nil {
		o := *i.outages[""]
		i.outages[resource] = &o
	}
	return i.outages[resource]
}

// takeDown breaks the watches of a resource, or of all if it is empty.
func (i *Injected) takeDown(resource string, f Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.outageOf(resource)
	for of, o := range i.outages {
		if resource == "" || resource == of {
			o.until = later(o.until, time.Now().Add(f.For))
			o.expires = o.expires || f.Kind == Expired
		}
	}
	i.server.BreakWatches(i.user, resource, errLost)
}

// describe describes an event in the style of kubectl: "MODIFIED default/web".
func describe(e apiserver.Event) string {
	if m, err := meta.Accessor(e.Object); err == nil {
		return string(e.Type) + " " + strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/")
	}
	return string(e.Type) // An error has no object.
}

// interceptEvent delays an event, or breaks its watch.
func (i *Injected) interceptEvent(w *apiserver.Watch, e apiserver.Event) error {
	if w.User != i.user || e.Type == watch.Bookmark {
		return nil
	}
	resource := w.Resource.Resource
	if err := i.latency(w.Request, resource, w.Namespace, selects(w.Request), e.Version); err != nil {
		return err
	}
	for _, f := range i.due(event, "watch", resource, describe(e)) {
		if f.Kind != LateEvent {
			i.takeDown(resource, f)
			continue
		}
		if err := w.Request.Sleep(f.For); err != nil {
			return err
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Now().Before(i.outageOf(resource).until) || time.Now().Before(i.down) {
		return errLost
	}
	return nil
}

// jitter is the source of the random part of client-go's backoffs.
//
//go:linkname jitter k8s.io/apimachinery/pkg/util/wait.jitterRand
var jitter func() float64

func init() { jitter = Float64 }

// Float64 returns a random number in [0, 1) that depends only on the virtual time, so that a run with random delays
// repeats exactly. With numbers of a common source, tests that run in parallel would differ in each run. The backoffs
// of client-go use it as soon as a program has this package.
func Float64() float64 {
	return rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)).Float64()
}
