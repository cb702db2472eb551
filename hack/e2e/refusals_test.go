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

// TestRefusals makes the API server refuse writes in many ways, with one controller.
func TestRefusals(t *testing.T) {
	run := parts(t, servedCluster)
	hasMessage := func(text string) func(*v1alpha1.Foo) bool {
		return func(foo *v1alpha1.Foo) bool {
			return readyCondition(foo).Reason == v1alpha1.ReasonRefused &&
				strings.Contains(readyCondition(foo).Message, text) &&
				meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReconciling)
		}
	}

	run("a quota: reported with its message, and an edit retries at once", func(t *testing.T, e *env) {
		e.quota(t, corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")})
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		e.waitForFoo(t, "web", hasMessage("exceeded quota"))
		e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
		e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	})

	run("a policy that denies creates, then updates", func(t *testing.T, e *env) {
		allowAgain := e.denyDeployments(t, "not on Fridays", "CREATE")
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		e.waitForFoo(t, "web", hasMessage("not on Fridays"))
		allowAgain()
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)

		allowAgain = e.denyDeployments(t, "change freeze", "UPDATE")
		e.editFoo(t, "web", `{"spec":{"replicas":3}}`)
		e.waitForFoo(t, "web", hasMessage("change freeze"))
		allowAgain()
		e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && foo.Status.AvailableReplicas == 2 })
	})

	run("a policy that denies deletes: a rename reports it, and completes when it is allowed", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "old", Replicas: new(int32(1))})
		lift := e.denyDeployments(t, "nothing is deleted", "DELETE")
		e.rename(t, "web", "new")
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && strings.Contains(readyCondition(foo).Message,
				`Cannot delete previous Deployment "old": refused by the API server: deployments.apps "old" is forbidden`)
		})
		e.rename(t, "web", "newer") // It does not prevent other writes.
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return isReady(foo) && e.hasDeployments(t, "new", "newer", "old") &&
				strings.Contains(readyCondition(foo).Message, "Cannot delete previous Deployment")
		})
		lift()
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.29"}}`)
		e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "newer") })
	})

	run("a policy that rewrites the image: reported with both values, and backs off", func(t *testing.T, e *env) {
		e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "nginx:1.29"})
		e.rewriteImages(t, "mirror.example.com/nginx:1")
		before := e.countWrites(t, "patch deployments/")
		e.editFoo(t, "web", `{"spec":{"image":"nginx:1.30"}}`)
		foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
			return readyCondition(foo).Reason == v1alpha1.ReasonFieldsOverridden && isReady(foo)
		})
		want := `An admission webhook or policy changes Deployment "web" when the controller writes it: ` +
			`spec.template.spec.containers[name=nginx].image was "mirror.example.com/nginx:1", must be "nginx:1.30"`
		if got := readyCondition(foo).Message; !strings.HasPrefix(got, want) {
			t.Errorf("message = %q, want it to begin with %q", got, want)
		}
		e.settle(t)
		if got := e.countWrites(t, "patch deployments/") - before; got > 4 { // 1, 2 and 4 s between them.
			t.Errorf("%d patches, want a backoff between them", got)
		}
		if events := e.events(t, "web"); len(events) == 0 || events[len(events)-1].Reason != v1alpha1.EventFieldsOverridden {
			t.Errorf("events = %v, want the last to be a warning %s", events, v1alpha1.EventFieldsOverridden)
		}
		e.editFoo(t, "web", `{"spec":{"image":"mirror.example.com/nginx:1"}}`)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	})
}

// TestStaleCaches delays watches and loses responses between the controller and the API server.
func TestStaleCaches(t *testing.T) {
	inParallel(t) // Its parts use the cluster.
	start := func(t *testing.T) (*env, *proxy) {
		e := newEnv(t, apiCluster)
		proxy := newProxy(t, e.cluster)
		e.start(t, proxy).waitForLog(t, `"Started"`)
		return e, proxy
	}

	t.Run("a foreign Deployment whose creation and deletion the cache misses", func(t *testing.T) {
		e, proxy := start(t)
		proxy.holdWatch("deployments")
		e.createDeployment(t, "web", func(*appsv1.Deployment) {})
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
		e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
		proxy.releaseWatch()
		e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)
		e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	})

	t.Run("a controller with a stale Foo does not revert the write of another controller", func(t *testing.T) {
		e, proxy := start(t)
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
		e.waitForReason(t, "web", v1alpha1.ReasonCreating)
		proxy.holdWatch("foos")
		e.controller(t)
		e.editFoo(t, "web", `{"spec":{"replicas":5}}`)
		until(t, "the Deployment has the new number of replicas", func(context.Context) (bool, error) {
			return *e.deployment(t, "web").Spec.Replicas == 5, nil
		})
		until(t, "the controller with the stale cache reads the Foo live", func(context.Context) (bool, error) {
			return proxy.count(http.MethodGet, "/foos/web") > 0, nil
		})
		e.settle(t)
		proxy.releaseWatch()
		e.settle(t)
		if got := e.countWrites(t, "patch deployments/"); got != 1 || *e.deployment(t, "web").Spec.Replicas != 5 {
			t.Errorf("%d patches and %d replicas, want 1 and 5", got, *e.deployment(t, "web").Spec.Replicas)
		}
	})

	t.Run("after a create without a response, the controller reads the Deployment live", func(t *testing.T) {
		e, proxy := start(t)
		proxy.holdWatch("deployments") // Otherwise the watch event of the Deployment might come first.
		var posts, reads atomic.Int32
		proxy.mu.Lock()
		proxy.loseAnswer = func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, e.namespace+"/deployments") && posts.Add(1) == 1
		}
		proxy.before = func(r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, e.namespace+"/deployments/web") {
				reads.Add(1)
			}
		}
		proxy.mu.Unlock()
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
		e.waitForReason(t, "web", v1alpha1.ReasonCreating)
		if posts.Load() != 1 || reads.Load() != 1 {
			t.Errorf("%d creates and %d live reads of the Deployment, want one of each", posts.Load(), reads.Load())
		}
		proxy.releaseWatch()
		e.settle(t)
		if !e.hasDeployments(t, "web") {
			t.Errorf("Deployments = %v, want one", e.deployments(t))
		}
	})
}
