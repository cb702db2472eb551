package footest

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shared is the Deployment that all Foos of a test name.
const shared = "shared"

// createRivals creates Foos that name one Deployment. The first one gets it.
func (n *neighbourhood) createRivals(foos int) {
	for i := range foos {
		n.createFoo(tenant, fooName(i), shared)
		if i == 0 {
			time.Sleep(time.Second) // The others come when it has the Deployment.
		}
	}
}

// rivalSteps are what is measured of Foos that name one Deployment, after they have been created.
var rivalSteps = []struct {
	name  string
	times int // How often it is done. The result is for one time.
	do    func(n *neighbourhood, i int)
}{
	{"the Deployment is annotated", 20, func(n *neighbourhood, i int) {
		n.editDeployment(tenant, shared, fmt.Sprintf(`{"metadata":{"annotations":{"number":"%d"}}}`, i))
	}},
	{"a Foo that waits is edited", 20, func(n *neighbourhood, i int) {
		n.must(n.editFoo(tenant, fooName(9), fmt.Sprintf(`{"spec":{"replicas":%d}}`, 2+i)))
	}},
	{"the owner and the Deployment are deleted", 1, func(n *neighbourhood, _ int) {
		n.must(n.samples.SamplecontrollerV1alpha1().Foos(tenant).Delete(n.Ctx, fooName(0), metav1.DeleteOptions{}))
		n.must(n.kube.AppsV1().Deployments(tenant).Delete(n.Ctx, shared, metav1.DeleteOptions{}))
	}},
}

// MeasureRivals logs the CPU time that n Foos which name one Deployment cost, for each n, and how it grows: like
// n^exponent. The time includes that of the simulated API server. Nothing is expected of it.
func MeasureRivals(t *testing.T, newController New, sizes []int) {
	seconds := make([][]float64, 1+len(rivalSteps))
	for _, foos := range sizes {
		inNeighbourhood(t, newController, func(n *neighbourhood) {
			for i, cpu := range n.measureRivals(foos) {
				seconds[i] = append(seconds[i], cpu)
			}
		})
	}
	t.Logf("CPU in ms for n = %v", sizes)
	log := func(name string, seconds []float64) {
		var line strings.Builder
		for _, s := range seconds {
			fmt.Fprintf(&line, "%10.2f", 1000*s)
		}
		t.Logf("%-42s%s   n^%.2f", name, &line, exponent(sizes, seconds))
	}
	log("all are created", seconds[0])
	for i, step := range rivalSteps {
		log(step.name, seconds[i+1])
	}
}

// measureRivals returns the CPU time in seconds of each step.
func (n *neighbourhood) measureRivals(foos int) []float64 {
	const untilIdle = 5 * time.Minute
	n.RunController(n.t)
	began := cpuTime()
	n.createRivals(foos)
	time.Sleep(untilIdle)
	seconds := []float64{(cpuTime() - began).Seconds()}
	for _, step := range rivalSteps {
		began := cpuTime()
		for i := range step.times {
			step.do(n, i)
			time.Sleep(untilIdle)
		}
		seconds = append(seconds, (cpuTime()-began).Seconds()/float64(step.times))
	}
	return seconds
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // Only wrong arguments are an error.
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// exponent returns the slope of the line through the logarithms with the smallest squares of the differences.
func exponent(sizes []int, values []float64) float64 {
	var x, y, xx, xy float64
	for i, size := range sizes {
		a, b := math.Log(float64(size)), math.Log(values[i])
		x, y, xx, xy = x+a, y+b, xx+a*a, xy+a*b
	}
	n := float64(len(sizes))
	return (n*xy - x*y) / (n*xx - x*x)
}
