// Package monitoring tests the files in artifacts/monitoring: the alerts with Prometheus' own rule engine, on series
// that are written down, and all files with the types of prometheus-operator. It is a module of its own, because
// Prometheus has hundreds of dependencies. `make test-monitoring` runs it.
//
// That the metrics exist in a running controller is tested in hack/e2e.
package monitoring
