//go:build race

package plan

// raceDetector is whether these tests were built with the race detector.
const raceDetector = true
