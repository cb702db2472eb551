// Package plan makes every decision of the controller. It holds no client, clock, logger or goroutine: what was
// observed is the input, the next request is the output, and its answer is the next input. So the whole behaviour can
// be read, and tested, as tables.
//
// One sync of one Foo is a conversation with a [State]:
//
//	for step := state.Next(); step != nil; step = state.Next() { // The next request, nil when none is left.
//		state.Record(step, send(step), now()) // Its answer, and when it came.
//	}
//	outcome := state.Outcome() // What the queue does with the key.
//
// Read it in this order. next.go has the ordered list of rules and which step may be taken now; rules.go has the
// rules. record.go is what an answer changes, ledger.go what backs off and is remembered between syncs, outcome.go
// how a sync ends and what an error means. readiness.go is a second ordered list, for the conditions, and status.go
// puts it into the status. deployment.go answers the two questions behind the rules: which Deployment should exist,
// and in which of the fields that the Foo owns does the existing one differ. rename.go, rivals.go and overridden.go are
// about a changed name, about several Foos with one name, and about somebody who works against the Foo. event.go has
// the events for people, explain.go the answers of the rules in words, trim.go what is kept of a Foo or a Deployment.
//
// A package that decides everything and does nothing follows etcd's raft package and its Ready.
package plan
