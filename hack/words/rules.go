package main

import "regexp"

// A rule forbids a phrase.
type rule struct {
	pattern *regexp.Regexp
	// ordinary matches the phrases that pattern finds and that are allowed nevertheless. Nil allows none.
	ordinary *regexp.Regexp
	// instead is what to write, for the developer who reads the finding.
	instead string
}

var rules = []rule{
	{
		pattern: anyCase(`\b(told|tells?|telling)\b`),
		instead: "report, return, log, show; to tell apart: distinguish",
	},
	{
		pattern: anyCase(`\b(says?|said|saying)\b`),
		instead: "an object has a field; a condition, message or log line reports; a function returns; a server answers",
	},
	{
		pattern:  anyCase(`\bgoes\b( wrong)?`),
		ordinary: anyCase(`wrong$`),
		instead:  "an object is deleted or terminating; a program continues; a value is passed or sent",
	},
	{
		pattern: anyCase(`\blook(s|ed|ing)? (at|for|after|again)\b`),
		instead: "read, read live, get, list, check; search for; for a person: see",
	},
	{
		pattern: anyCase(`\b(an?|another|no|the|live|fresh|first|second|without) looks?\b`),
		instead: "a live read, a read",
	},
	{
		pattern: anyCase(`\bdoubt(s|ed|ful|ing)?\b`),
		instead: "stale, may be stale, the outcome is unknown",
	},
	{
		pattern: anyCase(`\bmend(s|ed|ing)?\b`),
		instead: "correct, repair, fix",
	},
	{
		pattern: anyCase(`\banew\b`),
		instead: "again",
	},
	{
		pattern: anyCase(`\bshall\b`),
		instead: "must, should, is to",
	},
	{
		pattern: anyCase(`\b(whoever|whom)\b`),
		instead: "name it: the owner, the client, the controller, the user",
	},
	{
		pattern: anyCase(`\bverdicts?\b`),
		instead: "result, readiness, decision",
	},
	{
		pattern: anyCase(`\btroubles?\b`),
		instead: "problem, error, failure",
	},
	{
		pattern: anyCase(`\bbut for\b`),
		instead: "except",
	},
	{
		pattern: anyCase(`\b(is|are|was|were) none\b`),
		instead: "does not exist, there is no ..., nil if ... does not exist",
	},
	{
		pattern: anyCase(`\bwhat (became|becomes) of\b`),
		instead: "the outcome of, the result of",
	},
}

func anyCase(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)` + pattern) }
