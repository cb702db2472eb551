package main

import (
	"fmt"
	"slices"
	"time"
)

// tableHead has the first lines of the table.
const tableHead = "| in another namespace | new Foo: p50 | max | drift: p50 | max | any write: p50 | max " +
	"| samples | CPU of the controller | requests of it | its peak memory |\n" +
	"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"

// A row has the measures of one problem.
type row struct {
	name                 string
	newFoo, drift, write delays
	seconds              float64 // How long it was measured.
	cpu                  float64 // In seconds.
	requests             int
	memory               int // In MB.
}

// String returns a line of the table.
func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %d, %d | %.1f s in %.0f s | %d | %d MB |",
		r.name, r.newFoo.median(), r.newFoo.max(), r.drift.median(), r.drift.max(), r.write.median(), r.write.max(),
		r.newFoo.n(), r.drift.n(), r.cpu, r.seconds, r.requests, r.memory)
}

// delays are samples of a delay.
type delays struct {
	found []time.Duration
	// gaveUp is how long the last sample waited in vain, or 0.
	gaveUp time.Duration
}

func (d *delays) add(delay time.Duration, found bool) {
	if !found {
		d.gaveUp = delay
		return
	}
	d.found = append(d.found, delay)
	slices.Sort(d.found)
}

func (d *delays) n() int { return len(d.found) }

// median returns the median of the delays that ended.
func (d *delays) median() string {
	if len(d.found) == 0 {
		return d.max()
	}
	return seconds(d.found[len(d.found)/2])
}

func (d *delays) max() string {
	switch {
	case d.gaveUp > 0:
		return fmt.Sprintf("none in %.0f s", d.gaveUp.Seconds())
	case len(d.found) == 0:
		return "-"
	}
	return seconds(d.found[len(d.found)-1])
}

// seconds returns a delay with two digits.
func seconds(d time.Duration) string {
	if d < 995*time.Millisecond {
		return fmt.Sprintf("%.2g s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
