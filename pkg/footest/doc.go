// Package footest has what the tests of the Foo controller need of Foos: the steps of docs/scenarios, the edits and
// invariants of schedules, and long situations. Package scenario plays them. The tests pass a [New] that makes the
// controller, which this package does not know.
//
//   - [Scenarios] is for [scenario.Play]; [Kind] and [Schedule] are for [scenario.PlaySchedules].
//   - [SimulateDay], [SimulateNeighbours] and others let users edit Foos for a day, or let a namespace have a problem,
//     while the controller runs as in production.
//   - [FooKind] describes Foos to a simulated API server; any other test can use it too.
package footest
