package e2e

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestAnInvalidConfigurationEndsWithOneLine(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("clusters: [\n- not\n  yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		flags []string
		env   string
		want  string
	}{
		{
			name:  "a kubeconfig that does not parse",
			flags: []string{"--kubeconfig", broken},
			want:  broken,
		},
		{
			name: "a kubeconfig that does not parse, given by the environment",
			env:  "KUBECONFIG=" + broken,
			want: broken,
		},
		{
			name:  "a kubeconfig that does not exist",
			flags: []string{"-kubeconfig=/does/not/exist"},
			want:  "/does/not/exist",
		},
		{
			name: "no configuration at all",
			env:  "HOME=" + t.TempDir(),
			want: "--kubeconfig",
		},
		{
			name:  "a context that does not exist",
			flags: []string{"--master=http://127.0.0.1:1", "--context=nowhere"},
			want:  "nowhere",
		},
		{
			name:  "an unknown flag",
			flags: []string{"--no-such-flag"},
			want:  "no-such-flag",
		},
		{
			name:  "an argument that is not a flag",
			flags: []string{"start"},
			want:  `"start"`,
		},
		{
			name:  "a server that is not a URL",
			flags: []string{"--master=https://[::1"},
			want:  "::1",
		},
		{
			name:  "a rate of zero",
			flags: []string{"--master=http://127.0.0.1:1", "--kube-api-qps=0.1"},
			want:  "--kube-api-qps=0.1: give a rate of at least 1, or -1 for no limit",
		},
		{
			name:  "a namespace that cannot exist",
			flags: []string{"--namespace=Not_a_name"},
			want:  "Not_a_name",
		},
		{
			name:  "an election without a namespace",
			flags: []string{"--master=http://127.0.0.1:1", "--leader-elect"},
			want:  "--leader-elect-namespace",
		},
		{
			name:  "a certificate without a key",
			flags: []string{"--master=http://127.0.0.1:1", "--metrics-bind-address=:0", "--metrics-cert-file=cert.pem"},
			want:  "--metrics-bind-address",
		},
		{
			name:  "a debug address that others reach",
			flags: []string{"--master=http://127.0.0.1:1", "--debug-bind-address=:0"},
			want:  "--debug-bind-address",
		},
		{
			name:  "no workers",
			flags: []string{"--workers=0"},
			want:  "--workers",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(controllerBinary, test.flags...)
			cmd.Env = append(os.Environ(), "KUBECONFIG=", test.env)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit code 1", err)
			}
			if lines := strings.Count(string(out), "\n"); lines != 1 || !strings.Contains(string(out), test.want) {
				t.Errorf("printed %d lines, want one that contains %q:\n%s", lines, test.want, out)
			}
		})
	}
}

func TestHelpAndVersionExitWithSuccess(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	for flag, want := range map[string]string{
		"--help":    "-kubeconfig",
		"-h":        "~/.kube/config",
		"--version": "foo-controller ",
	} {
		if out, err := exec.Command(controllerBinary, flag).Output(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, printed %q, want %q in it", flag, err, out, want)
		}
	}
}

// TestEachChangeOfADeploymentIsOneLine also lets watches end, and expects no log line about that.
func TestEachChangeOfADeploymentIsOneLine(t *testing.T) {
	inParallel(t) // Its parts use the cluster.
	for _, level := range []string{"-v=0", "-v=2"} {
		t.Run(level, func(t *testing.T) {
			e := newEnv(t, apiCluster)
			proxy := newProxy(t, e.cluster)
			var watches atomic.Int32
			proxy.before = func(r *http.Request) {
				if r.URL.Query().Get("watch") == "" || watches.Add(1) > 6 {
					return
				}
				ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
				t.Cleanup(cancel)
				*r = *r.WithContext(ctx)
			}
			p := e.start(t, proxy, level)
			until(t, "watches have ended", func(context.Context) (bool, error) { return watches.Load() > 6, nil })
			e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
			e.waitForReason(t, "web", v1alpha1.ReasonCreating)
			e.editDeployment(t, "web", `{"spec":{"replicas":9}}`)
			p.waitForLog(t, "Corrected Deployment")
			e.createDeployment(t, "other", func(dep *appsv1.Deployment) { dep.OwnerReferences = nil })
			e.editFoo(t, "web", `{"spec":{"deploymentName":"other"}}`)
			p.waitForLog(t, "Foo became Stalled")
			e.editFoo(t, "web", `{"spec":{"deploymentName":"web"}}`)
			p.waitForLog(t, "Foo recovered from Stalled")
			for _, want := range []string{
				"Created Deployment", `fields="spec.replicas 9 -> 1"`, "Foo became Stalled", "Foo recovered from Stalled",
			} {
				if got := p.countLog(want); got != 1 {
					t.Errorf("%q is logged %d times, want once", want, got)
				}
			}
			noise := []string{"Feature gate", "UnhandledError"}
			if level == "-v=0" {
				noise = append(noise, "reflector")
			}
			for _, words := range noise {
				if got := p.countLog(words); got != 0 {
					t.Errorf("%q is logged %d times", words, got)
				}
			}
			if ids := regexp.MustCompile(`foo="[^"]*" reconcileID="[0-9a-f]{8}"`).FindString(p.log.String()); ids == "" {
				t.Error("no line has a reconcile id")
			}
		})
	}
}

func TestStopCompletesRunningSyncsAndStartsNoOthers(t *testing.T) {
	// One namespace has at most half of the workers.
	const foos, running = 1000, 4
	e := newEnv(t, apiCluster)
	for i := range foos {
		name := fmt.Sprintf("foo-%d", i)
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name})
	}

	proxy := newProxy(t, e.cluster)
	var mu sync.Mutex
	begun := 0    // How many syncs have sent a create in the namespace of this test.
	stopped := -1 // The value of begun when the signal was sent.
	hold := make(chan struct{})
	proxy.before = func(r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/namespaces/"+e.namespace+"/deployments") {
			return
		}
		mu.Lock()
		begun++
		mu.Unlock()
		<-hold
	}
	p := e.start(t, proxy, fmt.Sprintf("--workers=%d", 2*running))
	until(t, "as many requests are in flight as the namespace may have", func(context.Context) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return begun == running, nil
	})
	mu.Lock()
	stopped = begun
	mu.Unlock()
	p.signal(syscall.SIGTERM)
	p.waitForLog(t, `"Stopping`)
	close(hold)
	p.stop(t)

	mu.Lock()
	defer mu.Unlock()
	if more := begun - stopped; more > running {
		t.Errorf("%d further syncs after the signal, want at most one for each of the %d that ran", more, running)
	}
	list, err := e.kube.AppsV1().Deployments(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != begun {
		t.Errorf("%d Deployments exist, want one for each of the %d requests that were in flight",
			len(list.Items), begun)
	}
	reported := 0
	for i := range list.Items {
		foo := e.foo(t, list.Items[i].Name)
		if foo.Status.ObservedGeneration == foo.Generation {
			reported++
		}
	}
	if reported != begun {
		t.Errorf("%d of %d Foos have a status: the other syncs did not complete", reported, begun)
	}
}

func TestStopWaitsUntilEventsAreSent(t *testing.T) {
	e := newEnv(t, apiCluster)
	proxy := newProxy(t, e.cluster)
	_, release := proxy.hold(t, http.MethodPost, "/events")
	e.createDeployment(t, "web", func(*appsv1.Deployment) {})
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	p := e.start(t, proxy)
	until(t, "an event is being sent", func(context.Context) (bool, error) {
		return proxy.count(http.MethodPost, "/events") > 0, nil
	})
	p.signal(syscall.SIGTERM)
	p.waitForLog(t, `"Stopping`)
	release()
	p.stop(t)
	list, err := e.kube.EventsV1().Events(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("events: %v, %v, want the one that was being sent", list.Items, err)
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	e := newEnv(t, apiCluster)
	proxy := newProxy(t, e.cluster)
	_, release := proxy.hold(t, http.MethodPost, "")
	defer release()
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	p := e.start(t, proxy)
	until(t, "a request is in flight", func(context.Context) (bool, error) {
		return proxy.count(http.MethodPost, "/deployments") > 0, nil
	})
	for range 2 {
		p.signal(os.Interrupt)
		p.waitForLog(t, `"Stopping`)
	}
	p.code = 1
	p.stop(t)
}

func TestMakeRunShowsAReadyFooAndLeavesNothingBehind(t *testing.T) {
	waitForRoom(t)
	t.Run("when it is asked to end once the Foo is Ready", func(t *testing.T) {
		cmd := exec.Command("hack/run.sh")
		cmd.Env = append(os.Environ(), "RUN_UNTIL_READY=1")
		playMakeRun(t, cmd, makeRunIsReady, func(string) error { return nil })
	})
	t.Run("on SIGTERM", func(t *testing.T) { // TestTryWithMakeRun ends it with Ctrl-C.
		cmd := exec.Command("hack/run.sh")
		cmd.Env = append(os.Environ(), "RUN_UNTIL_READY=")
		playMakeRun(t, cmd, makeRunIsReady, func(dir string) error {
			checkPrintedCommands(t, cmd)
			checkTokenLifetime(t, dir)
			return cmd.Process.Signal(syscall.SIGTERM)
		})
	})
}

// checkPrintedCommands runs the commands that `make run` prints for another terminal.
func checkPrintedCommands(t *testing.T, run *exec.Cmd) {
	t.Helper()
	printed := regexp.MustCompile(`\n  source .*\n  k .*\n`).FindString(run.Stdout.(*syncBuffer).String())
	out, err := exec.Command("bash", "-c", printed).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "example-foo scaled") {
		t.Errorf("%s: %v: %s", printed, err, out)
	}
}

// checkTokenLifetime checks that the controller of `make run` can work as long as its cluster, with the rights of its
// own ServiceAccount. The certificates of the cluster are not renewed either.
func checkTokenLifetime(t *testing.T, dir string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(filepath.Join(dir, "controller.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Subject string `json:"sub"`
		Expires int64  `json:"exp"`
	}
	parts := strings.Split(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err := errors.Join(err, json.Unmarshal(decoded, &claims)); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(config.AuthInfos["admin"].ClientCertificateData)
	admin, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	expires, account := time.Unix(claims.Expires, 0), "system:serviceaccount:foo-system:foo-controller"
	if expires.Before(admin.NotAfter.Add(-time.Hour)) || claims.Subject != account {
		t.Errorf("the token is for %s until %s, the certificate of the administrator until %s", claims.Subject, expires,
			admin.NotAfter)
	}
}

const (
	makeRunIsReady  = "foo/example-foo is Ready with 2 of 2 replicas available"
	makePlayIsReady = "True      Available"
)

// playMakeRun starts `make run`, `make play` or the script of one, ends it when it is ready, and checks that nothing is
// left behind. end gets the directory of the cluster: another one than the checkout's, which somebody may use. It returns
// the output.
func playMakeRun(t *testing.T, cmd *exec.Cmd, ready string, end func(dir string) error) string {
	t.Helper()
	temp := t.TempDir()
	dir := filepath.Join(temp, "it's a cluster")
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, "CLUSTER_DIR="+dir)
	out := playScript(t, cmd, ready, func(*exec.Cmd) error { return end(dir) })
	for _, want := range []string{"NAME ", "Nothing is left behind."} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("files are left behind: %v", left)
	}
	if left := processesWith(t, temp); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
	return out
}

// playScript starts a script, waits until its output has the text ready, ends it, and waits until it has ended without
// an error. It returns the whole output.
func playScript(t *testing.T, cmd *exec.Cmd, ready string, end func(*exec.Cmd) error) string {
	t.Helper()
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A terminal sends Ctrl-C to the whole group.
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // It may still run.
			t.Logf("output:\n%s", out)
		}
	})
	for giveUp := time.After(5 * time.Minute); !strings.Contains(out.String(), ready); {
		select {
		case err := <-ended:
			t.Fatalf("the script ended before its output has %q: %v", ready, err)
		case <-giveUp:
			t.Fatalf("the output has no %q", ready)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := end(cmd); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		isMake := filepath.Base(cmd.Path) == "make" // After Ctrl-C, it ends by the signal.
		if err != nil && !(isMake && err.Error() == "signal: interrupt") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(eventually):
		t.Error("did not end")
	}
	if strings.Contains(out.String(), "killed everything") {
		t.Error("the control plane has got two signals")
	}
	return out.String()
}

// newScriptTree returns a new directory with scripts of the repository and the binaries, and nothing else.
func newScriptTree(t *testing.T, scripts ...string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(t.TempDir(), `it's a "tree"`) // As a user may call it.
	for _, dir := range []string{"hack", "bin"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, binary := range map[string]string{
		"foo-controller": "foo-controller", "localcluster": "localcluster", "node": "node",
		"image": "image-native",
	} {
		if err := os.Symlink(filepath.Join(here, "bin", binary), filepath.Join(tree, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range scripts {
		script, err := os.ReadFile(file)
		if err := errors.Join(err, os.WriteFile(filepath.Join(tree, file), script, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func TestMakeRunThatFailsEndsWithAnErrorAndKeepsOnlyItsLogs(t *testing.T) {
	waitForRoom(t)
	tree, temp := newScriptTree(t, "hack/run.sh", "hack/local.sh"), t.TempDir() // Without artifacts to install.
	dir := filepath.Join(temp, "cluster")
	cmd := exec.Command(filepath.Join(tree, "hack/run.sh"))
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "CLUSTER_DIR="+dir)
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"artifacts/crd", "The logs are kept until the next start: " + dir + "\n"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("ended with %v, want an error with %q:\n%s", err, want, out)
		}
	}
	var left []string
	err = filepath.WalkDir(temp, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			left = append(left, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	slices.Sort(left)
	const want = "cluster.log logs/etcd.log logs/kube-apiserver.log logs/kube-controller-manager.log " +
		"logs/kube-scheduler.log logs/kwok.log"
	if have := strings.Join(left, " "); err != nil || have != want {
		t.Errorf("%v; files that are left behind: %s\nwant: %s", err, have, want)
	}
	if left := processesWith(t, temp); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
}

// etcd does not start with the first of these sizes, and nothing can be written with the second one, not even a log.
func TestMakeRunNamesAFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("this machine permits no user namespaces: %v: %s", err, out)
	}
	for _, size := range []string{"24m", "4k"} {
		disk := t.TempDir()
		const script = `mount -t tmpfs -o size="$0" none "$1" && CLUSTER_DIR="$1/it's full" hack/run.sh; ` +
			`echo "exit code $?; left: $(ls "$1"/*)"`
		out, err := exec.Command("unshare", "-rm", "bash", "-c", script, size, disk).CombinedOutput()
		for _, want := range []string{
			"no space left on device", disk + "/it's full", "The logs are kept until the next start: " + disk + `/it\'s\ full`,
			"exit code 1; left: cluster.log\n",
		} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("a disk of %s: %v, the output lacks %q:\n%s", size, err, want, out)
			}
		}
	}
}

// The shell that becomes the process creates the log, so the script may read it before.
func TestScriptsWaitForALogThatDoesNotExistYet(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const script = `source hack/local.sh; { sleep 0.5; echo ready >"$0"; } & wait_for_log '^ready$' "$0" $! "It ended"`
	if out, err := exec.Command("bash", "-c", script, log).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v, want no output: %s", err, out)
	}
}

// What `make run` and `make cluster` write for people works in any shell, from any directory, and with an alias k.
func TestTheEnvOfAClusterDefinesKubectl(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "it's a $(tree)")
	dir := filepath.Join(tree, "a cluster")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Join(tree, "bin"), 0o700)); err != nil {
		t.Fatal(err)
	}
	const fake = "#!/bin/sh\nprintf '<%s>' \"$KUBECONFIG\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tree, "bin/localcluster"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", `source "$0/hack/local.sh"; write_env`, here)
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "CLUSTER_DIR=a cluster")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const script = "shopt -s expand_aliases\nalias k=kubectl\nset -eu\nsource \"$0\"\nk get foos -l 'a in (b, c)'"
	out, err := exec.Command("bash", "-c", script, filepath.Join(dir, "env")).CombinedOutput()
	want := fmt.Sprintf("<%s/kubeconfig><kubectl><--dir><%s><--><get><foos><-l><a in (b, c)>", dir, dir)
	if err != nil || string(out) != want {
		t.Errorf("%v, have %s\nwant %s", err, out, want)
	}
}

// processesWith returns the command lines of all processes that have words in their command line, in their working
// directory or in their mounts. It needs /proc.
func processesWith(t *testing.T, words string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs { // The process may have ended, so errors are no matter.
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		working, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if strings.Contains(string(line)+"\n"+string(mounts)+"\n"+working, words) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// countLog returns how often the log of the process contains text.
func (p *process) countLog(text string) int { return strings.Count("\n"+p.log.String(), text) }
