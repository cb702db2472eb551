package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A madeRelease is what `make release` wrote and `make push` pushed.
type madeRelease struct{ dir, version, image string }

// newRelease makes a release of the working tree, with what is changed in it, for this machine's platform, and pushes it.
func newRelease(t *testing.T, registry, version string) *madeRelease {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	cmd := exec.Command("bash", "-c", `set -o errexit
		commit=$(git -c user.name=a -c user.email=a@example.com stash create)
		git clone -q . "$0" && cd "$0" && git checkout -q "${commit:-HEAD}"
		unset MAKEFLAGS MAKELEVEL
		make release VERSION="v$1" REGISTRY="$2" ARGS="--platforms linux/$3" && make push REGISTRY="$2"`,
		clone, version, registry, runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var layout struct{ Manifests []struct{ Digest string } }
	dir := filepath.Join(clone, "bin/release")
	index, err := os.ReadFile(filepath.Join(dir, "layout/index.json"))
	if err := errors.Join(err, json.Unmarshal(index, &layout)); err != nil {
		t.Fatal(err)
	}
	return &madeRelease{dir: dir, version: version, image: registry + "/foo-controller@" + layout.Manifests[0].Digest}
}

// testReleases installs two releases on nodes that pull them from a registry, in each way that docs/install.md has: then
// both copies run the image with the digest of the release. A Foo from before stays.
func testReleases(t *testing.T, e *podEnv) {
	e.registry.open.Store(true)
	registry := "127.0.0.1:" + e.registry.port + "/me"
	old, next := newRelease(t, registry, "0.0.1-rc.1"), newRelease(t, registry, "0.0.1-rc.2")
	name, digest, _ := strings.Cut(next.image, "@")
	kustomization := overlay(t, "resources: [../../artifacts/crd, ../../"+manifests+"]\n"+
		"images: [{name: foo-controller, newName: \""+name+"\", digest: \""+digest+"\"}]\n")
	for _, step := range []struct {
		running *madeRelease
		tool    func(t *testing.T, args ...string)
		command string
	}{
		{old, e.helm, "install foo-controller oci://" + registry + "/charts/foo-controller --plain-http --version=" +
			old.version + " --create-namespace --take-ownership --force-conflicts --wait"},
		{next, e.helm, "upgrade foo-controller oci://" + registry + "/charts/foo-controller --plain-http --version=" +
			next.version + " --wait"},
		{old, e.helm, "rollback foo-controller 1 --wait"},
		{nil, e.helm, "uninstall foo-controller --wait"},
		{next, e.apply, "-f " + next.dir + "/install.yaml"},
		{old, e.apply, "-f " + old.dir + "/install.yaml"},
		{next, e.apply, "-k " + kustomization},
	} {
		step.tool(t, strings.Fields(step.command)...)
		until(t, step.command, func(context.Context) (bool, error) {
			pods := e.controllerPods(t)
			for _, pod := range pods {
				if !isPodReady(pod) || containerOf(pod).ImageID != step.running.image {
					return false, nil
				}
			}
			return len(pods) == 2 || step.running == nil, nil
		})
		if foo := e.foo(t, keptFoo); foo.DeletionTimestamp != nil {
			t.Errorf("%s deletes a Foo", step.command)
		}
	}
	e.createReady(t, "released", v1alpha1.FooSpec{DeploymentName: "released", Image: workload})
}

func (e *podEnv) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("bin/helm", append(args, "--namespace", systemNamespace, "--kubeconfig", e.Kubeconfig())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (e *podEnv) apply(t *testing.T, args ...string) {
	t.Helper()
	e.kubectl(t, "", append([]string{"apply"}, args...)...)
}
