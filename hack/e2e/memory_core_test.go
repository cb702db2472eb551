package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// What users put into objects, and the controller does not read, costs it no memory: the caches leave it out. So a user
// of one namespace cannot stop it for all, not even at a restart.
func TestWhatNobodyReadsCostsNoMemory(t *testing.T) {
	waitForRoom(t)
	c, err := startCluster("api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	namespace := c.namespace(t)
	before, _ := c.heap(t)
	for _, more := range []struct {
		what   string
		create func(*testing.T, string)
	}{
		{"60 Foos with annotations of 250 KiB and 5,000 labels", c.createLargeFoos},
		{"20 Deployments with an owner reference of 1 MiB", c.createDeploymentsWithLargeOwners},
		{"40 Deployments of Foos with 8,000 labels in the selector", c.createDeploymentsWithLargeSelectors},
		{"40 Deployments of Foos with an image of 1 MB", c.createDeploymentsWithLargeImages},
	} {
		more.create(t, namespace)
		heap, rss := c.heap(t)
		t.Logf("with %s: live heap %d kB, before all of them %d kB; RSS %d kB", more.what, heap/1000, before/1000, rss)
		if heap > before+20_000_000 {
			t.Errorf("with %s the live heap has %d kB, before all of them %d kB", more.what, heap/1000, before/1000)
		}
	}
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

func (c *cluster) createLargeFoos(t *testing.T, namespace string) {
	labels := map[string]string{}
	for i := range 5000 {
		labels[fmt.Sprint("example.com/label-", i)] = "value"
	}
	for i := range 60 {
		_, err := c.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(t.Context(), &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("large-", i), Labels: labels,
				Annotations: map[string]string{"example.com/text": strings.Repeat("x", 250<<10)},
			},
			Spec: v1alpha1.FooSpec{DeploymentName: fmt.Sprint("large-", i), Paused: true},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) createDeploymentsWithLargeOwners(t *testing.T, namespace string) {
	for i := range 20 {
		c.createDeployment(t, namespace, fmt.Sprint("owned-", i), func(dep *appsv1.Deployment) {
			dep.OwnerReferences[0].Name = strings.Repeat("x", 1<<20)
		})
	}
}

func (c *cluster) createDeploymentsWithLargeSelectors(t *testing.T, namespace string) {
	labels := map[string]string{}
	for i := range 8000 {
		labels[fmt.Sprint("label-", i)] = "value"
	}
	for i := range 40 {
		c.createDeployment(t, namespace, fmt.Sprint("selects-", i), func(dep *appsv1.Deployment) {
			dep.Spec.Selector.MatchLabels, dep.Spec.Template.Labels = labels, labels
		})
	}
}

func (c *cluster) createDeploymentsWithLargeImages(t *testing.T, namespace string) {
	for i := range 40 {
		c.createDeployment(t, namespace, fmt.Sprint("image-", i), func(dep *appsv1.Deployment) {
			dep.Spec.Template.Spec.Containers[0].Image = strings.Repeat("x", 1_000_000)
		})
	}
}
