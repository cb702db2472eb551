package faults

import (
	"math/rand/v2"
	"time"
	_ "unsafe" // For go:linkname.
)

// jitter is the source of the random part of client-go's backoffs.
//
//go:linkname jitter k8s.io/apimachinery/pkg/util/wait.jitterRand
var jitter func() float64

func init() { jitter = Float64 }

// Float64 returns a random number in [0, 1) that depends only on the virtual time, so that a run with random delays
// repeats exactly. With numbers of a common source, tests that run in parallel would differ in each run. The backoffs
// of client-go use it as soon as a program has this package.
func Float64() float64 {
	return rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)).Float64()
}
