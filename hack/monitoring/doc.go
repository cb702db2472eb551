// Package monitoring tests the files in artifacts/monitoring: the alerts with Prometheus' own rule engine, on series
// that are written down; the dashboard with Prometheus' query engine, on the scrapes of a real run; and the other files
// with the types of prometheus-operator. It is a module of its own, because Prometheus has hundreds of dependencies.
// `make test-monitoring` runs it.
//
// That the metrics of the alerts exist in a running controller is tested in hack/e2e. It also makes the recording, in
// eleven minutes, which is needed when a panel shows a metric that is new:
//
//	cd hack/e2e && go test -count=1 -run TestRecordScrapes . -record hack/monitoring/testdata/recording.txt.gz
package monitoring
