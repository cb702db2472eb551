package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

// newMetrics returns metrics in a registry of their own.
func newMetrics() (*Metrics, metrics.KubeRegistry) {
	registry := metrics.NewKubeRegistry()
	return NewMetrics("foo_controller", registry.MustRegister), registry
}

// series returns the series of a metric, sorted: their labels and their value. For a histogram, that is the number and
// the sum of its observations.
func series(t *testing.T, registry metrics.KubeRegistry, name string) (series []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			words := []string{}
			for _, label := range metric.GetLabel() {
				words = append(words, label.GetName()+"="+label.GetValue())
			}
			value := fmt.Sprint(metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
			if h := metric.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d with %v", h.GetSampleCount(), h.GetSampleSum())
			}
			series = append(series, strings.Join(append(words, value), " "))
		}
	}
	slices.Sort(series)
	return series
}

func mustHave(t *testing.T, registry metrics.KubeRegistry, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, series(t, registry, name)); diff != "" {
		t.Errorf("%s, - wanted, + is there:\n%s", name, diff)
	}
}

// A controller without metrics has nil.
func TestSyncsAreCounted(t *testing.T) {
	m, registry := newMetrics()
	for _, m := range []*Metrics{nil, m} {
		m.Synced("done", 20*time.Millisecond)
		m.Synced("done", 20*time.Second)
		m.Synced("retry", time.Second)
		m.Panicked()
		m.Requested("create", "create Deployment", nil)
	}
	mustHave(t, registry, "foo_controller_syncs_total", "outcome=done 2", "outcome=retry 1")
	mustHave(t, registry, "foo_controller_sync_duration_seconds", "3 with 21.02")
	mustHave(t, registry, "foo_controller_panics_total", "1")
}

func TestRequestsAreCountedByCode(t *testing.T) {
	m, registry := newMetrics()
	status := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}}
	}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "foos"}, "web", nil)
	for _, err := range []error{
		nil, nil, conflict, fmt.Errorf("again: %w", conflict), errors.New("connection refused"), status(418), status(499),
		status(599), status(799), status(0),
	} {
		m.Requested("create", "create Deployment", err)
	}
	m.Requested("update status", "update status of Foo", nil)
	mustHave(t, registry, "foo_controller_requests_total",
		"code=2xx request=create Deployment rule=create 2",
		"code=2xx request=update status of Foo rule=update status 1",
		"code=409 request=create Deployment rule=create 2",
		"code=4xx request=create Deployment rule=create 2",
		"code=5xx request=create Deployment rule=create 1",
		"code=none request=create Deployment rule=create 1",
		"code=other request=create Deployment rule=create 2",
	)
}

func TestProblemsAreCountedWhenTheyAreAskedFor(t *testing.T) {
	count, registry := 0, metrics.NewKubeRegistry()
	registry.CustomMustRegister(Problems("foo_controller", func() int { return count }))
	mustHave(t, registry, "foo_controller_problems", "0")
	count = 2
	mustHave(t, registry, "foo_controller_problems", "2")
}
