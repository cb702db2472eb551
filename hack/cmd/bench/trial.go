package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/hack/tools/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// binary is foo-controller, with the build flags of the image. This program has the same.
const binary = "bin/bench/foo-controller"

// profileAddress is where a contender serves profiles.
const profileAddress = "127.0.0.1:24060"

// A trial is a run, while it is measured. It has a control plane of its own, with etcd and an API server. Only the
// contender and the benchmark write Foos and Deployments.
type trial struct {
	scenario
	*bench
	ctx        context.Context
	contender  string
	clients           // Of an administrator.
	kubeconfig string // Of the contender.
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
	r := &trial{scenario: s, bench: b, ctx: ctx, contender: contender, metrics: metrics{"load average before": load}}
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
	err := plane.Install("artifacts/crd")
	kubeconfig, errLoad := clientcmd.LoadFromFile(plane.Kubeconfig())
	config, errBuild := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	log, errOpen := os.Open(plane.AuditLog())
	if err := errors.Join(err, errLoad, errBuild, errOpen); err != nil {
		return err
	}
	r.kubeconfig, r.clients, r.audit.file = plane.Kubeconfig()+".contender", newClients(config), bufio.NewReader(log)
	// The contenders share a ServiceAccount: an administrator would be exempt from priority and fairness.
	const account = "system:serviceaccount:bench:contender"
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate = account
	}
	err = errors.Join(clientcmd.WriteToFile(*kubeconfig, r.kubeconfig), r.permitAll(account),
		inParallel(r.namespaces, func(i int) error { return r.createNamespace(namespaceName(i)) }))
	return errors.Join(err, inParallel(r.foos, func(i int) error {
		return r.createFoo(fooName(i, r.namespaces))
	}))
}

// permitAll gives a user the permissions of an administrator. The plain contender needs more than foo-controller.
func (r *trial) permitAll(user string) error {
	_, err := r.kube.RbacV1().ClusterRoleBindings().Create(r.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	return err
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
	if r.contender == ours {
		cmd = exec.Command(binary, "--kubeconfig", r.kubeconfig, "--debug-bind-address", address,
			"--metrics-bind-address", "0")
	}
	log, err := os.Create(filepath.Join(dir, r.contender+".log"))
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
		response, err := http.Get("http://" + profileAddress + "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		found := regexp.MustCompile(`(?m)^# HeapAlloc = (\S+)$`).FindSubmatch(text)
		if err != nil || found == nil {
			return 0, fmt.Errorf("the profile has no HeapAlloc: %w", err)
		}
		if size, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
			return 0, err
		}
	}
	return size / (1 << 20), nil
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
	return checkObjects(foos.Items, deployments.Items)
}

// checkObjects returns an error if foo-controller would still send something.
func checkObjects(foos []v1alpha1.Foo, deployments []appsv1.Deployment) error {
	byName := map[cache.ObjectName]*appsv1.Deployment{}
	for i := range deployments {
		byName[cache.MetaObjectToName(&deployments[i])] = &deployments[i]
	}
	for _, foo := range foos {
		if step := nextStep(&foo, byName[cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName)]); step != nil {
			return fmt.Errorf("foo %s/%s: foo-controller would still %s", foo.Namespace, foo.Name, step.Request())
		}
	}
	if have, want := len(deployments), len(foos); have != want {
		return fmt.Errorf("%d Foos have %d Deployments", want, have)
	}
	return nil
}

// A request is a line of the audit log.
type request struct {
	Verb                                     string
	ObjectRef                                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus                           struct{ Code int }
	ImpersonatedUser                         *struct{}        // For the contender only.
	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime // The second is when the answer was complete.
}

// An auditLog is the audit log of an API server, as far as it has been read.
type auditLog struct {
	file *bufio.Reader
	line []byte // The beginning of a line whose rest is not written yet.
	// requests is how many the contender has sent since the last reset, without watches, and writes has the answers to
	// those of them that ask to change what is stored.
	requests int
	writes   []time.Time
	// accepted is when a request was accepted last, by "VERB RESOURCE/SUBRESOURCE NAMESPACE/NAME". Those of the
	// benchmark count from their arrival, those of the contender from their answer.
	accepted map[string]time.Time
	// reported is of how many Foos the contender has written the status.
	reported int
}

// reset reads what is new, and forgets all requests.
func (a *auditLog) reset() error {
	a.accepted = map[string]time.Time{}
	err := a.update()
	*a = auditLog{file: a.file, line: a.line, accepted: map[string]time.Time{}}
	return err
}

// update reads what is new.
func (a *auditLog) update() error {
	for {
		text, err := a.file.ReadBytes('\n')
		a.line = append(a.line, text...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		r := &request{}
		if err := errors.Join(err, json.Unmarshal(a.line, r)); err != nil {
			return err
		}
		a.line = a.line[:0]
		a.add(r)
	}
}

func (a *auditLog) add(r *request) {
	if r.Verb == "watch" { // client-go renews it after some minutes. Its line comes when it ends.
		return
	}
	at := r.RequestReceivedTimestamp.Time
	if r.ImpersonatedUser != nil {
		at = r.StageTimestamp.Time
		a.requests++
		if r.Verb != "get" && r.Verb != "list" && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			a.writes = append(a.writes, at)
		}
	}
	if r.ResponseStatus.Code >= 300 {
		return
	}
	what := r.Verb + " " + r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	if strings.HasSuffix(what, " foos/status") { // The contenders update or patch it.
		what = statusUpdate
	}
	key := what + " " + r.ObjectRef.Namespace + "/" + r.ObjectRef.Name
	if what == statusUpdate && a.accepted[key].IsZero() {
		a.reported++
	}
	a.accepted[key] = at
}

const fooCreation, deploymentCreation = "create foos/", "create deployments/"
const rollout, statusUpdate = "patch deployments/status", "update foos/status"

// latencies returns the milliseconds from one request to another for the same object, in ascending order.
func (a *auditLog) latencies(from, to string) (latencies []float64) {
	for key, begun := range a.accepted {
		if object, ok := strings.CutPrefix(key, from+" "); ok && a.accepted[to+" "+object].After(begun) {
			latencies = append(latencies, 1000*a.accepted[to+" "+object].Sub(begun).Seconds())
		}
	}
	slices.Sort(latencies)
	return latencies
}
