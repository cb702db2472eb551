// Package fairqueue is a workqueue for a controller that serves many namespaces. A user of one namespace cannot stop or
// slow the controller for the others: not with many objects, not with writes that hang, not with writes that are
// refused. Use it in the place of client-go's workqueue.Typed, as the Queue of a TypedDelayingQueueConfig.
//
// The package decides which key is next, and when. Everything else is client-go's: a Queue contains a workqueue.Typed
// and is its storage. One key is never in the hands of two workers, a key that is added twice is handed out once, a key
// that is added while it is in hand is queued by Done, the metrics count all keys that wait, and the end is as there.
// Two differences: Get is stricter about when a key is handed out, and Done of a key that is not in hand is ignored.
//
// # Which key is next
//
// Namespaces take turns. In a round each namespace that has a key to hand out is served once. A namespace that was
// not served in this round is before one that was, so that a new key does not wait for the thousands of another
// namespace. If new namespaces never end, 1,000 of them join a round, and the others the next one. So the old
// ones do not wait for ever.
//
// Within a namespace the key with the smallest rank is next: the time when it was queued, plus 5 s for a retry. So a
// change comes first, but a retry that has waited for 5 s comes before a change that is added then. A key that is added
// again moves up if that gives it a smaller rank, and never down.
//
// The initial list, which is there when the controller starts, must not delay changes, be it of one namespace or of
// thousands. So its keys have turns of their own. They are handed out when there is nothing else to hand out, and after
// seven other keys one of them is next in any case. A key of the initial list that is added again in another class
// belongs to the others then, and counts as a change.
//
// A retry of what failed needs a token of a limiter that all namespaces share. The token is taken at the moment when
// the key is handed out, and not before: nothing is reserved. Without a token the namespace gives another key, or keeps
// its turn until there is a token. So a namespace that has keys in hand up to its limit takes no token, and n keys that
// failed come back within n/rate. A key that is added again because of a change needs no token any more.
//
// # How many keys are in hand
//
// A key that has been in hand for a second is slow. At most Workers keys that are not slow are in hand, so that this is
// the work that the controller does at a time. A slow key, one that waits for an answer, takes no place. Including
// these, at most four times Workers keys are in hand, and one namespace has at most half of Workers, at least one. That
// limit holds also when no other namespace needs a worker: a new key elsewhere finds one that is free.
//
// The caller starts as many goroutines as Goroutines returns, which call Get and Done. The Queue starts none. It has
// one timer, which runs only when a key waits for a token, or for a key in hand to become slow.
//
// Eight namespaces whose keys all hang have every goroutine, and with one worker it takes only four. Seven leave some
// for the others. If there are no more of them than workers, a new key elsewhere waits a second at most, until a key in
// hand is slow.
//
// # Invariant
//
// When a goroutine waits in Get, and fewer than Workers keys that are not slow and fewer than four times Workers keys
// in all are in hand, then each key that is queued needs a token that is not there, or its namespace is at its limit.
//
// # Cost
//
// With n keys and namespaces an operation makes O(log n) comparisons. ShutDown lifts the limits, for each namespace
// once. A namespace is forgotten when it has no key. Only its name is kept until the end of the round.
package fairqueue
