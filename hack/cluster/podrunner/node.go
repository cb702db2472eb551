//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

const (
	nodeName = "real-node"
	// A pod comes to this node only if it tolerates the taint. The label is for pods that may run nowhere else.
	podsKey, podsValue = "foo-controller.example/pods", "run"
	// leaseSeconds and leasePeriod are those of the kubelet.
	leaseSeconds = 40
	leasePeriod  = 10 * time.Second
	// heartbeat is how often the node reports its conditions without a change.
	heartbeat = 5 * time.Minute
)

// options are the values of the flags.
type options struct{ kubeconfig, layout, dir string }

// A runner is the node.
type runner struct {
	opts   options
	client kubernetes.Interface
	events record.EventRecorder
	// apiServer is the address of the API server on this machine.
	apiServer string
	images    *imageStore
	// logs serves the logs of the containers. Its address is that of the node, which no other runner has meanwhile.
	logs *logServer
	ip   string
	// subnet is the third number of the addresses of the node and its pods.
	subnet int

	mu      sync.Mutex
	workers map[types.UID]*podWorker // guarded by mu
	taken   map[int]bool             // guarded by mu; the last numbers of the pods' addresses
	running sync.WaitGroup
}

func newRunner(opts options) (*runner, error) {
	config, err := clientcmd.BuildConfigFromFlags("", opts.kubeconfig)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := &runner{
		opts: opts, client: client, apiServer: server.Host, workers: map[types.UID]*podWorker{}, taken: map[int]bool{},
		images: &imageStore{layout: opts.layout, dir: filepath.Join(opts.dir, "images")},
	}
	// What is left of a runner that was killed. Its containers have ended with it.
	if err := os.RemoveAll(filepath.Join(opts.dir, "pods")); err != nil {
		return nil, err
	}
	for _, dir := range []string{"images", "pods", "logs"} {
		if err := os.MkdirAll(filepath.Join(opts.dir, dir), 0o755); err != nil {
			return nil, err
		}
	}
	return r, r.takeSubnet()
}

// takeSubnet takes addresses that no other runner on this machine has.
func (r *runner) takeSubnet() error {
	for r.subnet = 1; r.subnet < 255; r.subnet++ {
		r.ip = fmt.Sprintf("127.0.%d.1", r.subnet)
		l, err := net.Listen("tcp", net.JoinHostPort(r.ip, "10250"))
		if err != nil {
			continue
		}
		r.logs, err = newLogServer(l, r)
		return err
	}
	return fmt.Errorf("no address from 127.0.1.1 to 127.0.254.1 has a free port 10250")
}

// run runs the node until ctx ends. Then it stops all pods.
func (r *runner) run(ctx context.Context) error {
	go r.logs.serve()
	defer r.logs.close()
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.client.CoreV1().Events("")})
	r.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "podrunner", Host: nodeName})
	if err := r.register(ctx); err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, r.renewLease, leasePeriod)
	if err := r.watchPods(ctx); err != nil {
		return err
	}
	r.reportNode(ctx, true)
	go wait.UntilWithContext(ctx, func(ctx context.Context) { r.reportNode(ctx, true) }, heartbeat)
	fmt.Println("ready")
	<-ctx.Done()
	r.log("stopping all pods")
	r.running.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // The API server may have ended.
	defer cancel()
	r.reportNode(last, false)
	return nil
}

// register creates the Node, or updates that of an earlier runner.
func (r *runner) register(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
			corev1.LabelHostname: nodeName, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
			podsKey: podsValue,
		}},
		Spec: corev1.NodeSpec{
			PodCIDR: fmt.Sprintf("10.245.%d.0/24", r.subnet),
			Taints:  []corev1.Taint{{Key: podsKey, Value: podsValue, Effect: corev1.TaintEffectNoSchedule}},
		},
	}
	_, err := r.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	r.renewLease(ctx)
	return nil
}

// reportNode writes the status of the node. It tries until it succeeds: others write to the Node at the same time.
func (r *runner) reportNode(ctx context.Context, ready bool) {
	_ = wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) {
		err := r.updateNode(ctx, ready)
		if err != nil && ctx.Err() == nil {
			r.log("report the node: %v", err)
		}
		return err == nil, nil
	})
}

func (r *runner) updateNode(ctx context.Context, ready bool) error {
	node, err := r.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	cond := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: statusOf(ready), Reason: "PodRunnerReady", Message: "the pod runner runs",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if !ready {
		cond.Reason, cond.Message = "PodRunnerStopped", "the pod runner has stopped"
	}
	for _, before := range node.Status.Conditions {
		if before.Type == cond.Type && before.Status == cond.Status {
			cond.LastTransitionTime = before.LastTransitionTime
		}
	}
	node.Status.Conditions = []corev1.NodeCondition{cond}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(machineMemory(), resource.BinarySI),
		corev1.ResourcePods:   resource.MustParse("100"),
	}
	node.Status.Allocatable = node.Status.Capacity
	// Without a host name, the API server connects to the address.
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: r.ip}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, KubeletVersion: "podrunner",
		ContainerRuntimeVersion: "podrunner://1",
	}
	_, err = r.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// machineMemory returns the memory of the machine in bytes.
func machineMemory() int64 {
	const standard = 4 << 30
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return standard
	}
	kilobytes := int64(0)
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kilobytes); err != nil {
		return standard
	}
	return kilobytes << 10
}

// renewLease writes the Lease that shows that the node is there.
func (r *runner) renewLease(ctx context.Context) {
	leases := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: new(nodeName), LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: new(metav1.NowMicro()),
	}
	lease, err := leases.Get(ctx, nodeName, metav1.GetOptions{})
	switch {
	case err == nil:
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: spec}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil && ctx.Err() == nil {
		r.log("renew the Lease of the node: %v", err)
	}
}

// watchPods starts a worker for each pod that is bound to the node, until ctx ends. It returns when it knows all pods.
func (r *runner) watchPods(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(r.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
		}))
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.podChanged(ctx, obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { r.podChanged(ctx, obj.(*corev1.Pod)) },
		DeleteFunc: r.podGone,
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// podChanged gives the worker of a pod its latest version. It starts the worker of a new pod.
func (r *runner) podChanged(ctx context.Context, pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	worker := r.workers[pod.UID]
	if worker != nil {
		worker.update(pod)
		return
	}
	if ctx.Err() != nil {
		return
	}
	number := 2
	for r.taken[number] {
		number++
	}
	r.taken[number] = true
	worker = &podWorker{
		runner: r, pod: pod, changed: make(chan struct{}, 1), results: make(chan probeResult),
		ip: fmt.Sprintf("10.245.%d.%d", r.subnet, number),
	}
	r.workers[pod.UID] = worker
	r.running.Go(func() {
		worker.run(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.taken, number)
		delete(r.workers, pod.UID)
	})
}

func (r *runner) podGone(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod := obj.(*corev1.Pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	if worker := r.workers[pod.UID]; worker != nil {
		worker.update(nil)
	}
}

// outside returns the address of the machine at which a pod is reached.
func (r *runner) outside(podIP string) string { return "127.0." + strings.TrimPrefix(podIP, "10.245.") }

func (r *runner) dialAPI(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", r.apiServer)
}

func (r *runner) podDir(pod *corev1.Pod) string {
	return filepath.Join(r.opts.dir, "pods", string(pod.UID))
}

// logFile returns the file with the output of a container.
func (r *runner) logFile(pod *corev1.Pod, restarts int32) string {
	return filepath.Join(r.opts.dir, "logs", fmt.Sprintf("%s_%s_%s_%d.log", pod.Namespace, pod.Name, pod.UID, restarts))
}

func (r *runner) event(pod *corev1.Pod, kind, reason, message string) {
	r.events.Event(pod, kind, reason, message)
}

func (r *runner) log(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "podrunner: %s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}
