package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

type upOptions struct {
	dir              string
	nodes            int
	programs         string // Of real nodes.
	registryPort     int    // 0 if none.
	components       string
	audit            bool
	admissionPlugins []string
	kubernetes       string
	ipv6             bool
	stopWithStdin    bool
}

func (o upOptions) check() error {
	if o.components != componentsAPI && o.components != componentsAll {
		return fmt.Errorf("--components=%s: choose %s or %s", o.components, componentsAPI, componentsAll)
	}
	if o.nodes < 0 {
		return fmt.Errorf("--nodes=%d: choose a number from 0", o.nodes)
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
	c.stopOnSignal(opts.stopWithStdin)

	err = c.upAndWait(ctx, opts)
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
	if opts.components == componentsAPI {
		components = allComponents[:2]
	}
	var nodes []realNode
	if opts.programs != "" {
		components = slices.DeleteFunc(slices.Clone(components), func(comp component) bool { return comp.name == kwok })
		for i := range opts.nodes {
			nodes = append(nodes, realNode{index: i, cgroup: filepath.Join(cgroupOf(opts.dir), nodeName(i))})
		}
		for _, node := range nodes {
			components = append(components, node.components()...)
		}
	}
	return &cluster{
		nodes:            nodes,
		dir:              opts.dir,
		audit:            opts.audit,
		admissionPlugins: opts.admissionPlugins,
		kubernetes:       opts.kubernetes,
		ipv6:             opts.ipv6,
		components:       components,
		pki:              keys,
		children:         children,
		end:              end,
		health:           health,
		ports:            map[string]int{},
	}, nil
}

// stopOnSignal stops the cluster at the first signal, and kills it at the second.
func (c *cluster) stopOnSignal(withStdin bool) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		c.end(stopRequest{(<-signals).String()})
		<-signals
		c.children.killAll()
		fmt.Fprintln(os.Stderr, "localcluster: asked twice, killed everything")
		os.Exit(1)
	}()
	if !withStdin {
		return
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		c.end(stopRequest{"standard input has ended"})
	}()
}

// upAndWait starts everything, prints "ready", and returns the cause of the cluster's end.
func (c *cluster) upAndWait(ctx context.Context, opts upOptions) error {
	began := time.Now()
	err := c.startAll(ctx, opts)
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

func (c *cluster) startAll(ctx context.Context, opts upOptions) error {
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
		if err := c.forwardPorts(c.machine, opts.registryPort); err != nil {
			return err
		}
	}
	if err := c.writeKubeconfigs(); err != nil {
		return fmt.Errorf("write kubeconfigs: %w", err)
	}
	if opts.components == componentsAPI {
		return nil
	}
	return c.startControllers(ctx, opts)
}

// startControllers starts all controllers and the nodes concurrently.
func (c *cluster) startControllers(ctx context.Context, opts upOptions) error {
	nodes := opts.nodes
	var steps sync.WaitGroup
	errs := make(chan error, len(c.components)+1+nodes) // Buffered, so that no goroutine blocks.
	for _, name := range []string{controllerManager, scheduler, kwok} {
		if isComponent(c.components, name) {
			steps.Go(func() { errs <- c.startOnFreePort(ctx, c.component(name)) })
		}
	}
	for _, node := range c.nodes {
		steps.Go(func() { errs <- node.start(ctx, c) })
	}
	steps.Go(func() { errs <- c.makeUsable(ctx, nodes) })
	go func() {
		steps.Wait()
		close(errs)
	}()
	for err := range errs {
		if err != nil {
			return err // Only the first error. Stopping the cluster ends the other goroutines.
		}
	}
	return nil
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
