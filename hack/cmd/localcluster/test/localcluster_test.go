package localcluster_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTwoClustersRunSideBySide(t *testing.T) {
	one, two := sharedCluster(t), startCluster(t)
	one.mustKubectl(t, "create", "configmap", "only-in-one")
	if out, err := two.kubectl(t, "get", "configmap", "only-in-one"); err == nil {
		t.Errorf("the other cluster has it too: %s", out)
	}
	for _, up := range []*upRun{one, two} {
		up.mustKubectl(t, "run", "side-by-side", "--image=nginx")
		up.mustKubectl(t, "wait", "--for=condition=Ready", "pod/side-by-side", "--timeout=30s")
	}
}

func TestPodsOfAnImageTaggedNeverReadyWait(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "deployment", "stuck", "--image=nginx:never-ready")
	up.mustKubectl(t, "patch", "deployment", "stuck", "-p", `{"spec":{"progressDeadlineSeconds":1}}`)
	up.mustKubectl(t, "wait", "--for=condition=Progressing=false", "deployment/stuck", "--timeout=30s")
	waiting := up.mustKubectl(t, "get", "pods", "-l", "app=stuck", "-o",
		"jsonpath={.items[*].status.phase} {.items[*].status.containerStatuses[*].state.waiting.reason}")
	if waiting != "Pending ImagePullBackOff" {
		t.Errorf("the pod is %s", waiting)
	}
	up.mustKubectl(t, "set", "image", "deployment/stuck", "nginx=nginx:1")
	up.mustKubectl(t, "rollout", "status", "deployment/stuck", "--timeout=30s")
}

func TestKubeconfigIsForItsOwnerOnly(t *testing.T) {
	up := sharedCluster(t)
	info, err := os.Stat(filepath.Join(up.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	out := up.mustKubectl(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}")
	if !strings.Contains(out, "system:masters") {
		t.Errorf("groups of the administrator: %s", out)
	}
}

func TestEtcdNeedsAClientCertificate(t *testing.T) {
	up := sharedCluster(t)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	resp, err := client.Get("https://" + up.address("etcd") + "/health")
	if err == nil {
		resp.Body.Close()
		t.Fatalf("etcd answers without a client certificate: %s", resp.Status)
	}
	if !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("refused, but not because of the missing certificate: %v", err)
	}
}

func TestDataSurvivesOutages(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "configmap", "survivor")
	for _, component := range []string{"kube-apiserver", "etcd"} {
		mustLocalcluster(t, "kill", component, "--dir", up.dir)
		if out, err := up.kubectl(t, "get", "configmap", "survivor", "--request-timeout=2s"); err == nil {
			t.Errorf("without %s: %s", component, out)
		}
		mustLocalcluster(t, "start", "--dir", up.dir, component)
		up.mustKubectl(t, "get", "configmap", "survivor")
	}
	// The controllers have survived the outages.
	for _, component := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		mustLocalcluster(t, "kill", component, "--dir", up.dir)
		mustLocalcluster(t, "start", component, "--dir", up.dir)
	}
	up.mustKubectl(t, "create", "deployment", "after", "--image=nginx")
	up.mustKubectl(t, "wait", "--for=condition=Available", "deployment/after", "--timeout=60s")
}

func TestErrorsOfUsersHaveInstructions(t *testing.T) {
	up := sharedCluster(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"a second up", []string{"up", "--dir", up.dir}, "a cluster is running in " + up.dir + " already"},
		{"no directory", []string{"up"}, "give the directory of the cluster with --dir D"},
		{"unknown set", []string{"up", "--dir", nowhere, "--components=some"}, "--components=some: choose api or all"},
		{"unknown component", []string{"kill", "kubelet", "--dir", up.dir},
			`unknown component "kubelet": choose one of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok`},
		{"no component", []string{"start", "--dir", up.dir},
			"start takes one component: choose one of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok"},
		{"started twice", []string{"start", "etcd", "--dir", up.dir}, "etcd is running already"},
		{"nothing to kill", []string{"kill", "etcd", "--dir", nowhere},
			fmt.Sprintf("no cluster is running in %s (start one with: bin/localcluster up --dir '%s')", nowhere, nowhere)},
		{"nothing to ask", []string{"kubectl", "--dir", nowhere, "--", "get", "pods"},
			fmt.Sprintf("there is no cluster in %s: no kubeconfig (start one with: bin/localcluster up --dir '%s'; "+
				"make run, make cluster and make tutorial print the line for theirs)",
				nowhere, nowhere)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := localcluster(t, test.args...)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || out != "localcluster: "+test.want {
				t.Errorf("got %v: %s\nwant exit code 1: localcluster: %s", err, out, test.want)
			}
		})
	}
}

func TestSIGINTStopsEverything(t *testing.T) {
	up := startCluster(t)
	pids := up.pids()
	if len(pids) != 5 {
		t.Fatalf("components: %v", pids)
	}
	for name, pid := range pids {
		if group, err := syscall.Getpgid(pid); err != nil || group != pid {
			t.Errorf("%s is not in a process group of its own (%v): Ctrl-C would end it", name, err)
		}
	}
	up.signal(t, syscall.SIGINT)
	expectExit(t, up, 0)
	expectNothingLeft(t, up)
}

func TestASecondSignalDoesNotWait(t *testing.T) {
	up := startCluster(t, "--components=api")
	// A component that cannot stop in time.
	if err := syscall.Kill(up.pids()["kube-apiserver"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	up.signal(t, syscall.SIGINT)
	eventually(t, stopDeadline, "up is stopping", func() error {
		if !up.printed("stopping: interrupt") {
			return fmt.Errorf("up has printed:\n%s", up.output())
		}
		return nil
	})
	up.signal(t, syscall.SIGINT)
	expectExit(t, up, 1)
	expectNothingLeft(t, up)
}

func TestSIGKILLLeavesNoOrphans(t *testing.T) {
	up := startCluster(t)
	up.signal(t, syscall.SIGKILL)
	expectExit(t, up, -1)
	expectNothingLeft(t, up)
}

func TestADeathIsReported(t *testing.T) {
	up := startCluster(t, "--components=api")
	if err := syscall.Kill(up.pids()["kube-apiserver"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	expectExit(t, up, 1)
	expectNothingLeft(t, up)
	expectDeath(t, up, "kube-apiserver", "signal: killed")
}

func TestADeathDuringStartIsReported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// A file where etcd wants a directory.
	if err := os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	up := launchCluster(t, dir)
	expectExit(t, up, 1)
	expectDeath(t, up, "etcd", "exit status 1")
}

// expectDeath checks the report of a death: the component, its exit status, and the end of its log.
func expectDeath(t *testing.T, up *upRun, component, how string) {
	t.Helper()
	report := up.stderr.String()
	first := fmt.Sprintf("localcluster: %s died: %s. The end of %s:\n", component, how,
		filepath.Join(up.dir, "logs", component+".log"))
	if !strings.HasPrefix(report, first) {
		t.Errorf("the report does not begin with %q:\n%s", first, report)
	}
	log, err := os.ReadFile(filepath.Join(up.dir, "logs", component+".log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	last := lines[len(lines)-1]
	if last == "" || !strings.HasSuffix(strings.TrimSpace(report), last) {
		t.Errorf("the report does not end with the last line of the log, %q:\n%s", last, report)
	}
	if n := strings.Count(report, "\n"); n > 21 {
		t.Errorf("the report has %d lines", n)
	}
}

func TestADirectoryIsStartedAgainWithItsData(t *testing.T) {
	up := startCluster(t, "--components=api")
	up.mustKubectl(t, "create", "configmap", "from-the-first-run")
	up.stdin.Close()
	expectExit(t, up, 0)

	again := launchCluster(t, up.dir)
	awaitReady(t, again)
	again.mustKubectl(t, "get", "configmap", "from-the-first-run")
	again.mustKubectl(t, "run", "first", "--image=nginx") // Works at once, because ready means that pods can run.
	again.mustKubectl(t, "wait", "--for=condition=Ready", "pod/first", "--timeout=30s")
}
