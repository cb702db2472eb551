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
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
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
	upOptions
	components []component
	nodes      []realNode // Empty if the nodes are simulated.
	pki        *pki
	children   *supervisor
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

// upOptions are the values of the flags of up.
type upOptions struct {
	dir              string
	count            int    // Of nodes.
	programs         string // Of real nodes.
	registryPort     int    // 0 if none.
	set              string // Of components.
	audit            bool
	admissionPlugins []string
	kubernetes       string // The binary of Kubernetes' own components. Empty: this one.
	ipv6             bool   // The API server has only IPv6.
	stopWithStdin    bool
}

func (o upOptions) check() error {
	if o.set != componentsAPI && o.set != componentsAll {
		return fmt.Errorf("--components=%s: choose %s or %s", o.set, componentsAPI, componentsAll)
	}
	if o.count < 0 {
		return fmt.Errorf("--nodes=%d: choose a number from 0", o.count)
	}
	if o.ipv6 && o.programs != "" {
		return errors.New("--ipv6: real nodes have only IPv4, leave --node-programs out")
	}
	return nil
}

// A stopRequest is the cause of a normal end of the cluster.
type stopRequest struct{ why string }

func (s stopRequest) Error() string { return s.why }

// up runs a cluster in the foreground. It returns nil if the cluster was stopped by a stopRequest.
func up(opts upOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(opts.dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make the directory of the cluster: %w", err)
	}
	lock, err := lockDir(opts.dir)
	if err != nil {
		return err
	}
	defer lock.Close()

	ctx, end := context.WithCancelCause(context.Background())
	c, err := newCluster(opts, end)
	if err != nil {
		return err
	}
	c.stopOnSignal()

	err = c.upAndWait(ctx)
	c.stop(err)
	var asked stopRequest
	if errors.As(err, &asked) {
		return nil
	}
	return c.nameFullDisk(err)
}

// etcdSegment is how much space etcd takes at a time, in MB.
const etcdSegment = 64

// nameFullDisk adds to the error of a cluster that its disk is full. The error may not name that cause: the logs are on
// the same disk.
func (c *cluster) nameFullDisk(err error) error {
	var disk syscall.Statfs_t
	if syscall.Statfs(c.dir, &disk) != nil {
		return err
	}
	free := disk.Bavail * uint64(disk.Bsize) / 1e6
	if free >= etcdSegment {
		return err
	}
	return fmt.Errorf("%w: %s has %d MB left, and etcd needs %d at a time\n%w",
		syscall.ENOSPC, c.dir, free, etcdSegment, err)
}

func newCluster(opts upOptions, end context.CancelCauseFunc) (*cluster, error) {
	keys, err := newPKI(filepath.Join(opts.dir, "pki"))
	if err != nil {
		return nil, fmt.Errorf("make keys and certificates: %w", err)
	}
	health, err := newHealthClient(keys)
	if err != nil {
		return nil, fmt.Errorf("load our own certificates: %w", err)
	}
	children, err := newSupervisor()
	if err != nil {
		return nil, err
	}
	components := allComponents
	if opts.set == componentsAPI {
		components = allComponents[:2]
	}
	var nodes []realNode
	if opts.programs != "" {
		components = slices.DeleteFunc(slices.Clone(components), func(comp component) bool { return comp.name == kwok })
		for i := range opts.count {
			nodes = append(nodes, realNode{index: i, cgroup: filepath.Join(cgroupOf(opts.dir), nodeName(i))})
		}
		for _, node := range nodes {
			components = append(components, node.components()...)
		}
	}
	return &cluster{
		upOptions: opts, nodes: nodes, components: components, pki: keys, children: children, end: end,
		health: health, ports: map[string]int{},
	}, nil
}

// stopOnSignal stops the cluster at the first signal, and kills it at the second.
func (c *cluster) stopOnSignal() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		c.end(stopRequest{(<-signals).String()})
		<-signals
		c.children.killAll()
		fmt.Fprintln(os.Stderr, "localcluster: asked twice, killed everything")
		os.Exit(1)
	}()
	if !c.stopWithStdin {
		return
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		c.end(stopRequest{"standard input has ended"})
	}()
}

// upAndWait starts everything, prints "ready", and returns the cause of the cluster's end.
func (c *cluster) upAndWait(ctx context.Context) error {
	began := time.Now()
	err := c.startAll(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx) // The cluster was stopped meanwhile, which caused the error.
	}
	if err != nil {
		return err
	}
	closeControl, err := c.serveControl(ctx)
	if err != nil {
		return err
	}
	defer closeControl()

	printLine("up after %.1f s; export KUBECONFIG=%s", time.Since(began).Seconds(), quoted(c.file("kubeconfig")))
	printLine("ready")
	<-ctx.Done()
	return context.Cause(ctx)
}

// quoted returns a word for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func (c *cluster) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	if err := c.writeConfiguration(); err != nil {
		return err
	}
	for _, name := range []string{etcd, apiServer} {
		if err := c.startOnFreePort(ctx, c.component(name)); err != nil {
			return err
		}
	}
	if isolated() {
		if err := c.forwardPorts(); err != nil {
			return err
		}
	}
	if err := c.writeKubeconfigs(); err != nil {
		return fmt.Errorf("write kubeconfigs: %w", err)
	}
	if c.set == componentsAPI {
		return nil
	}
	return c.startControllers(ctx)
}

// startControllers starts all controllers and the nodes concurrently.
func (c *cluster) startControllers(ctx context.Context) error {
	steps, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{controllerManager, scheduler, kwok} {
		if isComponent(c.components, name) {
			steps.Go(func() error { return c.startOnFreePort(ctx, c.component(name)) })
		}
	}
	for _, node := range c.nodes {
		steps.Go(func() error { return node.start(ctx, c) })
	}
	steps.Go(func() error { return c.makeUsable(ctx) })
	return steps.Wait()
}

// writeConfiguration writes the files that do not depend on ports, and removes outdated files of an
// earlier run.
func (c *cluster) writeConfiguration() error {
	stale := []string{"kubeconfig", controlFile}
	for _, comp := range slices.Concat(allComponents, c.components) {
		stale = append(stale, filepath.Join("logs", comp.name+".log"))
	}
	for _, name := range stale {
		if err := os.RemoveAll(c.file(name)); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	for name, content := range map[string]string{"audit-policy.yaml": auditPolicy, "kwok.yaml": kwokConfig()} {
		if err := writeFile(c.file(name), []byte(content)); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}

// stop ends all components, last started first.
func (c *cluster) stop(why error) {
	names := componentNames(c.components)
	slices.Reverse(names)
	var death *deathError
	if errors.As(why, &death) {
		why = fmt.Errorf("%s died", death.process.name) // The details are printed last, where the user sees them.
	}
	printLine("stopping: %v", why)
	began := time.Now()
	c.children.stop(names)
	printLine("stopped after %.1f s", time.Since(began).Seconds())
}

// lockDir ensures that only one "up" at a time uses dir. The kernel releases the lock when this process
// ends, even by SIGKILL.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of the cluster: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("a cluster is running in %s already", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
