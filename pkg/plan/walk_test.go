package plan

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The walk plays every conversation that a sync can have with the API server, in a small world.
//
// walk_world_test.go has the worlds: all combinations of a Foo, the Deployment of the name, previous Deployments, own
// writes and what backs off. walk_server_test.go has the API server with good and bad answers. From each world the walk
// plays the conversation in which all answers are good, and for every request of it, and every bad answer to that
// request, the conversation that follows. walk_oracle_test.go has what must hold at each request and at each end.
// walk_chain_test.go has the syncs after that, walk_explain_test.go the answers of the rules.
//
// Worlds and answers are fixed, so each run plays the same conversations.

// walkStride: a short run plays one of so many groups of worlds.
const walkStride = 61

var (
	walkBadAnswers = flag.Int("walk-bad", 1, "how many answers of a conversation may be bad in TestWalk")
	walkSample     = flag.Int("walk-sample", 20000, "how many conversations TestWalkSample plays")
	walkSeed       = flag.Uint64("walk-seed", 1, "which conversations TestWalkSample plays")
)

// A walkTalk is one conversation, and what the oracles know of it.
type walkTalk struct {
	world  *walkWorld
	state  *State
	server walkServer
	lines  []walkLine
	first  int // The index in lines of this sync's first line.
	bad    int
	at     time.Time // Of the last answer.

	// readFoo and readDeployment are what was read live since the last write.
	readFoo, readDeployment bool
	// readFailed means that a live read failed.
	readFailed bool
	// fooLost means that a live read found the Foo gone, recreated, being deleted or renamed.
	fooLost, fooPaused bool
	// fooChanged means that a live read found a Foo with another spec, or one of the above.
	fooChanged bool
	// deployment is the one of the name, as it was seen last. deleted means that a previous one was deleted.
	deployment *appsv1.Deployment
	deleted    bool
	// surprised means that a live read found a version of that Deployment which the cache lacks.
	surprised bool
	// status is the one that was sent last.
	status *v1alpha1.FooStatus
	// failures are the writes that were not done. unknown means that one of them may have been, quiet that one of them
	// ends the sync without a report.
	failures       []walkFailure
	unknown, quiet bool
	// wanted are the writes that are sent in this world when nothing backs off.
	wanted []Op
	// later means that this is a sync after the first.
	later bool
}

// A walkLine is a request and how it was answered.
type walkLine struct {
	op          Op
	rule, reply string
}

func (line walkLine) String() string {
	return fmt.Sprintf("%s (%s): %s", line.op, line.rule, line.reply)
}

// newTalk returns the conversation of a sync in w before its first request.
func newTalk(w *walkWorld, at time.Time, wanted []Op) *walkTalk {
	return &walkTalk{
		world: w, state: w.state(at), server: w.server, at: at, wanted: wanted, deployment: w.cached.deployment,
	}
}

// clone returns a copy of c that can go on by itself.
func (c *walkTalk) clone() *walkTalk {
	branch := *c
	branch.state, branch.lines = c.state.Clone(), slices.Clip(branch.lines)
	return &branch
}

// answer answers step.
func (c *walkTalk) answer(step *Step, reply *walkReply) {
	answer := reply.give(&c.server, step)
	c.at = c.at.Add(20 * time.Millisecond) // Longer than the first delay.
	c.lines = append(c.lines, walkLine{step.Op, step.Rule, reply.name})
	if step.Verb == UpdateStatus {
		c.status = &step.Foo.Status
	}
	c.note(step, answer)
	c.state.Record(step, answer, c.at)
}

// A walker plays conversations, counts them and collects what is wrong.
type walker struct {
	maxBad                          int
	states, conversations, requests int
	// wrong has the rules that were broken, wrongLater those that were broken in a later sync.
	wrong, wrongLater map[string]*walkProblem
	// visited has the states that were followed.
	visited map[[sha256.Size]byte]bool
}

func newWalker(maxBad int) *walker {
	return &walker{
		maxBad: maxBad, visited: map[[sha256.Size]byte]bool{},
		wrong: map[string]*walkProblem{}, wrongLater: map[string]*walkProblem{},
	}
}

// A walkProblem is an oracle that did not hold, with the shortest example.
type walkProblem struct {
	count   int
	example string
}

// play plays all conversations in w. wanted are the writes that are sent when nothing backs off. It returns the writes
// that are sent when all answers are good.
func (walk *walker) play(w *walkWorld, wanted []Op) []Op {
	walk.states++
	was := w.cached.clone()
	c := newTalk(w, walkStart, wanted)
	walk.goOn(c)
	if !reflect.DeepEqual(was, w.cached) {
		walk.note("the objects of caches are not changed", c, Outcome{})
	}
	walk.vary(w)
	var sent []Op
	for _, line := range c.lines {
		if line.op.Verb != ReadFoo && line.op.Verb != ReadDeployment {
			sent = append(sent, line.op)
		}
	}
	return sent
}

// vary plays the conversation in which all answers are good twice, with what must not matter changed.
func (walk *walker) vary(w *walkWorld) {
	other := *w
	if len(w.cached.previous) > 1 || len(w.memory.Ledger) > 1 {
		other.cached.previous = slices.Clone(w.cached.previous)
		slices.Reverse(other.cached.previous)
		walk.compare("the order of lists and maps does not matter", w, &other)
	}
	if owner := w.server.owner(w.cached.deployment); owner != nil && owner != w.cached.foo {
		other = *w
		other.server.owners = walkOwnersReported
		walk.compare("the status of another Foo does not matter", w, &other)
	}
}

// compare plays the conversations in which all answers are good in two worlds, and notes a problem if they differ.
func (walk *walker) compare(rule string, w, other *walkWorld) {
	have, want := newTalk(other, walkStart, nil), newTalk(w, walkStart, nil)
	if have.result() != want.result() {
		walk.note(rule, have, have.state.Outcome())
	}
}

// result plays c with good answers and returns all that comes of it.
func (c *walkTalk) result() string {
	const tooMany = 50 // There is an oracle for that.
	for step := c.state.Next(); step != nil && len(c.lines) < tooMany; step = c.state.Next() {
		c.answer(step, &walkGood)
	}
	text := fmt.Sprint(c.lines, c.state.Outcome())
	if next := walkCaughtUp(c.world, c.server, c.state.Memory); next != nil {
		text += string(encodeWorld(next, c.at, false))
	}
	return text
}

// goOn plays c to its end with good answers, and all other conversations that begin like it.
func (walk *walker) goOn(c *walkTalk) {
	for step := c.state.Next(); step != nil; step = c.state.Next() {
		if !walk.allowed(c, step) {
			return
		}
		walk.requests++
		if c.bad < walk.maxBad {
			for i := range walkBad[step.Verb] {
				branch := c.clone()
				branch.bad++
				branch.answer(branch.state.Next(), &walkBad[step.Verb][i])
				walk.goOn(branch)
			}
		}
		c.answer(step, &walkGood)
	}
	walk.end(c)
}

// allowed asks the oracles whether step may be sent.
func (walk *walker) allowed(c *walkTalk, step *Step) bool {
	for _, oracle := range walkStepOracles {
		if !oracle.holds(c, step) {
			c.lines = append(slices.Clip(c.lines), walkLine{step.Op, step.Rule, "not allowed"})
			walk.note(oracle.name, c, Outcome{})
			return false
		}
	}
	return true
}

// end asks what must hold at the end of a conversation.
func (walk *walker) end(c *walkTalk) {
	walk.conversations++
	outcome := c.state.Outcome()
	for _, oracle := range walkEndOracles {
		if !oracle.holds(c, outcome) {
			walk.note(oracle.name, c, outcome)
			return
		}
	}
	walk.follow(c, outcome)
}

// note collects a problem.
func (walk *walker) note(rule string, c *walkTalk, outcome Outcome) {
	var text strings.Builder
	fmt.Fprintf(&text, "in: %s", c.world)
	for _, line := range c.lines {
		fmt.Fprintf(&text, "\n      %s", line)
	}
	fmt.Fprintf(&text, "\n      %+v", outcome)
	example := text.String()
	wrong := walk.wrong
	if c.later {
		wrong = walk.wrongLater
	}
	if wrong[rule] == nil {
		wrong[rule] = &walkProblem{}
	}
	problem := wrong[rule]
	problem.count++
	if problem.example == "" || len(example) < len(problem.example) {
		problem.example = example
	}
}

// walkVisitAll calls visit with every world, and with the writes that are sent in it when nothing backs off. When short
// is true, it visits a fixed part of the worlds.
func walkVisitAll(short bool, visit func(w *walkWorld, wanted []Op) (sent []Op)) {
	var wanted []Op
	groups := 0 // A group of worlds differs only in what backs off.
	walkWorlds(func(w *walkWorld) {
		first := len(w.memory.Ledger) == 0
		if first {
			wanted = nil
			groups++
		}
		if short && groups%walkStride != 0 {
			return
		}
		if sent := visit(w, wanted); first {
			wanted = sent
		}
	})
}

// walkShort reports whether to play only a part: the race detector makes the walk ten times slower.
func walkShort() bool { return testing.Short() || raceDetector }

// walkAll plays all worlds, once for all tests.
var walkAll = sync.OnceValue(func() *walker {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // There is little to keep, and much to throw away.
	walk := newWalker(*walkBadAnswers)
	walkVisitAll(walkShort(), walk.play)
	return walk
})

func TestWalk(t *testing.T) {
	walk := walkAll()
	t.Logf("%d states, %d conversations, %d requests", walk.states, walk.conversations, walk.requests)
	walk.report(t, walk.wrong)
}

// TestWalkEndsQuiet is about the syncs after each conversation of TestWalk.
func TestWalkEndsQuiet(t *testing.T) {
	walk := walkAll()
	t.Logf("%d syncs, until all is quiet", len(walk.visited))
	walk.report(t, walk.wrongLater)
}

// TestWalkSample plays conversations in which any number of answers is bad.
func TestWalkSample(t *testing.T) {
	var worlds []*walkWorld
	walkVisitAll(walkShort(), func(w *walkWorld, _ []Op) []Op {
		worlds = append(worlds, w)
		return nil
	})
	walk := newWalker(0)
	random := rand.New(rand.NewPCG(*walkSeed, 0))
	sample := *walkSample
	if walkShort() {
		sample /= 10
	}
	for range sample {
		c := newTalk(worlds[random.IntN(len(worlds))], walkStart, nil)
		walk.goOnAtRandom(c, random)
	}
	t.Logf("seed %d: %d conversations, %d requests", *walkSeed, walk.conversations, walk.requests)
	walk.report(t, walk.wrong)
	walk.report(t, walk.wrongLater)
}

// goOnAtRandom plays c to its end; one in three answers is bad.
func (walk *walker) goOnAtRandom(c *walkTalk, random *rand.Rand) {
	for step := walk.explained(c); step != nil; step = walk.explained(c) {
		if !walk.allowed(c, step) {
			return
		}
		walk.requests++
		reply, bad := &walkGood, walkBad[step.Verb]
		if random.IntN(3) == 0 {
			reply = &bad[random.IntN(len(bad))]
			c.bad++
		}
		c.answer(step, reply)
	}
	walk.end(c)
	walk.explained(c)
}

func (walk *walker) report(t *testing.T, wrong map[string]*walkProblem) {
	t.Helper()
	for rule, problem := range wrong {
		t.Errorf("%q does not hold, %d times:\n   %s", rule, problem.count, problem.example)
	}
}
