package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"example.com/foo-controller/hack/tools/play"
)

// This file executes the commands in documents, and compares what they print with the pages.

// TestTryWithMakeRun does what a reader does who follows docs/try.md: `make run` in one terminal, the commands in
// another one, and Ctrl-C.
func TestTryWithMakeRun(t *testing.T) {
	waitForRoom(t)
	scenes := scenesOf(t, "docs/try.md")
	if len(scenes) < 3 || scenes[0].Command != "make run" || scenes[1].Command != "source .cluster/env" {
		t.Fatal("docs/try.md: the first commands are not `make run` and `source .cluster/env`")
	}
	out := playMake(t, "docs/try.md", "run", makeRunIsReady, scenes[2:])
	if scaled := regexp.MustCompile("example-foo +5 +5 +5 +True"); !scaled.MatchString(out) {
		t.Errorf("make run does not show %v:\n%s", scaled, out)
	}
}

// playMake runs a target of make that starts a cluster, in another terminal the scenes of a page, and then Ctrl-C. It
// returns the output of make.
func playMake(t *testing.T, page, target, ready string, scenes []play.Scene) string {
	t.Helper()
	// Other tests use the binaries at the same time, so they are not built again.
	cmd := exec.Command("make", "--no-print-directory", "--old-file=bin/foo-controller", "--old-file=bin/localcluster",
		"--old-file=bin/play", target)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // What `make test-e2e` sets; a reader has none of it.
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS")
	})
	out := playMakeRun(t, cmd, ready, func(dir string) error {
		prelude := fmt.Sprintf("export CLUSTER_DIR=%[1]q\nsource %[1]q/env", dir)
		playScenes(t, page, prelude, scenes)
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	})
	if strings.Contains(out, "make: ***") {
		t.Errorf("make %s ended with an error:\n%s", target, out)
	}
	return out
}

// TestPlay does what a reader of README.md and of hack/play/README.md does: `make play` in one terminal, the
// commands in another one, and Ctrl-C.
func TestPlay(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	const page = "hack/play/README.md"
	scenes := scenesOf(t, page)
	for name, first := range map[string]play.Scene{"README.md": scenesOf(t, "README.md")[0], page: scenes[0]} {
		if first.Command != "make play" {
			t.Errorf("%s begins with %q", name, first.Command)
		}
	}
	out := playMake(t, page, "play", makePlayIsReady, scenes[2:])
	if !strings.HasPrefix(out, "Simulated: ") {
		t.Errorf("make play does not begin with what is simulated:\n%s", out)
	}
	if scaled := regexp.MustCompile("example-foo +5 +5 +5 +True"); !scaled.MatchString(out) {
		t.Errorf("make play does not show %v:\n%s", scaled, out)
	}
}

// TestReadmeFirstLook plays the scenario of README.md.
func TestReadmeFirstLook(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	t.Cleanup(func() { _ = os.Remove("docs/scenarios/try.txt") }) // The last command of the page has removed it.
	playScenes(t, "README.md", "", scenesOf(t, "README.md"))
}

// TestOperationsMetricsPermission executes the command of docs/operations.md that lets Prometheus read the metrics.
func TestOperationsMetricsPermission(t *testing.T) {
	e := newEnv(t, apiCluster)
	prometheus := []string{"auth", "can-i", "get", "/metrics", "--as=system:serviceaccount:monitoring:prometheus"}
	if out, err := e.try("", prometheus...); err == nil {
		t.Fatalf("it has the permission already: %s", out)
	}
	t.Cleanup(func() { e.kubectl(t, "", "delete", "clusterrolebinding", "read-foo-metrics") })
	playScenes(t, operationsPage, kubectlFunction(e.Kubectl()), scenesOf(t, operationsPage))
	until(t, "Prometheus may read the metrics", func(context.Context) (bool, error) {
		_, err := e.try("", prometheus...)
		return err == nil, nil
	})
}

// TestTheLevelOfTheLogIsSetByTheCommandOfOperations runs it for another port.
func TestTheLevelOfTheLogIsSetByTheCommandOfOperations(t *testing.T) {
	e := newEnv(t, apiCluster)
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--namespace", e.namespace,
		"--debug-bind-address=127.0.0.1:0")
	curl := fmt.Sprintf(`curl() { command curl "${@/localhost:6060/%s}"; }`, p.address(t, "debug"))
	playScenes(t, operationsPage, curl, scenesOf(t, operationsPage))
	p.waitForLog(t, "Set the level of the log")
}

// kubectlFunction returns a shell function kubectl that runs cmd.
func kubectlFunction(cmd *exec.Cmd) string {
	return fmt.Sprintf("kubectl() { %s \"$@\"; }", strings.Join(cmd.Args, " "))
}

// scenesOf returns the scenes of a page that this test plays.
func scenesOf(t *testing.T, page string) []play.Scene {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	scenes := play.Scenes(string(text), test)
	if len(scenes) == 0 {
		t.Fatalf("%s has no commands for this test", page)
	}
	return scenes
}

func playScenes(t *testing.T, page, prelude string, scenes []play.Scene) {
	t.Helper()
	stage := &play.Stage{Root: ".", Prelude: prelude, Out: t.Output()}
	if err := stage.Play(t.Context(), scenes); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}
