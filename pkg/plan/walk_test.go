package plan

import (
	"flag"
	"fmt"
	"maps"
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
// walk_world_test.go has the worlds: all combinations of a Foo, the Deployment of the name, previous Deployments, other
// Foos that name it, own writes and what backs off. walk_server_test.go has the API server and its answers, good and bad.
// From each world the walk plays the conversation in which all answers are good, and for every request of it, and every
// bad answer to that request, the conversation that goes on from there. walk_oracle_test.go has what must hold at each
// request and at each end. walk_chain_test.go goes on to further syncs.
//
// Worlds and answers are fixed, so each run plays the same conversations.

// walkStride: a short run plays one of so many groups of worlds.
const walkStride = 61

var walkBadAnswers = flag.Int("walk-bad", 1, "how many answers of a conversation may be bad")

// A walkTalk is one conversation, and what the oracles know of it.
type walkTalk struct {
	world  *walkWorld
	state  *State
	server walkServer
	said   []walkLine
	bad    int
	at     time.Time // Of the last answer.

	// readFoo and readDeployment say what was read live since the last write.
	readFoo, readDeployment bool
	// fooLost says that a live read found the Foo gone, recreated, being deleted or renamed.
	fooLost, fooPaused bool
	// fooChanged says that a live read found a Foo with another spec, or one of the above.
	fooChanged bool
	// deployment is the one of the name, and left are the previous ones, as they were seen last.
	deployment *appsv1.Deployment
	left       []*appsv1.Deployment
	// status is the one that was sent last.
	status *v1alpha1.FooStatus
	// failures are the writes that were not done. unknown says that one of them may have been, quiet that one of them
	// ends the sync without a report.
	failures       []walkFailure
	unknown, quiet bool
	// wanted are the writes that are sent in this world when nothing backs off.
	wanted []Op
	// previousAtStart is a copy.
	previousAtStart []*appsv1.Deployment
}

// A walkLine is a request and how it was answered.
type walkLine struct {
	op          Op
	rule, reply string
}

func (line walkLine) String() string {
	return fmt.Sprintf("%s (%s): %s", line.op, line.rule, line.reply)
}

// clone returns a copy of c that can go on by itself.
func (c *walkTalk) clone() *walkTalk {
	branch, state := *c, *c.state
	state.Memory.Ledger = maps.Clone(state.Memory.Ledger)
	state.failures = slices.Clone(state.failures)
	branch.state, branch.said = &state, slices.Clip(branch.said)
	return &branch
}

// answer answers step.
func (c *walkTalk) answer(step *Step, reply *walkReply) {
	answer := reply.give(&c.server, step, &c.world.cached)
	c.at = c.at.Add(20 * time.Millisecond) // Longer than the first delay.
	c.said = append(c.said, walkLine{step.Op, step.Rule, reply.name})
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
	// wrong has the rules that were broken, known how often each known defect broke one.
	wrong map[string]*walkProblem
	known map[string]int
	spent time.Duration
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
	c := &walkTalk{
		world: w, state: w.state(walkStart), server: w.server, at: walkStart, wanted: wanted,
		deployment: w.cached.deployment, left: w.cached.previous, previousAtStart: slices.Clone(w.cached.previous),
	}
	walk.goOn(c)
	var sent []Op
	for _, line := range c.said {
		if line.op.Verb != ReadFoo && line.op.Verb != ReadDeployment {
			sent = append(sent, line.op)
		}
	}
	return sent
}

// goOn plays c to its end with good answers, and all other conversations that begin like it.
func (walk *walker) goOn(c *walkTalk) {
	for step := c.state.Next(); step != nil; step = c.state.Next() {
		for _, oracle := range walkStepOracles {
			if !oracle.holds(c, step) {
				c.said = append(c.said, walkLine{step.Op, step.Rule, "not allowed"})
				walk.note(oracle.name, c, Outcome{})
				return
			}
		}
		walk.requests++
		if c.bad < walk.maxBad {
			for i := range walkBad[step.Verb] {
				branch := c.clone()
				branch.bad++
				branch.answer(step, &walkBad[step.Verb][i])
				walk.goOn(branch)
			}
		}
		c.answer(step, &walkGood)
	}
	walk.end(c)
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
}

// A walkDefect is a known defect of this package: a conversation whose description has all the words may break the rule.
// Whoever mends a defect removes it here.
type walkDefect struct {
	id, rule string
	words    []string
}

var walkDefects = []walkDefect{
	{
		id: "B1: a delete although fewer replicas are available than the Foo wants", rule: "a delete takes away no replica that is needed",
		words: []string{"| capped by a policy |", "(delete replaced): not allowed"},
	}, {
		id: "B2: what served once is deleted when it has no replica for a moment", rule: "a delete takes away no replica that is needed",
		words: []string{"| one that never served and one that lost its pods |", "(delete never served): not allowed"},
	}, {
		id: "B2: what served once is deleted when it has no replica for a moment", rule: "what backs off comes back",
		words: []string{"| one that never served and one that lost its pods |", "| delete Deployment web-2 backs off"},
	}, {
		id: "B9: a 404 for want of the status subresource counts as done", rule: "what was not done comes back",
		words: []string{"update status of Foo web (update status): no status subresource"},
	}, {
		id: "B9: a status whose conditions are dropped counts as done", rule: "when it is done another sync sends nothing",
		words: []string{"the conditions are dropped"},
	}, {
		id: "W1: the status is written from a cache that is known to lag", rule: "when it is done another sync sends nothing",
		words: []string{"| a write of the Deployment unseen |", "update status of Foo web (update status): another sync"},
	}, {
		id: "W2: what is to be patched a second time in a sync is not reported", rule: "Ready is True only when it is",
		words: []string{"patch Deployment web-3 (patch drift): good", "the Deployment is scaled"},
	}, {
		id:    "W2: what is to be patched a second time in a sync is not reported",
		rule:  "a delay is between 0 and a minute, and 0 only after a failure",
		words: []string{"patch Deployment web-3 (patch drift): good"},
	}, {
		id:    "W3: a previous Deployment that is being deleted does not count as one that the Foo had",
		rule:  "a create waits for a live read of the Foo, and for older claimants",
		words: []string{"in: new Foo | no Deployment | a terminating one |"},
	}, {
		id:    "W5: a delete answered by 404 counts as done although the Deployment is there",
		rule:  "when it is done another sync sends nothing",
		words: []string{"delete Deployment web-", "): not found", "another sync"},
	}, {
		id:    "W4: the status about repeated deletions ends with a delay after which nothing comes back",
		rule:  "when it is done another sync sends nothing",
		words: []string{"| create Deployment web-3 again backs off until now", "create Deployment web-3 (create): good"},
	},
}

// note collects a problem.
func (walk *walker) note(rule string, c *walkTalk, outcome Outcome) {
	var text strings.Builder
	fmt.Fprintf(&text, "in: %s", c.world)
	for _, line := range c.said {
		fmt.Fprintf(&text, "\n      %s", line)
	}
	fmt.Fprintf(&text, "\n      %+v", outcome)
	example := text.String()
	for _, defect := range walkDefects {
		if defect.rule == rule && !slices.ContainsFunc(defect.words, func(word string) bool { return !strings.Contains(example, word) }) {
			walk.known[defect.id+strings.Join(defect.words, "")]++
			return
		}
	}
	if walk.wrong[rule] == nil {
		walk.wrong[rule] = &walkProblem{}
	}
	problem := walk.wrong[rule]
	problem.count++
	if problem.example == "" || len(example) < len(problem.example) {
		problem.example = example
	}
}

// walkAll plays all worlds, once for all tests.
var walkAll = sync.OnceValue(func() *walker {
	walk := &walker{maxBad: *walkBadAnswers, wrong: map[string]*walkProblem{}, known: map[string]int{}}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // There is little to keep, and much to throw away.
	began := time.Now()
	var wanted []Op
	groups := 0 // A group of worlds differs only in what backs off.
	walkWorlds(func(w *walkWorld) {
		first := len(w.memory.Ledger) == 0
		if first {
			wanted = nil
			groups++
		}
		if testing.Short() && groups%walkStride != 0 {
			return
		}
		if sent := walk.play(w, wanted); first {
			wanted = sent
		}
	})
	walk.spent = time.Since(began)
	return walk
})

func TestWalk(t *testing.T) {
	walk := walkAll()
	seconds := walk.spent.Seconds()
	t.Logf("%d states, %d conversations, %d requests in %.1f s: %.0f conversations per second",
		walk.states, walk.conversations, walk.requests, seconds, float64(walk.conversations)/seconds)
	for _, defect := range walkDefects {
		if walk.known[defect.id+strings.Join(defect.words, "")] == 0 && !testing.Short() {
			t.Errorf("known defect %q does not break the rule %q any more: remove it from walkDefects", defect.id, defect.rule)
		}
	}
	for name, problem := range walk.wrong {
		t.Errorf("%q does not hold, %d times:\n   %s", name, problem.count, problem.example)
	}
}
