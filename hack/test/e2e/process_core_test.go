package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests controllers on control planes that the test changes, or for a minute, or that are slow.

func TestReadinessShowsWhatIsMissing(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	kubeconfig := e.cluster.kubeconfig(t, nil)
	e.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	p := startController(t, "--kubeconfig", kubeconfig, "--health-probe-bind-address=127.0.0.1:0")
	url := "http://" + p.address(t, "health")
	shows := func(what string, want int, texts ...string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			status, body := fetch(t, url+"/readyz?verbose", "")
			for _, text := range texts {
				if !strings.Contains(body, text) {
					return false, nil
				}
			}
			return status == want, nil
		})
		_, body := fetch(t, url+"/readyz?verbose", "")
		t.Logf("%s:\n%s", what, body)
		if status, body := fetch(t, url+"/healthz?verbose", ""); status != http.StatusOK {
			t.Errorf("%s: /healthz: %d %s", what, status, body)
		}
	}
	shows("the CRD is missing", 500,
		"[-]foos failed: not listed yet", "kubectl apply -f artifacts/crd", "[-]cluster failed")
	definition, err := os.ReadFile("artifacts/crd/samplecontroller.k8s.io_foos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, strings.ReplaceAll(string(definition), "name: v1alpha1", "name: v1beta1"), "apply", "-f", "-")
	shows("the CRD is of another version", 500,
		"is installed in another version", `installed="v1beta1"`, `needed="v1alpha1"`)
	e.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	if err := e.Install("artifacts/crd"); err != nil {
		t.Fatal(err)
	}
	shows("it works", 200, "[+]foos ok", "[+]deployments ok", "[+]cluster ok")

	e.kubectl(t, "", "patch", "clusterrole", "foo-controller", "--type=json", "-p",
		`[{"op":"replace","path":"/rules/3/verbs","value":["get","list","watch"]}]`)
	e.createFoo(t, "web", fooSpec("web"))
	shows("a permission was revoked", 500, "[+]foos ok",
		`permission="create deployments.apps"`,
		"kubectl auth can-i create deployments.apps --all-namespaces --as="+controllerUser)
	e.kubectl(t, "", "apply", "-f", "artifacts/deploy/rbac.yaml")
	shows("it was granted again", 200, "[+]cluster ok")

	e.kubectl(t, "", "patch", "crd", "foos.samplecontroller.k8s.io", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/subresources"}]`)
	e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
	shows("the CRD has no status", 500, "has no subresource status")
	e.kubectl(t, "", "apply", "-f", "artifacts/crd")
	shows("the CRD is complete", 200, "[+]cluster ok")

	e.kill(t, "kube-apiserver")
	shows("the API server is down", 500, "Cannot reach the API server")
	e.revive(t, "kube-apiserver")
	shows("it is up again", 200, "[+]cluster ok")
}

// This test takes a minute of real time, on a cluster of its own.
func TestIdleAndRestartedControllerWritesNothing(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	c := e.cluster
	first := c.controller(t)

	const foos = 29 // With the rival, as many as a namespace may have events at once.
	for i := range foos {
		name := fmt.Sprintf("foo-%d", i)
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(3)), Image: "nginx:1.29"})
	}
	e.createFoo(t, "rival", v1alpha1.FooSpec{DeploymentName: "foo-0"}) // It never becomes Ready.
	e.waitForReason(t, "rival", v1alpha1.ReasonNameTaken)
	for i := range foos {
		name := fmt.Sprintf("foo-%d", i)
		e.waitForReason(t, name, v1alpha1.ReasonCreating)
		e.reportAvailable(t, name, 3)
	}
	for i := range foos {
		e.waitForReason(t, fmt.Sprintf("foo-%d", i), v1alpha1.ReasonAvailable)
	}
	until(t, "all events are written", func(ctx context.Context) (bool, error) {
		list, err := c.kube.EventsV1().Events(e.namespace).List(ctx, metav1.ListOptions{})
		return len(list.Items) == foos+1, err
	})

	before := c.writes(t, "")
	events := 0
	for _, write := range before {
		if strings.HasPrefix(write, "create events/") {
			events++
		}
	}
	if events != foos+1 {
		t.Errorf("%d Foos until Ready took %d events, want one for each, and one for the rival", foos, events)
	}
	if len(before)-events != 3*foos+1 {
		refused := slices.DeleteFunc(slices.Clone(before), func(write string) bool {
			return strings.HasSuffix(write, ": 200") || strings.HasSuffix(write, ": 201")
		})
		t.Errorf("%d Foos until Ready took %d writes, want 3 for each, and one for the rival; refused were %v",
			foos, len(before)-events, refused)
	}
	for _, r := range c.requests(t, time.Time{}) {
		isRead := slices.Contains([]string{"get", "list", "watch"}, r.Verb)
		if !isRead && !strings.Contains(r.RequestURI, "timeout=10s") {
			t.Errorf("a write without a timeout: %s %s", r.Verb, r.RequestURI)
		}
	}
	select {
	case <-first.done:
		t.Fatal("the controller ended by itself")
	case <-time.After(time.Minute): // The test is about this minute of real time.
	}
	if after := c.writes(t, ""); len(after) != len(before) {
		t.Errorf("writes in an idle minute: %v", after[len(before):])
	}

	first.stop(t)
	c.controller(t).waitForLog(t, `"Started"`)
	e.createFoo(t, "last", v1alpha1.FooSpec{DeploymentName: "last"}) // Queued behind all others.
	e.waitForReason(t, "last", v1alpha1.ReasonCreating)
	want := []string{
		fmt.Sprintf("create deployments/ %s/last: 201", e.namespace),
		fmt.Sprintf("patch foos/status %s/last: 200", e.namespace),
	}
	if diff := gocmp.Diff(want, c.writes(t, "")[len(before):]); diff != "" {
		t.Errorf("writes after a restart, except those of a new Foo (-want +got):\n%s", diff)
	}
}

// What users put into objects, and the controller does not read, costs it no memory: the caches leave it out. So a user
// of one namespace cannot stop it for all, not even at a restart.
func TestWhatNobodyReadsCostsNoMemory(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	labels := map[string]string{}
	for i := range 8000 {
		labels[fmt.Sprint("label-", i)] = "value"
	}
	before, _ := e.heap(t)
	for kind, more := range []struct {
		what   string
		count  int
		create func(name string)
	}{
		{"Foos with annotations of 250 KiB and 8,000 labels", 60, func(name string) {
			_, err := e.foos().Create(t.Context(), &v1alpha1.Foo{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: labels, Annotations: map[string]string{"text": strings.Repeat("x", 250<<10)},
				},
				Spec: v1alpha1.FooSpec{DeploymentName: name, Paused: true},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"Deployments with an owner reference of 1 MiB", 20, func(name string) {
			e.createOfAFoo(t, name, func(dep *appsv1.Deployment) { dep.OwnerReferences[0].Name = strings.Repeat("x", 1<<20) })
		}},
		{"Deployments of Foos with 8,000 labels in the selector", 40, func(name string) {
			e.createOfAFoo(t, name, func(dep *appsv1.Deployment) {
				dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = labels, labels
			})
		}},
		{"Deployments of Foos with an image of 1 MB", 40, func(name string) {
			e.createOfAFoo(t, name, func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec.Containers[0].Image = strings.Repeat("x", 1_000_000)
			})
		}},
	} {
		for i := range more.count {
			more.create(fmt.Sprintf("%d-%d", kind, i))
		}
		heap, rss := e.heap(t)
		t.Logf("with %d %s: live heap %d kB, before all of them %d kB; RSS %d kB", more.count, more.what, heap/1000,
			before/1000, rss)
		if heap > before+20_000_000 {
			t.Errorf("with %s the live heap has %d kB, before all of them %d kB", more.what, heap/1000, before/1000)
		}
	}
}

// createOfAFoo creates a Deployment with an owner reference to a Foo that does not exist.
func (e *env) createOfAFoo(t *testing.T, name string, edit func(*appsv1.Deployment)) {
	t.Helper()
	e.createDeployment(t, name, func(dep *appsv1.Deployment) {
		owned(dep)
		dep.Spec.Replicas = new(int32(0))
		edit(dep)
	})
}

// heap starts a controller, and returns the live heap in bytes after a collection, and the resident set in kB.
func (c *cluster) heap(t *testing.T) (heap, rss int) {
	t.Helper()
	p := startProcess(t, exec.Command("bin/foo-controller", // Without the race detector, which needs memory too.
		"-v=2", "--resync=0", "--kubeconfig", c.kubeconfig(t, nil), "--debug-bind-address=127.0.0.1:0"))
	defer p.stop(t)
	p.waitForLog(t, `"Started"`)
	_, profile := fetch(t, "http://"+p.address(t, "debug")+"/debug/pprof/heap?gc=1&debug=1", "")
	if found := regexp.MustCompile(`# HeapAlloc = (\d+)`).FindStringSubmatch(profile); found != nil {
		heap, _ = strconv.Atoi(found[1])
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status); found != nil {
		rss, _ = strconv.Atoi(string(found[1]))
	}
	if err != nil || heap == 0 {
		t.Fatalf("heap %d, RSS %d kB: %v", heap, rss, err)
	}
	return heap, rss
}

// The API server listens on [::1] only, its Services have only IPv6 addresses, and all endpoints are on [::1].
func TestIPv6Only(t *testing.T) {
	loopback, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	loopback.Close()
	e := newDedicatedEnv(t, apiCluster, "--ipv6")
	c := e.cluster
	service, err := c.kube.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "fd00::1" || !strings.HasPrefix(c.config.Host, "https://[::1]:") {
		t.Fatalf("the test has no cluster with IPv6 only: %s, %v", c.config.Host, err)
	}

	p := c.controller(t, append(patient.flags(), "--health-probe-bind-address=[::1]:0",
		"--metrics-bind-address=[::1]:0", "--debug-bind-address=[::1]:0")...)
	e.createFoo(t, "web", fooSpec("web"))
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	for endpoint, path := range map[string]string{"health": "/readyz", "metrics": "/metrics", "debug": "/debug/config"} {
		address := p.address(t, endpoint)
		if status, body := fetch(t, "http://"+address+path, ""); status != http.StatusOK || address[:6] != "[::1]:" {
			t.Errorf("%s%s: %d %s", address, path, status, body)
		}
	}
}

// docs/operations.md has what a slow API server does to the copies of the controller. pkg/kit/leader has tests of the
// times in it, in virtual time. The tests here are about processes: which of them end, and what is written.

// slow delays each answer to both copies by a time.
func (e *electorate) slow(by time.Duration) {
	e.leader.proxy.slow(by)
	e.standby.proxy.slow(by)
}

// attempts returns how often the process has tried to read or to renew the Lease.
func (e *electorate) attempts(c *candidate) int {
	return c.proxy.count(http.MethodGet, "/leases/"+e.lease()) + c.proxy.count(http.MethodPut, "/leases/"+e.lease())
}

// waitForAttempts waits until the process has tried n more times to read or to renew the Lease.
func (e *electorate) waitForAttempts(t *testing.T, c *candidate, n int) {
	t.Helper()
	before := e.attempts(c)
	until(t, "the Lease was tried", func(context.Context) (bool, error) { return e.attempts(c) >= before+n, nil })
}

// waitForLoss waits until the leader has lost the leadership and ended with 1.
func (e *electorate) waitForLoss(t *testing.T) {
	t.Helper()
	until(t, "the leader ends", func(context.Context) (bool, error) { return e.leader.ended(), nil })
	e.leader.code = 1
	e.leader.waitForLog(t, "Lost the leadership")
}

func (c *candidate) leads() bool { return strings.Contains(c.log.String(), "Became leader") }

// Nobody is restarted while answers take less than half of what the renew deadline leaves after the retry period. If
// they take longer, the leader is, and nobody leads until they are faster again.
func TestSlowAnswersCostALeaderButNoStandby(t *testing.T) {
	e := newElectorate(t, patient)
	e.slow(time.Second)
	e.create(t, e.leader, "slow")
	e.waitForReason(t, "slow", v1alpha1.ReasonCreating)
	e.waitForAttempts(t, e.leader, 5) // Longer than the lease duration.
	if e.leader.ended() || e.standby.ended() || e.standby.leads() {
		t.Fatalf("answers of a second have changed the leader:\n%s", e.standby.log)
	}

	e.slow(2 * time.Second)
	e.waitForLoss(t)
	e.waitForAttempts(t, e.standby, 6) // Longer than the lease duration.
	if e.standby.ended() || e.standby.leads() {
		t.Errorf("a standby leads or has ended, although each answer is too late:\n%s", e.standby.log)
	}

	e.slow(0)
	e.standby.waitForLog(t, "Became leader")
	e.create(t, e.standby, "fast")
}

// The leader ends in an outage that is longer than its renew deadline. Nobody else does, not even the process that the
// kubelet starts in its place.
func TestAnOutageCostsALeaderAndNoStandby(t *testing.T) {
	e := newElectorate(t, patient)
	e.create(t, e.leader, "before")
	e.waitForReason(t, "before", v1alpha1.ReasonCreating)
	var end []func()
	outage := func(p *proxy) {
		_, release := p.hold(t, "", "")
		end = append(end, release)
	}
	outage(e.leader.proxy)
	outage(e.standby.proxy)
	posts := e.leader.proxy.count(http.MethodPost, "/deployments")
	e.createFoo(t, "during", fooSpec("during"))
	until(t, "a write hangs", func(context.Context) (bool, error) {
		return e.leader.proxy.count(http.MethodPost, "/deployments") > posts, nil
	})
	for _, c := range []*candidate{e.leader, e.standby} {
		c.proxy.CloseClientConnections() // Watches end, too.
	}

	e.waitForLoss(t)
	proxy := newProxy(t, e.cluster)
	outage(proxy)
	e.leader = e.startBehind(t, proxy) // As the kubelet does.
	e.waitForAttempts(t, e.standby, 2)
	for page, want := range map[string]int{
		e.leader.address(t, "health") + "/healthz": 200, e.leader.address(t, "health") + "/readyz": 500,
		e.standby.address(t, "health") + "/healthz": 200,
	} {
		if status, body := fetch(t, "http://"+page, ""); status != want {
			t.Errorf("%s in the outage: %d, want %d: %s", page, status, want, body)
		}
	}
	for _, release := range end {
		release()
	}
	until(t, "one leads", func(context.Context) (bool, error) { return e.leader.leads() || e.standby.leads(), nil })
	e.waitForReason(t, "during", v1alpha1.ReasonCreating)
	if creates := e.countWrites(t, "create deployments/ "+e.namespace+"/during"); creates != 1 {
		t.Errorf("the Deployment was created %d times", creates)
	}
}
