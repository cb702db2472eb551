package main

import (
	"fmt"
	"math"
	"strings"
)

// A plot is a picture of horizontal bars.
type plot struct {
	name, title, unit string
	logarithmic       bool
	bars              []bar
}

// A bar has the width of the median, and a line for the range.
type bar struct {
	group, contender string
	figure           figure
}

// add adds a group with a bar for each contender that has a figure.
func (p *plot) add(group string, of func(contender string) figure) {
	for _, c := range []string{raw, watching, ours, framework, plain} {
		if f := of(c); len(f) > 0 {
			p.bars = append(p.bars, bar{group, c, f})
		}
	}
}

// plots are the pictures of the document.
func (b *bench) plots() []plot {
	const milli, mebi = 1000, 1.0 / (1 << 20)
	throughput := plot{name: "cold-start", title: "Cold start: throughput / raw-watch"}
	cpu := plot{name: "cpu", title: "Cold start: CPU of the contender", unit: "ms a Foo"}
	memory := plot{name: "memory", title: "Live heap", unit: "MiB"}
	latency := plot{name: "latency", title: "From a new Foo to its Deployment", unit: "ms", logarithmic: true}
	sooner := plot{name: "burst", title: "100 Foos at once: time until quiet", unit: "s", logarithmic: true}
	memory.add("no Foos", func(c string) figure { return b.of(burst, c, "heap", mebi) })
	for _, s := range []string{cold1000, cold1000x50, cold10000, cold10000x50} {
		throughput.add(s, func(c string) figure { return b.ratio(s+"/"+watching+"/seconds", s+"/"+c+"/seconds") })
		cpu.add(s, func(c string) figure { return b.of(s, c, "cpuPerFoo", milli) })
		memory.add(s, func(c string) figure { return b.of(s, c, "heap", mebi) })
	}
	for _, s := range []string{single, neighbour} {
		latency.add(s+", p50", func(c string) figure { return b.of(s, c, "created50", milli) })
		latency.add(s+", p99", func(c string) figure { return b.of(s, c, "created99", milli) })
	}
	sooner.add("", func(c string) figure { return b.of(burst, c, "seconds", 1) })
	return []plot{throughput, cpu, memory, latency, sooner}
}

// svg returns the picture as the content of a file. It has the colours of the reader's scheme.
func (p plot) svg() string {
	const left, width = 160.0, 470.0
	low, high := math.Inf(1), 0.0
	for _, b := range p.bars {
		low, high = min(low, b.figure[0]), max(high, b.figure[len(b.figure)-1])
	}
	x := func(value float64) float64 { return left + width*value/high }
	if p.logarithmic {
		x = func(value float64) float64 { return left + width*math.Log(2*value/low)/math.Log(2*high/low) }
		p.title += " (logarithmic)"
	}
	w, y := &strings.Builder{}, 44
	for i, b := range p.bars {
		if i == 0 || b.group != p.bars[i-1].group {
			y += 24
			fmt.Fprintf(w, `<text x="16" y="%d" font-weight="600">%s</text>`+"\n", y-6, b.group)
		}
		middle, end := x(b.figure.median()), x(b.figure[len(b.figure)-1])
		fmt.Fprintf(w, `<text x="%g" y="%d" text-anchor="end">%s</text>
<rect class="%[3]s" x="160" y="%d" width="%.1f" height="14"/><path d="M %.1f %d H %.1f"/>
<text x="%.1f" y="%[2]d">%[10]s %[11]s</text>
`, left-8, y+13, b.contender, y+2, middle-left, x(b.figure[0]), y+9, end, end+6, number(b.figure.median()), p.unit)
		y += 20
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %d" role="img" aria-label="%s">
<style>
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
path { stroke: #1f2328; } .paper { fill: #ffffff; } .raw { fill: #afb8c1; } .raw-watch { fill: #6e7781; }
.foo-controller { fill: #1a7f37; } .controller-runtime { fill: #54aeff; } .plain { fill: #fb8f44; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } path { stroke: #e6edf3; } .paper { fill: #0d1117; } .raw { fill: #484f58; }
.raw-watch { fill: #8b949e; } .foo-controller { fill: #3fb950; } .controller-runtime { fill: #1f6feb; }
.plain { fill: #bd561d; }
}
</style>
<rect class="paper" width="100%%" height="100%%"/>
<text x="16" y="28" font-size="16" font-weight="600">%[2]s</text>
%[3]s</svg>
`, y+16, p.title, w)
}
