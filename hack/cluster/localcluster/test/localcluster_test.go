package localcluster_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

func TestADeploymentBecomesAvailable(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "deployment", "two", "--image=nginx", "--replicas=2")
	up.mustKubectl(t, "wait", "--for=condition=Available", "deployment/two", "--timeout=30s")
	eventually(t, 30*time.Second, "2 replicas available", func() error {
		return want("2", up.mustKubectl(t, "get", "deployment", "two", "-o", "jsonpath={.status.availableReplicas}"))
	})
}

func TestPodsOfAnImageTaggedNeverReadyWait(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "deployment", "stuck", "--image=nginx:never-ready")
	up.mustKubectl(t, "patch", "deployment", "stuck", "-p", `{"spec":{"progressDeadlineSeconds":1}}`)
	up.mustKubectl(t, "wait", "--for=condition=Progressing=false", "deployment/stuck", "--timeout=30s")
	if err := want("Pending ImagePullBackOff", up.mustKubectl(t, "get", "pods", "-l", "app=stuck",
		"-o", "jsonpath={.items[*].status.phase} "+
			"{.items[*].status.containerStatuses[*].state.waiting.reason}")); err != nil {
		t.Error(err)
	}
	up.mustKubectl(t, "set", "image", "deployment/stuck", "nginx=nginx:1")
	up.mustKubectl(t, "rollout", "status", "deployment/stuck", "--timeout=30s")
}

func TestAnAutoscalerActsWithinSeconds(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "deployment", "scaled", "--image=nginx", "--replicas=3")
	// maxReplicas is enforced without metrics.
	up.mustKubectl(t, "autoscale", "deployment", "scaled", "--min=1", "--max=2", "--cpu=50%")
	eventually(t, 10*time.Second, "scaled down", func() error {
		return want("2", up.mustKubectl(t, "get", "deployment", "scaled", "-o", "jsonpath={.spec.replicas}"))
	})
}

func TestTheGarbageCollectorDeletesDependents(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "deployment", "parent", "--image=nginx")
	up.mustKubectl(t, "rollout", "status", "deployment/parent", "--timeout=30s")
	up.mustKubectl(t, "delete", "deployment", "parent")
	eventually(t, 30*time.Second, "ReplicaSet and Pod are gone", func() error {
		return want("", up.mustKubectl(t, "get", "replicasets,pods", "-l", "app=parent", "-o", "name"))
	})
}

func TestVersionsAreReal(t *testing.T) {
	out := sharedCluster(t).mustKubectl(t, "version")
	if own := mustLocalcluster(t, "--version"); own != "Kubernetes v1.37.2" {
		t.Errorf("localcluster --version prints %q", own)
	}
	for _, line := range []string{"Client Version: v1.37.2", "Server Version: v1.37.2"} {
		if !strings.Contains(out, line) {
			t.Errorf("kubectl version does not print %q:\n%s", line, out)
		}
	}
}

func TestKubectlExitsAsKubectlDoes(t *testing.T) {
	up := sharedCluster(t)
	out, err := up.kubectl(t, "get", "configmap", "no-such-thing")
	if exitCode(err) != 1 || out != `Error from server (NotFound): configmaps "no-such-thing" not found` {
		t.Errorf("got %v: %s", err, out)
	}
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

func TestRBACIsEnforced(t *testing.T) {
	up := sharedCluster(t)
	server := up.mustKubectl(t, "config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.server}")
	ca, err := base64.StdEncoding.DecodeString(
		up.mustKubectl(t, "config", "view", "--raw", "-o",
			"jsonpath={.clusters[0].cluster.certificate-authority-data}"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	up.mustKubectl(t, "create", "serviceaccount", "nobody")
	token := up.mustKubectl(t, "create", "token", "nobody")
	get := func() string {
		req, err := http.NewRequest(http.MethodGet, server+"/api/v1/namespaces/default/configmaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.Status
	}

	if err := want("403 Forbidden", get()); err != nil {
		t.Error(err)
	}
	up.mustKubectl(t, "create", "rolebinding", "nobody-may-look", "--clusterrole=view",
		"--serviceaccount=default:nobody")
	eventually(t, 10*time.Second, "the binding works", func() error { return want("200 OK", get()) })
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

func TestAnsweredRequestsAreInTheAuditLog(t *testing.T) {
	up := sharedCluster(t)
	up.mustKubectl(t, "create", "configmap", "audited")
	f, err := os.Open(filepath.Join(up.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := 0
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event struct {
			Level, Stage, Verb string
			ObjectRef          struct{ Resource, Name string }
			ResponseStatus     struct{ Code int }
		}
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			break // The last line may be incomplete.
		}
		if event.Level != "Metadata" || event.Stage != "ResponseComplete" && event.Stage != "Panic" {
			t.Errorf("level %s, stage %s", event.Level, event.Stage)
		}
		created := event.Verb == "create" && event.ResponseStatus.Code == http.StatusCreated
		if created && event.ObjectRef.Name == "audited" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("found %d times, want 1", found)
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
			if exitCode(err) != 1 || out != "localcluster: "+test.want {
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

func TestSIGTERMStopsEverything(t *testing.T) {
	up := startCluster(t, "--components=api")
	if pids := up.pids(); len(pids) != 2 {
		t.Errorf("components: %v", pids)
	}
	up.signal(t, syscall.SIGTERM)
	expectExit(t, up, 0)
	expectNothingLeft(t, up)
}

func TestASignalDuringStartStopsEverything(t *testing.T) {
	up := launchCluster(t, filepath.Join(t.TempDir(), "cluster"))
	eventually(t, upDeadline, "kube-apiserver is started", func() error {
		if up.pids()["kube-apiserver"] == 0 {
			return fmt.Errorf("up has printed:\n%s", up.output())
		}
		return nil
	})
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

func TestClosedStdinStopsEverything(t *testing.T) {
	up := startCluster(t, "--components=api")
	up.stdin.Close()
	expectExit(t, up, 0)
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

// Two sizes of a disk: etcd does not start with the first one, and a certificate does not fit with the second one.
func TestAFullDiskIsNamed(t *testing.T) {
	needBinary(t)
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine permits no user namespaces: %v: %s", err, out)
	}
	for _, size := range []string{"24m", "4k"} {
		const script = `mount -t tmpfs -o size="$1" none "$2" && exec "$0" up --dir "$2/cluster"`
		disk := t.TempDir()
		out, err := exec.Command("unshare", "-rm", "sh", "-c", script, binary, size, disk).CombinedOutput()
		_, report, _ := strings.Cut(string(out), "localcluster: ")
		if exitCode(err) != 1 || !strings.Contains(report, "no space left on device") ||
			!strings.Contains(report, disk+"/cluster") || strings.Contains(report, "\ngoroutine ") {
			t.Errorf("a disk of %s: %v\n%s", size, err, out)
		}
	}
}

func TestADeathAfterStartingAgainIsReportedToBoth(t *testing.T) {
	up := startCluster(t, "--components=api")
	mustLocalcluster(t, "kill", "etcd", "--dir", up.dir)
	// Another process takes the free port.
	squatter, err := net.Listen("tcp", up.address("etcd"))
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	out, err := localcluster(t, "start", "etcd", "--dir", up.dir)
	if exitCode(err) != 1 || !strings.HasPrefix(out, "localcluster: etcd died: exit status 1.") {
		t.Errorf("start returned %v: %s", err, out)
	}
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

func want(want, have string) error {
	if have != want {
		return fmt.Errorf("have %q, want %q", have, want)
	}
	return nil
}
