// Package e2e tests the controller from end to end: the binary as a process, on real control planes. It has only tests.
//
//	make test-e2e                the tests for each change
//	make test-core               those that take long, or change a control plane of their own: *_core_test.go
//	make test-artifacts          those of artifacts/: *_artifacts_test.go
//	make test-node               those of the controller in pods, on real nodes: *_node_test.go; needs root
//	go test -run TestRename .    one test, after make build bin/play; with -race, after make bin/foo-controller-race, too
//	go test -short .             the few tests that need no binaries
//
// TestNodes runs the image of the controller in pods, on two real nodes. It also needs bin/node and bin/image-native.
//
// The first test that needs a control plane starts it, see shared. Tests that share one run at the same time, each in
// namespaces of its own. The controllers that they start serve only these, except on servedCluster, where one
// controller serves all tests. A proxy between a controller and its API server can delay or lose requests.
//
// TestThePageShowsWhatTheControllerDoes opens the page of /debug/syncs in Chromium, and is skipped where that is
// missing. With -screenshots=DIR it also writes pictures, such as that of docs/try.md.
//
// This is a module of its own because its tests need kstatus and a Lua interpreter, to read a Foo as other tools do,
// and a client for Chromium. The controller does not depend on these.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"example.com/foo-controller/hack/tools/controlplane"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
)

// This file has the helpers that all tests of this package share: local control planes, and the controller as a
// process.

// controllerBinary has Go's race detector if the tests have it. A data race ends it with an exit code that fails the
// test.
var controllerBinary = findBinary()

func findBinary() string {
	build, _ := debug.ReadBuildInfo() // A test has it.
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return "bin/foo-controller-race"
	}
	return "bin/foo-controller"
}

const (
	// controllerName is the name of the controller, for instance as the field manager of its writes.
	controllerName = "foo-controller"
	// controllerUser is the user name of the controller at the API server: the ServiceAccount of artifacts/deploy.
	controllerUser = "system:serviceaccount:foo-system:foo-controller"
	// skipped is the reason why -short skips a test.
	skipped = "needs a local control plane or another process; run without -short"
	// eventually is the longest time that a test waits for a condition.
	eventually = 90 * time.Second
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil { // Paths in these tests begin at the root of the repository.
		panic(err)
	}
	code := m.Run()
	for _, c := range []*shared{apiCluster, fullCluster, servedCluster} {
		if err := c.stop(); err != nil {
			fmt.Println(err)
			code = 1
		}
		if code != 0 && c.controller != nil {
			fmt.Printf("Log of the controller of servedCluster:\n%s", c.controller.log)
		}
	}
	os.Exit(code)
}

var kubernetesFile = flag.String("kubernetes", "", "file with the control plane of another version of Kubernetes")

// A cluster is a running local control plane with our CRD and the permissions of the controller.
type cluster struct {
	*controlplane.ControlPlane
	config  *rest.Config // Of an administrator.
	kube    kubernetes.Interface
	samples clientset.Interface
	audit   auditLog
}

// shared is a cluster that several tests use at the same time, each in namespaces of its own. The first test starts it.
type shared struct {
	components string
	served     bool // A controller of the cluster serves all namespaces.
	once       sync.Once
	cluster    *cluster
	controller *process
	err        error
}

var (
	// apiCluster has only an API server: no Deployment controller, no garbage collector. The controllers that a test
	// starts serve only its namespaces.
	apiCluster = &shared{components: "api"}
	// fullCluster has all controllers of Kubernetes, and nodes on which pods become Ready. The controllers that a test
	// starts serve only its namespaces.
	fullCluster = &shared{components: "all"}
	// servedCluster is like fullCluster, with one controller for all tests.
	servedCluster = &shared{components: "all", served: true}
)

// parallel has the names of the tests that run in parallel with others.
var parallel sync.Map

// inParallel lets a test run in parallel with others. A test that uses several clusters calls it several times. Parts
// of a test call t.Parallel where they can.
func inParallel(t *testing.T) {
	if strings.Contains(t.Name(), "/") {
		return
	}
	if _, isParallel := parallel.LoadOrStore(t.Name(), true); isParallel {
		return
	}
	t.Cleanup(func() { parallel.Delete(t.Name()) }) // With -count, the test runs again.
	t.Parallel()
}

// get returns the cluster. It skips the test with -short, and lets it run in parallel with others.
func (s *shared) get(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip(skipped)
	}
	inParallel(t)
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

func (s *shared) start() {
	if s.cluster, s.err = startCluster(s.components); s.err != nil || !s.served {
		return
	}
	kubeconfig := filepath.Join(filepath.Dir(s.cluster.Kubeconfig()), "controller.kubeconfig")
	if s.err = s.cluster.writeKubeconfig(context.Background(), kubeconfig, "foo-system", nil); s.err == nil {
		s.controller, s.err = newProcess(controllerCommand("--kubeconfig", kubeconfig))
	}
}

// stop stops the cluster, and its controller, after the last test.
func (s *shared) stop() (err error) {
	if s.controller != nil {
		err = s.controller.end()
	}
	if s.cluster != nil {
		s.cluster.Stop()
	}
	return err
}

// controlPlanes has an element for each test that has a control plane of its own, which needs half a gigabyte.
var controlPlanes = make(chan struct{}, 4)

// waitForRoom is the beginning of a test that starts a control plane of its own: it runs in parallel with others, but
// not with too many. -short skips it.
func waitForRoom(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip(skipped)
	}
	inParallel(t)
	controlPlanes <- struct{}{}
	t.Cleanup(func() { <-controlPlanes })
}

// startCluster starts a control plane with our CRD and the permissions of the controller.
func startCluster(components string, flags ...string) (*cluster, error) {
	all := append([]string{"--components=" + components, "--audit", "--kubernetes=" + *kubernetesFile}, flags...)
	plane, err := controlplane.Start(".", all...)
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane}
	if err := c.setUp(); err != nil {
		c.Stop()
		return nil, fmt.Errorf("set up a local control plane: %w", err)
	}
	return c, nil
}

func (c *cluster) setUp() (err error) {
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return err
	}
	c.config.QPS = -1
	if c.kube, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	if c.samples, err = clientset.NewForConfig(c.config); err != nil {
		return err
	}
	binary, err := filepath.Abs("bin/localcluster")
	dir := filepath.Dir(c.Kubeconfig())
	script := fmt.Sprintf("#!/bin/sh\nexec %q kubectl --dir %q -- \"$@\"\n", binary, dir)
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "bin"), 0o700),
		os.WriteFile(filepath.Join(dir, "bin/kubectl"), []byte(script), 0o700)); err != nil {
		return err
	}
	return c.Install("artifacts/crd", "artifacts/deploy/rbac.yaml")
}

// path returns a variable of the environment for commands that run the kubectl of PATH, or Helm: they are those of the
// repository, and not those of the machine.
func (c *cluster) path() string {
	bin, _ := filepath.Abs("bin") // The working directory is there.
	return "PATH=" + filepath.Dir(c.Kubeconfig()) + "/bin:" + bin + ":" + os.Getenv("PATH")
}

// kubectl runs kubectl with input as its standard input, and returns its output. The command must succeed.
func (c *cluster) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := c.try(input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try runs kubectl for commands that may fail.
func (c *cluster) try(input string, args ...string) (string, error) {
	cmd := c.Kubectl(args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kill kills components of the control plane, one after the other.
func (c *cluster) kill(t *testing.T, components ...string) {
	t.Helper()
	for _, component := range components {
		if err := c.KillComponent(component); err != nil {
			t.Fatal(err)
		}
	}
}

// revive starts components that were killed.
func (c *cluster) revive(t *testing.T, components ...string) {
	t.Helper()
	for _, component := range components {
		if err := c.StartComponent(component); err != nil {
			t.Fatal(err)
		}
	}
}

// needsMinor skips the test on older minors of Kubernetes, which have no what.
func (c *cluster) needsMinor(t *testing.T, minor int, what string) {
	t.Helper()
	version, err := c.kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if have, err := strconv.Atoi(version.Minor); err != nil || have < minor {
		t.Skipf("Kubernetes %s has no %s", version, what)
	}
}

// namespace creates a namespace for the test and returns its name. At the end of the test its Foos are deleted, so that
// no controller has work with them. The namespace itself stays, because without all controllers of Kubernetes nothing
// completes its deletion.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns, err := c.kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		foos := c.samples.SamplecontrollerV1alpha1().Foos(ns.Name)
		// Very large ones take longer than the API server allows for a request, and the next one deletes the rest.
		err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return !apierrors.IsNotFound(err) }, func() error {
			return foos.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		})
		if err != nil && !apierrors.IsNotFound(err) { // Some tests remove the CustomResourceDefinition.
			t.Errorf("delete the Foos of the test: %v", err)
		}
	})
	return ns.Name
}

// kubeconfig writes a kubeconfig for controllerUser, and returns its path. The server in it is the API server or,
// unless via is nil, the proxy.
func (c *cluster) kubeconfig(t *testing.T, via *proxy) string {
	t.Helper()
	return c.kubeconfigOf(t, "foo-system", via)
}

// kubeconfigOf is kubeconfig for the ServiceAccount of the controller in another namespace.
func (c *cluster) kubeconfigOf(t *testing.T, namespace string, via *proxy) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.writeKubeconfig(t.Context(), path, namespace, via); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *cluster) writeKubeconfig(ctx context.Context, path, namespace string, via *proxy) error {
	token, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, controllerName,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		return err
	}
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{current.AuthInfo: {Token: token.Status.Token}}
	if via != nil {
		config.Clusters[current.Cluster].Server = via.URL
		config.Clusters[current.Cluster].CertificateAuthorityData = via.ca()
	}
	return clientcmd.WriteToFile(*config, path)
}

// A process is a running controller.
type process struct {
	cmd       *exec.Cmd
	log       *syncBuffer
	done      chan struct{} // Closed when the process has ended.
	code      int           // The expected exit code.
	signalled bool          // The process has received a signal.
}

// startController starts the controller as a process with the given flags. It is stopped at the end of the test.
func startController(t *testing.T, flags ...string) *process {
	t.Helper()
	return startProcess(t, controllerCommand(flags...))
}

// controllerCommand returns the command that startController starts. It turns the resync off: nothing may need one.
func controllerCommand(flags ...string) *exec.Cmd {
	return exec.Command(controllerBinary, append([]string{"-v=2", "--resync=0"}, flags...)...)
}

// startProcess is startController for a binary of the controller, and an environment.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p, err := newProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("log of the controller %v:\n%s", cmd.Args[1:], p.log)
		}
	})
	return p
}

func newProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: `make %s` builds it", err, controllerBinary)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result.
		close(p.done)
	}()
	return p, nil
}

// signal sends the process a signal that stops it.
func (p *process) signal(sig os.Signal) {
	p.signalled = true
	_ = p.cmd.Process.Signal(sig) // It may have ended before.
}

// stop stops the process with SIGTERM, unless it has received a signal before, and checks its exit code.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end is stop outside of a test.
func (p *process) end() error {
	if !p.signalled {
		p.signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(eventually):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("the controller did not stop:\n%s", p.log)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != p.code {
		return fmt.Errorf("the controller ended with %d, want %d", code, p.code)
	}
	return nil
}

// controller starts the controller as controllerUser for all namespaces of a cluster that no other test uses, and waits
// until it has started.
func (c *cluster) controller(t *testing.T, flags ...string) *process {
	t.Helper()
	p := startController(t, append([]string{"--kubeconfig", c.kubeconfig(t, nil)}, flags...)...)
	p.waitForLog(t, `"Started"`)
	return p
}

// waitForLog waits until the log of the process contains text.
func (p *process) waitForLog(t *testing.T, text string) {
	t.Helper()
	until(t, "the controller logs "+text, func(context.Context) (bool, error) {
		return strings.Contains(p.log.String(), text), nil
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

// until waits for condition. The test fails if it does not become true.
func until(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, eventually, true, condition); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// syncBuffer is a buffer that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// An apiRequest is a line of the audit log of the API server.
type apiRequest struct {
	Verb, RequestURI string
	User             struct{ Username string }
	ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   struct{ Code int }

	RequestReceivedTimestamp metav1.MicroTime
}

func (r *apiRequest) String() string {
	return fmt.Sprintf("%s %s/%s %s/%s: %d", r.Verb, r.ObjectRef.Resource, r.ObjectRef.Subresource, r.ObjectRef.Namespace,
		r.ObjectRef.Name, r.ResponseStatus.Code)
}

// An auditLog has the requests in an audit log, as far as it has been read.
type auditLog struct {
	mu       sync.Mutex
	read     int64                    // Bytes.
	requests map[string][]*apiRequest // By the name of the user.
}

// requests returns the requests of the controller that the API server received after a time.
func (c *cluster) requests(t *testing.T, after time.Time) []*apiRequest {
	t.Helper()
	return c.requestsOf(t, controllerUser, after)
}

// requestsOf is requests for another controller.
func (c *cluster) requestsOf(t *testing.T, user string, after time.Time) []*apiRequest {
	t.Helper()
	log := &c.audit
	log.mu.Lock()
	defer log.mu.Unlock()
	file, err := os.Open(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	news, err := io.ReadAll(io.NewSectionReader(file, log.read, math.MaxInt64-log.read))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(news) {
		r := &apiRequest{}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // The rest is not written yet.
		}
		log.read += int64(len(line))
		if err := json.Unmarshal(line, r); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(r.User.Username, ":"+controllerName) {
			if log.requests == nil {
				log.requests = map[string][]*apiRequest{}
			}
			log.requests[r.User.Username] = append(log.requests[r.User.Username], r)
		}
	}
	return slices.DeleteFunc(slices.Clone(log.requests[user]), func(r *apiRequest) bool {
		return !r.RequestReceivedTimestamp.After(after)
	})
}

// writes returns the write requests of the controller in namespace so far, including failed ones. "" means all
// namespaces.
func (c *cluster) writes(t *testing.T, namespace string) []string {
	t.Helper()
	var writes []string
	for _, r := range c.requests(t, time.Time{}) {
		switch r.Verb {
		case "get", "list", "watch":
			continue
		}
		if strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			continue // A question about permissions, which is not stored.
		}
		if namespace == "" || r.ObjectRef.Namespace == namespace {
			writes = append(writes, r.String())
		}
	}
	return writes
}
