package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rootWith returns a directory in which bin/localcluster is a script.
func rootWith(t *testing.T, script string) string {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir()) // Control planes create their files there.
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	script = "#!/bin/sh\n" + script
	if err := os.WriteFile(filepath.Join(root, "bin/localcluster"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func expectNoFiles(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

func TestAControlPlaneRunsUntilItIsStopped(t *testing.T) {
	root := rootWith(t, `
		[ "$1" = up ] || { echo "$@"; exit; }
		echo "$@" >"$3/kubeconfig"
		echo starting
		echo ready
		read -r line # Until standard input ends.
		echo ended >"$TMPDIR/../ended"`)
	ended := filepath.Join(os.TempDir(), "../ended")
	c, err := Start(root, "--components=api")
	if err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(c.Kubeconfig())
	if err != nil || !strings.HasSuffix(string(args), " --components=api\n") {
		t.Errorf("it was started with %q, %v; want the flag among it", args, err)
	}
	if _, err := os.Stat(ended); err == nil {
		t.Error("it ended before it was stopped")
	}
	out, err := c.Kubectl("get", "pods").Output()
	if want := "kubectl --dir " + c.dir + " -- get pods\n"; err != nil || string(out) != want {
		t.Errorf("kubectl ran as %q, %v; want %q", out, err, want)
	}
	c.Stop()
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("Stop did not wait for its end: %v", err)
	}
	expectNoFiles(t)
}

func TestAControlPlaneThatDoesNotStartIsReportedWithItsOutput(t *testing.T) {
	root := rootWith(t, "echo starting etcd; echo no free port >&2; exit 1")
	_, err := Start(root)
	for _, want := range []string{"before it was ready", "starting etcd", "no free port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	expectNoFiles(t)
}

func TestTheErrorForABinaryThatIsMissingNamesTheCommandThatBuildsIt(t *testing.T) {
	if _, err := Start(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make bin/localcluster") {
		t.Errorf("error %v, want the command in it", err)
	}
}

func TestOlderCRD(t *testing.T) {
	const crd = "../../../artifacts/crd/samplecontroller.k8s.io_foos.yaml"
	older, err := OlderCRD(crd)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(older, "format.datetime()") || !strings.Contains(older, "deploymentName") {
		t.Error("it has the rule for times, or lacks other parts")
	}
	changed := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(changed, []byte("maxLength: 65\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OlderCRD(changed); err == nil {
		t.Error("a CRD without the rule gives no error")
	}
}
