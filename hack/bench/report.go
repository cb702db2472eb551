package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// A figure has a value for each round in which it was measured, in ascending order.
type figure []float64

// of returns a metric of a contender in a scenario, multiplied by factor.
func (b *bench) of(scenario, contender, metric string, factor float64) figure {
	of := scenario + "/" + contender + "/" + metric
	return b.combine(of, of, func(x, _ float64) float64 { return x * factor })
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

// combine applies f to two metrics of the same round.
func (b *bench) combine(first, second string, f func(x, y float64) float64) (values figure) {
	value := func(of string, round int) (value float64, ok bool) {
		run, metric := path.Split(of)
		value, ok = b.runs[run+strconv.Itoa(round)][metric]
		return value, ok
	}
	for round := 1; round <= b.rounds; round++ {
		x, ok := value(first, round)
		y, okToo := value(second, round)
		if ok && okToo {
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

// String returns the median, and the range if there is one.
func (f figure) String() string {
	median := number(f.median())
	if len(f) == 0 || number(f[0]) == number(f[len(f)-1]) {
		return median
	}
	return fmt.Sprintf("%s (%s to %s)", median, number(f[0]), number(f[len(f)-1]))
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
	return fmt.Sprintf("| %s | %s %g | %s | %s |\n", g.what, g.sign, g.bound, g.figure, result)
}

func (b *bench) goals() []goal {
	const large, mine = cold10000x50 + "/", cold10000x50 + "/" + ours
	memory := figure{b.heapPerFoo(ours).median() / b.heapPerFoo(framework).median()}
	return []goal{
		{"writes for a new Foo / 2, the minimum", b.of(burst, ours, "writesPerFoo", 0.5), "at most", 1},
		{"requests in a minute of idleness", b.of(idle, ours, "idleRequests", 1), "at most", 0},
		{"writes of a restart", b.of(cold10000x50, ours, "restartWrites", 1), "at most", 0},
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
}{
	{"seconds", "seconds", 1},
	{"writesPerFoo", "writes a Foo", 1},
	{"cpuPerFoo", "CPU, ms a Foo", 1000},
	{"heap", "live heap, MiB", 1.0 / (1 << 20)},
	{"rss", "RSS, MiB", 1.0 / (1 << 20)},
	{"created50", "Foo to Deployment, p50, ms", 1000},
	{"created99", "the same, p99", 1000},
	{"reported50", "status of the Deployment to that of the Foo, p50, ms", 1000},
	{"reported99", "the same, p99", 1000},
	{"restartSeconds", "restart: seconds until a new Foo has its status", 1},
	{"restartLists", "restart: seconds until both lists are there", 1},
	{"restartWrites", "restart: other writes", 1},
	{"idleRequests", "idle: requests a minute", 1},
	{"idleCPU", "idle: CPU, ms a minute", 1000},
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
	text := &strings.Builder{}
	fmt.Fprintf(text, "# Benchmarks\n\n<!-- `make bench` writes this file. -->\n\n%s\n## Goals\n\n"+
		"| | goal | median (range) | |\n| --- | --- | --- | --- |\n", b.introduction())
	for _, g := range b.goals() {
		text.WriteString(g.String())
	}
	for _, p := range b.plots() {
		if err := os.WriteFile(filepath.Join(dir, "benchmarks", p.name+".svg"), []byte(p.svg()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(text, "\n![%s](benchmarks/%s.svg)\n", p.title, p.name)
	}
	for _, s := range scenarios {
		fmt.Fprintf(text, "\n## %s\n\n%s\nMeasured with `make bench ARGS=\"-only ^%[1]s/\"`.\n\n", s.name, s.what)
		fmt.Fprintf(text, "| | %s |\n|%s\n", strings.Join(s.contenders, " | "), strings.Repeat(" --- |", len(s.contenders)+1))
		for _, m := range metricNames {
			writeRow(text, m.title, s.contenders, func(c string) figure { return b.of(s.name, c, m.metric, m.factor) })
		}
	}
	file := filepath.Join(dir, "benchmarks.md")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return err
	}
	fmt.Println("wrote", file)
	if b.quick {
		return nil
	}
	return b.writeReadme("README.md")
}

// writeRow writes a row with a figure for each contender, unless there is none.
func writeRow(w *strings.Builder, title string, contenders []string, of func(contender string) figure) {
	row, measured := "| "+title, false
	for _, contender := range contenders {
		f := of(contender)
		row, measured = row+" | "+f.String(), measured || len(f) > 0
	}
	if measured {
		w.WriteString(row + " |\n")
	}
}

// introduction names the machine, the versions and the contenders.
func (b *bench) introduction() string {
	disturbed, processor, versions := 0, runtime.GOARCH, map[string]string{}
	for _, m := range b.runs {
		if m["disturbance"] > 0.1 {
			disturbed++
		}
	}
	if machine, err := procfs.NewDefaultFS(); err == nil {
		if cores, err := machine.CPUInfo(); err == nil && len(cores) > 0 {
			processor = cmp.Or(cores[0].ModelName, processor)
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			versions[m.Path] = m.Version
		}
	}
	return fmt.Sprintf(`%s, beside what else could do its work.
%d runs in %d rounds, %s; %s, %d cores; %s,
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
`, b.version, len(b.runs), b.rounds, time.Now().UTC().Format("January 2006"), processor, runtime.NumCPU(),
		runtime.Version(), versions["k8s.io/client-go"], versions["sigs.k8s.io/controller-runtime"], disturbed)
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
	w.WriteString("\n| [measured](docs/benchmarks.md) | here | controller-runtime | as the sample |\n")
	w.WriteString("| --- | --- | --- | --- |\n")
	row := func(title string, of func(contender string) figure) {
		writeRow(w, title, []string{ours, framework, plain}, func(c string) figure { return figure{of(c).median()} })
	}
	row("100 new Foos: writes for each", func(c string) figure { return b.of(burst, c, "writesPerFoo", 1) })
	row("100 new Foos: seconds until quiet", func(c string) figure { return b.of(burst, c, "seconds", 1) })
	row("100 Foos, idle: requests a minute", func(c string) figure { return b.of(idle, c, "idleRequests", 1) })
	row("10,000 Foos, cold start: seconds", func(c string) figure { return b.of(cold10000x50, c, "seconds", 1) })
	row("the same: CPU for each, ms", func(c string) figure { return b.of(cold10000x50, c, "cpuPerFoo", 1000) })
	row("live heap for a Foo and its Deployment, KiB", b.heapPerFoo)
	return os.WriteFile(file, []byte(before+tableBegin+w.String()+"\n"+tableEnd+after), 0o644)
}
