package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/hack/cluster/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// binary is foo-controller, with the build flags of the image. This program has the same.
const binary = "bin/bench/foo-controller"

// profileAddress is where a contender serves profiles.
const profileAddress = "127.0.0.1:24060"

// metricsAddress is where foo-controller serves its metrics, if it does.
const metricsAddress = "127.0.0.1:24061"

// A trial is a run, while it is measured. It has a control plane of its own, with etcd and an API server. Only the
// contender and the benchmark write Foos and Deployments.
type trial struct {
	scenario
	*bench
	ctx        context.Context
	contender  string
	clients           // Of an administrator.
	kubeconfig string // Of the contender.
	serves     string // The address of the metrics of foo-controller, or 0.
	audit      auditLog
	process    *exec.Cmd
	begun      time.Time // When the contender started, or was given work.
	metrics    metrics
}

// measure does a run. It also returns an error if the contender did not do its work right.
func (b *bench) measure(ctx context.Context, s scenario, contender string) (metrics, error) {
	load, err := loadBefore()
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(".", "--components=api", "--audit")
	if err != nil {
		return nil, err
	}
	defer plane.Stop()
	r := &trial{scenario: s, bench: b, ctx: ctx, contender: contender, serves: "0",
		metrics: metrics{"load average before": load}}
	if err := r.setUp(plane); err != nil {
		return nil, err
	}
	for _, step := range s.steps {
		if err = step(r); err != nil {
			break
		}
	}
	if err = errors.Join(err, r.stop()); err != nil {
		return nil, err
	}
	return r.metrics, r.check()
}

// loadBefore returns how many processes have run or waited to run at a time in the last minute.
func loadBefore() (float64, error) {
	proc, errProc := procfs.NewDefaultFS()
	load, err := proc.LoadAvg()
	if err := errors.Join(errProc, err); err != nil {
		return 0, err
	}
	return load.Load1, nil
}

// setUp installs what all scenarios need, connects, and creates namespaces, with Foos in them by turns.
func (r *trial) setUp(plane *controlplane.ControlPlane) error {
	err := plane.Install("artifacts/crd", "hack/bench/access.yaml")
	kubeconfig, errLoad := clientcmd.LoadFromFile(plane.Kubeconfig())
	config, errBuild := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	log, errOpen := os.Open(plane.AuditLog())
	if err := errors.Join(err, errLoad, errBuild, errOpen); err != nil {
		return err
	}
	r.kubeconfig, r.clients, r.audit.file = plane.Kubeconfig()+".contender", newClients(config), bufio.NewReader(log)
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate = "system:serviceaccount:bench:contender" // Of access.yaml.
	}
	err = errors.Join(clientcmd.WriteToFile(*kubeconfig, r.kubeconfig),
		inParallel(r.namespaces, func(i int) error { return r.createNamespace(namespaceName(i)) }))
	return errors.Join(err, inParallel(r.foos, func(i int) error {
		return r.createFoo(fooName(i, r.namespaces))
	}))
}

// fooName returns the namespace and the name of a Foo, which is also the name of its Deployment.
func fooName(i, namespaces int) (namespace, name string) {
	return namespaceName(i % namespaces), fmt.Sprintf("foo-%05d", i)
}

func (r *trial) createNamespace(name string) error {
	_, err := r.kube.CoreV1().Namespaces().Create(r.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func namespaceName(i int) string { return fmt.Sprint("bench-", i) }

func (r *trial) createFoo(namespace, name string) error {
	_, err := r.samples.SamplecontrollerV1alpha1().Foos(namespace).Create(r.ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(replicas)), Image: "nginx:1.29"},
	}, metav1.CreateOptions{})
	return err
}

// startAt starts the contender. It serves profiles on address, unless that is 0: then foo-controller records no syncs.
func (r *trial) startAt(address string) error {
	cmd := exec.Command("/proc/self/exe", contendCommand, r.contender, r.kubeconfig, address)
	if r.contender == ours || r.contender == shown {
		cmd = exec.Command(binary, "--kubeconfig", r.kubeconfig, "--debug-bind-address", address,
			"--metrics-bind-address", r.serves)
	}
	log, err := os.Create(filepath.Join(r.dir, r.contender+".log"))
	if err := errors.Join(err, r.audit.reset()); err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // In case this program is killed.
	r.process, r.begun = cmd, time.Now()
	return cmd.Start()
}

// stop ends the contender.
func (r *trial) stop() error {
	if r.process == nil || r.process.Process == nil {
		return nil // It has not started.
	}
	_ = r.process.Process.Signal(syscall.SIGTERM) // It may have ended.
	return r.process.Wait()
}

// heap returns the MiB of the heap after a collection.
func heap() (size float64, err error) {
	for range 2 { // The second one frees what the first one found to have a finalizer.
		size, err = read(profileAddress+"/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc =")
		if err != nil {
			return 0, err
		}
	}
	return size / (1 << 20), nil
}

// scrape returns a metric of foo-controller that has no labels.
func scrape(metric string) (float64, error) { return read(metricsAddress+"/metrics", metric) }

// read returns the number after a name, which begins a line of a page.
func read(page, name string) (float64, error) {
	response, err := http.Get("http://" + page)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if err != nil || found == nil {
		return 0, fmt.Errorf("%s has no %s: %w", page, name, err)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// usage returns the processor time of the contender so far, in ms, and its resident memory, in MiB.
func (r *trial) usage() (cpu, rss float64, err error) {
	proc, errProc := procfs.NewProc(r.process.Process.Pid)
	stat, err := proc.Stat()
	return stat.CPUTime() * 1000, float64(stat.ResidentMemory()) / (1 << 20), errors.Join(errProc, err)
}

// check returns an error if foo-controller would still write something for a Foo, or if a Foo has not one Deployment.
// It measures a list of both kinds at the same time, which each start of a controller needs at least.
func (r *trial) check() error {
	listed, begun := make(chan error), time.Now()
	var foos *v1alpha1.FooList
	go func() {
		var err error
		foos, err = r.samples.SamplecontrollerV1alpha1().Foos("").List(r.ctx, metav1.ListOptions{})
		listed <- err
	}()
	deployments, err := r.kube.AppsV1().Deployments("").List(r.ctx, metav1.ListOptions{LabelSelector: "app!=unrelated"})
	if err := errors.Join(err, <-listed); err != nil {
		return err
	}
	r.metrics["a bare list of both kinds, seconds"] = time.Since(begun).Seconds()
	byName := map[cache.ObjectName]*appsv1.Deployment{}
	for i := range deployments.Items {
		byName[cache.MetaObjectToName(&deployments.Items[i])] = &deployments.Items[i]
	}
	for _, foo := range foos.Items {
		if step := nextStep(&foo, byName[cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName)]); step != nil {
			return fmt.Errorf("foo %s/%s: foo-controller would still %s", foo.Namespace, foo.Name, step.Request())
		}
	}
	if have, want := len(deployments.Items), len(foos.Items); have != want {
		return fmt.Errorf("%d Foos have %d Deployments", want, have)
	}
	return nil
}
