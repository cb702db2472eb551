package fairqueue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// A model is a queue in the simplest form: slices that are searched from the beginning. It has no goroutines and no
// timers. It is asked after every step which keys are handed out to those that wait.
type model struct {
	workers  int
	tokens   *rate.Limiter
	queue    []queuedKey
	hand     []heldKey
	added    int // Number of the last key that was queued.
	waiting  int
	stopping bool

	changes, initial modelTurns
	// passed is the number of keys that were handed out since the last one of the initial list, while there was one.
	passed int
}

// modelTurns is the order of turns for the keys of the initial list, or for the others.
type modelTurns struct {
	initial bool
	// fresh and served have the namespaces that wait, in the order of their turns: those that were not served in this
	// round, and those that were. hadTurn has all that were served in this round, and those that came when there were too
	// many new ones. joined has those that ever waited, of those that have keys.
	fresh, served []string
	hadTurn       map[string]bool
	joined        map[string]bool
	newcomers     int // The number of new namespaces in this round.
}

type queuedKey struct {
	key     string
	due     time.Time // When it was added, plus the handicap.
	number  int
	classes []Class // In which it was added.
}

// initial reports whether the key was added as nothing else.
func (k queuedKey) initial() bool {
	return !slices.ContainsFunc(k.classes, func(class Class) bool { return class != Initial })
}

type heldKey struct {
	key   string
	since time.Time
	again []Class // The classes in which it was added meanwhile.
}

func (k queuedKey) isBefore(other queuedKey) bool {
	return k.due.Before(other.due) || k.due.Equal(other.due) && k.number < other.number
}

func handicapOf(class Class) time.Duration {
	seconds := map[Class]int{Change: 0, Retry: 5, Failed: 5, Initial: 0}
	return time.Duration(seconds[class]) * time.Second
}

func (m *model) add(key string, class Class) {
	m.forgetJoined()
	queued := slices.IndexFunc(m.queue, func(k queuedKey) bool { return k.key == key })
	held := slices.IndexFunc(m.hand, func(k heldKey) bool { return k.key == key })
	switch {
	case m.stopping:
	case held >= 0:
		m.hand[held].again = append(m.hand[held].again, class)
	case queued >= 0:
		m.queue[queued].claim(class)
	default:
		m.enqueue(key, class)
	}
	m.order()
}

// namespaces returns those that have keys.
func (m *model) namespaces() map[string]bool {
	names := map[string]bool{}
	for _, k := range m.queue {
		names[keyNamespace(k.key)] = true
	}
	for _, k := range m.hand {
		names[keyNamespace(k.key)] = true
	}
	return names
}

// join follows when a namespace waits for the first time.
func (m *modelTurns) join(namespace string) {
	m.joined[namespace] = true
	if m.hadTurn[namespace] || m.newcomers == modelNewcomers {
		m.hadTurn[namespace] = true
		return
	}
	m.newcomers++
}

func (m *model) needsToken(k queuedKey) bool {
	return m.tokens != nil && slices.Contains(k.classes, Failed) && !slices.Contains(k.classes, Change)
}

// enqueue queues a key that was added in these classes.
func (m *model) enqueue(key string, classes ...Class) {
	m.added++
	k := queuedKey{key: key, due: time.Now().Add(time.Hour), number: m.added}
	for _, class := range classes {
		k.claim(class)
	}
	m.queue = append(m.queue, k)
}

// claim notes that the key was added in a class.
func (k *queuedKey) claim(class Class) {
	if due := time.Now().Add(handicapOf(class)); due.Before(k.due) {
		k.due = due
	}
	k.classes = append(k.classes, class)
}

func (m *model) done(key string) {
	held := slices.IndexFunc(m.hand, func(k heldKey) bool { return k.key == key })
	if held < 0 {
		return
	}
	k := m.hand[held]
	m.hand = slices.Delete(m.hand, held, held+1)
	m.order()
	if len(k.again) == 0 {
		return
	}
	m.enqueue(key, k.again...)
	m.order()
}

// order brings the turns up to date after a change of one namespace.
func (m *model) order() {
	for _, turns := range []*modelTurns{&m.changes, &m.initial} {
		var waiting []string
		for _, k := range m.queue {
			if namespace := keyNamespace(k.key); k.initial() == turns.initial && !slices.Contains(waiting, namespace) {
				waiting = append(waiting, namespace)
			}
		}
		turns.order(waiting)
	}
}

// forgetJoined drops the namespaces that have no keys.
func (m *model) forgetJoined() {
	namespaces := m.namespaces()
	for _, turns := range []*modelTurns{&m.changes, &m.initial} {
		maps.DeleteFunc(turns.joined, func(namespace string, _ bool) bool { return !namespaces[namespace] })
	}
}

// isCandidate reports whether a key of the namespace may be handed out.
func (m *model) isCandidate(namespace string) bool {
	return m.stopping || m.held(namespace) < m.limit()
}

// hasCandidate reports whether one of those that wait is a candidate.
func (m *model) hasCandidate(turns modelTurns) bool {
	return slices.ContainsFunc(turns.fresh, m.isCandidate) || slices.ContainsFunc(turns.served, m.isCandidate)
}

func (m *modelTurns) order(waiting []string) {
	isNone := func(namespace string) bool { return !slices.Contains(waiting, namespace) }
	m.fresh, m.served = slices.DeleteFunc(m.fresh, isNone), slices.DeleteFunc(m.served, isNone)
	for _, namespace := range waiting {
		if !m.joined[namespace] {
			m.join(namespace)
		}
		switch {
		case slices.Contains(m.fresh, namespace) || slices.Contains(m.served, namespace):
		case m.hadTurn[namespace]:
			m.served = append(m.served, namespace)
		default:
			m.fresh = append(m.fresh, namespace)
		}
	}
}

func (m *modelTurns) newRound() {
	m.fresh, m.served, m.hadTurn, m.newcomers = append(m.fresh, m.served...), nil, map[string]bool{}, 0
}

func (m *model) limit() int { return max(1, m.workers/2) }

// held returns how many keys of the namespace are in hand.
func (m *model) held(namespace string) (n int) {
	for _, k := range m.hand {
		if keyNamespace(k.key) == namespace {
			n++
		}
	}
	return n
}

func (m *model) isSlow(k heldKey) bool { return time.Since(k.since) >= time.Second }

func (m *model) hasPlace() bool {
	fast := 0
	for _, k := range m.hand {
		if !m.isSlow(k) {
			fast++
		}
	}
	return fast < m.workers && len(m.hand) < 4*m.workers
}

// handOut returns the keys that those who wait get now, in order.
func (m *model) handOut() (keys []string) {
	m.forget()
	for m.waiting > 0 && !m.stopping {
		i := m.next()
		if i < 0 {
			break
		}
		keys = append(keys, m.queue[i].key)
		m.waiting--
		m.take(i)
	}
	return keys
}

func (m *model) next() int {
	if !m.hasPlace() {
		return -1
	}
	i := m.find(func(queuedKey) bool { return true })
	if i >= 0 && m.needsToken(m.queue[i]) && !m.tokens.Allow() {
		return m.find(func(k queuedKey) bool { return !m.needsToken(k) })
	}
	return i
}

// take moves the key with index i from the queue into somebody's hands.
func (m *model) take(i int) {
	key := m.queue[i].key
	switch {
	case m.queue[i].initial():
		m.passed = 0
		m.initial.take(keyNamespace(key))
	case m.hasCandidate(m.initial):
		m.passed++
		fallthrough
	default:
		m.changes.take(keyNamespace(key))
	}
	m.queue = slices.Delete(m.queue, i, i+1)
	m.hand = append(m.hand, heldKey{key: key, since: time.Now()})
	m.order()
	m.forget()
}

// take ends the turn of the namespace.
func (m *modelTurns) take(namespace string) {
	if slices.Contains(m.served, namespace) {
		m.newRound()
	}
	m.hadTurn[namespace] = true
	m.fresh = slices.DeleteFunc(m.fresh, func(n string) bool { return n == namespace })
}

// forget drops the turns of the namespaces that have no keys, when nobody waits for a turn.
func (m *model) forget() {
	namespaces := m.namespaces()
	for _, turns := range []*modelTurns{&m.changes, &m.initial} {
		if m.hasCandidate(*turns) {
			continue
		}
		turns.newcomers = 0
		maps.DeleteFunc(turns.hadTurn, func(namespace string, _ bool) bool {
			return !namespaces[namespace] || !turns.joined[namespace]
		})
	}
}

// find returns the index in the queue of the key whose turn it is, of those that are ok, or -1.
func (m *model) find(ok func(queuedKey) bool) int {
	change, initial := m.findIn(m.changes, ok), m.findIn(m.initial, ok)
	if change < 0 || initial >= 0 && m.passed >= 7 {
		return initial
	}
	return change
}

func (m *model) findIn(turns modelTurns, ok func(queuedKey) bool) int {
	for _, namespace := range slices.Concat(turns.fresh, turns.served) {
		if !m.isCandidate(namespace) {
			continue
		}
		first := -1
		for i, k := range m.queue {
			if keyNamespace(k.key) != namespace || k.initial() != turns.initial || !ok(k) {
				continue
			}
			if first < 0 || k.isBefore(m.queue[first]) {
				first = i
			}
		}
		if first >= 0 {
			return first
		}
	}
	return -1
}

// A trial runs a Queue and a model side by side.
type trial struct {
	t     *testing.T
	queue *Queue[string]
	model *model

	mu  sync.Mutex
	got []string // The keys that Get has returned in this step.
	end int      // The number of times that Get has reported the end in this step.
	// drained reports whether ShutDownWithDrain has returned. Nil: it was not called.
	drained      func() bool
	modelDrained bool
}

// modelNewcomers is how many new namespaces are served in a round before those that have been served in it already.
const modelNewcomers = 3

// step is the time that passes in a step. Tokens come at multiples of it, so that keys are handed out only then.
const step = time.Second / 4

// newTrial returns a trial. A burst of 0 means that nothing needs a token.
func newTrial(t *testing.T, workers, burst int) *trial {
	tr := &trial{t: t, model: &model{
		workers: workers,
		changes: modelTurns{hadTurn: map[string]bool{}, joined: map[string]bool{}},
		initial: modelTurns{initial: true, hadTurn: map[string]bool{}, joined: map[string]bool{}},
	}}
	config := Config[string]{Workers: workers, Namespace: keyNamespace}
	if burst > 0 {
		config.Class = func(string) Class { return Failed } // The default is Retry: the same to the model without tokens.
		config.Retries = rate.NewLimiter(rate.Every(8*step), burst)
		tr.model.tokens = rate.NewLimiter(rate.Every(8*step), burst)
	}
	tr.queue = New(config)
	for _, turns := range []*turns[string]{&tr.queue.schedule.changes, &tr.queue.schedule.initial} {
		turns.newcomers -= newcomersInARound - modelNewcomers
		turns.newcomersInARound -= newcomersInARound - modelNewcomers
	}
	return tr
}

func (tr *trial) get() {
	tr.model.waiting++
	go func() {
		key, shutdown := tr.queue.Get()
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if shutdown {
			tr.end++
			return
		}
		tr.got = append(tr.got, key)
	}()
}

// check compares the queue with the model after a step.
func (tr *trial) check(what string) {
	tr.t.Helper()
	synctest.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	want, ended := tr.model.handOut(), 0
	if tr.model.stopping {
		want, ended = tr.model.handOutAtTheEnd(tr.got)
	}
	slices.Sort(want)
	slices.Sort(tr.got) // The goroutines run in any order.
	if !slices.Equal(tr.got, want) || tr.end != ended {
		tr.t.Fatalf("%s: handed out %q, %d ends, want %q, %d ends", what, tr.got, tr.end, want, ended)
	}
	tr.got, tr.end = nil, 0
	if tr.queue.ShuttingDown() != tr.model.stopping {
		tr.t.Fatalf("%s: ShuttingDown is %t, want %t", what, tr.queue.ShuttingDown(), tr.model.stopping)
	}
	if tr.queue.Len() != len(tr.model.queue) {
		tr.t.Fatalf("%s: Len is %d, want %d", what, tr.queue.Len(), len(tr.model.queue))
	}
	if tr.drained != nil && tr.drained() != tr.modelDrained {
		tr.t.Fatalf("%s: drained is %t, want %t", what, tr.drained(), tr.modelDrained)
	}
	tr.checkMemory(what)
}

// handOutAtTheEnd hands out keys while the queue shuts down. It returns those that had to be handed out, and the number
// of ends. The order does not matter then, so that it takes those in got first.
func (m *model) handOutAtTheEnd(got []string) (keys []string, ends int) {
	for ; m.waiting > 0 && len(m.queue) > 0; m.waiting-- {
		i := slices.IndexFunc(m.queue, func(k queuedKey) bool { return slices.Contains(got, k.key) })
		i = max(0, i)
		keys = append(keys, m.queue[i].key)
		m.take(i)
	}
	ends, m.waiting = m.waiting, 0
	return keys, ends
}

// checkMemory checks that the queue has no more than it must.
func (tr *trial) checkMemory(what string) {
	tr.t.Helper()
	tr.queue.mu.Lock()
	defer tr.queue.mu.Unlock()
	s, namespaces := tr.queue.schedule, tr.model.namespaces()
	if len(s.items) != len(tr.model.queue)+len(tr.model.hand) || len(s.namespaces) != len(namespaces) {
		tr.t.Fatalf("%s: %d keys of %d namespaces are kept, want %d of %d", what, len(s.items), len(s.namespaces),
			len(tr.model.queue)+len(tr.model.hand), len(namespaces))
	}
	for _, turns := range []struct {
		left    map[string]struct{}
		hadTurn map[string]bool
	}{{s.changes.left, tr.model.changes.hadTurn}, {s.initial.left, tr.model.initial.hadTurn}} {
		for name := range turns.left {
			if !turns.hadTurn[name] && !tr.model.stopping {
				tr.t.Fatalf("%s: the name of %s is kept after the round", what, name)
			}
		}
	}
}

// do does what the byte stands for.
func (tr *trial) do(b byte) string {
	namespaces := []string{"a", "b", "c", "d", "e"}
	arg := int(b >> 3)
	switch b & 7 {
	case 0, 1, 2:
		key := fmt.Sprintf("%s/%d", namespaces[arg%5], arg/5%2+2*int(b&7))
		return tr.add(key, Class((int(b&7)+arg)%4))
	case 3, 4:
		if tr.model.waiting < tr.queue.Goroutines() {
			tr.get()
		}
		return "get"
	case 5:
		if len(tr.model.hand) > 0 {
			key := tr.model.hand[arg%len(tr.model.hand)].key
			tr.done(key)
			return "done " + key
		}
		tr.done("a/0")
		return "done that is not in hand"
	case 6:
		time.Sleep(step)
		return "time passes"
	}
	return tr.doRarely(arg)
}

func (tr *trial) doRarely(arg int) string {
	switch {
	case arg < 12 && len(tr.model.hand) > 0: // Added again while in hand.
		return tr.add(tr.model.hand[arg%len(tr.model.hand)].key, Class(arg%4))
	case arg < 24 && len(tr.model.queue) > 0: // Added again while queued.
		return tr.add(tr.model.queue[arg%len(tr.model.queue)].key, Class(arg%4))
	case arg < 29:
		key := fmt.Sprintf("a/%d", arg%6)
		tr.queue.Add(key)
		tr.model.add(key, Failed)
		return "add " + key
	case arg == 29:
		tr.model.stop()
		tr.modelDrained = true
		tr.queue.ShutDown()
		return "shut down"
	case arg == 30 && tr.drained == nil:
		tr.model.stop()
		tr.modelDrained = len(tr.model.hand) == 0
		tr.drained = started(tr.queue.ShutDownWithDrain)
		return "shut down and drain"
	}
	return "nothing"
}

func (tr *trial) add(key string, class Class) string {
	tr.queue.AddAs(key, class)
	tr.model.add(key, class)
	return fmt.Sprintf("add %s as %d", key, class)
}

func (tr *trial) done(key string) {
	tr.queue.Done(key)
	tr.model.done(key)
	tr.modelDrained = tr.modelDrained || len(tr.model.hand) == 0
}

func (m *model) stop() {
	m.stopping = true
	m.order()
}

// run runs the steps that the bytes stand for.
func run(t *testing.T, data []byte) {
	if len(data) < 2 {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t, int(data[0]%5)+1, int(data[1]%4))
		for i, b := range data[2:] {
			what := tr.do(b)
			tr.check(fmt.Sprintf("step %d, %s", i, what))
		}
		tr.finish()
	})
}

// finish ends the goroutines of the queue.
func (tr *trial) finish() {
	tr.model.stop()
	tr.modelDrained = true
	tr.queue.ShutDown()
	tr.check("the end")
	for len(tr.model.queue)+len(tr.model.hand) > 0 {
		tr.get()
		tr.check("the end, get")
		if len(tr.model.hand) > 0 {
			tr.done(tr.model.hand[0].key)
		}
		tr.check("the end, done")
	}
}

func FuzzQueue(f *testing.F) {
	for seed := range 200 {
		random := rand.New(rand.NewPCG(1, uint64(seed)))
		data := make([]byte, 2+random.IntN(400))
		for i := range data {
			data[i] = byte(random.Uint32())
			if isEnd := data[i]&7 == 7 && data[i]>>3 >= 29; isEnd && seed%4 > 0 {
				data[i] = 6 // Let time pass instead.
			}
		}
		f.Add(data)
	}
	f.Fuzz(run)
}
