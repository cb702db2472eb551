//go:build race

package footest

// raceDetector reports whether the race detector is on. Simulations are several times slower with it.
const raceDetector = true
