package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/hack/tools/play"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file executes the commands of docs/install.md and docs/monitoring.md.

const installPage = "docs/install.md"

// home makes a home directory whose .kube/config is for the cluster, and returns it.
func (e *env) home(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	config, err := os.ReadFile(e.Kubeconfig())
	if err := errors.Join(err, os.Mkdir(filepath.Join(home, ".kube"), 0o700),
		os.WriteFile(filepath.Join(home, ".kube/config"), config, 0o600)); err != nil {
		t.Fatal(err)
	}
	return home
}

// installKinds installs CustomResourceDefinitions of others: files in a Go module, of which nothing is compiled.
func (e *env) installKinds(t *testing.T, module, files string) {
	t.Helper()
	var found struct{ Dir string }
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err := errors.Join(err, json.Unmarshal(out, &found)); err != nil {
		t.Skipf("%s is not here, and cannot be downloaded: %v", module, err)
	}
	e.kubectl(t, "", "apply", "--server-side", "-f", filepath.Join(found.Dir, files))
	until(t, "the kinds are there", func(context.Context) (bool, error) { // kubectl wait fails if there is no condition yet.
		_, err := e.try("", "wait", "--for=condition=Established", "crds", "--all")
		return err == nil, nil
	})
}

// installYAML is install.yaml of a release.
func (c *cluster) installYAML(t *testing.T) string {
	t.Helper()
	return c.kubectl(t, "", "kustomize", overlay(t, "resources: [../../artifacts/crd, ../../"+manifests+"]\n"+
		"images: [{name: foo-controller, newName: registry.example/me/foo-controller, newTag: v1.2.3}]\n"))
}

// From the installation to the end of the last Foo. The pods of the controller are simulated, so a process does their
// work. The Foos move to the same cluster, after they were deleted.
func TestTheCommandsOfInstall(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	e.kubectl(t, "", "delete", "namespace", "foo-system") // Of newDedicatedEnv.
	startController(t, "--kubeconfig", e.Kubeconfig())
	home := e.home(t)
	t.Cleanup(func() { _ = os.Remove("bin/foos.yaml") })
	prelude := "export HOME='" + home + "'\n" +
		`make() { command make --no-print-directory --old-file=bin/localcluster "$@"; }` + "\n" +
		kubectlFunction(e.Kubectl())
	e = &env{cluster: e.cluster, namespace: "default"}
	var before *v1alpha1.Foo
	for _, scene := range scenesOf(t, installPage) {
		moves := strings.Contains(scene.Command, "bin/foos.yaml")
		if moves {
			e.kubectl(t, "", "label", "foo/example-foo", "team=1")
			before = e.foo(t, "example-foo")
			export, apply, _ := strings.Cut(scene.Command, "\nkubectl apply")
			scene.Command = export + "\nkubectl delete foos --all\nkubectl apply" + apply
		}
		playScenes(t, installPage, prelude, []play.Scene{scene})
		if t.Failed() {
			return
		}
		if moves {
			e.waitForReason(t, "example-foo", v1alpha1.ReasonAvailable)
			after := e.foo(t, "example-foo")
			if diff := cmp.Diff(before.Spec, after.Spec); diff != "" || after.Labels["team"] != "1" || after.UID == before.UID {
				t.Errorf("the Foo has the labels %v and is another one: %t (-before +after):\n%s", after.Labels,
					after.UID != before.UID, diff)
			}
		}
	}
	until(t, "the Deployment is deleted", func(context.Context) (bool, error) { return !e.exists(t, "example-foo"), nil })
	e.checkNothingLeft(t)
}

// The controller runs from its source until Ctrl-C.
func TestTheProgramOfInstall(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	cmd := exec.Command("bash", "-c", scenesOf(t, installPage)[0].Command)
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.Fields(string(caches))
	cmd.Env = append(os.Environ(), "HOME="+e.home(t), "GOCACHE="+cache[0], "GOMODCACHE="+cache[1], "GOPATH="+cache[2])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := startProcess(t, cmd)
	p.waitForLog(t, `"Started"`)
	p.signalled, p.code = true, 1 // The exit code of go run after an interrupt.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
}

// The API server has the kinds of prometheus-operator.
func TestTheCommandsOfMonitoring(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.installKinds(t, "github.com/prometheus-operator/prometheus-operator@v0.85.0",
		"example/prometheus-operator-crd/monitoring.coreos.com_*.yaml")
	e.kubectl(t, "", "create", "namespace", "monitoring")
	const page = "docs/monitoring.md"
	playScenes(t, page, kubectlFunction(e.Kubectl()), scenesOf(t, page))
	for _, want := range []string{"servicemonitor/foo-controller", "prometheusrule/foo-controller"} {
		e.kubectl(t, "", "get", want, "-n", "foo-system")
	}
}
