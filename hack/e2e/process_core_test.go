package e2e

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This test stops the API server and removes the CRD, on a cluster of its own. It takes half a minute of real time.
func TestTheControllerLogsWhatIsMissingEvery30sAndWaitsForIt(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	c := e.cluster
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := c.kubeconfig(t, nil)
	c.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	do(c.KillComponent("kube-apiserver"))

	p := startController(t, "--kubeconfig", kubeconfig)
	p.waitForLog(t, "Cannot reach the API server")
	until(t, "it is logged again", func(context.Context) (bool, error) {
		return p.countLog("Cannot reach the API server") == 2, nil
	})
	do(c.StartComponent("kube-apiserver"))
	p.waitForLog(t, "Reached the API server")
	p.waitForLog(t, "does not know the resource")
	p.waitForLog(t, "kubectl apply -f artifacts/crd")
	c.kubectl(t, "", "apply", "-f", "artifacts/crd")
	p.waitForLog(t, `"Started"`)
	c.kubectl(t, "", "wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io")
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)

	do(c.KillComponent("kube-apiserver")) // Now the caches are filled.
	until(t, "it is logged", func(context.Context) (bool, error) {
		return p.countLog("Cannot reach the API server") >= 3, nil
	})
	do(c.StartComponent("kube-apiserver"))
	until(t, "it continues by itself", func(context.Context) (bool, error) {
		return p.countLog("Reached the API server") >= 2, nil
	})
	e.createFoo(t, "more", v1alpha1.FooSpec{DeploymentName: "more"})
	e.waitForReason(t, "more", v1alpha1.ReasonCreating)

	c.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	until(t, "it is logged", func(context.Context) (bool, error) {
		return p.countLog("does not know the resource") >= 2, nil
	})
	c.kubectl(t, "", "apply", "-f", "artifacts/crd")
	c.kubectl(t, "", "wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io")
	e.createFoo(t, "last", v1alpha1.FooSpec{DeploymentName: "last"})
	e.waitForReason(t, "last", v1alpha1.ReasonCreating)

	for line := range strings.Lines(p.log.String()) {
		if strings.HasPrefix(line, "E") && !strings.Contains(line, "will keep trying") {
			t.Errorf("an error line that does not report what is missing: %s", line)
		}
	}
	if stack := regexp.MustCompile(`goroutine \d+|\.go:\d+ \+0x`).FindString(p.log.String()); stack != "" {
		t.Errorf("the log has a stack trace: %s", stack)
	}
}
