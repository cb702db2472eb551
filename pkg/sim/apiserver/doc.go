// Package apiserver is a simulated Kubernetes API server for tests of controllers. It runs in memory, in the process of
// the test. A test uses the real client-go with it: clients, informers, listers, leader election and event recorders
// run as in production, but on an http.RoundTripper instead of a network. It is an http.Handler, too, for kubectl and
// for programs in other processes.
//
// The server has no sockets, no goroutines of its own and no randomness, and it waits only in ways that
// testing/synctest supports. So a test can simulate a day in milliseconds, inject a fault into any request, and repeat
// a failed schedule step by step.
//
// # Use
//
// New registers kinds, and Server.Config returns a configuration for clients. Everything else works as in a cluster. A
// Kind describes one kind: whether it is a custom resource, whether it has a status or a scale, its defaults and its
// validation. KindOf makes one from a Go type, FromCRD from a CustomResourceDefinition. Load stores objects that no
// client could create.
//
// Intercept adds a function between clients and server, which can inject a fault before a commit, after it, or both.
// InterceptEvents adds a function between the server and watches, which can delay or break them. Admit and Review are
// mutating and validating admission. Quota, Admission.DeniedByPolicy, DeniedByWebhook and WebhookFailed return the
// errors of a real server. Compact drops the history. History, Objects and Object are for assertions, Trace for people.
//
// RunGarbageCollector, RunNamespaces, RunDeployments and RunUser are the other actors of a cluster. Each is a plain
// function that returns when its context ends. It watches the server, and acts by requests that can fail like others.
//
// A run in a bubble repeats exactly if each request has a moment of its own, and if clients choose nothing at random:
// informers choose the timeouts of their watches, and backoffs their delays. Package faults replaces both, and its
// Latency gives each request a moment.
//
// A program with this package has only the first of the two utilruntime.ErrorHandlers: the other one sleeps by real
// time.
//
// # What is simulated
//
// Create, get, list, watch, update, patch (JSON, merge, and for built-in kinds strategic merge), delete and
// deletecollection; status, scale and finalize; generateName, uids, generations, one sequence of resourceVersions;
// preconditions and optimistic locking; writes that change nothing; finalizers, propagation policies, namespaces
// that are being deleted; dry runs; warnings about unknown fields, and strict field validation; lists in pages, at,
// or not older than a version; watches from a version or with initial events, bookmarks, timeouts, label and field
// selectors; objects and lists that are reduced to their metadata, for metadata informers, or are tables, for kubectl;
// discovery of groups, versions, resources and subresources; SelfSubjectAccessReviews, which allow everything. Errors
// have the code, the reason, the causes and, mostly, the message of a real server. Built-in kinds support JSON and
// protobuf, custom ones JSON. Both read and write YAML.
//
// Events of events.k8s.io/v1 can also be read, but not written, as Events of v1.
//
// The server keeps the last changes and the last lines of the trace. See KeepHistory and KeepTrace.
//
// # What is not
//
//   - Server-side apply, which is refused with 415, and managedFields, which are dropped.
//   - Authentication and authorization: every request is allowed. Use Intercept to forbid some.
//   - Tables of scales, and the columns of the built-in kinds for which this package has no function: their tables have
//     the name and the age.
//   - Aggregated discovery, instead of which clients then use the other one; hashes of storage versions; the schemas in
//     OpenAPI, which has only what kubectl asks for before it sends an object.
//   - Schemas of custom resources, except with package crd, a module of its own. Without it the Go type decides about
//     pruning and types; Default, Validate and ValidateStatus do the rest. Of unstructured objects, only the metadata
//     has types. A field of a Go type without omitempty is always present, even if no client has set it.
//   - Defaults and validation of built-in kinds, except of Namespaces, ConfigMaps, Leases and Deployments.
//   - Field selectors for status.podIPs of Pods, and for fields of ResourceSlices and ClusterTrustBundles.
//   - Admit is not called for deletions; Review is.
//   - Most of the inside of pod templates: defaults for probes and volumes, for instance, and most validation.
//   - Other namespaces than "default" at the beginning. A test that needs kube-system creates it.
//   - Small things: qualities (q=) in an Accept header, a negative timeoutSeconds, HEAD, which answers as for an
//     unknown method, and the warning about a Job that is deleted without a propagation policy.
//   - Several versions of one kind: kinds of two versions are two kinds.
//   - Grace periods: no kind is deleted gracefully, as Pods are. Events do not expire.
//   - Limits: of the size of an object, of the rate of requests (429 comes only from Intercept), of the time of a
//     request.
//   - The lag of a real server's watch cache: reads and watches are always up to date. Package faults makes lists and
//     watches lag.
//   - Connections: a broken watch does not affect other requests. No websockets, exec, logs or proxies.
//   - The legacy /watch paths, and selectors by shard.
//   - CustomResourceDefinitions: the kinds are those of New.
//   - Headers of responses, except Content-Type, Retry-After and Warning.
//   - In the actors: ReplicaSets, Pods, surge, the gradual removal of old replicas, and conditions of namespaces.
package apiserver
