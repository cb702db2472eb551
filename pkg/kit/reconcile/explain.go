package reconcile

import (
	"fmt"
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
func (s *Sync) Explain() []Explanation {
	c, ended := s.Clone(), s.end != nil
	c.end = nil
	answers, noted := map[string]Explanation{}, 0
	var last string // The last rule before the status that was asked: it keeps those after it from being asked.
	c.decide(func(rule string, a Answer, request *Step) {
		answers[rule] = Explanation{
			Rule: rule, Sends: request != nil && !ended,
			Answer: c.inWords(rule, a, request, c.problems[noted:], ended),
		}
		noted = len(c.problems)
		if rule != statusRule {
			last = rule
		}
	})
	var all []Explanation
	for i := range s.plan.rules() + 1 {
		name := statusRule
		if i < s.plan.rules() {
			name, _ = s.plan.name(i)
		}
		answer, asked := answers[name]
		if !asked {
			answer = Explanation{Rule: name, Answer: "not reached: " + last + " comes first"}
		}
		all = append(all, answer)
	}
	return all
}

// inWords returns what a rule has answered, and why: a request, operations that back off, or whether it applies.
func (s *Sync) inWords(rule string, a Answer, request *Step, problems []found, ended bool) string {
	blocked := slices.IndexFunc(problems, func(p found) bool { return p.op.Verb != "" })
	switch {
	case slices.ContainsFunc(s.done, func(d doneWrite) bool { return d.rule == rule }):
		return "done in this sync"
	case request != nil && ended:
		return "not sent in this sync: " + request.Why
	case request != nil && request.IsRead():
		return fmt.Sprintf("sends %s first, and then %s: %s", s.text(request.Op), s.text(request.For), request.Why)
	case request != nil:
		return fmt.Sprintf("sends %s: %s", s.text(request.Op), request.Why)
	case slices.ContainsFunc(s.failures, func(f failure) bool { return f.rule == rule }):
		return "failed in this sync: " + a.Why
	case blocked >= 0:
		p := problems[blocked]
		return fmt.Sprintf("%s backs off for %v: %s", s.text(p.op), s.left(p.until).Round(time.Millisecond), a.Why)
	case a.Final, a.Problem != nil:
		return "applies: " + a.Why
	}
	return "does not apply: " + a.Why
}
