//go:build race

package walktest

// raceDetector is whether the tests were built with the race detector, which makes a walk ten times slower.
const raceDetector = true
