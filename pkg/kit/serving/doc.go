// Package serving is the HTTP side of a controller: health for the kubelet, metrics for Prometheus, and a page for a
// person who debugs the process. It knows nothing of the controller. Its caller gives it checks, which are functions
// with a name, a handler for the metrics, and plain values to show.
//
// There are three endpoints, each with a Server and an address of its own. The address "0" turns an endpoint off.
//
//   - NewHealth serves /healthz and /readyz to everybody, without TLS. A failed check of /healthz gets the process
//     killed. A failed check of /readyz makes the pod not ready. The responses have the format of the API server, and
//     unlike there, they have the reasons: ?verbose shows all checks, /readyz/NAME one of them.
//   - NewMetrics serves /metrics over TLS, to users of the cluster who may get the nonResourceURL /metrics.
//   - NewDebug serves /debug/config and profiles, and sets the level of the log, on a loopback address only.
//
// A constructor listens before it returns, so that an address that is in use ends the start of the program with one
// error. Server.Run serves until its context ends, and then finishes the requests in work. The context of the health
// Server should end last: until then the kubelet has to know that the process still stops.
//
// Busy makes a check of workers: it fails when one of them has been busy with one key for too long. Until makes a check
// of a cache that has to be filled.
//
// # Security
//
// The API server authenticates and authorizes the readers of metrics; access.go asks it, remembers its answers for a
// while, and refuses readers about whom it has no answer. Everything else is net/http with its limits for time and
// size (server.go). HTTP/2 is off. Health has no authentication, because the kubelet has no token for it.
//
// A NetworkPolicy should keep other pods away from both ports. The reasons of health may have names of objects. And no
// code here defends against a pod that floods a port: each request with an invalid token costs a TokenReview.
package serving
