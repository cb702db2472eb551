// Package monitoring tests the files in artifacts/monitoring: the alerts with Prometheus' own rule engine, on series
// that are written down; the dashboard with Prometheus' query engine, on the scrapes of a real run; and the other files
// with the types of prometheus-operator. `make test-monitoring` runs it.
//
// That the metrics of the alerts exist in a running controller is tested in hack/test/e2e. It also makes the recording,
// in eleven minutes, which is needed when a panel shows a metric that is new:
//
//	cd hack/test/e2e && go test -count=1 -run TestRecordScrapes . -record hack/test/monitoring/testdata/recording.txt.gz
package monitoring

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const page = "../../../docs/monitoring.md"

func TestEachAlertHasWhatAnOperatorNeeds(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	runbooks := map[string]string{} // The first word of each runbook is the severity.
	for _, section := range regexp.MustCompile(`(?m)^### (\w+)\n\n\*(\w+)\. `).FindAllStringSubmatch(string(text), -1) {
		runbooks[section[1]] = strings.ToLower(section[2])
	}
	for _, rule := range alerts(t) {
		anchor := "docs/monitoring.md#" + strings.ToLower(rule.Alert)
		if !strings.HasSuffix(rule.Annotations["runbook_url"], anchor) {
			t.Errorf("%s has the runbook_url %q, want the anchor %s", rule.Alert, rule.Annotations["runbook_url"], anchor)
		}
		severity := rule.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning"}, severity) || runbooks[rule.Alert] != severity {
			t.Errorf("%s is %q, and %q in docs/monitoring.md", rule.Alert, severity, runbooks[rule.Alert])
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", rule.Alert)
		}
		delete(runbooks, rule.Alert)
	}
	for name := range runbooks {
		t.Errorf("docs/monitoring.md has %s, which is no alert", name)
	}
}

// Each metric in an expression is followed by labels, and one of them is the job. hack/test/e2e finds the metrics by
// that.
func TestEachMetricIsThatOfTheController(t *testing.T) {
	selector := regexp.MustCompile(`([a-z_]+)\{[^}]*\}`)
	for _, rule := range alerts(t) {
		expr := rule.Expr.String()
		var metrics, found []string
		for _, metric := range metricsOf(t, expr) {
			metrics = append(metrics, metric.Name)
			if !selects(metric, "job", "foo-controller") {
				t.Errorf("%s: %s is not limited to the job foo-controller", rule.Alert, metric)
			}
		}
		for _, match := range selector.FindAllStringSubmatch(expr, -1) {
			found = append(found, match[1])
		}
		slices.Sort(metrics)
		slices.Sort(found)
		if !slices.Equal(metrics, found) || len(metrics) == 0 {
			t.Errorf("%s has the metrics %q, and with labels %q", rule.Alert, metrics, found)
		}
	}
}

// The alerts of the starter of make mine have metrics that ours have, too. hack/test/e2e sees these in a controller.
func TestTheAlertsOfTheStarter(t *testing.T) {
	var ours []string
	for _, rule := range alerts(t) {
		for _, metric := range metricsOf(t, rule.Expr.String()) {
			ours = append(ours, metric.Name)
		}
	}
	var starter monitoringv1.PrometheusRule
	read(t, "../../hack/starter/artifacts/monitoring/alerts.yaml", &starter)
	for _, rule := range starter.Spec.Groups[0].Rules {
		for _, metric := range metricsOf(t, rule.Expr.String()) {
			if !slices.Contains(ours, strings.Replace(metric.Name, "widget_", "foo_", 1)) ||
				!selects(metric, "job", "widget-controller") {
				t.Errorf("%s: %s is no metric of the controller", rule.Alert, metric)
			}
		}
	}
	var monitor monitoringv1.ServiceMonitor // The first one in the file.
	read(t, "../../hack/starter/artifacts/monitoring/scrape.yaml", &monitor)
}

// metricsOf returns the metrics in an expression, with their labels.
func metricsOf(t *testing.T, expr string) (metrics []*parser.VectorSelector) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if metric, ok := node.(*parser.VectorSelector); ok {
			metrics = append(metrics, metric)
		}
		return nil
	})
	return metrics
}

// selects reports whether only series with this label are selected.
func selects(metric *parser.VectorSelector, label, value string) bool {
	return slices.ContainsFunc(metric.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Type == labels.MatchEqual && m.Name == label && m.Value == value
	})
}

// The labels of the target, and the token. The fields are those of prometheus-operator: read refuses all others.
func TestTheServiceMonitorFitsTheController(t *testing.T) {
	var monitor monitoringv1.ServiceMonitor
	read(t, "service-monitor.yaml", &monitor)
	endpoints := monitor.Spec.Endpoints
	if len(endpoints) != 1 || endpoints[0].Port != "metrics" || endpoints[0].Scheme.String() != "https" {
		t.Errorf("the endpoints are %+v, want port metrics with https", endpoints)
	}
	if monitor.Spec.JobLabel != "app.kubernetes.io/name" ||
		monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "foo-controller" {
		t.Errorf("the label job is that of %q of %v", monitor.Spec.JobLabel, monitor.Spec.Selector.MatchLabels)
	}
}

const (
	// recording has the scrapes of two copies in ten minutes in which requests fail. The package comment has its command.
	recording = "testdata/recording.txt.gz"
	// scrapeInterval and recorded are the time between two of its scrapes, and between the first and the last one.
	scrapeInterval = 15 * time.Second
	recorded       = 10 * time.Minute
	// maxPanels fit on one large screen. Who adds one takes one away.
	maxPanels = 12
)

// variables replaces those of Grafana. Its $__rate_interval is four times the scrape interval.
func variables(cluster string) *strings.Replacer {
	return strings.NewReplacer("$cluster", cluster, "$namespace", "foo-system", "$__rate_interval", "1m")
}

// A dashboard is what the tests read of dashboard.json.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

type panel struct {
	Type, Title, Description string
	Targets                  []struct{ Expr, LegendFormat string }
}

// readDashboard returns the dashboard and its text.
func readDashboard(t *testing.T) (read dashboard, text string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(artifacts, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &read); err != nil {
		t.Fatal(err)
	}
	return read, string(content)
}

// Each row answers a question, and docs/monitoring.md has the same one.
func TestTheDashboardIsOnePage(t *testing.T) {
	page, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`(?m)^\| \*(.*)\* \|`).FindAllStringSubmatch(string(page), -1)
	read, _ := readDashboard(t)
	panels, rows := 0, 0
	for _, p := range read.Panels {
		if p.Type != "row" {
			panels++
			if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("the panel %q has no title, description or query", p.Title)
			}
			continue
		}
		rows++
		if !slices.ContainsFunc(documented, func(found []string) bool { return found[1] == p.Title }) {
			t.Errorf("docs/monitoring.md lacks the row %q", p.Title)
		}
	}
	if panels > maxPanels || panels == 0 {
		t.Errorf("there are %d panels, at most %d fit", panels, maxPanels)
	}
	if rows != len(documented) {
		t.Errorf("there are %d rows, and docs/monitoring.md has %d", rows, len(documented))
	}
}

// Each Grafana has other names for its Prometheus, so the dashboard asks for it.
func TestTheDashboardNamesNoDatasource(t *testing.T) {
	_, text := readDashboard(t)
	sources := regexp.MustCompile(`"datasource":.*`).FindAllString(text, -1)
	for _, source := range sources {
		if !strings.Contains(source, `"uid": "${datasource}"`) {
			t.Errorf("%s is not the variable", source)
		}
	}
	if len(sources) <= maxPanels {
		t.Errorf("%d panels and queries have a datasource: are they still found?", len(sources))
	}
}

// Each variable depends on those before it: a namespace is one of the cluster, and both are asked of the Prometheus.
func TestTheDashboardAsksForTheClusterBeforeTheNamespace(t *testing.T) {
	read, _ := readDashboard(t)
	var names []string
	for _, variable := range read.Templating.List {
		names = append(names, variable.Name)
	}
	if want := []string{"datasource", "cluster", "namespace"}; !slices.Equal(names, want) {
		t.Fatalf("the variables are %q, want %q", names, want)
	}
	if query := read.Templating.List[2].Definition; !strings.Contains(query, `cluster="$cluster"`) {
		t.Errorf("the namespaces are those of %s, want those of the cluster", query)
	}
}

// Without the label cluster, the variable is empty.
func TestEachQueryOfTheDashboardHasSamples(t *testing.T) {
	text := readRecording(t)
	t.Run("one cluster", func(t *testing.T) { checkQueries(t, text, "") })
	text = strings.ReplaceAll(text, "{job=", `{cluster="east",job=`)
	t.Run("many clusters", func(t *testing.T) { checkQueries(t, text, "east") })
}

func checkQueries(t *testing.T, text, cluster string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, text)
	t.Cleanup(func() { _ = storage.Close() }) // It is in a temporary directory.
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)
	read, _ := readDashboard(t)
	for _, p := range read.Panels {
		for _, target := range p.Targets {
			expr := variables(cluster).Replace(target.Expr)
			for _, metric := range metricsOf(t, expr) {
				if !strings.Contains(text, "\n  "+metric.Name+"{") {
					t.Errorf("%s: the controller does not serve %s", p.Title, metric.Name)
				}
				for label, value := range map[string]string{
					"job": "foo-controller", "cluster": cluster, "namespace": "foo-system",
				} {
					if !selects(metric, label, value) {
						t.Errorf("%s: %s is not limited to the %s %q", p.Title, metric, label, value)
					}
				}
			}
			query, err := engine.NewRangeQuery(t.Context(), storage, nil, expr, time.Unix(0, 0),
				time.Unix(0, 0).Add(recorded), scrapeInterval)
			if err != nil {
				t.Fatalf("%s: %v", p.Title, err)
			}
			matrix, err := query.Exec(t.Context()).Matrix()
			if err != nil {
				t.Fatalf("%s: %v", p.Title, err)
			}
			if !hasNumber(matrix) {
				t.Errorf("%s: %s gives no sample", p.Title, expr)
			}
			query.Close()
		}
	}
}

// hasNumber reports whether a result has a sample. A quantile of nothing is NaN.
func hasNumber(matrix promql.Matrix) bool {
	return slices.ContainsFunc(matrix, func(series promql.Series) bool {
		return slices.ContainsFunc(series.Floats, func(point promql.FPoint) bool { return !math.IsNaN(point.F) })
	})
}

// readRecording returns the recording as a command of promqltest.
func readRecording(t *testing.T) string {
	t.Helper()
	file, err := os.Open(recording)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
