package telemetry

import (
	"errors"
	"runtime"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // Has the metrics of client-go.
)

// Metrics are the controller's own metrics. They may be used concurrently. A nil *Metrics counts nothing.
type Metrics struct {
	syncs    *metrics.CounterVec
	duration *metrics.Histogram
	requests *metrics.CounterVec
	panics   *metrics.Counter
}

// NewMetrics returns metrics whose names begin with prefix. It registers them with register, such as
// legacyregistry.MustRegister.
func NewMetrics(prefix string, register func(...metrics.Registerable)) *Metrics {
	counter := func(name, help string) *metrics.CounterOpts {
		return &metrics.CounterOpts{Name: prefix + name, Help: help, StabilityLevel: metrics.ALPHA}
	}
	m := &Metrics{
		syncs: metrics.NewCounterVec(counter("_syncs_total", "Number of syncs by outcome: done, retry (it failed), "+
			"wait (for time to pass), terminal (only a change helps)."), []string{"outcome"}),
		duration: metrics.NewHistogram(&metrics.HistogramOpts{
			Name:           prefix + "_sync_duration_seconds",
			Help:           "How long a sync took, with its requests.",
			Buckets:        []float64{.0001, .001, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			StabilityLevel: metrics.ALPHA,
		}),
		requests: metrics.NewCounterVec(counter("_requests_total", "Number of requests that syncs have sent, by the rule "+
			"that asked for them, the request, and the status code."), []string{"rule", "request", "code"}),
		panics: metrics.NewCounter(counter("_panics_total",
			"Number of syncs that panicked. Each is a defect of the controller.")),
	}
	register(m.syncs, m.duration, m.requests, m.panics)
	return m
}

// BuildInfo registers the gauge whose labels have the version of the program and that of Go, and whose name begins with
// prefix. The error is that of register, which may be legacyregistry.Register.
func BuildInfo(prefix, version string, register func(metrics.Registerable) error) error {
	build := metrics.NewGauge(&metrics.GaugeOpts{
		Name:           prefix + "_build_info",
		Help:           "Always 1. The labels have the version of the program, and that of Go which has built it.",
		ConstLabels:    map[string]string{"version": version, "go_version": runtime.Version()},
		StabilityLevel: metrics.ALPHA,
	})
	err := register(build)
	build.Set(1) // It has a value only from the registration on.
	return err
}

// Problems returns the gauge of the problems that an administrator has to solve, whose name begins with prefix. count
// is called for each scrape, and may be called concurrently. Register it with, for example,
// legacyregistry.CustomMustRegister.
func Problems(prefix string, count func() int) metrics.StableCollector {
	return &problems{count: count, desc: metrics.NewDesc(prefix+"_problems",
		"Number of problems that an administrator has to solve: those in /readyz.", nil, nil, metrics.ALPHA, "")}
}

type problems struct {
	metrics.BaseStableCollector
	desc  *metrics.Desc
	count func() int
}

// DescribeWithStability implements metrics.StableCollector.
func (p *problems) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- p.desc }

// CollectWithStability implements metrics.StableCollector.
func (p *problems) CollectWithStability(ch chan<- metrics.Metric) {
	ch <- metrics.NewLazyConstMetric(p.desc, metrics.GaugeValue, float64(p.count()))
}

// Synced counts a sync. outcome is one of a fixed set.
func (m *Metrics) Synced(outcome string, duration time.Duration) {
	if m == nil {
		return
	}
	m.syncs.WithLabelValues(outcome).Inc()
	m.duration.Observe(duration.Seconds())
}

// Requested counts a request. rule and request are of fixed sets. err is nil if the request succeeded.
func (m *Metrics) Requested(rule, request string, err error) {
	if m != nil {
		m.requests.WithLabelValues(rule, request, code(err)).Inc()
	}
}

// Panicked counts a sync that panicked.
func (m *Metrics) Panicked() {
	if m != nil {
		m.panics.Inc()
	}
}

// codes are the values of the label code for errors. An admission webhook can answer with any number.
var codes = map[int32]bool{
	400: true, 401: true, 403: true, 404: true, 405: true, 409: true, 410: true, 413: true, 415: true, 422: true,
	429: true,
	500: true, 501: true, 502: true, 503: true, 504: true,
}

// code returns the value of the label code: 2xx for a success, the number of a common error, 4xx or 5xx or other for
// one that is not common, and none if there was no answer.
func code(err error) string {
	if err == nil {
		return "2xx"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "none"
	}
	number := status.Status().Code
	switch {
	case codes[number]:
		return strconv.Itoa(int(number))
	case number >= 400 && number < 500:
		return "4xx"
	case number >= 500 && number < 600:
		return "5xx"
	}
	return "other"
}
