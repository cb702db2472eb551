package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	localcluster = "../../bin/localcluster"
	crds         = "../../artifacts/crd"
)

// A cluster is a running local control plane with our CRD in it.
type cluster struct {
	dir     string
	process *exec.Cmd
	stdin   interface{ Close() error }
	output  bytes.Buffer
	server  server
}

// A shared cluster is started by the first test that needs it.
type shared struct {
	components string
	once       sync.Once
	cluster    *cluster
	err        error
}

var (
	// apiCluster has an API server and nothing that acts on objects.
	apiCluster = &shared{components: "api"}
	// fullCluster has all controllers.
	fullCluster = &shared{components: "all"}
)

// get returns the real server. It skips the test with -short.
func (s *shared) get(t *testing.T) server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a local control plane; run without -short")
	}
	s.once.Do(func() { s.cluster, s.err = startCluster(s.components) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster.server
}

func (s *shared) stop() {
	if s.cluster != nil {
		s.cluster.stop()
	}
}

// startCluster starts a control plane, which ends with this process at the latest.
func startCluster(components string) (_ *cluster, err error) {
	if _, err := os.Stat(localcluster); err != nil {
		return nil, fmt.Errorf("%w: build it with `make bin/localcluster`, or skip these tests with -short", err)
	}
	dir, err := os.MkdirTemp("", "foo-conformance-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	defer func() {
		if err != nil {
			c.stop()
			err = fmt.Errorf("start a local control plane: %w\n%s", err, &c.output)
		}
	}()
	c.process = exec.Command(localcluster, "up", "--dir", dir, "--components", components, "--stop-with-stdin")
	c.process.Stderr = &c.output
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && lines.Text() != "ready" {
	}
	if lines.Text() != "ready" {
		return nil, errors.New("it ended before it was ready")
	}
	go func() { // Whatever else it has to say must not block it.
		for lines.Scan() {
		}
	}()
	return c, c.setUp()
}

func (c *cluster) setUp() error {
	for _, args := range [][]string{
		{"apply", "-f", crds},
		{"wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io"},
	} {
		kubectl := exec.Command(localcluster, append([]string{"kubectl", "--dir", c.dir, "--"}, args...)...)
		if out, err := kubectl.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	var err error
	if c.server, err = realServer(filepath.Join(c.dir, "kubeconfig")); err != nil {
		return err
	}
	return c.server.ready()
}

// ready waits until the server's cache of every kind is filled: before that it asks to be asked again.
func (s server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := &player{server: s}
	for _, k := range kinds {
		err := until(ctx, func() (bool, error) {
			answer, err := p.send(ctx, "GET", k.path("default"), "", nil)
			return answer.code == http.StatusOK, err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", k, err)
		}
	}
	return nil
}

// realServer returns the server of a kubeconfig.
func realServer(kubeconfig string) (server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return server{}, err
	}
	config.QPS = -1
	transport, err := rest.TransportFor(config)
	return server{url: config.Host, transport: transport, lags: true, patience: time.Minute}, err
}

// stop ends the control plane and waits until it has.
func (c *cluster) stop() {
	if c.process != nil && c.process.Process != nil {
		c.stdin.Close()
		_ = c.process.Wait() // How it ended was not asked.
	}
	os.RemoveAll(c.dir)
}
