package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The templates have calls: ${NAME ARGUMENT|ARGUMENT}. text/template would double the size of this program, and so the
// memory of the contenders.
var (
	//go:embed report/benchmarks.tmpl
	document string
	//go:embed report/readme.tmpl
	readme string
)

// report writes the document, all that was measured, and the table of the README.
func (b *bench) report() error {
	b.derive()
	const file = "docs/benchmarks.md"
	fmt.Println("the report:", file)
	return errors.Join(os.WriteFile("docs/benchmarks.csv", []byte(b.allRounds()), 0o644),
		os.WriteFile(file, []byte(os.Expand(document, b.call)), 0o644), b.writeReadme())
}

// allRounds returns all that was measured, in CSV.
func (b *bench) allRounds() string {
	text := "scenario,contender,round,metric,value\n"
	for _, run := range slices.Sorted(maps.Keys(b.runs)) {
		for _, metric := range slices.Sorted(maps.Keys(b.runs[run])) {
			text += fmt.Sprintf("%s,%q,%.5g\n", strings.ReplaceAll(run, "/", ","), metric, b.runs[run][metric])
		}
	}
	return text
}

// writeReadme replaces the table in the README.
func (b *bench) writeReadme() error {
	text, err := os.ReadFile("README.md")
	if err != nil {
		return err
	}
	table := regexp.MustCompile(`(?s)(<!-- make bench writes this table -->\n).*(<!-- end of the table)`)
	text = table.ReplaceAll(text, []byte("$1\n"+os.Expand(readme, b.call)+"\n$2"))
	return os.WriteFile("README.md", text, 0o644)
}

// call returns the result of a call in a template.
func (b *bench) call(call string) string {
	name, rest, _ := strings.Cut(call, " ")
	switch arguments := strings.Split(rest, "|"); name {
	case "measured":
		build, _ := debug.ReadBuildInfo()
		cpus, _ := os.ReadFile("/proc/cpuinfo")
		_, processor, _ := strings.Cut(regexp.MustCompile("model name\t: .*").FindString(string(cpus)), ": ")
		libraries := regexp.MustCompile(`(client-go|controller-runtime)\tv\S+`).FindAllString(build.String(), -1)
		return fmt.Sprintf("%s, compared with other programs that do the same work.\n%d runs in %d rounds, unless a "+
			"section has another number, %s; %s, %d cores; %s, %s.",
			b.version, len(b.runs), rounds, time.Now().UTC().Format("January 2006"), processor,
			runtime.NumCPU(), runtime.Version(), strings.ReplaceAll(strings.Join(libraries, ", "), "\t", " "))
	case "goal":
		return b.goal(arguments[0], arguments[1], arguments[2:]...)
	case "median":
		return number(b.figure(arguments...).median())
	case "table":
		return b.table(rest)
	}
	panic("a template calls " + name)
}

// derive adds what the last 9,000 of 10,000 Foos and their Deployments have added to the heap, for each.
func (b *bench) derive() {
	const heap = "live heap, MiB"
	for key, run := range b.runs {
		if which, ok := strings.CutPrefix(key, "unrelated/"); ok {
			small := b.runs["cold-1000-in-50/"+which]
			run["live heap, KiB a Foo"] = (run[heap] - small[heap]) * 1024 / 9000
		}
	}
}

// goal returns cells of a table: a bound for the median of a metric, or of its ratio to another, and what was measured.
func (b *bench) goal(sign, bound string, metrics ...string) string {
	limit, err := strconv.ParseFloat(bound, 64)
	f, result := b.figure(metrics...), "**missed**"
	switch median := f.median(); {
	case err != nil, math.IsNaN(median):
		result = "not measured"
	case median == limit, (median > limit) == (sign == "at least"):
		result = "reached"
	}
	return fmt.Sprintf("%s %s | %s | %s", sign, bound, f, result)
}

// table returns the medians of all that was measured in a scenario. benchmarks.csv has the ranges.
func (b *bench) table(scenario string) string {
	all := metrics{}
	columns := slices.DeleteFunc(slices.Clone(contenders), func(contender string) bool {
		run := b.runs[scenario+"/"+contender+"/1"]
		maps.Copy(all, run)
		return run == nil
	})
	delete(all, "load average before") // These two are about the machine.
	delete(all, "a bare list of both kinds, seconds")
	text := fmt.Sprintf("| | %s |\n|%s", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+1))
	for _, metric := range slices.Sorted(maps.Keys(all)) {
		text += "\n| " + metric + " |"
		for _, contender := range columns {
			text += fmt.Sprintf(" %s |", number(b.figure(scenario+"/"+contender+"/"+metric).median()))
		}
	}
	return text
}

// A figure has a value for each round in which it was measured, in ascending order.
type figure []float64

// figure returns a metric, given as SCENARIO/CONTENDER/METRIC, divided by others of the same round, if any.
func (b *bench) figure(metrics ...string) (values figure) {
	for round := 1; round <= len(b.runs); round++ { // Some runs may have more rounds than others.
		x := b.value(metrics[0], round)
		for _, below := range metrics[1:] {
			x /= b.value(below, round)
		}
		if !math.IsNaN(x) {
			values = append(values, x)
		}
	}
	slices.Sort(values)
	return values
}

// value returns a metric of a round, or NaN.
func (b *bench) value(metric string, round int) float64 {
	run, name := path.Split(metric)
	if x, ok := b.runs[run+strconv.Itoa(round)][name]; ok {
		return x
	}
	return math.NaN()
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

// number returns x with three significant digits, or without a fraction from 100.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
