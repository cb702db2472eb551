package plan

import (
	"slices"
	"testing"
)

// TestWalkExplain asks for the answers of the rules in every fourth world, before each request of the conversation in
// which all answers are good and after its end. TestWalkSample does so in conversations with bad answers, also after the
// outcome.
func TestWalkExplain(t *testing.T) {
	walk := newWalker(0)
	walkVisitAll(walkShort(), func(w *walkWorld, _ []Op) []Op {
		walk.states++
		if walk.states%4 != 0 {
			return nil
		}
		c := newTalk(w, walkStart, nil)
		for step := walk.explained(c); step != nil; step = walk.explained(c) {
			walk.requests++
			c.answer(step, &walkGood)
		}
		return nil
	})
	t.Logf("%d states, %d requests", walk.states, walk.requests)
	walk.report(t, walk.wrong)
}

// explained returns the next request of c, and notes a problem if the answers of the rules are not about it.
func (walk *walker) explained(c *walkTalk) *Step {
	rows := c.state.Explain()
	step := c.state.Next()
	var sending []string
	for _, row := range rows {
		if row.Sends {
			sending = append(sending, row.Rule)
		}
	}
	switch {
	case len(rows) != len(Foos.Rules)+1:
		walk.note("each rule has an answer", c, Outcome{})
	case step == nil && len(sending) > 0, step != nil && !slices.Equal(sending, []string{step.Rule}):
		walk.note("the rule whose answer is that it sends is the one of the next request", c, Outcome{})
	}
	return step
}
