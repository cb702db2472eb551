package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A figure has a value for each round in which it was measured, in ascending order.
type figure []float64

// of returns a metric of a contender in a scenario.
func (b *bench) of(scenario, contender, metric string) figure {
	return b.combine(scenario+"/"+contender+"/"+metric, "", func(x, _ float64) float64 { return x })
}

// ratio divides metrics, each given as SCENARIO/CONTENDER/METRIC, of the same round.
func (b *bench) ratio(above, below string) figure {
	return b.combine(above, below, func(x, y float64) float64 { return x / y })
}

// heapPerFoo is how much the heap grows from 1,000 to 10,000 Foos, in KiB a Foo.
func (b *bench) heapPerFoo(contender string) figure {
	return b.combine(cold10000x50+"/"+contender+"/heap", cold1000x50+"/"+contender+"/heap",
		func(x, y float64) float64 { return (x - y) / 9000 / 1024 })
}

// combine applies f to two metrics of the same round. The second one may be "".
func (b *bench) combine(first, second string, f func(x, y float64) float64) (values figure) {
	rounds := func(of string) map[int]float64 {
		found := map[int]float64{}
		for _, r := range b.results.Runs {
			metric, ok := strings.CutPrefix(of, r.Scenario+"/"+r.Contender+"/")
			if value, has := r.Metrics[metric]; ok && has {
				found[r.Round] = value
			}
		}
		return found
	}
	others := rounds(second)
	for round, x := range rounds(first) {
		if y, ok := others[round]; ok || second == "" {
			values = append(values, f(x, y))
		}
	}
	slices.Sort(values)
	return values
}

// percentile returns the smallest value that at least p percent do not exceed, or NaN if there are none.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// median returns the median, or NaN if there are no values.
func (f figure) median() float64 { return (percentile(f, 50) + percentile(f, 51)) / 2 }

// show returns the median, multiplied by factor, and the range if there is one.
func (f figure) show(factor float64) string {
	median := number(f.median() * factor)
	if len(f) == 0 || number(f[0]) == number(f[len(f)-1]) {
		return median
	}
	return fmt.Sprintf("%s (%s to %s)", median, number(f[0]*factor), number(f[len(f)-1]*factor))
}

// number returns x with two or three digits, or all before the point.
func number(x float64) string {
	switch size := math.Abs(x); {
	case math.IsNaN(x):
		return "-"
	case size >= 100:
		return fmt.Sprintf("%.0f", x)
	case size >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// A goal is a bound for the median of a figure.
type goal struct {
	what   string
	figure figure
	sign   string // "at least" or "at most".
	bound  float64
}

func (g goal) String() string {
	median, result := g.figure.median(), "**missed**"
	switch {
	case math.IsNaN(median):
		result = "not measured"
	case g.sign == "at least" && median >= g.bound, g.sign == "at most" && median <= g.bound:
		result = "reached"
	}
	return fmt.Sprintf("| %s | %s %g | %s | %s |", g.what, g.sign, g.bound, g.figure.show(1), result)
}

func (b *bench) goals() []goal {
	const large, mine = cold10000x50 + "/", cold10000x50 + "/" + ours
	memory := figure{b.heapPerFoo(ours).median() / b.heapPerFoo(framework).median()}
	return []goal{
		{"writes for a new Foo / 2, the minimum", figure{b.of(burst, ours, "writesPerFoo").median() / 2}, "at most", 1},
		{"requests in a minute of idleness", b.of(idle, ours, "idleRequests"), "at most", 0},
		{"writes of a restart", b.of(cold10000x50, ours, "restartWrites"), "at most", 0},
		{"cold start of 10,000 Foos in 50 namespaces: throughput / raw-watch",
			b.ratio(large+watching+"/seconds", mine+"/seconds"), "at least", 0.9},
		{"in one namespace", b.ratio(cold10000+"/"+watching+"/seconds", cold10000+"/"+ours+"/seconds"), "at least", 0.75},
		{"CPU / raw-watch", b.ratio(mine+"/cpuPerFoo", large+watching+"/cpuPerFoo"), "at most", 1.5},
		{"live heap for a Foo and its Deployment, from 1,000 to 10,000, in KiB", b.heapPerFoo(ours), "at most", 3},
		{"RSS with 10,000 unrelated Deployments / without", b.ratio(unrelated+"/"+ours+"/rss", mine+"/rss"), "at most", 1.15},
		{"restart with 10,000 Foos: the first new Foo is served / raw-watch has both lists",
			b.ratio(mine+"/restartSeconds", large+watching+"/restartLists"), "at most", 1.5},
		{"beside controller-runtime: throughput of the cold start",
			b.ratio(large+framework+"/seconds", mine+"/seconds"), "at least", 1.1},
		{"beside controller-runtime: CPU", b.ratio(mine+"/cpuPerFoo", large+framework+"/cpuPerFoo"), "at most", 0.7},
		{"beside controller-runtime: live heap for a Foo and its Deployment", memory, "at most", 0.4},
		{"beside plain: 100 Foos at once, how much sooner it is quiet",
			b.ratio(burst+"/"+plain+"/seconds", burst+"/"+ours+"/seconds"), "at least", 80},
	}
}

// metricNames have a title for each metric, and how many of its units are one of the metric.
var metricNames = []struct {
	metric, title string
	factor        float64
	isCost        bool // It has a ratio.
}{
	{"seconds", "seconds", 1, true},
	{"writesPerFoo", "writes a Foo", 1, false},
	{"cpuPerFoo", "CPU, ms a Foo", 1000, true},
	{"serverCPUPerFoo", "CPU of etcd and the API server, ms a Foo", 1000, false},
	{"heap", "live heap, MiB", 1.0 / (1 << 20), true},
	{"rss", "RSS, MiB", 1.0 / (1 << 20), true},
	{"created50", "Foo to Deployment, p50, ms", 1000, true},
	{"created99", "the same, p99", 1000, true},
	{"reported50", "status of the Deployment to that of the Foo, p50, ms", 1000, false},
	{"reported99", "the same, p99 ", 1000, false},
	{"restartSeconds", "restart: seconds until a new Foo has its status", 1, true},
	{"restartLists", "restart: seconds until both lists are there", 1, false},
	{"restartWrites", "restart: other writes", 1, false},
	{"idleRequests", "idle: requests a minute", 1, false},
	{"idleCPU", "idle: CPU, ms a minute", 1000, false},
}

// report writes the document and its plots, and the table of the README. A quick one is not for the repository.
func (b *bench) report() error {
	dir := "docs"
	if b.quick {
		dir = b.dir
	}
	if err := os.MkdirAll(filepath.Join(dir, "benchmarks"), 0o755); err != nil {
		return err
	}
	text := &bytes.Buffer{}
	fmt.Fprintf(text, "# Benchmarks\n\n<!-- `make bench` writes this file. -->\n\n%s\n## Goals\n\n"+
		"| | goal | median (range) | |\n| --- | --- | --- | --- |\n", b.introduction())
	for _, g := range b.goals() {
		fmt.Fprintln(text, g)
	}
	for _, p := range b.plots() {
		if err := os.WriteFile(filepath.Join(dir, "benchmarks", p.name+".svg"), []byte(p.svg()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(text, "\n![%s](benchmarks/%s.svg)\n", p.title, p.name)
	}
	for _, s := range scenarios() {
		b.writeScenario(text, s)
	}
	file := filepath.Join(dir, "benchmarks.md")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Println("wrote", file)
	if b.quick {
		return nil
	}
	return b.writeReadme("README.md")
}

// introduction names the machine, the versions and the contenders.
func (b *bench) introduction() string {
	rounds, disturbed, processor, versions := 0, 0, runtime.GOARCH, map[string]string{}
	for _, r := range b.results.Runs {
		rounds = max(rounds, r.Round)
		if r.Metrics["disturbance"] > 0.1 {
			disturbed++
		}
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	if found := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(info); found != nil {
		processor = string(found[1])
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			versions[m.Path] = m.Version
		}
	}
	return fmt.Sprintf(`%s, beside what else could do its work. %d runs in %d rounds, %s; %s, %d cores; %s,
client-go %s, controller-runtime %s. Before %d of the runs, other programs used more than a tenth of a core.

Each run has a new control plane, which shares the cores: etcd without fsync, and the API server. Its audit log has all
requests, events included; with it, requests cost more than without. After each run, all Deployments and statuses were
right. A ratio is between runs of the same round. A figure is the median of the rounds, and the range.

- **raw** sends the two writes of each Foo from a loop, 32 at a time, with the bodies of foo-controller.
- **raw-watch** does that for what two informers show: no controller can do with less.
- **controller-runtime** is a reconciler of the same contract, written with care: 32 workers, no limit of requests, only
  its own Deployments in the cache, no managed fields, no write without a difference, no log
  ([source](../hack/bench/framework.go)).
- **plain** has the habits of Kubernetes' sample: two workers, client-go's default limits, a resync every 30 s, a status
  and an event in each sync ([source](../hack/bench/plain.go)).
- **foo-controller** is the binary with its defaults.
`, b.results.Version, len(b.results.Runs), rounds, time.Now().UTC().Format("January 2006"), processor, runtime.NumCPU(),
		runtime.Version(), versions["k8s.io/client-go"], versions["sigs.k8s.io/controller-runtime"], disturbed)
}

// writeScenario writes the table of a scenario. Its first rows are ratios to the first contender.
func (b *bench) writeScenario(w *bytes.Buffer, s scenario) {
	fmt.Fprintf(w, "\n## %s\n\n%s\nMeasured with `make bench ARGS=\"-only ^%[1]s/\"`.\n\n| | %s |\n|%s\n", s.name, s.what,
		strings.Join(s.contenders, " | "), strings.Repeat(" --- |", len(s.contenders)+1))
	row := func(title string, of func(contender string) (figure, float64)) {
		var cells []string
		measured := false
		for _, contender := range s.contenders {
			f, factor := of(contender)
			cells, measured = append(cells, f.show(factor)), measured || len(f) > 0
		}
		if measured {
			fmt.Fprintf(w, "| %s | %s |\n", title, strings.Join(cells, " | "))
		}
	}
	for _, m := range metricNames {
		if m.isCost {
			title, _, _ := strings.Cut(m.title, ", m")
			row(title+" / "+s.contenders[0], func(c string) (figure, float64) {
				return b.ratio(s.name+"/"+c+"/"+m.metric, s.name+"/"+s.contenders[0]+"/"+m.metric), 1
			})
		}
	}
	for _, m := range metricNames {
		row(m.title, func(c string) (figure, float64) { return b.of(s.name, c, m.metric), m.factor })
	}
}

// The table of the README is between these lines.
const tableBegin, tableEnd = "<!-- make bench writes this table -->\n", "<!-- end of the table of make bench -->\n"

// writeReadme replaces the table in a README.
func (b *bench) writeReadme(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no lines %s%s", file, tableBegin, tableEnd)
	}
	w := &strings.Builder{}
	fmt.Fprint(w, "\n| [measured](docs/benchmarks.md) | here | controller-runtime | as the sample |\n"+
		"| --- | --- | --- | --- |\n")
	row := func(what string, factor float64, of func(contender string) figure) {
		fmt.Fprintf(w, "| %s |", what)
		for _, contender := range []string{ours, framework, plain} {
			fmt.Fprintf(w, " %s |", number(of(contender).median()*factor))
		}
		fmt.Fprintln(w)
	}
	row("100 new Foos: writes for each", 1, func(c string) figure { return b.of(burst, c, "writesPerFoo") })
	row("100 new Foos: seconds until quiet", 1, func(c string) figure { return b.of(burst, c, "seconds") })
	row("100 Foos, idle: requests a minute", 1, func(c string) figure { return b.of(idle, c, "idleRequests") })
	row("10,000 Foos, cold start: seconds", 1, func(c string) figure { return b.of(cold10000x50, c, "seconds") })
	row("the same: CPU for each, ms", 1000, func(c string) figure { return b.of(cold10000x50, c, "cpuPerFoo") })
	row("live heap for a Foo and its Deployment, KiB", 1, b.heapPerFoo)
	return os.WriteFile(file, []byte(before+tableBegin+w.String()+"\n"+tableEnd+after), 0o644)
}
