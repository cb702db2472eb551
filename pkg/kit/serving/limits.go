package serving

import "time"

// limits bound the costs that clients can cause. There are no flags for them: nobody has to tune them, and a limit that
// can be switched off is missing somewhere.
type limits struct {
	// header is how long a connection may take for the TLS handshake, and then for the header of a request. It is the
	// answer to clients that send one byte at a time.
	header time.Duration
	// read is how long a whole request may take to arrive. The handlers here read no body.
	read time.Duration
	// write is how long a response may take, from the end of the request's header. It cuts off clients that do not read.
	// The handlers of pprof extend it by the time that a profile takes.
	write time.Duration
	// idle is how long a connection stays open between two requests.
	idle time.Duration
	// drain is how long the end of the server waits for requests in work.
	drain time.Duration
	// headerBytes is the size of a request's header. net/http allows 4096 bytes more.
	headerBytes int
	// connections is how many connections are open at a time. More of them wait until one is closed.
	connections int
	// perAddress is how many of them one IP address may have. More of them are closed at once.
	perAddress int
	// keepAlive allows a connection to send more than one request.
	keepAlive bool
}

// probeLimits are for the probes of the kubelet, which uses each connection once. As nothing authenticates its clients,
// any pod could take all connections, and the kubelet would kill the process because its probe gets no response. So
// there are many connections, of some kB each, each is short, and a pod has only its share of them.
var probeLimits = limits{
	header: 2 * time.Second, read: 2 * time.Second, write: 5 * time.Second, idle: 2 * time.Second,
	drain: 2 * time.Second, headerBytes: 8 << 10, connections: 512, perAddress: 32,
}

// scrapeLimits are for Prometheus, which keeps its connection between two scrapes. Tokens may have some kB.
var scrapeLimits = limits{
	header: 5 * time.Second, read: 5 * time.Second, write: 30 * time.Second, idle: 90 * time.Second,
	drain: 5 * time.Second, headerBytes: 16 << 10, connections: 64, perAddress: 16, keepAlive: true,
}

// debugLimits are for a person.
var debugLimits = limits{
	header: 5 * time.Second, read: 5 * time.Second, write: 30 * time.Second, idle: 30 * time.Second,
	drain: time.Second, headerBytes: 16 << 10, connections: 8, perAddress: 8, keepAlive: true,
}
