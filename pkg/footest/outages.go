package footest

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/sim/faults"
)

// interrupt interrupts the watch of Deployments before the nth event from now on, or at once if it is 0. At the end,
// the watch gets 410, as after a restart, and a list follows. Of what came and went meanwhile, the controller gets no
// event.
func (n *neighbourhood) interrupt(nth int, d time.Duration, more ...faults.Fault) {
	faults.Schedule{Faults: append(more,
		faults.Fault{Kind: faults.Expired, Resource: deploymentsResource, Nth: nth, For: d},
		faults.Fault{Kind: faults.LateEvent, For: 10 * time.Millisecond}, // The answer to a write comes before its event.
	)}.Inject(n.Server, controllerName)
}

func (n *neighbourhood) deleteDeployment() {
	n.must(n.kube.AppsV1().Deployments(tenant).Delete(n.Ctx, fooName(0), metav1.DeleteOptions{}))
}

// checkHealed checks that an hour later the Foo has its Deployment.
func (n *neighbourhood) checkHealed() {
	n.t.Helper()
	time.Sleep(time.Hour)
	if n.replicas(tenant, fooName(0)) < 0 {
		n.t.Errorf("an hour later there is no Deployment:\n%s", n.Server.Trace())
	}
}

// SimulateOutages interrupts the watch of Deployments while somebody deletes one that it has not shown.
func SimulateOutages(t *testing.T, newController New) {
	run := func(name string, test func(n *neighbourhood)) {
		t.Run(name, func(t *testing.T) {
			inNeighbourhood(t, newController, func(n *neighbourhood) {
				n.RunController(t)
				time.Sleep(time.Second)
				test(n)
				n.checkHealed()
			})
		})
	}
	deletedMeanwhile := func(after, rest time.Duration, more ...faults.Fault) func(*neighbourhood) {
		return func(n *neighbourhood) {
			n.interrupt(0, after+rest, more...)
			n.createFoos(tenant, 1)
			time.Sleep(after)
			n.deleteDeployment()
		}
	}
	run("a few seconds", deletedMeanwhile(2*time.Second, time.Second))
	run("more than a minute", deletedMeanwhile(145*time.Second, 5*time.Second))
	run("the answer to the create is lost too", deletedMeanwhile(2*time.Second, time.Second,
		faults.Fault{Kind: faults.LostAfter, Verb: "create", Resource: deploymentsResource, For: time.Second}))
	run("more than a minute, and the Foo is edited", func(n *neighbourhood) {
		time.AfterFunc(time.Second, func() {
			n.must(n.editFoo(tenant, fooName(0), `{"metadata":{"labels":{"team":"blue"}}}`))
		})
		deletedMeanwhile(66*time.Second, 4*time.Second)(n)
	})
	run("it begins and ends before the create is answered", (*neighbourhood).duringACreate)
	for who, kind := range map[string]faults.Kind{"a proxy": faults.Page, "another cluster": faults.Refused} {
		run("none, but "+who+" answers the live reads of the Foo with 404", func(n *neighbourhood) {
			n.createFoos(tenant, 1)
			time.Sleep(time.Minute)
			faults.Schedule{Faults: []faults.Fault{
				{Kind: kind, Code: http.StatusNotFound, Verb: "get", Resource: foosResource, For: 3 * time.Second},
			}}.Inject(n.Server, controllerName)
			n.deleteDeployment()
		})
	}
}

// duringACreate: the status of the Foo stays the same, so no event of the Foo brings the key back either.
func (n *neighbourhood) duringACreate() {
	n.createFoos(tenant, 1)
	time.Sleep(time.Minute)
	n.StopController()
	n.deleteDeployment()
	n.interrupt(1, time.Second, faults.Fault{
		Kind: faults.LateAnswer, Verb: "create", Resource: deploymentsResource, Nth: 1, For: 10 * time.Second,
	})
	n.RunController(n.t)
	time.Sleep(100 * time.Millisecond)
	n.deleteDeployment()
}

// SimulateResync checks that the Deployment of a Foo whose key is lost is created after the next resync. The controller
// loses its first key, and resyncs every ten minutes.
func SimulateResync(t *testing.T, newController New) {
	inNeighbourhood(t, newController, func(n *neighbourhood) {
		n.RunController(t)
		time.Sleep(time.Second)
		n.createFoos(tenant, 1)
		time.Sleep(9 * time.Minute)
		if n.replicas(tenant, fooName(0)) >= 0 {
			t.Fatal("the key was not lost")
		}
		time.Sleep(2 * time.Minute)
		if n.replicas(tenant, fooName(0)) < 0 {
			t.Error("the resync did not find the Foo")
		}
	})
}
