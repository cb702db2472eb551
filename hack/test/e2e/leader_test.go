package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

var (
	handovers = flag.Int("handovers", 0, "how often TestHandovers measures each kind of handover")
	stops     = flag.Int("stops", 2, "how often TestALeaderThatWasStoppedDoesNotWrite stops a leader")
)

var (
	// usual are the durations that the controller has by default.
	usual = electionTimes{15 * time.Second, 10 * time.Second, 2 * time.Second}
	// patient are durations with which the leader changes in seconds, and a leader on a busy machine stays the leader.
	patient = electionTimes{6 * time.Second, 4 * time.Second, 500 * time.Millisecond}
)

type electionTimes struct{ lease, renew, retry time.Duration }

func (e electionTimes) flags() []string {
	return []string{
		"--leader-elect", "--leader-elect-namespace=foo-system", fmt.Sprintf("--leader-elect-lease-duration=%s", e.lease),
		fmt.Sprintf("--leader-elect-renew-deadline=%s", e.renew), fmt.Sprintf("--leader-elect-retry-period=%s", e.retry),
	}
}

// An electorate is two controllers for a namespace of their own. One of them leads.
type electorate struct {
	*env
	times           electionTimes
	leader, standby *candidate
}

// A candidate is a controller with a proxy of its own.
type candidate struct {
	*process
	proxy *proxy
}

func newElectorate(t *testing.T, times electionTimes) *electorate {
	t.Helper()
	e := &electorate{env: newEnv(t, apiCluster), times: times}
	e.kubectl(t, fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role",
		"metadata":{"namespace":"foo-system","name":%[1]q},"rules":[{"apiGroups":["coordination.k8s.io"],
		"resources":["leases"],"resourceNames":[%[1]q],"verbs":["get","update"]}]}`, e.lease()), "create", "-f", "-")
	// A Lease that was released: without it, the first leader waits for the lease duration.
	e.kubectl(t, fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{"leaseDurationSeconds":1},
		"metadata":{"namespace":"foo-system","name":%q}}`, e.lease()), "create", "-f", "-")
	e.kubectl(t, "", "create", "rolebinding", e.lease(), "-n", "foo-system", "--role="+e.lease(),
		"--serviceaccount=foo-system:foo-controller")
	e.leader = e.start(t)
	e.leader.waitForLog(t, "Became leader")
	e.standby = e.start(t)
	e.standby.waitForLog(t, "Standing by")
	return e
}

// lease returns the name of the Lease.
func (e *electorate) lease() string { return controllerName + "-" + e.namespace }

func (e *electorate) start(t *testing.T) *candidate {
	t.Helper()
	return e.startBehind(t, newProxy(t, e.cluster))
}

func (e *electorate) startBehind(t *testing.T, proxy *proxy) *candidate {
	t.Helper()
	flags := append(e.times.flags(), "--kubeconfig", e.kubeconfig(t, proxy), "--namespace", e.namespace,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	return &candidate{process: startController(t, flags...), proxy: proxy}
}

// fooSpec returns the spec of a Foo with a Deployment of that name.
func fooSpec(name string) v1alpha1.FooSpec {
	return v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(1))}
}

// next lets a new process stand by, after the leader has ended and the standby has become leader.
func (e *electorate) next(t *testing.T) {
	t.Helper()
	e.leader, e.standby = e.standby, e.start(t)
	e.standby.waitForLog(t, "Standing by")
}

// create creates a Foo, and waits until p has created its Deployment.
func (e *electorate) create(t *testing.T, p *candidate, name string) {
	t.Helper()
	e.createFoo(t, name, fooSpec(name))
	until(t, "the Deployment of "+name, func(context.Context) (bool, error) { return e.exists(t, name), nil })
	p.waitForLog(t, `deployment="`+e.namespace+"/"+name+`"`)
}

// writes returns the writes of a process that its gate is for.
func (c *candidate) writes() []string {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.proxy.requests), func(request string) bool {
		return strings.HasPrefix(request, http.MethodGet) || !strings.Contains(request, "/namespaces/") ||
			strings.Contains(request, "/leases")
	})
}

func TestTheStandbyTakesOverWhenTheLeaderStops(t *testing.T) {
	e := newElectorate(t, patient)
	e.create(t, e.leader, "first")
	if status, body := fetch(t, "http://"+e.standby.address(t, "health")+"/readyz?verbose", ""); status != http.StatusOK {
		t.Errorf("a standby is not ready: %d %s", status, body)
	}
	if writes := e.standby.writes(); len(writes) > 0 {
		t.Errorf("a standby writes: %v", writes)
	}
	e.leader.signal(syscall.SIGTERM)
	e.standby.waitForLog(t, "Became leader")
	e.leader.stop(t)
	log := e.leader.log.String()
	if released := strings.Index(log, "Released the Lease"); released < 0 || released > strings.Index(log, `"Stopped"`) {
		t.Errorf("the Lease is not released before the end:\n%s", log)
	}
	e.create(t, e.standby, "second")
}

// The Lease is released only after the running sync.
func TestTheLeaseIsReleasedAfterTheWork(t *testing.T) {
	e := newElectorate(t, patient)
	arrived, release := e.leader.proxy.hold(t, http.MethodPost, "/deployments")
	e.createFoo(t, "web", fooSpec("web"))
	<-arrived
	e.leader.signal(syscall.SIGTERM)
	e.leader.waitForLog(t, `"Stopping`)
	renewals := e.leader.proxy.count(http.MethodPut, "/leases/"+e.lease())
	until(t, "the Lease was renewed for longer than its duration", func(context.Context) (bool, error) {
		return e.leader.proxy.count(http.MethodPut, "/leases/"+e.lease()) > renewals+13, nil
	})
	if strings.Contains(e.standby.log.String(), "Became leader") {
		t.Error("another process leads before the work is done")
	}
	release()
	e.leader.stop(t)
	e.standby.waitForLog(t, "Became leader")
	if foo := e.foo(t, "web"); foo.Status.ObservedGeneration != foo.Generation {
		t.Errorf("the sync was not completed: %+v", foo.Status)
	}
}

// The events of the last syncs are sent while the Lease is still held.
func TestEventsAreSentBeforeTheLeaseIsReleased(t *testing.T) {
	e := newElectorate(t, patient)
	e.create(t, e.leader, "web")
	arrived, release := e.leader.proxy.hold(t, http.MethodPost, "/events")
	e.editDeployment(t, "web", `{"spec":{"replicas":9}}`) // The correction has an event.
	<-arrived
	e.leader.signal(syscall.SIGTERM)
	e.leader.waitForLog(t, `"Stopping`)
	if strings.Contains(e.leader.log.String(), "Released the Lease") {
		t.Error("the Lease was released before the event was sent")
	}
	release()
	e.leader.stop(t)
	e.leader.waitForLog(t, "Released the Lease")
	list, err := e.kube.EventsV1().Events(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("%d events were sent, want one: %v", len(list.Items), err)
	}
}

// A leader that was suspended for longer than its lease, with work that waits, does not write when it continues.
func TestALeaderThatWasStoppedDoesNotWrite(t *testing.T) {
	e := newElectorate(t, patient)
	for round := range *stops {
		first := fmt.Sprintf("first-%d", round)
		e.create(t, e.leader, first)
		e.waitForReason(t, first, v1alpha1.ReasonCreating) // No write is between the gate and the network now.
		_ = e.leader.cmd.Process.Signal(syscall.SIGSTOP)
		e.standby.waitForLog(t, "Became leader")
		before := e.leader.writes()
		for i := range 20 { // Events that wait in the sockets of the leader.
			e.createFoo(t, fmt.Sprintf("more-%d-%d", round, i), fooSpec(fmt.Sprintf("more-%d-%d", round, i)))
		}
		e.create(t, e.standby, fmt.Sprintf("second-%d", round))
		e.leader.code = 1 // The leadership is lost, so the process ends.
		e.leader.signal(syscall.SIGCONT)
		e.leader.stop(t)
		if writes := e.leader.writes()[len(before):]; len(writes) > 0 {
			t.Errorf("round %d: the former leader has written: %v", round, writes)
		}
		e.leader.waitForLog(t, "lost the leadership")
		e.next(t)
	}
}

// A write that has passed the gate before the process was suspended, and reaches the API server when another process
// leads, is refused, because it carries the resourceVersion of what it changes.
func TestAWriteThatIsLateIsRefused(t *testing.T) {
	e := newElectorate(t, patient)
	e.create(t, e.leader, "web")
	arrived, release := e.leader.proxy.hold(t, http.MethodPatch, "/deployments/web")
	e.editDeployment(t, "web", `{"spec":{"replicas":9}}`)
	<-arrived
	_ = e.leader.cmd.Process.Signal(syscall.SIGSTOP)
	e.standby.waitForLog(t, "Became leader")
	patches := func(code int) int {
		n := 0
		for _, write := range e.cluster.writes(t, e.namespace) {
			if write == fmt.Sprintf("patch deployments/ %s/web: %d", e.namespace, code) {
				n++
			}
		}
		return n
	}
	until(t, "the new leader has corrected the Deployment",
		func(context.Context) (bool, error) { return patches(200) == 1, nil })
	release()
	until(t, "the late write is refused", func(context.Context) (bool, error) { return patches(409) == 1, nil })
	e.leader.code = 1
	e.leader.signal(syscall.SIGCONT)
	e.leader.stop(t)
	if patches(200) != 1 {
		t.Errorf("%d patches were accepted", patches(200))
	}
}

// TestHandovers logs how long handovers take:
//
//	cd hack/test/e2e && go test -run TestHandovers -v -timeout 1h . -handovers 20
func TestHandovers(t *testing.T) {
	if *handovers == 0 {
		t.Skip("a measurement; run with -handovers N")
	}
	for _, times := range []electionTimes{usual, {8 * time.Second, 5 * time.Second, time.Second}} {
		t.Run(fmt.Sprintf("%v", times), func(t *testing.T) {
			e := newElectorate(t, times)
			for _, end := range []struct {
				name   string
				signal syscall.Signal
				code   int
			}{{"SIGTERM", syscall.SIGTERM, 0}, {"kill -9", syscall.SIGKILL, -1}} {
				var took []time.Duration
				for range *handovers {
					time.Sleep(times.lease / 2)
					began := time.Now()
					e.leader.code = end.code
					e.leader.signal(end.signal)
					e.standby.waitForLog(t, "Became leader")
					took = append(took, time.Since(began).Round(10*time.Millisecond))
					e.leader.stop(t)
					e.next(t)
				}
				slices.Sort(took)
				t.Logf("%s, %v: %s in the median, at most %s: %v", end.name, times, took[len(took)/2], took[len(took)-1], took)
			}
		})
	}
}

// A controller with the Role of artifacts/namespaced serves its namespace and no other one. Without that Role it waits,
// reports which permission is missing, and continues by itself.
func TestOneNamespace(t *testing.T) {
	e := newEnv(t, apiCluster)
	other := e.cluster.env(t)
	manifests := e.namespaced(t)
	serviceAccounts := regexp.MustCompile(`(?s)apiVersion: v1\nkind: ServiceAccount.*?---\n`).FindString(manifests)
	e.kubectl(t, serviceAccounts, "apply", "-f", "-")
	p := startController(t, append(patient.flags(), "--kubeconfig", e.kubeconfigOf(t, e.namespace, nil),
		"--namespace", e.namespace, "--leader-elect-namespace", e.namespace, "--health-probe-bind-address=127.0.0.1:0")...)
	p.waitForLog(t, "Not allowed to list and watch the resource")
	p.waitForLog(t, "kubectl apply -k artifacts/namespaced")
	p.waitForLog(t, "kubectl auth can-i create deployments.apps --namespace="+e.namespace)

	e.kubectl(t, manifests, "apply", "-f", "-")
	p.waitForLog(t, `"Started"`)
	other.createFoo(t, "web", fooSpec("web"))
	e.createFoo(t, "web", fooSpec("web"))
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	if foo := other.foo(t, "web"); foo.Status.ObservedGeneration != 0 {
		t.Errorf("the Foo of another namespace was reported: %v", foo.Status)
	}
	p.waitUntilReady(t)
}

// namespaced returns the manifests of artifacts/namespaced for the namespace of the test.
func (e *env) namespaced(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"kustomization.yaml", "rbac.yaml"} {
		text, err := os.ReadFile(filepath.Join("artifacts", "namespaced", file))
		if err != nil {
			t.Fatal(err)
		}
		name := regexp.MustCompile(`(namespace: |-)default\b`)
		edited := name.ReplaceAllString(string(text), "${1}"+e.namespace)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e.kubectl(t, "", "kustomize", dir)
}
