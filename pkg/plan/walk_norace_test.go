//go:build !race

package plan

// raceDetector says whether these tests were built with the race detector.
const raceDetector = false
