package footest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/scenario"
)

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
		before := sizes(controller(), without...)
		if len(before) < 20 {
			t.Fatalf("only %d maps and slices were found: are they still visible?", len(before))
		}
		var heap []uint64
		for cohort := range 2 {
			n.churn(fmt.Sprintf("c%d", cohort), foos)
			synctest.Wait()
			if changes := compareSizes(before, sizes(controller(), without...)); changes != "" {
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
func SimulateStandby(t *testing.T, newController New, controller func() any, without ...string) {
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
		before := sizes(controller(), without...)
		comeAndGo(100)
		if changes := compareSizes(before, sizes(controller(), without...)); changes != "" {
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

// heap returns the size of the heap. The simulated API server drops its history before.
func (n *neighbourhood) heap() uint64 {
	for _, obj := range n.Server.Objects(apiserver.Events().Resource) {
		m := obj.(scenario.Object)
		n.must(n.kube.EventsV1().Events(m.GetNamespace()).Delete(n.Ctx, m.GetName(), metav1.DeleteOptions{}))
	}
	n.Server.Compact()
	synctest.Wait()
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
