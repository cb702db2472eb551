package monitoring

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const (
	artifacts = "../../artifacts/monitoring"
	// step is the time between two scrapes, and between two evaluations of the rules.
	step = time.Minute
)

// read reads a file of artifacts/monitoring. A field that into does not have is an error.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(artifacts, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// alerts returns the rules in artifacts/monitoring.
func alerts(t *testing.T) []monitoringv1.Rule {
	t.Helper()
	var rule monitoringv1.PrometheusRule
	read(t, "alerts.yaml", &rule)
	var all []monitoringv1.Rule
	for _, group := range rule.Spec.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("alerts.yaml has no rules")
	}
	return all
}

// ruleFile writes the rules as a file that Prometheus loads, and returns its path. It is what prometheus-operator does.
func ruleFile(t *testing.T) string {
	t.Helper()
	var rule monitoringv1.PrometheusRule
	read(t, "alerts.yaml", &rule)
	text, err := yaml.Marshal(rule.Spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A timeline is the values of series, in the notation of promtool's unit tests: "1x9" is ten times 1, "0+5x9" is 0, 5,
// 10 and so on, "_x9" is ten times nothing.
type timeline map[string]string

// with returns the timeline with other values for some series. "" removes a series.
func (l timeline) with(changes timeline) timeline {
	all := maps.Clone(l)
	for series, values := range changes {
		all[series] = values
		if values == "" {
			delete(all, series)
		}
	}
	return all
}

// in returns the timeline of a cluster, as a ruler receives it that evaluates many.
func (l timeline) in(cluster string) timeline {
	all := timeline{}
	for series, values := range l {
		all[strings.Replace(series, "{", fmt.Sprintf("{cluster=%q,", cluster), 1)] = values
	}
	return all
}

// firing evaluates the alerts on the series, minute by minute, and returns for each minute the alerts that fire: their
// name and severity, and the labels that distinguish them.
func firing(t *testing.T, series timeline, steps int) [][]string {
	t.Helper()
	load := "load 1m\n"
	for _, name := range slices.Sorted(maps.Keys(series)) {
		load += "  " + name + " " + series[name] + "\n"
	}
	storage := promqltest.LoadedStorage(t, load)
	t.Cleanup(func() { _ = storage.Close() }) // It is in a temporary directory.
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, 100_000), storage),
		Appendable: storage, Queryable: storage, Context: t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Parser:     parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(step, labels.EmptyLabels(), "", nil, false, ruleFile(t))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var minutes [][]string
	for minute := range steps {
		var names []string
		for _, group := range groups {
			group.Eval(t.Context(), time.Unix(0, 0).Add(time.Duration(minute)*step))
			names = append(names, firingIn(t, group)...)
		}
		slices.Sort(names)
		minutes = append(minutes, names)
	}
	return minutes
}

// firingIn returns the alerts of a group that fire now.
func firingIn(t *testing.T, group *rules.Group) (names []string) {
	t.Helper()
	for _, rule := range group.Rules() {
		alerting, ok := rule.(*rules.AlertingRule)
		if !ok {
			t.Fatalf("%s is not an alert", rule.Name())
		}
		if err := alerting.LastError(); err != nil {
			t.Fatalf("%s: %v", rule.Name(), err)
		}
		for _, alert := range alerting.ActiveAlerts() {
			if alert.State == rules.StateFiring {
				checkAnnotations(t, alert)
				names = append(names, describe(alert))
			}
		}
	}
	return names
}

// checkAnnotations checks that the texts of an alert begin with its cluster, if it has one.
func checkAnnotations(t *testing.T, alert *rules.Alert) {
	t.Helper()
	begin, cluster := "", alert.Labels.Get("cluster")
	if cluster != "" {
		begin = "Cluster " + cluster + ": "
	}
	for _, name := range []string{"summary", "description"} {
		text, found := strings.CutPrefix(alert.Annotations.Get(name), begin)
		if !found || text == "" || text[0] == ' ' || strings.Contains(text, "Cluster") {
			t.Errorf("%s %s of the cluster %q: %s", describe(alert), name, cluster, alert.Annotations.Get(name))
		}
	}
}

// describe returns the name of an alert and the values of its labels, sorted by the names of the labels.
func describe(alert *rules.Alert) string {
	words := []string{alert.Labels.Get(labels.AlertName)}
	alert.Labels.Range(func(label labels.Label) {
		switch label.Name {
		case labels.AlertName, "job", "instance": // The same in all series here.
		default:
			words = append(words, label.Value)
		}
	})
	return strings.Join(words, " ")
}
