package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

const page = "../../docs/monitoring.md"

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

// Each metric in an expression is followed by labels, and one of them is the job. hack/e2e finds the metrics by that.
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

// The alerts of the starter of make mine have metrics that ours have, too. hack/e2e sees these in a controller.
func TestTheAlertsOfTheStarter(t *testing.T) {
	var ours []string
	for _, rule := range alerts(t) {
		for _, metric := range metricsOf(t, rule.Expr.String()) {
			ours = append(ours, metric.Name)
		}
	}
	var starter monitoringv1.PrometheusRule
	read(t, "../../hack/mine/starter/artifacts/monitoring/alerts.yaml", &starter)
	for _, rule := range starter.Spec.Groups[0].Rules {
		for _, metric := range metricsOf(t, rule.Expr.String()) {
			if !slices.Contains(ours, strings.Replace(metric.Name, "widget_", "foo_", 1)) ||
				!selects(metric, "job", "widget-controller") {
				t.Errorf("%s: %s is no metric of the controller", rule.Alert, metric)
			}
		}
	}
	var monitor monitoringv1.ServiceMonitor // The first one in the file.
	read(t, "../../hack/mine/starter/artifacts/monitoring/scrape.yaml", &monitor)
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
