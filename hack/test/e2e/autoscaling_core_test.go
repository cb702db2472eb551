package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// perPod is the target of the autoscalers in these tests: the average memory of a pod.
const perPod = 100 << 20

// TestScaling is one test because its parts mostly wait: they share a controller and run in parallel.
func TestScaling(t *testing.T) {
	c := newDedicatedEnv(t, fullCluster).cluster // Its controllers are started again.
	c.controller(t)
	metrics := newMetricsServer(t, c)
	// The controllers of Kubernetes discover new kinds every 30 s, and once when they start.
	c.kill(t, "kube-controller-manager")
	c.revive(t, "kube-controller-manager")

	t.Run("an autoscaler on a Foo with replicas scales the Foo and its Deployment", func(t *testing.T) {
		t.Parallel()
		e := c.env(t)
		e.createReady(t, "web", fooSpec("web-1"))
		metrics.load(e.namespace, 3*perPod)
		e.autoscale(t, v1alpha1.GroupVersion.String(), "Foo", "web")
		for _, pods := range []int32{3, 1} {
			metrics.load(e.namespace, pods*perPod)
			until(t, "the autoscaler has scaled the Foo", func(context.Context) (bool, error) {
				return *e.foo(t, "web").Spec.Replicas == pods, nil
			})
			foo := e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool {
				return isReady(foo) && foo.Status.Replicas == pods && foo.Status.AvailableReplicas == pods
			})
			if got := e.pods(t, foo.Status.Selector); len(got) != int(pods) {
				t.Errorf("status.selector selects %d pods, want %d", len(got), pods)
			}
		}
		e.settle(t)
		// Every generation except the first comes from the autoscaler.
		if patches, changes := e.countWrites(t, "patch deployments/"), int(e.foo(t, "web").Generation)-1; patches > changes {
			t.Errorf("%d patches of the Deployment for %d changes of the Foo", patches, changes)
		}
	})

	t.Run("an autoscaler on the Deployment of a Foo with replicas is reported, and backs off", func(t *testing.T) {
		t.Parallel()
		e := c.env(t)
		e.createReady(t, "web", fooSpec("web"))
		metrics.load(e.namespace, 3*perPod)
		e.autoscale(t, "apps/v1", "Deployment", "web")

		foo := e.waitForReason(t, "web", v1alpha1.ReasonFieldsOverridden)
		if message := readyCondition(foo).Message; !strings.Contains(message, "spec.replicas") {
			t.Errorf("message = %q, want the name of the field in it", message)
		}
		// Without a backoff, the controller would correct each change of the autoscaler. So the test changes the load until
		// enough changes were not corrected. The generation of the Deployment counts the changes of both.
		uncorrected := func() int {
			changes, ours := int(e.deployment(t, "web").Generation)-1, e.countWrites(t, "patch deployments/")
			return (changes - ours) - ours
		}
		for round := 0; uncorrected() < 6; round++ {
			if round == 30 {
				t.Fatalf("the autoscaler has changed the Deployment 30 times, and %d patches corrected it",
					e.countWrites(t, "patch deployments/"))
			}
			pods := int32(2 + 2*(round%2))
			metrics.load(e.namespace, pods*perPod)
			until(t, "the autoscaler has scaled the Deployment", func(context.Context) (bool, error) {
				return *e.deployment(t, "web").Spec.Replicas == pods, nil
			})
		}
		e.settle(t)
		if reason := readyCondition(e.foo(t, "web")).Reason; reason != v1alpha1.ReasonFieldsOverridden {
			t.Errorf("Ready's reason is %s, want it unchanged", reason)
		}
	})
}

// autoscale creates a HorizontalPodAutoscaler for the target, with the same name, which scales as often as it can: 1 to
// 10 pods with an average of perPod. It is deleted after the test, because it would continue to read metrics.
func (e *env) autoscale(t *testing.T, apiVersion, kind, name string) {
	t.Helper()
	e.kubectl(t, fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[3]s}
spec:
  scaleTargetRef: {apiVersion: %[1]s, kind: %[2]s, name: %[3]s}
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: "%[4]d"}}}]
  behavior:
    scaleUp: &atOnce {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 10, periodSeconds: 1}]}
    scaleDown: *atOnce
`, apiVersion, kind, name, perPod), "create", "-n", e.namespace, "-f", "-")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := e.try("", "describe", "hpa", name, "-n", e.namespace)
			t.Log(out)
		}
		e.kubectl(t, "", "delete", "hpa", name, "-n", e.namespace)
	})
}

// A metricsServer replaces the metrics-server of other clusters: it reports the memory of pods. A test sets the load of
// its namespace, which is divided equally among the running pods.
type metricsServer struct {
	cluster *cluster

	mu    sync.Mutex
	loads map[string]int64 // Bytes of memory, by namespace.
}

// newMetricsServer registers a metrics server with the cluster until the test ends.
func newMetricsServer(t *testing.T, c *cluster) *metricsServer {
	t.Helper()
	m := &metricsServer{cluster: c, loads: map[string]int64{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1", m.discovery)
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", m.pods)
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // The cluster may stop before its connections are closed.
	server.StartTLS()
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	// A Service may not refer to a loopback address, but it may refer to a name with one.
	c.kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  service: {name: metrics-server, namespace: kube-system, port: %s}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`, address.Port()), "apply", "-f", "-")
	t.Cleanup(func() {
		c.kubectl(t, "", "delete", "apiservice/v1beta1.metrics.k8s.io")
		c.kubectl(t, "", "delete", "service/metrics-server", "-n", "kube-system")
	})
	c.kubectl(t, "", "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=60s")
	return m
}

// load sets the total memory of the pods of the namespace.
func (m *metricsServer) load(namespace string, bytes int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads[namespace] = int64(bytes)
}

// discovery serves the discovery document, which is also the health check of the API server.
func (m *metricsServer) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: "metrics.k8s.io/v1beta1",
		APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"list"}}},
	})
}

// pods serves the metrics of the selected pods.
func (m *metricsServer) pods(w http.ResponseWriter, r *http.Request) {
	namespace := r.PathValue("namespace")
	pods, err := m.cluster.kube.CoreV1().Pods(namespace).List(r.Context(), metav1.ListOptions{
		LabelSelector: r.URL.Query().Get("labelSelector"),
		FieldSelector: "status.phase=" + string(corev1.PodRunning),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	m.mu.Lock()
	load := m.loads[namespace]
	m.mu.Unlock()
	items := []any{}
	for i := range pods.Items {
		memory := resource.NewQuantity(load/int64(len(pods.Items)), resource.BinarySI)
		items = append(items, map[string]any{
			"metadata":   metav1.ObjectMeta{Name: pods.Items[i].Name, Namespace: namespace, Labels: pods.Items[i].Labels},
			"timestamp":  metav1.Now(),
			"window":     metav1.Duration{Duration: time.Second},
			"containers": []any{map[string]any{"name": "nginx", "usage": corev1.ResourceList{corev1.ResourceMemory: *memory}}},
		})
	}
	answer(w, map[string]any{
		"kind":       "PodMetricsList",
		"apiVersion": "metrics.k8s.io/v1beta1",
		"metadata":   metav1.ListMeta{},
		"items":      items,
	})
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // The client may have closed the connection.
}
