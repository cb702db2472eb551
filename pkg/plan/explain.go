package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// An Explanation is the answer of one rule, for people.
type Explanation struct {
	Rule string `json:"rule"`
	// Answer is what the rule does now, and why. It may contain texts of users.
	Answer string `json:"answer"`
	// Sends means that the request which Next returns is of this rule.
	Sends bool `json:"sends"`
}

// Explain returns the answers of all rules in their order, the status last. They are about the request that Next
// returns, or about what a sync that has ended has left. Explain changes nothing, and may be called at any time.
func (s *State) Explain() []Explanation {
	c, ended := *s, s.end != nil || s.reported
	c.Memory.Ledger, c.failures = maps.Clone(s.Memory.Ledger), slices.Clip(s.failures)
	c.end, c.reported = nil, false
	answers, blocked := map[string]Explanation{}, 0
	last := "" // The last rule before the status that was asked: it keeps those after it from being asked.
	c.decide(func(r rule, steps []*Step, request *Step, final bool) {
		answers[r.name] = Explanation{
			Rule: r.name, Sends: request != nil && !ended,
			Answer: c.answer(r, c.why(r, steps), request, c.blocked[blocked:], final, ended),
		}
		blocked = len(c.blocked)
		if r.name != statusRule.name {
			last = r.name
		}
	})
	var all []Explanation
	for _, r := range allRules {
		answer, asked := answers[r.name]
		if !asked {
			answer = Explanation{Rule: r.name, Answer: "not reached: " + last + " comes first"}
		}
		all = append(all, answer)
	}
	return all
}

// answer returns in words what r has answered, and why: a request, operations that back off, or whether it applies.
func (s *State) answer(r rule, why string, request *Step, blocked []Op, final, ended bool) string {
	switch {
	case slices.ContainsFunc(s.done, func(op Op) bool { return op.Verb == r.sends }):
		return "done in this sync"
	case request != nil && ended:
		return "not sent in this sync: " + why
	case request != nil && request.isRead():
		return fmt.Sprintf("sends %s first, and then %s: %s", request.Op, request.For, why)
	case request != nil:
		return fmt.Sprintf("sends %s: %s", request.Op, why)
	case slices.ContainsFunc(s.failures, func(f failure) bool { return f.op.Verb == r.sends }):
		return "failed in this sync: " + why
	case len(blocked) > 0:
		attempt := s.backingOff(blocked[0])
		return fmt.Sprintf("%s backs off for %v: %s", blocked[0], s.left(attempt).Round(time.Millisecond), why)
	case r.sends != "":
		return "not needed: " + why
	case final:
		return "applies: " + why
	}
	return "does not apply: " + why
}

// Why returns the facts for which a rule has asked for step, which Next has returned and Record has not got yet.
func (s *State) Why(step *Step) string {
	i := slices.IndexFunc(allRules, func(r rule) bool { return r.name == step.Rule })
	steps, _ := allRules[i].wants(s)
	return s.why(allRules[i], steps)
}

func (s *State) why(r rule, steps []*Step) string {
	if r.why == nil {
		return "the rule has no reason in words"
	}
	return r.why(s, steps)
}
