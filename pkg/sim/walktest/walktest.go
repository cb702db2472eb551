// Package walktest plays every conversation that a sync of a plan of package reconcile can have with the API server, in
// small worlds.
//
// A world is what the caches and the API server have, and what is remembered. From each world the walk plays the
// conversation in which all answers are good and, for every request of it and every bad answer to that request, the
// conversation that follows. Then it plays the syncs after that, until nothing changes any more. Oracles are what must
// hold at each request and at each end. They use the answers that were given, and nothing that decides: no function of
// the plan or of the engine. So they find what rules do when a cache lags, an answer is lost, or somebody is faster.
//
// A maker describes an object, its children, and how somebody else may change them, see [Walk]. The worlds, the API
// server with its good and bad answers, and the oracles of any controller are here. Worlds and answers are fixed, so
// each run plays the same conversations. A test is one call of [Walk.Test].
//
// It is not for what surrounds the plan: event handlers, queues, informers and the client are left out, and so are the
// schema, defaults and the admission of a real API server. For those there are package simtest and a real cluster. Nor
// does it find what a plan should do: that Ready is true only of what the user wants is for Walk.Ready.
package walktest

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

var (
	playAll = flag.Bool("walk-all", false, "play all worlds of a walk, and not only a part of them")
	maxBad  = flag.Int("walk-bad", 1, "how many answers of a conversation may be bad in a walk")
)

// A Walk describes a plan. In is its Input, and W the type of its objects. All functions must be pure: they get objects
// that others share, and are called in any order. A Walk is for one goroutine.
type Walk[In any, W reconcile.Object] struct {
	Plan *reconcile.Plan[In]
	// Kind is that of the object.
	Kind reconcile.Kind[W]
	// Observe returns what a sync reads from the caches. Its objects have passed Trim, the transform of the informers.
	Observe func(cached Objects) *In
	Trim    func(any) (any, error)

	// Object is an object that nobody has reported on. It needs a name, a spec, and nothing else. Objects are what it may
	// be instead, such as one with a status. The last of them is the one that somebody changes. It must have been reported
	// on.
	Object  W
	Objects []Edit[W]
	// Changes are what somebody may do to the object while the caches lack it, most of them to the spec.
	Changes []Edit[W]
	// Children are what the object is to have.
	Children []Child[W]
	// Deletion means that the plan is also for an object that is being deleted.
	Deletion bool

	// Progress does one step of the other controllers, such as a rollout, to a copy of an object that is not of Kind, and
	// reports whether it has changed it. One with a deletionTimestamp is gone after the next step. Nil changes nothing.
	Progress func(obj W, other metav1.Object) bool
	// Ready reports whether the condition Ready of obj, with this status, may be True. All children that Object asks for
	// are there and are its own, except in walks with their own Worlds.
	Ready func(obj W, objects Objects) bool
	// Settled reports whether obj has what it asks for, or its status gives the reason, when nothing changes any more. If
	// stuck, Progress does not help. Nil is that Ready is True if it may be, and False otherwise.
	Settled func(obj W, objects Objects, stuck bool) bool
	// Oracles are what must hold besides.
	Oracles []Oracle
	// Vary has changes of an Input that must not change anything else, such as another order of a list. Each reports
	// whether it has changed it.
	Vary map[string]func(*In) bool
	// ReportsAll means that the condition Ready has the message of each operation that has failed, not only of the first.
	ReportsAll bool
	// MaxRequests is how many requests a sync may send; 0 is 12.
	MaxRequests int

	// Worlds, unless nil, calls visit with each world in which nothing backs off, in place of those of Object, Objects,
	// Changes and Children. MayWant, unless nil, returns which operations may back off in it, in place of those that are
	// sent.
	Worlds  func(visit func(World))
	MayWant func(*World) []reconcile.Op
}

// An Edit is a change of an object, with what it is then for people.
type Edit[T any] struct {
	Name string
	Do   func(obj T)
	// Stuck means that Progress does not help.
	Stuck bool
}

// A Child is one that the object is to have.
type Child[W any] struct {
	// Kind is that of its steps.
	Kind string
	// Want returns the child that the object asks for, nil if it asks for none. Walk.Object asks for it. Its name and
	// namespace are always the same, and no other child has its kind and both.
	Want func(W) metav1.Object
	// Edits are what somebody may have changed in it, Admit what a webhook may change on its way in. Nil is nothing.
	Edits []Edit[metav1.Object]
	Admit func(obj metav1.Object)
}

// A Key identifies an object. The namespace of one without is "".
type Key struct{ Kind, Namespace, Name string }

func keyOf(op reconcile.Op) Key { return Key{op.Kind, op.Namespace, op.Name} }

func (key Key) String() string {
	return key.Kind + " " + strings.TrimPrefix(key.Namespace+"/"+key.Name, "/")
}

func (key Key) op(verb reconcile.Verb) reconcile.Op {
	return reconcile.Op{Verb: verb, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
}

// Objects are what an API server, or a cache, has. An object in it is replaced, and never changed.
type Objects map[Key]metav1.Object

// Get returns an object, nil if there is none, or if it has another type than those of kind.
func Get[T reconcile.Object](objects Objects, kind reconcile.Kind[T], namespace, name string) T {
	obj, _ := objects[Key{kind.Kind, namespace, name}].(T)
	return obj
}

// with returns a copy of o with obj, or without the object of the key if obj is nil.
func (o Objects) with(key Key, obj metav1.Object) Objects {
	next := make(Objects, len(o)+1)
	maps.Copy(next, o)
	if obj == nil {
		delete(next, key)
		return next
	}
	next[key] = obj
	return next
}

// An Oracle reports whether the step of a situation may be sent now.
type Oracle struct {
	Name  string
	Holds func(Situation) bool
}

// A Situation is what is known when a step is about to be sent. It is only to be read.
type Situation struct {
	*reconcile.Step
	// World is that in which the sync began. Seen is what the caches and the answers have shown, Live what the API server
	// has. Their objects have not passed Trim.
	World      *World
	Seen, Live Objects
	// Patched is what a patch makes of the object that is seen, if there is one.
	Patched metav1.Object
	// Read is what was read live since the last write, Sent what was sent in this sync.
	Read, Sent []reconcile.Op
}

// A World is the state in which a sync begins. Its objects are shared, and nobody changes them.
type World struct {
	// Options are what was chosen for it, for people.
	Options      []string
	Cached, Live Objects
	Memory       reconcile.Memory
	// Admits means that a webhook changes what is written, Stuck that there is no progress, Undeletable that deletions are
	// refused.
	Admits, Stuck, Undeletable bool
	// Held means that the caches lack a version that the controller has written or read live: it does not leave the key to
	// an event. EventDue means that they lack a change of somebody else, whose event brings the key back.
	Held, EventDue bool
}

// An Option is one choice in a list of worlds. Set replaces what a world has, without changing its maps. Fits reports
// whether the option makes a difference; nil is that it does.
type Option struct {
	Name string
	Set  func(*World)
	Fits func(*World) bool
}

// Combine calls visit with a world for each choice of one option of each list, always in the same order. The options
// are set in the order of the lists.
func Combine(lists [][]Option, visit func(World)) { combine(World{}, lists, visit) }

func combine(w World, lists [][]Option, visit func(World)) {
	if len(lists) == 0 {
		visit(w)
		return
	}
	for _, o := range lists[0] {
		if o.Fits != nil && !o.Fits(&w) {
			continue
		}
		next := w
		next.Options = append(slices.Clip(w.Options), o.Name)
		o.Set(&next)
		combine(next, lists[1:], visit)
	}
}

// start is when every first sync begins.
var start = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// Test plays the walk, and fails t for each oracle that did not hold, with the shortest conversation. Unless the test
// has the flag -walk-all, it plays a fixed part of the worlds, which costs about 20 s of CPU at most, and logs how
// many it leaves out. With the race detector, that part is smaller. -walk-bad is how many answers of a conversation may
// be bad, 1 if it is absent.
func (walk *Walk[In, W]) Test(t *testing.T) {
	t.Helper()
	walk.test(t, 90_000)
}

func (walk *Walk[In, W]) test(t *testing.T, limit int) {
	t.Helper()
	build, _ := debug.ReadBuildInfo() // A test has it.
	switch {
	case *playAll:
		limit = math.MaxInt
	case slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}):
		limit = 20_000 // The race detector makes a walk ten times slower.
	}
	p := walk.play(limit)
	t.Logf("%d worlds, %d conversations, %d requests, and %d syncs until all is quiet",
		p.worlds, p.conversations, p.requests, len(p.visited))
	if p.leftOut > 0 {
		t.Logf("LEFT OUT: %d of %d worlds before anything backs off; to play all: go test -run '^%s$' -walk-all",
			p.leftOut, p.leftOut+p.groups, t.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(p.wrong)) {
		t.Errorf("%q does not hold in %d conversations, of which this is the shortest:\n%s",
			name, p.wrong[name].count, p.wrong[name].example)
	}
}

// play plays the worlds, and each of them again with operations that back off, until there were more requests and syncs
// than limit.
func (walk *Walk[In, W]) play(limit int) *player[In, W] {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // There is little to keep, and much to throw away.
	p := &player[In, W]{
		Walk: walk, visited: map[[32]byte]bool{}, wrong: map[string]*violation{}, replies: map[reconcile.Op][]reply{},
		random: rand.New(rand.NewPCG(1, 0)),
	}
	p.owner = stored(walk.Object, "10").(W)
	p.key = Key{walk.Kind.Kind, p.owner.GetNamespace(), p.owner.GetName()}
	p.rules = p.allRules()
	worlds := walk.Worlds
	if worlds == nil {
		worlds = p.worldsOf
	}
	worlds(func(World) { p.leftOut++ })
	parts := p.leftOut/100 + 1
	for part := 0; part < parts && p.requests+len(p.visited) < limit; part++ {
		random := rand.New(rand.NewPCG(2, 0))
		worlds(func(w World) {
			if random.IntN(parts) == part {
				p.groups++
				p.leftOut--
				p.playGroup(&w)
			}
		})
	}
	return p
}

// A violation is an oracle that did not hold.
type violation struct {
	count, lines int
	example      string // Of so many lines.
}

// A player plays conversations, counts them and collects what is wrong.
type player[In any, W reconcile.Object] struct {
	*Walk[In, W]
	owner   W // Object as it is stored.
	key     Key
	rules   []rule
	replies map[reconcile.Op][]reply
	memo    memo
	random  *rand.Rand
	current *talk // That of the last answer.

	groups, leftOut, worlds, conversations, requests int

	visited map[[32]byte]bool // The states that were followed.
	wrong   map[string]*violation
}

// playGroup plays all conversations in w, in which nothing backs off, and in the worlds that are like it but that
// something backs off.
func (p *player[In, W]) playGroup(w *World) {
	defer func() {
		if r := recover(); r != nil {
			p.note("nothing panics", p.current, fmt.Sprintf("panic: %v\n%s", r, debug.Stack()))
		}
	}()
	p.memo = memo{map[metav1.Object]metav1.Object{}, map[patch]metav1.Object{}, map[metav1.Object]string{}}
	if w.Memory.UID == "" {
		w.Memory.UID = w.Cached[p.key].GetUID()
	}
	w.Memory.Generation = w.Cached[p.key].GetGeneration()
	plain, _ := p.begin(w, start)
	p.run(plain, func(step *reconcile.Step) *reply {
		p.explain(plain, step)
		return &good
	})
	p.explain(plain, nil)
	p.vary(w)
	wanted := plain.writes()
	may := wanted
	if p.MayWant != nil {
		may = p.MayWant(w)
	}
	for _, backs := range p.backoffs(w, wanted, may) {
		next := *w
		next.Options = append(slices.Clip(w.Options), backs.name)
		next.Memory.Ledger = backs.ledger
		if backs.stale != nil {
			backs.stale(&next.Memory)
		}
		p.worlds++
		c, _ := p.begin(&next, start)
		c.wanted, c.delaysNothing = wanted, backs.stale != nil
		p.goOn(c, c.delaysNothing)
		if p.worlds%5 == 0 {
			p.playAtRandom(&next, wanted)
		}
		if len(backs.ledger) > 1 {
			p.vary(&next)
		}
	}
	for key, obj := range w.Cached {
		if !reflect.DeepEqual(p.memo.trimmed[obj], p.trim(obj)) {
			c, _ := p.begin(w, start)
			p.note("the objects of caches are not changed", c, key.Name)
		}
	}
}

// begin returns the conversation of a sync in w before its first request, and its Input.
func (p *player[In, W]) begin(w *World, at time.Time) (*talk, *In) {
	trimmed := make(Objects, len(w.Cached))
	for key, obj := range w.Cached {
		trimmed[key] = p.trimmed(obj)
	}
	in := p.Observe(trimmed)
	object := w.Cached[p.key]
	c := &talk{
		world: w, live: w.Live, seen: w.Cached, began: at, at: at, held: w.Held, eventDue: w.EventDue,
		remembered: w.Memory, object: object, sync: p.Plan.Sync(in),
	}
	switch {
	case w.Memory.UID != object.GetUID():
		c.remembered = reconcile.Memory{}
	case w.Memory.Generation != object.GetGeneration():
		c.remembered.Ledger = nil
	}
	c.wroteBefore, c.wrote = c.remembered.Wrote, c.remembered.Wrote
	c.sync.Begin(w.Memory, at, 0.5)
	p.current = c
	return c, in
}

// goOn plays c to its end with good answers, and, unless only good, all other conversations that begin like it.
func (p *player[In, W]) goOn(c *talk, onlyGood bool) {
	for step := c.sync.Next(); step != nil; step = c.sync.Next() {
		if !p.allowed(c, step) {
			return
		}
		p.requests++
		bad := p.bad(step)
		for i := range bad {
			if onlyGood || c.bad >= *maxBad || !bad[i].matters(c, step) {
				continue
			}
			branch := c.clone()
			branch.bad++
			p.answer(branch, branch.sync.Next(), &bad[i])
			p.goOn(branch, false)
		}
		p.answer(c, step, &good)
	}
	c.outcome, c.memory = c.sync.End()
	p.end(c)
}

// run plays c to its end with the replies of choose, which returns nil to leave it. It returns whether it was played to
// its end.
func (p *player[In, W]) run(c *talk, choose func(*reconcile.Step) *reply) bool {
	const tooMany = 50 // There is an oracle for that.
	for step := c.sync.Next(); step != nil && len(c.lines)-c.first < tooMany; step = c.sync.Next() {
		r := choose(step)
		if r == nil {
			return false
		}
		p.answer(c, step, r)
	}
	c.outcome, c.memory = c.sync.End()
	return true
}

// playAtRandom plays one conversation in w in which one in three answers is bad, with explanations.
func (p *player[In, W]) playAtRandom(w *World, wanted []reconcile.Op) {
	c, _ := p.begin(w, start)
	c.wanted = wanted
	if p.run(c, func(step *reconcile.Step) *reply {
		p.explain(c, step)
		if !p.allowed(c, step) {
			return nil
		}
		p.requests++
		bad := p.bad(step)
		if i := p.random.IntN(3 * len(bad)); i < len(bad) && bad[i].matters(c, step) {
			c.bad++
			return &bad[i]
		}
		return &good
	}) {
		p.explain(c, nil)
		p.end(c)
	}
}

// end asks what must hold at the end of a conversation, and follows it.
func (p *player[In, W]) end(c *talk) {
	p.conversations++
	for _, rule := range p.rules {
		if rule.end != nil && !rule.end(c) {
			p.note(rule.name, c, c.ended())
			return
		}
	}
	p.follow(c)
}

// allowed asks the oracles whether step may be sent.
func (p *player[In, W]) allowed(c *talk, step *reconcile.Step) bool {
	name := ""
	for i := 0; i < len(p.rules) && name == ""; i++ {
		if rule := p.rules[i]; rule.step != nil && !rule.step(c, step) {
			name = rule.name
		}
	}
	for i := 0; i < len(p.Oracles) && name == ""; i++ {
		if !p.Oracles[i].Holds(p.situation(c, step)) {
			name = p.Oracles[i].Name
		}
	}
	if name != "" {
		p.note(name, c, fmt.Sprintf("%s: it must not send %s", step.Rule, text(step.Op)))
	}
	return name == ""
}

func (p *player[In, W]) situation(c *talk, step *reconcile.Step) Situation {
	s := Situation{Step: step, World: c.world, Seen: c.seen, Live: c.live, Read: c.read, Sent: c.sent()}
	if have := c.seen[keyOf(step.Op)]; step.Verb == reconcile.Patch && have != nil {
		s.Patched = p.patched(have, step)
	}
	return s
}

// note collects a violation. last is what is wrong at the end of c.
func (p *player[In, W]) note(name string, c *talk, last string) {
	text := "  In a world with: " + strings.Join(c.world.Options, ", ") + "\n"
	for _, line := range c.lines {
		text += "  " + line.String() + "\n"
	}
	text += "  " + last
	wrong := p.wrong[name]
	if wrong == nil || len(c.lines) < wrong.lines || len(c.lines) == wrong.lines && len(text) < len(wrong.example) {
		p.wrong[name] = &violation{lines: len(c.lines), example: text}
	}
	if wrong != nil {
		p.wrong[name].count = wrong.count
	}
	p.wrong[name].count++
}
