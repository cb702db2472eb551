// Package reconcile decides what a sync of one object does. It holds no client, clock, logger or goroutine: what was
// observed is the input, the next request is the output, and its answer is the next input.
//
// A maker writes three things. An Input is a struct of what the caches have of an object. A Plan has the rules: pure
// functions of the Input, read from top to bottom, that return steps. And a function that returns the status. The
// engine gives:
//
//   - a write to what exists carries the uid and the resourceVersion of the version that its rule has seen;
//   - before a step that a stale cache could make harmful, the objects that it names are read live. So is the object
//     itself, before a child is deleted, or [Keep] changes one, or one is created for an object that may have had some;
//     after each answer all rules are asked again;
//   - a write that has failed is repeated only after a live read of what it writes. A deletion needs none;
//   - each operation has a backoff of its own, so that one which fails does not block the others;
//   - what somebody else undoes again and again is repeated more slowly, and reported;
//   - a message about a failure stays the same from try to try;
//   - each rule says why, for --explain and /debug/syncs.
//
// One sync of one object is a conversation with a [Sync]:
//
//	sync := plan.Sync(&input)
//	sync.Begin(memory, now, random)
//	for step := sync.Next(); step != nil; step = sync.Next() { // The next request, nil when none is left.
//		sync.Record(step, step.Answered(send(step)), now()) // Its answer, and when it came.
//	}
//	outcome, memory := sync.End() // What the queue does with the key, and what the next sync needs.
//
// kit.Reconciler does that.
//
// Read it in this order. step.go has the requests. sync.go asks the rules, and decides which step may be taken now.
// record.go is what an answer changes, ledger.go what backs off and is remembered between syncs, outcome.go how a sync
// ends and what an error means. keep.go is the answer of a rule about an ordinary child: keep one or many as they must
// be, and delete what is not wanted. explain.go has the answers of the rules in words.
//
// A package that decides everything and does nothing follows etcd's raft package and its Ready.
package reconcile
