package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCPUTimeIsReadFromTheFormatOfLinux(t *testing.T) {
	const stat = "17 (foo) bar) S 1 17 17 0 -1 4194304 100 0 3 0 250 75 9 9 20 0 11 0 100 1000 200"
	got, err := cpuOf(stat)
	if want := 3250 * time.Millisecond; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := cpuOf("17 (foo) S 1"); err == nil {
		t.Error("a line that is too short was read")
	}
}

func TestPeakMemoryIsReadFromTheFormatOfLinux(t *testing.T) {
	got, err := peakOf("VmPeak:\t 900000 kB\nVmHWM:\t   81920 kB\nVmRSS:\t 100 kB\n")
	if err != nil || got != 80 {
		t.Errorf("got %d MB, %v, want 80", got, err)
	}
	if _, err := peakOf("VmPeak:\t 900000 kB\n"); err == nil {
		t.Error("a peak was read from a text without one")
	}
}

func TestOnlyRequestsOfTheControllerAfterTheBeginningAreCounted(t *testing.T) {
	const before = `{"userAgent":"foo-controller/v1"}` + "\n"
	log := before + `{"userAgent":"foo-controller/v1"}` + "\n" + `{"userAgent":"neighbours"}` + "\n" +
		`{"userAgent":"foo-controller/v1"}` + "\n" + `{"userAgent":"foo-con`
	file := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := requestsSince(file, int64(len(before))); err != nil || n != 2 {
		t.Errorf("%d requests, %v, want 2", n, err)
	}
}

func TestDelaysAreShownAsMedianAndMaximum(t *testing.T) {
	type sample struct {
		delay time.Duration
		found bool
	}
	for _, test := range []struct {
		name        string
		samples     []sample
		median, max string
	}{
		{name: "no sample", median: "-", max: "-"},
		{
			name:    "in any order",
			samples: []sample{{20 * time.Second, true}, {12345 * time.Microsecond, true}, {time.Second, true}},
			median:  "1.0 s", max: "20.0 s",
		},
		{
			name:    "the last one gave up",
			samples: []sample{{200 * time.Millisecond, true}, {30 * time.Second, false}},
			median:  "0.2 s", max: "none in 30 s",
		},
		{name: "all gave up", samples: []sample{{30 * time.Second, false}}, median: "none in 30 s", max: "none in 30 s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var d delays
			for _, s := range test.samples {
				d.add(s.delay, s.found)
			}
			if d.median() != test.median || d.max() != test.max {
				t.Errorf("got %s and %s, want %s and %s", d.median(), d.max(), test.median, test.max)
			}
		})
	}
}
