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

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const (
	// recording has the scrapes of two copies in ten minutes in which requests fail. doc.go has how to make a new one.
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

func readDashboard(t *testing.T, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(artifacts, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// Each row answers a question, and docs/monitoring.md has the same one.
func TestTheDashboardIsOnePage(t *testing.T) {
	page, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`(?m)^\| \*(.*)\* \|`).FindAllStringSubmatch(string(page), -1)
	var read dashboard
	readDashboard(t, &read)
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
	var read any
	readDashboard(t, &read)
	uses := 0
	var check func(path string, value any)
	check = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, element := range value {
				check(path+"."+key, element)
			}
			source, has := value["datasource"]
			if !has {
				return
			}
			uses++
			if fields, _ := source.(map[string]any); fields["uid"] != "${datasource}" {
				t.Errorf("%s has the datasource %v, want the variable", path, source)
			}
		case []any:
			for _, element := range value {
				check(path, element)
			}
		}
	}
	check("", read)
	if uses <= maxPanels {
		t.Errorf("%d panels and queries have a datasource: are they still found?", uses)
	}
}

// Each variable depends on those before it: a namespace is one of the cluster, and both are asked of the Prometheus.
func TestTheDashboardAsksForTheClusterBeforeTheNamespace(t *testing.T) {
	var read dashboard
	readDashboard(t, &read)
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
	var read dashboard
	readDashboard(t, &read)
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

// The recording is of a run in which something was wrong: otherwise, queries about failures would have no samples, or
// only 0.
func TestTheRecordingHasTrouble(t *testing.T) {
	storage := promqltest.LoadedStorage(t, readRecording(t))
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 100_000)
	for _, expr := range []string{
		`up == 0`,
		`foo_controller_problems > 0`,
		`foo_controller_foos{reason="Refused"} > 0`,
		`foo_controller_foos{reason="ProgressDeadlineExceeded"} > 0`,
		`foo_controller_requests_total{request="create Deployment", code="403"} > 0`,
		`rest_client_requests_total{code="<error>"} > 0`,
		`leader_election_master_status{pod="foo-controller-a"} == 1`,
		`leader_election_master_status{pod="foo-controller-b"} == 1`,
	} {
		query, err := engine.NewRangeQuery(t.Context(), storage, nil, expr, time.Unix(0, 0),
			time.Unix(0, 0).Add(recorded), scrapeInterval)
		if err != nil {
			t.Fatal(err)
		}
		if matrix, err := query.Exec(t.Context()).Matrix(); err != nil || !hasNumber(matrix) {
			t.Errorf("%s never was: %v", expr, err)
		}
		query.Close()
	}
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
