package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/foo-controller/hack/controlplane"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
)

// This file is what the other tests of this package share: local control planes, and the controller as a process.

const (
	// controllerBinary is built with Go's race detector. A data race ends it with an exit code that fails the test.
	controllerBinary = "bin/foo-controller-race"
	// controllerName is the name that the controller gives itself, for instance as the field manager of its writes.
	controllerName = "foo-controller"
	// controllerUser is who the controller is for the API server: the ServiceAccount of artifacts/deploy.
	controllerUser = "system:serviceaccount:foo-system:foo-controller"
	// skipped is the reason for which -short skips a test.
	skipped = "needs a local control plane or another process; run without -short"
	// eventually is how long a test waits at most for what has to come.
	eventually = 90 * time.Second
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // Paths in these tests begin at the root of the repository.
		panic(err)
	}
	code := m.Run()
	for _, c := range []*shared{apiCluster, fullCluster} {
		c.stop()
	}
	os.Exit(code)
}

// A cluster is a running local control plane, with our CRD and the controller's permissions in it.
type cluster struct {
	*controlplane.ControlPlane
	config  *rest.Config // Of an administrator.
	kube    kubernetes.Interface
	samples clientset.Interface
}

// shared is a cluster that several tests use, each in namespaces of its own. The first one starts it.
type shared struct {
	components string
	once       sync.Once
	cluster    *cluster
	err        error
}

var (
	// apiCluster has an API server and nothing that acts on objects: no Deployment controller, no garbage collector.
	apiCluster = &shared{components: "api"}
	// fullCluster has all controllers, and nodes on which pods become Ready.
	fullCluster = &shared{components: "all"}
)

// get returns the cluster, started and set up. It skips the test with -short.
func (s *shared) get(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip(skipped)
	}
	s.once.Do(func() { s.cluster, s.err = startCluster(s.components) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

func (s *shared) stop() {
	if s.cluster != nil {
		s.cluster.Stop()
	}
}

// startCluster starts a control plane with our CRD and the controller's permissions.
func startCluster(components string) (*cluster, error) {
	plane, err := controlplane.Start(".", "--components="+components, "--audit")
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
	return c.Install("artifacts/crd", "artifacts/deploy")
}

// kubectl runs kubectl and returns what it prints; input, if any, is its standard input.
func (c *cluster) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := c.try(input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try is kubectl for commands that may fail.
func (c *cluster) try(input string, args ...string) (string, error) {
	cmd := c.Kubectl(args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// namespace makes a namespace for the test and returns its name. It is not removed: the cluster soon is.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	ns, err := c.kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// kubeconfig writes a kubeconfig with which the controller is controllerUser, and returns its path. The
// server is the API server, or the proxy before it if there is one.
func (c *cluster) kubeconfig(t *testing.T, via *proxy) string {
	t.Helper()
	token, err := c.kube.CoreV1().ServiceAccounts("foo-system").CreateToken(t.Context(), "foo-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{current.AuthInfo: {Token: token.Status.Token}}
	if via != nil {
		config.Clusters[current.Cluster].Server = via.URL
		config.Clusters[current.Cluster].CertificateAuthorityData = via.ca()
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A process is a running controller.
type process struct {
	cmd       *exec.Cmd
	log       *syncBuffer
	done      chan struct{} // Closed when it has ended.
	code      int           // The exit code that is expected of it.
	signalled bool          // It has received a signal.
}

// startController starts the controller as a process with the given flags. It is stopped with the test.
func startController(t *testing.T, flags ...string) *process {
	t.Helper()
	p := &process{
		cmd:  exec.Command(controllerBinary, append([]string{"-v=2"}, flags...)...),
		log:  &syncBuffer{},
		done: make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v: `make %s` builds it", err, controllerBinary)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result.
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("log of the controller %v:\n%s", flags, p.log)
		}
	})
	return p
}

// signal sends the process a signal, on which it stops.
func (p *process) signal(sig os.Signal) {
	p.signalled = true
	_ = p.cmd.Process.Signal(sig) // It may have ended before.
}

// stop ends the process as a cluster would, unless it has received a signal, and expects its exit code to
// be as it should.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if !p.signalled {
		p.signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(eventually):
		_ = p.cmd.Process.Kill()
		t.Errorf("the controller did not stop:\n%s", p.log)
		return
	}
	if code := p.cmd.ProcessState.ExitCode(); code != p.code {
		t.Errorf("the controller ended with %d, want %d", code, p.code)
	}
}

// controller starts the controller as controllerUser on the cluster and waits until it works.
func (c *cluster) controller(t *testing.T, flags ...string) *process {
	t.Helper()
	p := startController(t, append([]string{"--kubeconfig", c.kubeconfig(t, nil)}, flags...)...)
	p.says(t, `"Started"`)
	return p
}

// says waits until the process has logged the words.
func (p *process) says(t *testing.T, words string) {
	t.Helper()
	until(t, "the controller logs "+words, func(context.Context) (bool, error) {
		return strings.Contains(p.log.String(), words), nil
	})
}

// until waits for condition, which has to come.
func until(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, eventually, true, condition); err != nil {
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

// An auditEvent is what the API server noted of a request.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Namespace   string `json:"namespace"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func (e *auditEvent) String() string {
	return fmt.Sprintf("%s %s/%s %s/%s: %d", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Namespace,
		e.ObjectRef.Name, e.ResponseStatus.Code)
}

// writes returns what the controller wrote, or tried to write, in namespace so far; "" is all namespaces.
func (c *cluster) writes(t *testing.T, namespace string) []string {
	t.Helper()
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	var writes []string
	for line := range bytes.Lines(log) {
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			continue // The last line, half written.
		}
		switch event.Verb {
		case "get", "list", "watch":
			continue
		}
		if event.User.Username == controllerUser && (namespace == "" || event.ObjectRef.Namespace == namespace) {
			writes = append(writes, event.String())
		}
	}
	return writes
}
