package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestMakeClusterRunsPodsAndLeavesNothingBehind(t *testing.T) {
	waitForRoom(t)
	skipWithoutRoot(t)
	for _, test := range []struct {
		name string
		env  string
		end  func(*testing.T, *exec.Cmd)
	}{
		{"when it is asked to end once it is ready", "CLUSTER_UNTIL_READY=1", func(*testing.T, *exec.Cmd) {}},
		{"on Ctrl-C while a pod runs", "CLUSTER_UNTIL_READY=", func(t *testing.T, cmd *exec.Cmd) {
			checkSecondCluster(t, cmd.Dir, "hack/cluster.sh")
			checkSecondCluster(t, cmd.Dir, "hack/run.sh")
			startClusterPod(t, cmd.Dir)
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command("hack/cluster.sh")
			cmd.Dir = newScriptTree(t, "hack/cluster.sh", "hack/run.sh", "hack/local.sh") // With a .cluster of its own.
			cmd.Env = append(os.Environ(), "CLUSTER_DIR=", test.env)
			out := playScript(t, cmd, "Ctrl-C stops everything and removes .cluster", func(cmd *exec.Cmd) error {
				test.end(t, cmd)
				return nil
			})
			for _, want := range []string{"make image deploy", "source .cluster/env\n", "Nothing is left behind."} {
				if !strings.Contains(out, want) {
					t.Errorf("the output lacks %q", want)
				}
			}
			if !regexp.MustCompile(`(?m)^node-0 +Ready `).MatchString(out) {
				t.Error("the output does not show that the node is ready")
			}
			if _, err := os.Stat(filepath.Join(cmd.Dir, ".cluster")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("files are left behind: %v", err)
			}
			until(t, "no process is left", func(context.Context) (bool, error) { // The kernel ends those of the pods.
				return len(processesWith(t, filepath.Dir(cmd.Dir))) == 0, nil
			})
		})
	}
}

// A second one must not remove the files of the first, which may not answer yet.
func TestMakeRunAndMakeClusterAreRefusedWhileAnotherOneStarts(t *testing.T) {
	skipWithoutRoot(t)
	tree := newScriptTree(t, "hack/cluster.sh", "hack/run.sh", "hack/local.sh")
	dir := filepath.Join(tree, ".cluster")
	if err := os.MkdirAll(filepath.Join(dir, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	locked, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := syscall.Flock(int(locked.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	checkSecondCluster(t, tree, "hack/cluster.sh")
	checkSecondCluster(t, tree, "hack/run.sh")
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
		t.Errorf("the files of the first one: %v", err)
	}
}

// checkSecondCluster checks that a second cluster in a directory is refused, with one line.
func checkSecondCluster(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command(script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CLUSTER_DIR=", "CLUSTER_UNTIL_READY=1", "RUN_UNTIL_READY=1")
	out, err := cmd.CombinedOutput()
	const want = "A cluster runs in .cluster already, or starts or stops."
	if err == nil || !strings.HasPrefix(string(out), want) || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%s as a second one ended with %v:\n%s", script, err, out)
	}
}

// startClusterPod starts a pod in the cluster of a directory, and waits until it runs.
func startClusterPod(t *testing.T, dir string) {
	t.Helper()
	kubectl := func(args ...string) (string, error) {
		cmd := exec.Command("bin/localcluster", append([]string{"kubectl", "--dir", ".cluster", "--"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	until(t, "a pod is accepted", func(context.Context) (bool, error) { // Its ServiceAccount may not exist yet.
		out, err := kubectl("run", "real", "--image="+workload)
		if err != nil && !strings.Contains(out, "serviceaccount") {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return err == nil, nil
	})
	if out, err := kubectl("wait", "--for=condition=Ready", "pod/real", "--timeout="+eventually.String()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
