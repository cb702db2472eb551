package footest

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// An outage interrupts the watch of Deployments. When it ends, the watch gets 410, because the API server was restarted
// and has no older events, and a list follows. Of what came and went meanwhile, the controller gets no event.
type outage struct {
	*neighbourhood
	// down means that nothing is listed or watched. lost means that the answers to creates do not arrive.
	down, lost atomic.Bool
}

func (o *outage) intercept(r *apiserver.Request, next func() (*http.Response, error)) (*http.Response, error) {
	if r.User != controllerName || r.Resource.Resource != deploymentsResource {
		return next()
	}
	if o.down.Load() && (r.Verb == "list" || r.Verb == "watch") {
		return nil, errNoAnswer
	}
	answer, err := next()
	if r.Verb == "create" && o.lost.Load() && err == nil {
		answer.Body.Close()
		return nil, errNoAnswer
	}
	return answer, err
}

func (o *outage) event(w *apiserver.Watch, e apiserver.Event) error {
	isOurs := w.User == controllerName && w.Resource.Resource == deploymentsResource
	if o.down.Load() && isOurs && e.Type != watch.Bookmark {
		return errNoAnswer
	}
	return w.Request.Sleep(10 * time.Millisecond) // The answer to a write comes before its event.
}

// end ends the outage.
func (o *outage) end() {
	o.api.Compact()
	o.down.Store(false)
}

func (o *outage) deleteDeployment() {
	o.must(o.kube.AppsV1().Deployments(tenant).Delete(o.ctx, fooName(0), metav1.DeleteOptions{}))
}

// checkHealed checks that an hour later the Foo has its Deployment.
func (o *outage) checkHealed() {
	o.t.Helper()
	time.Sleep(time.Hour)
	if o.replicas(tenant, fooName(0)) < 0 {
		o.t.Errorf("an hour later there is no Deployment:\n%s", o.api.Trace())
	}
}

// SimulateOutages interrupts the watch of Deployments while somebody deletes one that it has not shown.
func SimulateOutages(t *testing.T, newRunner NewRunner) {
	WithoutErrorDelays(t)
	run := func(name string, test func(o *outage)) {
		t.Run(name, func(t *testing.T) {
			inNeighbourhood(t, newRunner, func(n *neighbourhood) {
				o := &outage{neighbourhood: n}
				n.api.Intercept(o.intercept)
				n.api.InterceptEvents(o.event)
				n.runController(t)
				time.Sleep(time.Second)
				test(o)
				o.checkHealed()
			})
		})
	}
	deletedMeanwhile := func(after, rest time.Duration) func(*outage) {
		return func(o *outage) {
			o.down.Store(true)
			o.createFoos(tenant, 1)
			time.Sleep(after)
			o.deleteDeployment()
			time.Sleep(rest)
			o.end()
		}
	}
	run("a few seconds", deletedMeanwhile(2*time.Second, time.Second))
	run("more than a minute", deletedMeanwhile(145*time.Second, 5*time.Second))
	run("the answer to the create is lost too", func(o *outage) {
		o.lost.Store(true)
		time.AfterFunc(time.Second, func() { o.lost.Store(false) })
		deletedMeanwhile(2*time.Second, time.Second)(o)
	})
	run("more than a minute, and the Foo is edited", func(o *outage) {
		time.AfterFunc(time.Second, func() {
			o.must(o.editFoo(tenant, fooName(0), `{"metadata":{"labels":{"team":"blue"}}}`))
		})
		deletedMeanwhile(66*time.Second, 4*time.Second)(o)
	})
	run("it begins and ends before the create is answered", (*outage).duringACreate)
}

// duringACreate: the status of the Foo stays the same, so no event of the Foo brings the key back either.
func (o *outage) duringACreate() {
	o.createFoos(tenant, 1)
	time.Sleep(time.Minute)
	o.stopController()
	o.deleteDeployment()
	var ended atomic.Bool
	o.api.Intercept(func(r *apiserver.Request, next func() (*http.Response, error)) (*http.Response, error) {
		isCreate := r.User == controllerName && r.Verb == "create" && r.Resource == deploymentResource
		if !isCreate || ended.Swap(true) {
			return next()
		}
		o.down.Store(true)
		answer, err := next()
		time.Sleep(10 * time.Millisecond) // The watch breaks.
		o.deleteDeployment()
		o.end()
		time.Sleep(10 * time.Second) // The list comes.
		return answer, err
	})
	o.runController(o.t)
}

// SimulateResync checks that the Deployment of a Foo whose key newRunner loses is created after the next resync.
func SimulateResync(t *testing.T, newRunner NewRunner) {
	inNeighbourhood(t, newRunner, func(n *neighbourhood) {
		n.resync = 10 * time.Minute
		n.runController(t)
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
