package main

import (
	"fmt"
	"strconv"
	"strings"
)

// A plot is a picture of horizontal bars: for each scenario and each metric a group with a bar for each contender.
type plot struct {
	name, title        string
	scenarios, metrics []string
}

var coldStarts = []string{"cold-1000", "cold-1000-in-50", "cold-10000", "cold-10000-in-50"}

var plots = []plot{
	{"cold-start", "Cold start", coldStarts, []string{"beside raw-watch: throughput"}},
	{"cpu", "Cold start", coldStarts, []string{"CPU, ms a Foo"}},
	{
		"memory", "Memory", []string{"single", "cold-1000-in-50", "unrelated"},
		[]string{"without Foos: live heap, MiB", "live heap, MiB"},
	},
	{
		"latency", "A new Foo, alone and beside a cold start", []string{"single", "neighbour"},
		[]string{"Foo to Deployment, p50, ms", "Foo to Deployment, p99, ms"},
	},
	{"burst", "100 Foos at once: until the last write", []string{"burst"}, []string{"seconds"}},
}

// A bar has the width of the median, and a line for the range.
type bar struct {
	title     string // Of a group, before its first bar.
	contender string
	figure    figure
}

// svg returns the picture as the content of a file. It has the colours of the reader's scheme.
func (p plot) svg(b *bench) string {
	var bars []bar
	longest, y, drawn := 0.0, 44, &strings.Builder{}
	for _, scenario := range p.scenarios {
		for _, metric := range p.metrics {
			title := scenario + ": " + metric
			for _, contender := range []string{raw, watching, ours, framework, plain} {
				if f := b.figure(scenario + "/" + contender + "/" + metric); len(f) > 0 {
					bars = append(bars, bar{title, contender, f})
					longest, title = max(longest, f[len(f)-1]), ""
				}
			}
		}
	}
	for _, bar := range bars {
		if bar.title != "" {
			y += 24
			fmt.Fprintf(drawn, `<text class="bold" x="16" y="%d">%s</text>`+"\n", y-6, bar.title)
		}
		x := func(value float64) float64 { return 160 + 500*value/longest }
		median, high := bar.figure.median(), x(bar.figure[len(bar.figure)-1])
		fmt.Fprintf(drawn, `<text x="152" y="%d" text-anchor="end">%s</text><text x="%.1f" y="%[1]d">%[4]s</text>
<rect class="%[2]s" x="160" y="%[5]d" width="%.1[6]f" height="14"/><path d="M %.1[7]f %[8]d H %.1[9]f"/>
`, y+13, bar.contender, high+6, number(median), y+2, x(median)-160, x(bar.figure[0]), y+9, high)
		y += 20
	}
	return fill("plot.svg", map[string]func([]string) string{
		"title":  func([]string) string { return p.title },
		"height": func([]string) string { return strconv.Itoa(y + 16) },
		"bars":   func([]string) string { return drawn.String() },
	})
}
