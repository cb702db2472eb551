package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
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

// figure returns a metric, given as SCENARIO/CONTENDER/METRIC, divided by a second one of the same round, if any.
func (b *bench) figure(metric string, below ...string) (values figure) {
	for round := range b.rounds {
		value := func(of string) (float64, bool) {
			run, name := path.Split(of)
			value, ok := b.runs[run+strconv.Itoa(round+1)][name]
			return value, ok
		}
		x, isMeasured := value(metric)
		for _, of := range below {
			y, ok := value(of)
			x, isMeasured = x/y, isMeasured && ok
		}
		if isMeasured {
			values = append(values, x)
		}
	}
	slices.Sort(values)
	return values
}

// derive adds what follows from two runs of a round.
func (b *bench) derive() {
	for key, run := range b.runs {
		part := strings.Split(key, "/") // SCENARIO/CONTENDER/ROUND.
		if base := b.runs[part[0]+"/"+watching+"/"+part[2]]; base["CPU, ms a Foo"] > 0 {
			run["beside raw-watch: throughput"] = base["seconds"] / run["seconds"]
			run["beside raw-watch: CPU"] = run["CPU, ms a Foo"] / base["CPU, ms a Foo"]
		}
		const heap = "live heap, MiB"
		if small := b.runs["cold-1000-in-50/"+part[1]+"/"+part[2]]; part[0] == "unrelated" && small != nil {
			run["live heap, KiB a Foo"] = (run[heap] - small[heap]) * 1024 / 9000
		}
	}
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
	switch {
	case math.IsNaN(x):
		return "-"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// goal returns cells of a table: a bound for the median of a metric, or of its ratio to another, and what was measured.
// The arguments are "at least" or "at most", the bound and the metrics.
func (b *bench) goal(arguments []string) string {
	sign, metrics := arguments[0], arguments[2:]
	bound, err := strconv.ParseFloat(arguments[1], 64)
	f, result := b.figure(metrics[0], metrics[1:]...), "**missed**"
	switch median := f.median(); {
	case err != nil, math.IsNaN(median):
		result = "not measured"
	case sign == "at least" && median >= bound, sign == "at most" && median <= bound:
		result = "reached"
	}
	return fmt.Sprintf("%s %g | %s | %s", sign, bound, f, result)
}

// table returns all that was measured in a scenario.
func (b *bench) table(scenario string) string {
	contenders, metrics := map[string]bool{}, map[string]bool{}
	for key, run := range b.runs {
		if part := strings.Split(key, "/"); part[0] == scenario {
			contenders[part[1]] = true
			for metric := range run {
				metrics[metric] = true
			}
		}
	}
	columns := slices.Sorted(maps.Keys(contenders))
	text := fmt.Sprintf("| | %s |\n|%s", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+1))
	for _, metric := range slices.Sorted(maps.Keys(metrics)) {
		text += "\n| " + metric + " |"
		for _, contender := range columns {
			text += fmt.Sprintf(" %s |", b.figure(scenario+"/"+contender+"/"+metric))
		}
	}
	return text
}

// machine names the machine and the versions.
func (b *bench) machine() string {
	processor, versions := runtime.GOARCH, map[string]string{}
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
	return fmt.Sprintf("%d runs in %d rounds, %s; %s, %d cores; %s,\nclient-go %s, controller-runtime %s.",
		len(b.runs), b.rounds, time.Now().UTC().Format("January 2006"), processor, runtime.NumCPU(), runtime.Version(),
		versions["k8s.io/client-go"], versions["sigs.k8s.io/controller-runtime"])
}

//go:embed report
var templates embed.FS

// calls are what a template has for what was measured: {{NAME ARGUMENT|ARGUMENT}}.
var calls = regexp.MustCompile(`\{\{(\w+) ?(.*?)\}\}`)

// fill returns a file of templates with the results of its calls. text/template would double the size of this program,
// and so the memory of the contenders.
func fill(name string, functions map[string]func(arguments []string) string) string {
	text, err := templates.ReadFile("report/" + name)
	if err != nil {
		panic(err) // It is in this program.
	}
	return calls.ReplaceAllStringFunc(string(text), func(call string) string {
		part := calls.FindStringSubmatch(call)
		return functions[part[1]](strings.Split(part[2], "|"))
	})
}

// report writes the document, its plots, and the table of the README. A quick one is not for the repository.
func (b *bench) report() error {
	b.derive()
	dir := "docs"
	if b.quick {
		dir = b.dir
	}
	functions := map[string]func([]string) string{
		"version": func([]string) string { return b.version },
		"machine": func([]string) string { return b.machine() },
		"table":   func(of []string) string { return b.table(of[0]) },
		"goal":    b.goal,
		"figure":  func(of []string) string { return number(b.figure(of[0]).median()) },
	}
	err := os.MkdirAll(filepath.Join(dir, "benchmarks"), 0o755)
	for _, p := range plots {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "benchmarks", p.name+".svg"), []byte(p.svg(b)), 0o644))
	}
	document := []byte(fill("benchmarks.tmpl", functions))
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "benchmarks.md"), document, 0o644))
	if err == nil && !b.quick {
		err = writeReadme("README.md", fill("readme.tmpl", functions))
	}
	if err == nil {
		fmt.Println("all done: wrote", filepath.Join(dir, "benchmarks.md"))
	}
	return err
}

// writeReadme replaces the table in a README.
func writeReadme(file, table string) error {
	const begin, end = "<!-- make bench writes this table -->\n", "<!-- end of the table of make bench -->\n"
	text, err := os.ReadFile(file)
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, ok := strings.Cut(rest, end)
	if err != nil || !ok {
		return fmt.Errorf("%s has no lines %s%s: %w", file, begin, end, err)
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+table+"\n"+end+after), 0o644)
}
