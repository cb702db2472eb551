package conformance

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/hack/cluster/controlplane"
)

// A cluster is a running local control plane with our CRD.
type cluster struct {
	*controlplane.ControlPlane
	server server
}

// A shared cluster is used by several tests. The first test that needs it starts it.
type shared struct {
	components string
	once       sync.Once
	cluster    *cluster
	err        error
}

var (
	// apiCluster has only an API server and no controllers.
	apiCluster = &shared{components: "api"}
	// fullCluster has all controllers of Kubernetes.
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
		s.cluster.Stop()
	}
}

// startCluster starts a control plane with our CRD.
func startCluster(components string) (*cluster, error) {
	const root = "../.."
	plane, err := controlplane.Start(root, "--components="+components)
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: plane}
	if err := c.setUp(filepath.Join(root, "artifacts/crd")); err != nil {
		c.Stop()
		return nil, fmt.Errorf("set up a local control plane: %w", err)
	}
	return c, nil
}

func (c *cluster) setUp(crds string) (err error) {
	if err := c.Install(crds, "testdata/crds"); err != nil {
		return err
	}
	if c.server, err = realServer(c.Kubeconfig()); err != nil {
		return err
	}
	return c.server.ready()
}

// ready waits until the caches of the server for all kinds are filled. Before that, the server asks clients to retry.
func (s server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := &player{server: s}
	for _, k := range append(slices.Clone(kinds), gadgets, gizmos) {
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
	return server{url: config.Host, transport: transport, staleReads: true, watchTimeout: time.Minute}, err
}
