package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// startDeadline is how long a cluster, or one component of it, may take to become ready. A busy machine needs minutes.
	startDeadline = 5 * time.Minute
	// portAttempts is how many ports a component tries until one is free.
	portAttempts = 5
	pollInterval = 50 * time.Millisecond
	// progressInterval is the time after which each wait prints a line.
	progressInterval = 20 * time.Second
)

// A cluster is one control plane: its directory, keys and ports, and the components it runs.
type cluster struct {
	dir              string
	audit            bool
	admissionPlugins []string
	ipv6             bool   // The API server has only IPv6.
	kubernetes       string // The binary of Kubernetes' own components. Empty: this one.
	components       []component
	nodes            []realNode // Empty if the nodes are simulated.
	pki              *pki
	children         *supervisor
	// end ends the cluster with a cause: a stopRequest or an error.
	end context.CancelCauseFunc
	// health sends health checks to the components.
	health *http.Client

	mu    sync.Mutex
	ports map[string]int // guarded by mu
	// machine, with real nodes, listens on this machine for the API server.
	machine net.Listener
}

// listenForServer takes a port of this machine for the API server, which will have the same port in the namespaces.
func (c *cluster) listenForServer() (port int, err error) {
	if c.machine != nil {
		c.machine.Close()
	}
	if c.machine, err = listen("127.0.0.1:0"); err != nil {
		return 0, err
	}
	return c.machine.Addr().(*net.TCPAddr).Port, nil
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) log(name string) string { return filepath.Join(c.dir, "logs", name+".log") }

func (c *cluster) port(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports[name]
}

// host returns the address on which a component listens.
func (c *cluster) host(name string) string {
	if c.ipv6 && name == apiServer {
		return "::1"
	}
	return "127.0.0.1"
}

// address returns the host and the port of a component.
func (c *cluster) address(name string) string {
	return net.JoinHostPort(c.host(name), strconv.Itoa(c.port(name)))
}

func (c *cluster) url(name string) string { return "https://" + c.address(name) }

func (c *cluster) component(name string) component {
	for _, comp := range c.components {
		if comp.name == name {
			return comp
		}
	}
	return component{}
}

func printLine(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// startOnFreePort starts a component on a free port and returns when it is healthy.
func (c *cluster) startOnFreePort(ctx context.Context, comp component) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err == nil && isolated() && comp.name == apiServer {
			port, err = c.listenForServer()
		}
		if err != nil {
			return fmt.Errorf("find a port for %s: %w", comp.name, err)
		}
		c.mu.Lock()
		c.ports[comp.name] = port
		c.mu.Unlock()

		err = c.run(ctx, comp)
		if !isPortTaken(err) || attempt == portAttempts {
			return err
		}
		printLine("%s: port %d was taken meanwhile, trying another", comp.name, port)
	}
}

// run starts a component on its port and returns when it is healthy. If it dies later, the cluster
// ends.
func (c *cluster) run(ctx context.Context, comp component) error {
	if comp.prepare != nil {
		if err := comp.prepare(c); err != nil {
			return fmt.Errorf("prepare %s: %w", comp.name, err)
		}
	}
	started := time.Now()
	p, err := c.children.start(c.programOf(comp), comp.name, comp.args(c), c.environment(), c.log(comp.name))
	if err != nil {
		return err
	}
	printLine("%s: started, pid %d", comp.name, p.cmd.Process.Pid)
	if err := c.awaitHealthy(ctx, comp, p); err != nil {
		return err
	}
	printLine("%s: healthy after %.1f s, %s", comp.name, time.Since(started).Seconds(), c.address(comp.name))
	go func() {
		<-p.exited
		var death *deathError
		if err := p.outcome(); errors.As(err, &death) {
			c.end(err)
		}
	}()
	return nil
}

// environment prevents KWOK from reading ~/.kwok/kwok.yaml, which may belong to another cluster.
func (c *cluster) environment() []string { return []string{"KWOK_WORKDIR=" + c.file("kwok")} }

// awaitHealthy returns when the component is healthy or has ended.
func (c *cluster) awaitHealthy(ctx context.Context, comp component, p *process) error {
	// The end of the process also cancels a running check: another process may have the port and never
	// answer.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.exited:
			cancel(p.outcome())
		case <-ctx.Done():
		}
	}()

	sick, err := await(ctx, comp.name, func() error { return c.check(ctx, comp) })
	if sick != nil {
		return fmt.Errorf("%s is not healthy after %s: %w; its log is %s", comp.name, startDeadline, sick, p.log)
	}
	return err
}

// await calls check until it returns nil. If the deadline of ctx comes first, late is the last error of
// check. If ctx ends for another reason, err is that reason. Lines of progress begin with what.
func await(ctx context.Context, what string, check func() error) (late, err error) {
	ticker, progress := time.NewTicker(pollInterval), time.NewTicker(progressInterval)
	defer ticker.Stop()
	defer progress.Stop()
	var last error
	for {
		err := check()
		if err == nil {
			return nil, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // The error of a cancelled check would hide the cause.
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return last, nil
			}
			return nil, context.Cause(ctx)
		case <-progress.C:
			printLine("%s: still waiting: %v", what, last)
		case <-ticker.C:
		}
	}
}

// check makes one health check of a component.
func (c *cluster) check(ctx context.Context, comp component) error {
	if comp.socket != "" {
		return dial(comp.socket)
	}
	url := c.url(comp.name) + comp.health
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.health.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// newHealthClient returns a client that trusts both authorities. crypto/tls chooses the client
// certificate that the authority of the server has signed.
func newHealthClient(p *pki) (*http.Client, error) {
	admin, err := tls.X509KeyPair(p.admin.cert, p.admin.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.ca.cert)
	roots.AddCert(p.etcdCA.cert)
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin, p.etcdClient}},
			DisableKeepAlives: true, // The server of the next check may be another process.
		},
	}, nil
}

// freePort returns a free port. It is below the ranges from which Linux and macOS take the ports of
// outgoing connections. Otherwise such a connection could take the port of a component that is down; a
// client that keeps connecting to that port could even connect to itself.
func freePort() (int, error) {
	const low, high = 20000, 30000
	var lastErr error
	for range 100 {
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		lastErr = err
	}
	return 0, lastErr
}
