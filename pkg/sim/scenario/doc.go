// Package scenario plays a controller on the kit against a simulated API server, in virtual time, for its tests. It
// knows the kit, but no kind: a test describes its own as a [Kind].
//
//   - Scenarios are texts. [Play] plays the steps of a text, one sync at a time, and compares the requests and events
//     of the controller with the output in the text. The player decides when a cache sees a change, which request
//     fails, and when time passes.
//   - Schedules are random. In [PlaySchedules] the controller runs as in production, with its own informers and
//     workers, while users edit objects and requests fail. At the end the state and all writes are checked. A seed
//     decides all of it, and [ShowSchedule] shows what happens with a seed.
//   - A [Simulation] is such a cluster for tests that do something else in it.
//
// Everything runs in a bubble of testing/synctest, so that minutes of backoff cost nothing.
//
// # Scenarios
//
// Empty lines separate the blocks of a scenario. A block has steps, a line ----, and the output. All steps of a block
// happen before the controller runs. Lines that begin with # are comments. These are the steps for any kind; a Kind may
// have more. KIND is a resource, or a kind in lower case. NAME is in the namespace default, if the kind has namespaces.
//
//	create KIND NAME PATH=VALUE ...      a user creates an object; a PATH is like spec.replicas
//	edit KIND NAME PATH=VALUE ...        a user sets these fields; - removes one
//	delete KIND NAME                     a user deletes it; with foreground it exists until its children are deleted
//	rollout NAME                         the Deployment controller reports that all replicas are available, or the
//	                                     numbers in updated=N available=N replicas=N, or stuck, or failing
//	collect garbage                      the garbage collector deletes objects whose owners do not exist
//	lag                                  the caches get no more events; also lag RESOURCE
//	catch up                             they get all events that they missed
//	relist                               they list the current objects, without the events in between
//	refuse VERB RESOURCE ANSWER "TEXT"   the API server refuses such requests, of VERB create, patch, delete, get or
//	                                     status. ANSWER is forbidden, invalid, conflict, broken, throttled or
//	                                     terminating. once: only the next one; name=NAME: only for this object
//	lose VERB RESOURCE                   such requests do not arrive, and get no answer
//	lose the answer to VERB RESOURCE     such requests are executed, and get no answer
//	allow                                ends refuse and lose
//	stop overriding                      ends the Overrides of the Env, which a step of a Kind may add
//	restart                              a new process, without the memory of the old one; caches that lag still do
//	start over                           an empty cluster, and a new process
//	start another NAME                   one more controller runs at the same time; its lines begin with its name
//	wait 30s                             time passes
//	wait until NAME is tried again       time passes until a sync has sent something; also: again 5 times
//	sync NAME 100 times                  the object is synced although nothing has happened
//	show KIND NAME PATH ...              adds the conditions of an object, and these fields, to the output
package scenario
