package footest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

// raceDetector reports whether the race detector is on. Simulations are several times slower with it.
var raceDetector = func() bool {
	build, _ := debug.ReadBuildInfo() // A test has it.
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// WithoutRaceDetector skips a test of memory or allocations with the race detector: it needs memory too, and empties
// pools at random.
func WithoutRaceDetector(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector allocates too")
	}
}

// MeasureMemory checks that a controller with so many Foos that are Ready has at most so many bytes of live heap for
// each Foo and its Deployment, and at most so many goroutines. It must have sent exactly these writes for each Foo, by
// verb and resource, without events, and none when it starts again. The test is skipped with the race detector.
func MeasureMemory(t *testing.T, newController New, foos, heapPerFoo, mostGoroutines int, writes map[string]int) {
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
		checkRequests(t, s, foos, writes)
		stopDeployments()
		synctest.Wait()
		with := liveHeap(s.Server)
		s.Stop(t)
		s.StopController = nil // It refers to the controller.
		bytes := (with - liveHeap(s.Server)) / foos
		t.Logf("%d Foos: %d bytes of live heap for each, %d goroutines", foos, bytes, goroutines)
		if bytes > heapPerFoo || goroutines > mostGoroutines {
			t.Errorf("want at most %d bytes and %d goroutines", heapPerFoo, mostGoroutines)
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

// SimulateChurn checks that the controller keeps nothing of Foos that are gone: Foos of all kinds are created and
// deleted, and once more with other names. After that, each map and slice of the controller must have the size that it
// had before, and the heap after the second time must have the size that it had after the first one. controller returns
// the controller that newController has made. without are names of fields whose content is not the controller's.
func SimulateChurn(t *testing.T, newController New, controller func() any, foos int, without ...string) {
	inNeighbourhood(t, newController, func(n *neighbourhood) {
		go apiserver.RunGarbageCollector(n.Ctx, n.Server, 10*time.Millisecond)
		n.RunDeployments(n.Ctx)
		n.Server.Admit(func(a *apiserver.Admission) error {
			if a.Operation != "CREATE" || a.Resource != deploymentResource || !strings.HasPrefix(a.Name, "refused") {
				return nil
			}
			return apierrors.NewForbidden(deploymentResource.GroupResource(), a.Name, errors.New("exceeded quota: none"))
		})
		n.Server.KeepTrace(0) // It would keep objects in memory.
		n.OnSynced = nil      // It would count the syncs of Foos that are gone.
		n.RunController(t)
		n.churn("first", 50) // Indexes and caches of client-go are made when they are needed first.
		synctest.Wait()
		before := sizes(controller())
		if len(before) < 20 {
			t.Fatalf("only %d maps and slices were found: are they still visible?", len(before))
		}
		var heap []int
		for cohort := range 2 {
			n.churn(fmt.Sprintf("c%d", cohort), foos)
			synctest.Wait()
			if changes := compareSizes(before, sizes(controller())); changes != "" {
				t.Errorf("%d Foos have come and gone:\n%s", foos, changes)
			}
			heap = append(heap, n.heap())
		}
		t.Logf("%d maps and slices; heap %d kB after %d Foos, %d kB after as many again",
			len(before), heap[0]/1000, foos, heap[1]/1000)
		if heap[1] > heap[0]+heap[0]/20 && !raceDetector {
			t.Errorf("the heap has %d bytes, before %d", heap[1], heap[0])
		}
	})
}

// SimulateStandby checks that a controller that does not run keeps nothing of Foos that are gone, and sends nothing.
func SimulateStandby(t *testing.T, newController New, controller func() any) {
	inNeighbourhood(t, newController, func(n *neighbourhood) {
		n.RunController(t)
		comeAndGo := func(foos int) {
			n.createFoos(tenant, foos)
			time.Sleep(time.Minute)
			for i := range foos {
				n.must(n.samples.SamplecontrollerV1alpha1().Foos(tenant).Delete(n.Ctx, fooName(i), metav1.DeleteOptions{}))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		comeAndGo(3)
		before := sizes(controller())
		comeAndGo(100)
		if changes := compareSizes(before, sizes(controller())); changes != "" {
			t.Errorf("100 Foos have come and gone:\n%s", changes)
		}
		if sent := n.count(n.requests, tenant); sent > 0 {
			t.Errorf("a controller that does not run has sent %d requests", sent)
		}
	})
}

// churn lets Foos come and go. Their Deployments become available, are refused, are edited, or belong to others.
func (n *neighbourhood) churn(cohort string, foos int) {
	n.t.Helper()
	kinds := []string{"available", "refused", "renamed", "corrected", "rival"}
	name := func(i int) string { return fmt.Sprintf("%s-%s-%d", kinds[i%len(kinds)], cohort, i) }
	deployment := func(i int) string {
		if kinds[i%len(kinds)] == "rival" {
			return name(i - i%50) // Ten of them name the Deployment of one that is available.
		}
		return name(i)
	}
	for i := range foos {
		n.createFoo(tenant, name(i), deployment(i))
	}
	time.Sleep(time.Minute)
	for i := range foos {
		switch kinds[i%len(kinds)] {
		case "renamed":
			n.must(n.editFoo(tenant, name(i), fmt.Sprintf(`{"spec":{"deploymentName":"other-%s"}}`, name(i))))
		case "corrected":
			n.editDeployment(tenant, name(i), `{"spec":{"replicas":7}}`)
		}
	}
	time.Sleep(time.Minute)
	for i := range foos {
		n.must(n.samples.SamplecontrollerV1alpha1().Foos(tenant).Delete(n.Ctx, name(i), metav1.DeleteOptions{}))
	}
	time.Sleep(time.Hour)
	if left := len(n.Server.Objects(deploymentResource)); left > 0 {
		n.t.Errorf("%d Deployments are left", left)
	}
}

// heap returns the size of the heap without events.
func (n *neighbourhood) heap() int {
	for _, obj := range n.Server.Objects(apiserver.Events().Resource) {
		m := obj.(scenario.Object)
		n.must(n.kube.EventsV1().Events(m.GetNamespace()).Delete(n.Ctx, m.GetName(), metav1.DeleteOptions{}))
	}
	return liveHeap(n.Server)
}

// sizes returns the number of elements in each map, slice and channel that value refers to, by the path of fields that
// leads there. Elements of one kind are added up. Functions, and atomic pointers, hide what they refer to. Nothing may
// change value meanwhile.
func sizes(value any) map[string]int {
	s := &sizer{sizes: map[string]int{}, seen: map[reference]bool{}}
	s.add("", reflect.ValueOf(value))
	return s.sizes
}

type sizer struct {
	sizes map[string]int
	seen  map[reference]bool
}

// notOurs are the fields of a controller whose content is the clients'.
var notOurs = []string{"Reconciler.Kinds", "Reconciler.Recorder.sink.EventSink"}

// A reference is a pointer or a map that was followed already. A struct and its first field have the same address.
type reference struct {
	kind    reflect.Type
	address uintptr
}

func (s *sizer) add(path string, v reflect.Value) {
	if slices.Contains(notOurs, strings.TrimPrefix(path, ".")) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && !s.followed(v) {
			s.add(path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			s.add(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Chan:
		s.addElements(path, v)
	}
}

func (s *sizer) addElements(path string, v reflect.Value) {
	if v.Kind() == reflect.Map && s.followed(v) {
		return
	}
	s.sizes[path] += v.Len()
	switch v.Kind() {
	case reflect.Map:
		for elements := v.MapRange(); elements.Next(); {
			s.add(path+"[]", elements.Value())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			s.add(path+"[]", v.Index(i))
		}
	}
}

func (s *sizer) followed(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		return false // What it contains may be a pointer.
	}
	ref := reference{v.Type(), v.Pointer()}
	before := s.seen[ref]
	s.seen[ref] = true
	return before
}

// compareSizes returns the paths at which two sizes differ.
func compareSizes(before, after map[string]int) string {
	var lines []string
	for path, size := range after {
		if size != before[path] {
			lines = append(lines, fmt.Sprintf("%s has %d elements, before %d", path, size, before[path]))
		}
	}
	return strings.Join(lines, "\n")
}
