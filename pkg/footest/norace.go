//go:build !race

package footest

const raceDetector = false
