package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"example.com/foo-controller/hack/tools/faults"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file tests that the controller is replaced by another version, forwards and back, while users work.

// olderCommit is a version of the controller before the engine was a package of its own. It needs the same permissions,
// but updates statuses.
const olderCommit = "2a1233d"

// nextImage is the image of a Foo without one, in a next version.
const nextImage = "nginx:next"

// differences are what a next version may change of the Deployments that it creates and of what it reports. The old
// texts must be in the sources.
var differences = []faults.Fault{
	{
		File:   "pkg/plan/deployment.go",
		Before: `DefaultImage = "nginx:latest"`,
		After:  `DefaultImage = "` + nextImage + `"`,
	},
	{
		File:   "pkg/plan/deployment.go",
		Before: `{{Name: ContainerName, Image: image}}`,
		After:  `{{Name: ContainerName, Image: image, ImagePullPolicy: corev1.PullAlways}}`,
	},
	{
		File:   "pkg/plan/readiness.go",
		Before: `"%d of %d replicas available"`,
		After:  `"%d of %d replicas are available"`,
	},
}

// buildNext builds a next version from the present sources with the differences. The build reads the changed files from
// another place, so no source is touched.
func buildNext(t *testing.T) (binary string) {
	t.Helper()
	binary = "bin/foo-controller-next"
	texts := map[string][]byte{}
	for _, d := range differences {
		text, err := texts[d.File], error(nil)
		if text == nil {
			text, err = os.ReadFile(d.File)
		}
		if err == nil {
			texts[d.File], err = d.Apply(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := faults.Overlay(".", t.TempDir(), "next", texts)
	if err != nil {
		t.Fatal(err)
	}
	// As `make bin/foo-controller-race` does, so that nearly all packages are compiled already.
	build := exec.Command("go", "build", "-race", "-overlay", file, "-ldflags", "-X main.buildVersion=next", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return binary
}

// buildOlder builds olderCommit.
func buildOlder(t *testing.T) (binary string) {
	t.Helper()
	if exec.Command("git", "cat-file", "-e", olderCommit+"^{commit}").Run() != nil {
		t.Skip("the clone has no commit " + olderCommit)
	}
	dir := t.TempDir()
	binary = filepath.Join(dir, "foo-controller")
	build := exec.Command("bash", "-o", "pipefail", "-c", `git archive "$0" | tar -x -C "$1" && go build -C "$1" -race .`,
		olderCommit, dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", olderCommit, err, out)
	}
	return binary
}

// While users create, change, rename and delete Foos, the controller is upgraded and downgraded, copy by copy. At the
// end each Foo has what its user wrote last. Foos that nobody changes keep their Deployments, ReplicaSets and pods,
// though the next version would create other ones. The same is true while both versions write at the same time.
func TestAnUpgradeAndADowngradeUnderLoad(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	t.Run("to a next version", func(t *testing.T) { e.upgradeAndDowngrade(t, buildNext(t), nextImage) })
	t.Run("to an older version", func(t *testing.T) { e.upgradeAndDowngrade(t, buildOlder(t), plan.DefaultImage) })
}

// upgradeAndDowngrade changes from this version to another one, which uses an image for Foos without one, and back.
func (e *env) upgradeAndDowngrade(t *testing.T, other, image string) {
	t.Helper()
	kubeconfig := e.kubeconfig(t, nil)
	start := func(t *testing.T, binary string, flags ...string) *process {
		t.Helper()
		flags = append(flags, "-v=2", "--kubeconfig", kubeconfig, "--health-probe-bind-address=127.0.0.1:0")
		p := startProcess(t, exec.Command(binary, flags...))
		p.waitUntilReady(t)
		return p
	}

	t.Run("one version after the other", func(t *testing.T) {
		e := e.cluster.env(t)
		copies := []*process{
			start(t, controllerBinary, patient.flags()...), start(t, controllerBinary, patient.flags()...),
		}
		check := e.still(t)
		work := e.startWork(t)
		for _, version := range []struct{ name, binary, image string }{
			{name: "upgraded", binary: other, image: image},
			{name: "downgraded", binary: controllerBinary, image: plan.DefaultImage},
		} {
			for i, old := range copies { // As a Deployment does with maxSurge 1 and maxUnavailable 0.
				copies[i] = start(t, version.binary, patient.flags()...)
				old.stop(t)
			}
			until(t, "a copy of the other version leads", func(context.Context) (bool, error) {
				return slices.ContainsFunc(copies, func(p *process) bool { return p.countLog("Became leader") > 0 }), nil
			})
			e.createReady(t, version.name, v1alpha1.FooSpec{DeploymentName: version.name})
			if image := imageOf(e.deployment(t, version.name)); image != version.image {
				t.Errorf("%s: the image of a new Foo is %s, want %s", version.name, image, version.image)
			}
			work.waitForChanges(t, 30)
		}
		work.finish(t, "upgraded", "downgraded")
		check(t)
	})

	t.Run("both versions at once", func(t *testing.T) {
		e := e.cluster.env(t)
		first := start(t, controllerBinary)
		check := e.still(t)
		began := time.Now()
		second := start(t, other)
		work := e.startWork(t)
		work.waitForChanges(t, 60)
		first.stop(t)
		work.waitForChanges(t, 30)
		start(t, controllerBinary)
		work.waitForChanges(t, 60)
		second.stop(t)
		work.finish(t)
		check(t)

		// Three processes have written, and the older version updates the status.
		// They report in different words, so each overwrites the status of the other. Each writes five times at once,
		// three times in the next 7 s, and then with a delay that begins with 8 s, less a fifth.
		rounds := 1 + math.Ceil(time.Since(began).Seconds()/6.4)
		for i := range stillFoos {
			status := fmt.Sprintf(" foos/status %s/still-%d: 200", e.namespace, i)
			n := e.countWrites(t, "patch"+status) + e.countWrites(t, "update"+status)
			if n > 3*8+int(2*rounds) {
				t.Errorf("the status of Foo still-%d was written %d times in %s", i, n, time.Since(began))
			}
		}
	})
}

// waitUntilReady waits until the readiness probe succeeds.
func (p *process) waitUntilReady(t *testing.T) {
	t.Helper()
	url := "http://" + p.address(t, "health") + "/readyz"
	until(t, "the controller is ready", func(context.Context) (bool, error) {
		status, _ := fetch(t, url, "")
		return status == http.StatusOK, nil
	})
}
