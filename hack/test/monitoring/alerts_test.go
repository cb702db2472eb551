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

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// Series of the copies a and b of the controller.
const (
	upA       = `up{job="foo-controller",namespace="foo-system",pod="a"}`
	upB       = `up{job="foo-controller",namespace="foo-system",pod="b"}`
	leaderA   = `leader_election_master_status{job="foo-controller",namespace="foo-system",pod="a",name="foo-controller"}`
	leaderB   = `leader_election_master_status{job="foo-controller",namespace="foo-system",pod="b",name="foo-controller"}`
	cacheA    = `informer_store_resource_version{job="foo-controller",namespace="foo-system",pod="a",resource="foos"}`
	cacheB    = `informer_store_resource_version{job="foo-controller",namespace="foo-system",pod="b",resource="foos"}`
	doneA     = `foo_controller_syncs_total{job="foo-controller",namespace="foo-system",pod="a",outcome="done"}`
	retryA    = `foo_controller_syncs_total{job="foo-controller",namespace="foo-system",pod="a",outcome="retry"}`
	waitA     = `foo_controller_syncs_total{job="foo-controller",namespace="foo-system",pod="a",outcome="wait"}`
	depthA    = `workqueue_depth{job="foo-controller",namespace="foo-system",pod="a",name="foo-controller"}`
	problemsA = `foo_controller_problems{job="foo-controller",namespace="foo-system",pod="a"}`
	problemsB = `foo_controller_problems{job="foo-controller",namespace="foo-system",pod="b"}`
	panicsA   = `foo_controller_panics_total{job="foo-controller",namespace="foo-system",pod="a"}`
	startedA  = `process_start_time_seconds{job="foo-controller",namespace="foo-system",pod="a"}`
)

// waited is the series of a bucket of the time that keys of a have waited.
func waited(le string) string {
	return fmt.Sprintf(`workqueue_queue_duration_seconds_bucket{job="foo-controller",namespace="foo-system",pod="a",`+
		`name="foo-controller",le=%q}`, le)
}

// requests is the series of the requests of a by method and code.
func requests(method, code string) string {
	return fmt.Sprintf(`rest_client_requests_total{job="foo-controller",namespace="foo-system",pod="a",host="h",`+
		`method=%q,code=%q}`, method, code)
}

// foos is the series of the Foos with a reason that a has in its cache.
func foos(reason string) string {
	return fmt.Sprintf(`foo_controller_foos{job="foo-controller",namespace="foo-system",pod="a",reason=%q}`, reason)
}

// healthy is two copies, of which a leads. It syncs a Foo per second.
var healthy = timeline{
	upA: "1x120", upB: "1x120",
	leaderA: "1x120", leaderB: "0x120",
	cacheA: "100+10x120", cacheB: "100+10x120",
	doneA: "0+60x120", retryA: "0x120", depthA: "0x120",
	waited("0.1"): "0+60x120", waited("10.0"): "0+60x120", waited("100.0"): "0+60x120", waited("+Inf"): "0+60x120",
	foos("None"): "0x120", foos("Pending"): "0x120", foos("Creating"): "0x120", foos("Refused"): "0x120",
	foos("Available"): "100x120", foos("Paused"): "20x120", foos("FieldsOverridden"): "20x120",

	problemsA: "0x120", problemsB: "0x120",
	panicsA: "0x120", startedA: "1000x120",
	requests("GET", "200"): "0+6x120", requests("GET", "404"): "0+6x120", requests("PUT", "200"): "0+60x120",
	strings.Replace(upA, "foo-", "other-", 1): "0x120",
}

// Most situations begin at minute 30. Next to the one in which an alert has to fire is one in which it must not. Each
// is that of one Prometheus, and then that of the cluster east in a ruler which also has the healthy cluster west.
func TestAlerts(t *testing.T) {
	tests := []struct {
		name string
		// series are those that are different from healthy.
		series timeline
		// first is the minute in which the first alert fires. fires are all alerts that fire at some time.
		first int
		fires []string
	}{
		{name: "a healthy controller"},
		{
			name: "no copy can be read", series: timeline{upA: "1x29 0x90", upB: "1x29 0x90"},
			first: 35, fires: []string{"FooControllerDown foo-system critical"},
		},
		{
			name: "no pod exists", series: timeline{upA: "1x29 stale _x90", upB: "1x29 stale _x90"},
			first: 35, fires: []string{"FooControllerDown foo-system critical"},
		},
		{
			name: "other pods replace all of them",
			series: timeline{
				upA: "1x29 stale _x90", upB: "1x29 stale _x90", strings.Replace(upA, `"a"`, `"c"`, 1): "_x29 1x90",
			},
		},
		{
			name:   "no copy can be read for 4 minutes, while a node fails",
			series: timeline{upA: "1x29 0x3 1x90", upB: "1x29 0x3 1x90"},
		},
		{
			name: "one copy cannot be read", series: timeline{upB: "1x29 0x90"},
			first: 45, fires: []string{"FooControllerCopyDown foo-system b warning"},
		},
		{name: "one copy cannot be read during an upgrade", series: timeline{upB: "1x29 0x13 1x90"}},
		{
			name: "no copy leads", series: timeline{leaderA: "1x29 0x90"},
			first: 33, fires: []string{"FooControllerNoLeader foo-controller foo-system critical"},
		},
		{
			name:   "the other copy takes over after two minutes",
			series: timeline{leaderA: "1x29 0x90", leaderB: "0x31 1x90"},
		},
		{name: "a controller without --leader-elect", series: timeline{leaderA: "", leaderB: ""}},
		{
			name:   "one installation has a leader, the other one has none",
			series: timeline{strings.Replace(leaderA, "foo-system", "second", 1): "0x120"},
			first:  3, fires: []string{"FooControllerNoLeader foo-controller second critical"},
		},
		{
			name: "the permission to list and watch is missing", series: timeline{requests("GET", "403"): "0x29 0+2x90"},
			first: 42, fires: []string{"FooControllerReadsFail 403 foo-system a critical"},
		},
		{
			name: "the API server does not answer", series: timeline{requests("GET", "<error>"): "0x29 0+2x90"},
			first: 42, fires: []string{"FooControllerReadsFail <error> foo-system a critical"},
		},
		{
			name:   "the API server restarts, which takes 5 minutes",
			series: timeline{requests("GET", "<error>"): "0x29 0+2x5 10x90", requests("GET", "503"): "0x29 0+2x5 10x90"},
		},
		{
			name:   "a webhook fails the writes of one namespace",
			series: timeline{requests("POST", "500"): "0x29 0+2x90"},
		},
		{
			name: "a watch delivers nothing any more", series: timeline{cacheB: "100+10x29 400x90"},
			first: 64, fires: []string{"FooControllerCacheStale foo-system b foos warning"},
		},
		{
			name: "a cache is never filled", series: timeline{cacheA: "0x120"},
			first: 10, fires: []string{"FooControllerCacheStale foo-system a foos warning"},
		},
		{
			name:   "bookmarks that advance only every 10 minutes, in a cluster where nothing happens",
			series: timeline{cacheB: strings.Repeat("100x9 110x9 ", 6)},
		},
		{
			name:   "keys wait for half a minute",
			series: timeline{waited("10.0"): "0+60x29 1800+30x90", waited("0.1"): "0+60x29 1800+30x90"},
			first:  41, fires: []string{"FooControllerQueueSlow foo-system a warning"},
		},
		{
			name: "keys wait for half a minute, because the controller starts with 10,000 Foos",
			series: timeline{
				waited("0.1"): "0+60x29 1800+30x2 1860+60x90", waited("10.0"): "0+60x29 1800+30x2 1860+60x90",
				depthA: "0x29 9000 5000 0x90",
			},
		},
		{
			name:   "some keys wait for half a minute, those of a namespace whose requests hang",
			series: timeline{waited("10.0"): "0+60x29 1800+58x90", waited("0.1"): "0+60x29 1800+58x90"},
		},
		{
			name: "keys wait, and no sync ends",
			series: timeline{
				depthA: "0x29 1x90", doneA: "0+60x29 1800x90", waited("0.1"): "0+60x29 1800x90",
				waited("10.0"): "0+60x29 1800x90", waited("100.0"): "0+60x29 1800x90", waited("+Inf"): "0+60x29 1800x90",
			},
			first: 44,
			fires: []string{"FooControllerQueueSlow foo-system a warning"},
		},
		{
			name: "nothing has to be done",
			series: timeline{
				doneA: "0+60x29 1800x90", waited("0.1"): "0+60x29 1800x90", waited("10.0"): "0+60x29 1800x90",
				waited("100.0"): "0+60x29 1800x90", waited("+Inf"): "0+60x29 1800x90",
			},
		},
		{name: "there is always a key that waits, since much is done", series: timeline{depthA: "0x29 5x90"}},
		{
			name:   "twenty Foos fail in a cluster where nothing else happens",
			series: timeline{retryA: "0x29 0+20x90", doneA: "0+60x29 1800x90"},
			first:  50, fires: []string{"FooControllerSyncsFail foo-system warning"},
		},
		{
			name:   "twenty of 10,000 Foos fail, and the others are resynced",
			series: timeline{retryA: "0x29 0+20x90", doneA: "0+1000x120"},
			first:  50, fires: []string{"FooControllerSyncsFail foo-system warning"},
		},
		{
			name:   "three Foos fail in a cluster where nothing else happens",
			series: timeline{retryA: "0x29 0+3x90", doneA: "0+60x29 1800x90"},
		},
		{
			name:   "conflicts in a busy cluster",
			series: timeline{retryA: "0x29 0+100x90", doneA: "0+600x120", waitA: "0+600x120"},
		},
		{
			name: "a permission is missing", series: timeline{problemsA: "0x29 1x90"},
			first: 35, fires: []string{"FooControllerProblem foo-system warning"},
		},
		{
			name:   "the standby has a problem, then the leader has another one",
			series: timeline{problemsA: "0x32 2x90", problemsB: "0x29 1x3 0x90"},
			first:  35, fires: []string{"FooControllerProblem foo-system warning"},
		},
		{
			name:   "the API server restarts, which takes 4 minutes",
			series: timeline{problemsA: "0x29 1x3 0x90", problemsB: "0x29 1x3 0x90"},
		},
		{
			name: "a Foo has no status", series: timeline{foos("Pending"): "0x29 1x90"},
			first: 45, fires: []string{"FooControllerFoosUnseen foo-system warning"},
		},
		{
			name:   "Foos that were stored before conditions existed have no status",
			series: timeline{foos("None"): "0x29 40x90", foos("Available"): "100x29 60x90"},
			first:  45,
			fires: []string{
				"FooControllerFoosUnseen foo-system warning", "FooControllerManyFoosNotReady foo-system warning",
			},
		},
		{
			name:   "most scrapes find a Foo without a status, since many are created",
			series: timeline{foos("Pending"): "0x29 1x13 0 1x13 0 1x13 0x50"},
		},
		{
			name:   "a fifth of the Foos are not Ready",
			series: timeline{foos("Refused"): "0x29 15x90", foos("Creating"): "0x29 20x90"},
			first:  60, fires: []string{"FooControllerManyFoosNotReady foo-system warning"},
		},
		{
			name:   "a rollout of a fifth of the Foos takes 20 minutes",
			series: timeline{foos("Creating"): "0x29 35x20 0x90"},
		},
		{name: "a few Foos among many are not Ready", series: timeline{foos("Refused"): "0x29 10x90"}},
		{
			name:   "one of three Foos is not Ready",
			series: timeline{foos("Refused"): "1x120", foos("Available"): "2x120", foos("Paused"): "0x120"},
		},
		{
			name:   "many Foos are paused or overridden",
			series: timeline{foos("Paused"): "500x120", foos("FieldsOverridden"): "500x120"},
		},
		{
			name: "a sync panics", series: timeline{panicsA: "0x29 1x90"},
			first: 30, fires: []string{"FooControllerPanics foo-system a warning"},
		},
		{
			name: "a copy is killed every few minutes", series: timeline{startedA: "1000x29 2000x4 3000x4 4000x90"},
			first: 40, fires: []string{"FooControllerRestarts foo-system a warning"},
		},
		{name: "a copy restarts twice", series: timeline{startedA: "1000x29 2000x4 3000x90"}},
		{
			name:   "another job with the same metrics",
			series: timeline{strings.Replace(panicsA, "foo-controller", "mine", 1): "0+1x120"},
		},
	}
	seen := map[string]bool{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			changed := healthy.with(test.series)
			checkAlerts(t, changed, test.first, test.fires)
			for i, alert := range test.fires {
				name, labels, _ := strings.Cut(alert, " ")
				seen[name] = true
				test.fires[i] = name + " east " + labels
			}
			checkAlerts(t, changed.in("east").with(healthy.in("west")), test.first, test.fires)
		})
	}
	for _, rule := range alerts(t) {
		if !seen[rule.Alert] {
			t.Errorf("no situation here makes %s fire", rule.Alert)
		}
	}
}

// checkAlerts checks which alerts fire at some time on the series, and in which minute the first one does.
func checkAlerts(t *testing.T, series timeline, first int, fires []string) {
	t.Helper()
	all := []string{}
	got := 0
	for minute, names := range firing(t, series, 120) {
		if len(names) > 0 && len(all) == 0 {
			got = minute
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	if diff := cmp.Diff(append([]string{}, fires...), slices.Compact(all)); diff != "" {
		t.Errorf("the alerts that fire, - wanted, + do:\n%s", diff)
	}
	if got != first {
		t.Errorf("the first one fires at minute %d, want %d", got, first)
	}
}

// Prometheus has no list of clusters. What it has not seen for a day, it cannot notice as gone. Only if it has seen no
// copy of any cluster, nothing is there to be compared.
func TestWhatIsSilentForADayIsForgotten(t *testing.T) {
	silent := timeline{upA: "1x29 stale"}
	tests := []struct {
		name   string
		series timeline
		want   map[string]string // The first and the last minute of each alert.
	}{
		{
			name:   "one of two clusters",
			series: silent.in("east").with(timeline{upA: "1x1500"}.in("west")),
			want:   map[string]string{"FooControllerDown east foo-system critical": "35-1468"},
		},
		{
			name:   "one of two installations",
			series: silent.with(timeline{strings.Replace(upA, "foo-system", "second", 1): "1x1500"}),
			want:   map[string]string{"FooControllerDown foo-system critical": "35-1468"},
		},
		{
			name:   "the only installation",
			series: silent,
			want: map[string]string{
				"FooControllerDown foo-system critical": "35-1468", "FooControllerDown critical": "1474-1500",
			},
		},
		{
			name:   "nothing was ever installed",
			series: timeline{`up{job="other"}`: "1x1500"},
			want:   map[string]string{"FooControllerDown critical": "5-1500"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			first, got := map[string]int{}, map[string]string{}
			for minute, names := range firing(t, test.series, 1501) {
				for _, name := range names {
					if got[name] == "" {
						first[name] = minute
					}
					got[name] = fmt.Sprintf("%d-%d", first[name], minute)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the alerts that fire, - wanted, + do:\n%s", diff)
			}
		})
	}
}

const (
	artifacts = "../../../artifacts/monitoring"
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
