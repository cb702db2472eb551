package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestRefusals lets the API server refuse writes in many ways, on one cluster and with one controller.
func TestRefusals(t *testing.T) {
	each := together(t, fullCluster)
	says := func(words string) func(*v1alpha1.Foo) bool {
		return func(foo *v1alpha1.Foo) bool {
			return readyCondition(foo).Reason == v1alpha1.ReasonRefused &&
				strings.Contains(readyCondition(foo).Message, words) &&
				meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReconciling)
		}
	}

	each("a quota: reported in its words, and an edit acts at once when there is room", func(t *testing.T, w *world) {
		w.quota(t, corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")})
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		w.becomesWith(t, "web", says("exceeded quota"))
		w.kubectl(t, "", "delete", "quota", "--all", "-n", w.namespace)
		w.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		w.becomes(t, "web", v1alpha1.ReasonAvailable)
	})

	each("a policy that denies creates, then updates", func(t *testing.T, w *world) {
		lift := w.denyDeployments(t, "not on Fridays", "CREATE")
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		w.becomesWith(t, "web", says("not on Fridays"))
		lift()
		w.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		w.becomes(t, "web", v1alpha1.ReasonAvailable)

		lift = w.denyDeployments(t, "change freeze", "UPDATE")
		w.editFoo(t, "web", `{"spec":{"replicas":3}}`)
		w.becomesWith(t, "web", says("change freeze"))
		lift()
		w.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.AvailableReplicas == 2 })
	})

	each("a policy that denies deletes: a rename says so, and ends when it may", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		lift := w.denyDeployments(t, "nothing goes", "DELETE")
		w.rename(t, "web", "new")
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && strings.Contains(readyCondition(foo).Message,
				`Cannot delete previous Deployment "old": refused by the API server: deployments.apps "old" is forbidden`)
		})
		w.rename(t, "web", "newer") // It keeps nothing else from being done.
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && w.hasDeployments(t, "new", "newer", "old") &&
				strings.Contains(readyCondition(foo).Message, "Cannot delete previous Deployment")
		})
		lift()
		w.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && w.hasDeployments(t, "newer") })
	})

	each("a policy that rewrites the image: reported with both values, and no fight", func(t *testing.T, w *world) {
		w.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "nginx:1.29"})
		w.rewriteImages(t, "mirror.example.com/nginx:1")
		before := w.countWrites(t, "patch deployments/")
		w.editFoo(t, "web", `{"spec":{"image":"nginx:1.30"}}`)
		foo := w.becomesWith(t, "web", func(foo *v1alpha1.Foo) bool {
			return readyCondition(foo).Reason == v1alpha1.ReasonFieldsOverridden && isReady(foo)
		})
		want := `Deployment "web" is changed on its way in by an admission policy or webhook: ` +
			`spec.template.spec.containers[name=nginx].image was set to mirror.example.com/nginx:1, wanted nginx:1.30`
		if got := readyCondition(foo).Message; !strings.HasPrefix(got, want) {
			t.Errorf("message = %q, want it to begin with %q", got, want)
		}
		w.settle(t)
		if got := w.countWrites(t, "patch deployments/") - before; got > 4 { // 1, 2 and 4 s between them.
			t.Errorf("%d patches: that is a fight", got)
		}
		if events := w.events(t, "web"); len(events) == 0 || events[len(events)-1].Reason != v1alpha1.EventFieldsOverridden {
			t.Errorf("events = %v, want a warning %s at last", events, v1alpha1.EventFieldsOverridden)
		}
		w.editFoo(t, "web", `{"spec":{"image":"mirror.example.com/nginx:1"}}`)
		w.becomes(t, "web", v1alpha1.ReasonAvailable)
	})
}

// TestNamespaceBeingDeletedEndsItQuietly needs a namespace that stays Terminating: nothing here deletes its content.
func TestNamespaceBeingDeletedEndsItQuietly(t *testing.T) {
	w := newWorld(t, apiCluster)
	w.controller(t)
	w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Paused: true})
	w.becomes(t, "web", v1alpha1.ReasonPaused)
	w.kubectl(t, "", "delete", "namespace", w.namespace, "--wait=false")
	w.editFoo(t, "web", `{"spec":{"paused":false}}`)
	t.Cleanup(func() { // Or the controllers of other tests would try it too.
		w.kubectl(t, "", "delete", "foo/web", "-n", w.namespace)
	})
	tried := func() int { return w.countWrites(t, "create deployments/ "+w.namespace+"/web") }
	until(t, "the create is tried", func(context.Context) (bool, error) { return tried() > 0, nil })
	newWorld(t, apiCluster).settle(t)
	if got := tried(); got != 1 {
		t.Errorf("the create was tried %d times, want once", got)
	}
	if reason := readyCondition(w.foo(t, "web")).Reason; reason != v1alpha1.ReasonPaused {
		t.Errorf("reason = %s: a status was written into a namespace that is going", reason)
	}
}

// TestStaleViews holds back watches, and loses answers, between the controller and the API server.
func TestStaleViews(t *testing.T) {
	start := func(t *testing.T) (*world, *proxy) {
		w := newWorld(t, apiCluster)
		proxy := newProxy(t, w.cluster)
		startController(t, "--kubeconfig", w.kubeconfig(t, proxy)).says(t, `"Started"`)
		return w, proxy
	}

	t.Run("a foreign Deployment that the cache does not show, and does not show going either", func(t *testing.T) {
		w, proxy := start(t)
		proxy.holdWatch("deployments")
		w.createDeployment(t, "web", func(*appsv1.Deployment) {})
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
		w.becomes(t, "web", v1alpha1.ReasonNotOwned)
		proxy.releaseWatch()
		w.kubectl(t, "", "delete", "deployment/web", "-n", w.namespace)
		w.becomes(t, "web", v1alpha1.ReasonCreating)
	})

	t.Run("a controller with an outdated Foo does not undo what another one did for the newer one", func(t *testing.T) {
		w, proxy := start(t)
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		w.becomes(t, "web", v1alpha1.ReasonCreating)
		proxy.holdWatch("foos")
		w.controller(t)
		w.editFoo(t, "web", `{"spec":{"replicas":5}}`)
		until(t, "the Deployment follows", func(context.Context) (bool, error) {
			return *w.deployment(t, "web").Spec.Replicas == 5, nil
		})
		until(t, "the controller that is behind looks", func(context.Context) (bool, error) {
			return proxy.count(http.MethodGet, "/foos/web") > 0, nil
		})
		newWorld(t, apiCluster).settle(t)
		proxy.releaseWatch()
		w.settle(t)
		if got := w.countWrites(t, "patch deployments/"); got != 1 || *w.deployment(t, "web").Spec.Replicas != 5 {
			t.Errorf("%d patches and %d replicas, want 1 and 5", got, *w.deployment(t, "web").Spec.Replicas)
		}
	})

	t.Run("a create whose answer is lost is looked at before anything else", func(t *testing.T) {
		w, proxy := start(t)
		proxy.holdWatch("deployments") // Or the Deployment's event might answer the question first.
		var posts, looks atomic.Int32
		proxy.mu.Lock()
		proxy.lose = func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, w.namespace+"/deployments") && posts.Add(1) == 1
		}
		proxy.before = func(r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, w.namespace+"/deployments/web") {
				looks.Add(1)
			}
		}
		proxy.mu.Unlock()
		w.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
		w.becomes(t, "web", v1alpha1.ReasonCreating)
		if posts.Load() != 1 || looks.Load() != 1 {
			t.Errorf("%d creates and %d looks at the Deployment, want one of each", posts.Load(), looks.Load())
		}
		proxy.releaseWatch()
		w.settle(t)
		if !w.hasDeployments(t, "web") {
			t.Errorf("Deployments = %v, want one", w.deployments(t))
		}
	})
}
