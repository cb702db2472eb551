// Package footest runs a Foo controller against a simulated API server, in virtual time. It is what the controller's
// tests stand on, as etcd's raft stands on rafttest.
//
// There are two ways to run one:
//
//   - Scenarios are texts. [RunScenarios] plays the steps of a text, one sync at a time, and compares what the
//     controller did with the output that the text has. The player decides when a cache sees a change, which request
//     fails, and when time passes. docs/scenarios/README.md lists the steps.
//   - Simulations are long. In [SimulateDay] and [SimulateSchedules] the controller runs as in production, with its own
//     informers and workers, while users edit Foos and requests fail at random. In the end every Foo must have what it
//     asks for, and the history of all writes is checked against rules that always hold.
//
// The package does not know the controller's code. A test passes a function that makes a controller: a [NewSubject] for
// scenarios, which gives the player a few handles, or a [NewRunner] for simulations. [FooKind] describes Foos to a
// simulated API server; any other test can use it too.
//
// Everything runs in a bubble of testing/synctest, so that minutes of backoff cost nothing.
package footest
