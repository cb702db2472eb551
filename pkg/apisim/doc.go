// Package apisim is a Kubernetes API server for tests of controllers, in memory and in one process, that real
// client-go cannot tell from a real one: clients, informers, listers, leader election and event recorders are the
// ones that run in production, on an http.RoundTripper in place of a network. It has no sockets, no goroutines of
// its own, no randomness, and waits only in ways that testing/synctest understands. So a test can let a day pass in
// milliseconds, place a fault at any request, and run a failed schedule again, step by step.
//
// # Use
//
// New takes the kinds that it shall know, Server.Config returns a configuration for clients, and everything else
// goes the way that it goes in a cluster. A Kind says what is peculiar to it: whether it is a custom resource, has a
// status or a scale, what its defaults are and what is wrong with an object. Load stores what no client could.
//
// Intercept stands between clients and server, and places faults before a commit, after it, or both. InterceptEvents
// stands between the server and watches, and makes them lag or break. Admit and Review are mutating and validating
// admission; Quota, Admission.DeniedByPolicy, DeniedByWebhook and WebhookFailed have a real server's words for what
// they refuse. Compact forgets history. History, Objects and Object are for oracles, and Trace for people.
//
// RunGarbageCollector, RunNamespaces, RunDeployments and RunUser are what else is in a cluster. Each is a plain
// function that returns when its context ends, looks at the server, and acts by requests that can fail like others.
//
// With one P (GOMAXPROCS=1), and a single source of randomness drawn from in the order of requests, the server and the
// actors repeat a run in a bubble exactly, trace and all. Clients need not: informers roll dice about when to renew
// their watches, event recorders and backoffs about when to try again, and a select of Go about what comes first.
//
// # What is simulated
//
// Create, get, list, watch, update, patch (JSON, merge, and for built-in kinds strategic merge), delete and
// deletecollection; status, scale and finalize; generateName, uids, generations, one sequence of resourceVersions;
// preconditions and optimistic locking; writes that change nothing; finalizers, propagation policies, namespaces
// that are being deleted; dry runs; warnings about unknown fields, and strict field validation; lists in pages, at,
// or not older than a version; watches from a version or with initial events, bookmarks, timeouts, label and field
// selectors; discovery, as far as clients need it. Errors have the code, reason, causes and, mostly, words of a real
// server. Built-in kinds speak JSON and protobuf, custom ones JSON, both read YAML.
//
// # What is not
//
//   - Server-side apply, which is refused with 415, and managedFields, which are dropped.
//   - Authentication and authorization. Everybody may do everything; use Intercept to forbid it.
//   - Tables and objects reduced to their metadata: kubectl and metadata informers get the whole object, or 406.
//   - Schemas of custom resources: the Go type prunes and types, Default, Validate and ValidateStatus do the rest.
//     A field of a Go type without omitempty is there even when nobody has set it.
//   - Several versions of one kind: kinds of two versions are two kinds. Events of two groups are, too.
//   - Grace periods: no kind is deleted gracefully, as Pods are. Events do not expire.
//   - Limits: to the size of an object, to the rate of requests (no 429 but by Intercept), to the time of a request.
//   - The lag of a real server's watch cache. Reads and watches are always up to date; InterceptEvents makes watches
//     lag.
//   - Connections: that one ends ends a watch, but says nothing about others. No websockets, exec, logs or proxies.
//   - The legacy /watch paths, and selectors by shard.
//   - In the actors: ReplicaSets, Pods, surge and old replicas that make way one by one; conditions of namespaces.
package apisim
