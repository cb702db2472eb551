// Package metrics counts what a controller does, for Prometheus: syncs, requests and panics, and the problems that an
// administrator has to solve. Those of client-go (queue, requests, informers, leader election), of Go and of the
// process come from k8s.io/component-base, which this package imports for them.
//
// No label has the name of an object or of a namespace, and each label has a fixed set of values. So the number of
// series does not grow with the cluster, and no user can make it grow.
package metrics
