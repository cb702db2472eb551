// Package plan makes every decision about a Foo. It holds no client, clock, logger or goroutine: what was observed is
// the input, the next request is the output, and the answer of the API server changes the input. So the whole behaviour
// can be read, and tested, as tables.
//
// Only what is true of Foos is here. What is true of any kind is in pkg/kit/reconcile, with a page of its own: the
// conversation of a sync, the live read before a write, backoffs, conflicts, and how a sync ends.
//
// Read it in this order. input.go has the [Input], which is what was observed of a Foo, and [Foos], the ordered list of
// rules; rules.go has the rules. readiness.go is a second ordered list, for the conditions, and status.go puts it into
// the status. deployment.go answers the two questions behind the rules: which Deployment should exist, and in which of
// the fields that the Foo owns does the existing one differ. rename.go, rivals.go and overridden.go are about a changed
// name, about several Foos with one name, and about somebody who works against the Foo. event.go has the events for
// people, trim.go what is kept of a Foo or a Deployment.
package plan
