// Package plan makes every decision of the controller. It holds no client, clock, logger or
// goroutine: each function takes what was observed and returns what follows from it, so that the
// whole behaviour can be read, and tested, as tables.
//
// The controller uses it in this order. Next takes what was seen of a Foo and says which step to
// take: look again, create, patch, delete, or nothing. Found and Overridden judge what the API server
// answered. Status takes what was seen after that step and says
// what the Foo's status shall be, and EventOf whether the change deserves an event. OutcomeOf takes
// the error that is left over and says what the queue does with the key.
//
// Deployment and Drift are the two questions behind Next: what should exist, and in which of the
// fields that the Foo owns does the existing one differ. Trim keeps of a Deployment what these
// functions read.
//
// No function changes its arguments, and all of them may be called concurrently. That the decision
// returns its effects as a value, instead of having them, follows etcd's raft package and its Ready.
package plan
