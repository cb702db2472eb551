// Package scenario plays a controller on the kit against a simulated API server, in virtual time, for its tests. It
// knows the kit, but no kind: a test describes its own as a [Kind].
//
//   - Scenarios are texts. [Play] plays the steps of a text, one sync at a time, and compares the requests and events of
//     the controller with the output in the text. The player decides when a cache sees a change, which request fails, and
//     when time passes.
//   - Schedules are random. In [PlaySchedules] the controller runs as in production, with its own informers and workers,
//     while users edit objects and requests fail. At the end the state and all writes are checked. A seed decides all of
//     it, and [ShowSchedule] shows what happens with a seed.
//   - A [Simulation] is such a cluster for tests that do something else in it.
//
// Everything runs in a bubble of testing/synctest, so that minutes of backoff cost nothing.
package scenario
