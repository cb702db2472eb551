// Package leader lets one of several processes write, and the others stand by. Two processes that use it never write
// at the same time, not even while the network fails.
//
// # What a lease is
//
// A Lease is a small object in the API server with the name of its holder. The processes, all with the same flags, try
// to become the holder. The holder renews the Lease every two seconds: it writes the Lease again, so that the others
// see a new resourceVersion. If the others have seen no change for 15 seconds, the holder is gone, and one of them
// takes the Lease. The resourceVersion in its update makes sure that it is only one.
//
// # Why this is not enough
//
// A process that lost its Lease may not know it yet. Its last renewal hangs, or the process was stopped and has just
// continued, and meanwhile another one leads. So an election alone does not prevent two writers. Kubernetes' own
// documentation of the election has the same warning. Therefore:
//
//   - The controller must be correct with two writers: its writes carry the uid and the resourceVersion of what they
//     change, so that the API server refuses those that rest on old data. Leadership saves work, conflicts and log
//     lines. It is not what makes writes safe.
//   - The gate, see below, stops the writes of a process before another one can take the Lease.
//
// # What the gate adds
//
// The gate is a part of the connection that the controller writes with. It refuses POST, PUT, PATCH and DELETE unless
// the process leads, and lets reads and watches pass, so that a standby has warm caches. A renewal keeps the gate open
// until the renew deadline, 10 seconds after the moment at which the request was sent, on the clock of this process.
// Nobody has to notice anything for the gate to close, and requests that are in flight then are cancelled. An update
// that has not changed the Lease does not count, because the others cannot see it. They take the Lease only when they
// have seen the renewal, which was after it was sent, and then no change for 15 seconds:
//
//	leader    sent |---------- gate open, 10 s ----------|
//	standby           seen |------------------- no change, 15 s -------------------| takes the Lease, opens its gate
//
// So the gates of two processes are never open at the same time, provided that their clocks run at about the same
// speed: the clock of a standby must not run more than 1.5 times as fast as that of the leader. The time of day does
// not matter. renewTime in the Lease is for people and is never read.
//
// A gate opens once and closes once. A process that lost the Lease must exit, and is restarted by the kubelet, with
// empty memory and new caches. The alternative is to stand by again in the same process, which means that every part
// of the program must be able to stop and start again, for an event that is rare.
//
// # What the lock refuses
//
// Election is client-go's LeaderElector. It works on a lock, which reads and writes the Lease, and the lock here has
// one rule of its own. It writes a Lease only if
//
//   - it has written this version of the Lease itself, as its holder, or
//   - the holder has released the Lease: no holder, and a duration of one second, as client-go does it, or
//   - it has seen this version for as long as the lease duration, its own or the one in the Lease, the longer one.
//
// This also covers what people do to Leases. If somebody deletes the Lease, clears the holder or enters another one,
// the leader stops when it sees that. Until then its gate is open, so the others wait for the lease duration. A Lease
// that does not exist is created without a holder, and taken after that time. So the first start in a cluster, and a
// start after somebody has deleted the Lease, waits for 15 seconds before it writes.
//
// # How it ends
//
// Run calls a function while the process leads. When the function has returned, because a signal has ended the context
// and the workers have finished, Run closes the gate, and only then releases the Lease, so that a standby can take it
// with its next read. It releases only a Lease of its own. While the workers finish, the Lease is still renewed.
//
// # Limits
//
//   - The gate closes between two instructions. A process that is stopped (SIGSTOP) after the gate has let a request
//     pass, and before the request is on the wire, sends it when it continues. Its precondition makes it harmless.
//   - Answers that take longer than (renew deadline - retry period) / 2, which is 4 seconds, renew nothing. So an
//     outage of more than that may cost the leadership. One of the renew deadline always does.
//   - Cancelling a request does not undo it. A server that has it already may still execute it. client-go sends the
//     timeout of a request to the server, so this is limited too.
//   - The monotonic clock of Linux does not count the time in which a machine is suspended, so the gate also reads the
//     time of day, and closes if either clock shows that the time is over. Setting the clock forward by ten seconds
//     therefore costs the leadership. If the machine is suspended and its clock is set back at the same time, no clock
//     shows it, nor perhaps if the host pauses a virtual machine. What the gate lets pass then, preconditions refuse.
//   - Who may write the Lease can break the rule, by writing a Lease that seems to be released. RBAC limits that.
package leader
