package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A plot is a picture of horizontal bars, in groups.
type plot struct {
	name, title, unit string
	logarithmic       bool
	groups            []group
}

type group struct {
	title string
	bars  []bar
}

// A bar has the width of the median, and a line for the range.
type bar struct {
	contender string
	figure    figure
}

// add adds a group with a bar for each contender that has a figure.
func (p *plot) add(title string, of func(contender string) figure) {
	g := group{title: title}
	for _, c := range []string{raw, watching, ours, framework, plain} {
		if f := of(c); len(f) > 0 {
			g.bars = append(g.bars, bar{c, f})
		}
	}
	if len(g.bars) > 0 {
		p.groups = append(p.groups, g)
	}
}

// times returns f, multiplied by factor.
func (f figure) times(factor float64) figure {
	f = slices.Clone(f)
	for i := range f {
		f[i] *= factor
	}
	return f
}

// plots are the pictures of the document.
func (b *bench) plots() []plot {
	throughput := plot{name: "cold-start", title: "Cold start: throughput / raw-watch"}
	cpu := plot{name: "cpu", title: "Cold start: CPU of the contender", unit: "ms a Foo"}
	memory := plot{name: "memory", title: "Live heap", unit: "MiB"}
	latency := plot{name: "latency", title: "From a new Foo to its Deployment", unit: "ms", logarithmic: true}
	sooner := plot{name: "burst", title: "100 Foos at once: time until quiet", unit: "s", logarithmic: true}
	memory.add("no Foos", func(c string) figure { return b.of(burst, c, "heap").times(1.0 / (1 << 20)) })
	for _, s := range []string{cold1000, cold1000x50, cold10000, cold10000x50} {
		throughput.add(s, func(c string) figure { return b.ratio(s+"/"+watching+"/seconds", s+"/"+c+"/seconds") })
		cpu.add(s, func(c string) figure { return b.of(s, c, "cpuPerFoo").times(1000) })
		if s == cold1000x50 || s == cold10000x50 {
			memory.add(s, func(c string) figure { return b.of(s, c, "heap").times(1.0 / (1 << 20)) })
		}
	}
	for _, s := range []string{single, neighbour} {
		for _, p := range []string{"50", "99"} {
			latency.add(s+", p"+p, func(c string) figure { return b.of(s, c, "created"+p).times(1000) })
		}
	}
	sooner.add("", func(c string) figure { return b.of(burst, c, "seconds") })
	return []plot{throughput, cpu, memory, latency, sooner}
}

// svg returns the picture as the content of a file. It has the colours of the reader's scheme.
func (p plot) svg() string {
	const width, left, right, height = 760.0, 160.0, 130.0, 20
	low, high := math.Inf(1), 0.0
	for _, g := range p.groups {
		for _, b := range g.bars {
			low, high = min(low, b.figure[0]), max(high, b.figure[len(b.figure)-1])
		}
	}
	x := func(value float64) float64 { return left + (width-left-right)*value/high }
	if p.logarithmic {
		x = func(value float64) float64 {
			return left + (width-left-right)*math.Log(2*value/low)/math.Log(2*high/low)
		}
	}
	w, y := &strings.Builder{}, 60
	for _, g := range p.groups {
		fmt.Fprintf(w, `<text x="16" y="%d" font-weight="600">%s</text>`+"\n", y, g.title)
		y += 8
		for _, b := range g.bars {
			middle, end := x(b.figure.median()), x(b.figure[len(b.figure)-1])
			fmt.Fprintf(w, `<text x="%.0f" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+13, b.contender)
			fmt.Fprintf(w, `<rect class="%s" x="%.0f" y="%d" width="%.1f" height="14"/>`+"\n",
				b.contender, left, y+2, middle-left)
			fmt.Fprintf(w, `<path d="M %.1f %d H %.1f"/>`+"\n", x(b.figure[0]), y+9, end)
			fmt.Fprintf(w, `<text x="%.1f" y="%d">%s %s</text>`+"\n", end+6, y+13, number(b.figure.median()), p.unit)
			y += height
		}
		y += 26
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" aria-label="%s">
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
<text x="16" y="28" font-size="16" font-weight="600">%s%s</text>
%s</svg>
`, width, y, p.title, p.title, map[bool]string{true: " (logarithmic)"}[p.logarithmic], w)
}
