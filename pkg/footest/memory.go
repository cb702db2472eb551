package footest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// Limits are the most that a controller may need.
type Limits struct {
	// HeapPerFoo is how many bytes of live heap it needs for a Foo and its Deployment.
	HeapPerFoo int
	// Goroutines is how many it has, whatever the number of Foos is.
	Goroutines int
	// Writes are those for a new Foo until it is Ready, by verb and resource, without events. They are compared exactly. A
	// controller that starts again sends none.
	Writes map[string]int
}

// WithoutRaceDetector skips a test of memory or allocations with the race detector: it needs memory too, and empties
// pools at random.
func WithoutRaceDetector(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector allocates too")
	}
}

// MeasureMemory checks that a controller keeps the limits with so many Foos that are Ready. The test is skipped with
// the race detector.
func MeasureMemory(t *testing.T, newController New, foos int, limits Limits) {
	WithoutRaceDetector(t)
	synctest.Test(t, func(t *testing.T) {
		s := scenario.NewSimulation(Kind(newController), workers)
		s.Server.KeepTrace(0) // It would keep objects in memory.
		deploymentController, stopDeployments := context.WithCancel(s.Ctx)
		s.RunDeployments(deploymentController)
		for i := range foos {
			foo := &v1alpha1.Foo{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: fooName(i), Generation: 1,
					UID: types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)),
				},
				Spec: v1alpha1.FooSpec{DeploymentName: fooName(i), Replicas: new(int32(2)), Image: "nginx:1.29"},
			}
			if err := s.Server.Load(foo); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		before := runtime.NumGoroutine()
		s.RunController(t)
		time.Sleep(time.Hour) // Of virtual time.
		synctest.Wait()
		for _, obj := range s.Server.Objects(FooKind().Resource) {
			if foo := obj.(*v1alpha1.Foo); foo.Status.AvailableReplicas != 2 {
				t.Fatalf("the status of %s is %+v", foo.Name, foo.Status)
			}
		}
		goroutines := runtime.NumGoroutine() - before
		checkRequests(t, s, foos, limits.Writes)
		stopDeployments()
		synctest.Wait()
		with := liveHeap(s.Server)
		s.Stop(t)
		s.StopController = nil // It refers to the controller.
		bytes := (with - liveHeap(s.Server)) / foos
		t.Logf("%d Foos: %d bytes of live heap for each, %d goroutines", foos, bytes, goroutines)
		if bytes > limits.HeapPerFoo || goroutines > limits.Goroutines {
			t.Errorf("%d bytes of live heap for each Foo and its Deployment, and %d goroutines: want at most %+v",
				bytes, goroutines, limits)
		}
		runtime.KeepAlive(s)
	})
}

// checkRequests checks how many writes a controller sent for so many new Foos, and that it sends none when it starts
// again.
func checkRequests(t *testing.T, s *scenario.Simulation, foos int, want map[string]int) {
	have := s.Writes()
	for write, n := range have {
		have[write] = (n + foos - 1) / foos
	}
	if !maps.Equal(have, want) {
		t.Errorf("writes for each Foo: %v, want %v", have, want)
	}
	before := s.Writes()
	s.Restart(t)
	time.Sleep(time.Hour)
	if after := s.Writes(); !maps.Equal(before, after) {
		t.Errorf("writes before and after a restart: %v and %v", before, after)
	}
}

// liveHeap returns the size of the heap after a collection. The simulated API server drops its history before.
func liveHeap(api *apiserver.Server) int {
	api.Compact()
	synctest.Wait()
	runtime.GC()
	runtime.GC() // What the first one finds to have a finalizer is freed by the second one.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
