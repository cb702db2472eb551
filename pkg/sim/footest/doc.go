// Package footest runs a Foo controller against a simulated API server, in virtual time. The tests of the controller
// use it, as the tests of etcd's raft use rafttest.
//
// There are two ways to run a controller:
//
//   - Scenarios are texts. [RunScenarios] plays the steps of a text, one sync at a time, and compares the writes and
//     events of the controller with the output in the text. The player decides when a cache sees a change, which
//     request fails, and when time passes. docs/scenarios/README.md lists the steps.
//   - Simulations are long. In [SimulateDay] and [SimulateSchedules] the controller runs as in production, with its own
//     informers and workers, while users edit Foos and requests fail at random. In the end every Foo must have its
//     Deployment and be Available, and the history of all writes is checked against invariants.
//
// The package does not know the controller's code. A test passes a function that makes a controller: a [NewSubject] for
// scenarios, which gives the player a few handles, or a [NewRunner] for simulations. [FooKind] describes Foos to a
// simulated API server; any other test can use it too.
//
// Everything runs in a bubble of testing/synctest, so that minutes of backoff cost nothing.
package footest
