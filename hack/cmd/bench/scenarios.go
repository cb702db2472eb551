package main

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// The contenders.
const (
	raw   = "raw"
	watch = "raw-watch"
	ours  = "foo-controller"
	lean  = "lean"
	full  = "full"
	plain = "plain"
)

// contenders are in the order of tables.
var contenders = []string{raw, watch, ours, lean, full, plain}

const (
	// replicas is how many each Foo asks for, and workers how many Foos a contender works on at a time. The plain one
	// has fewer.
	replicas, workers = 2, 32
	// quiet is how long a contender sends no write until its work counts as done.
	quiet = 3 * time.Second
	// patience is how long a step of a run may take.
	patience = 20 * time.Minute
	hundred  = 100
	// silence is how long contenders have nothing to do in the scenario idle.
	silence = 5 * time.Minute
	others  = "restart among 10,000 unrelated Deployments: "
)

// A scenario is what contenders are measured in. It begins with Foos in namespaces, which no contender has seen.
type scenario struct {
	name             string
	foos, namespaces int
	contenders       []string
	once             bool // It has one round.
	steps            []step
}

type step func(*trial) error

// The steps of scenarios.
var (
	cold   = []step{start, coldStart}
	twice  = append(cold, restart, measureRestart, measureRSS("restart: RSS, MiB"), measureHeap("live heap, MiB"))
	among  = append(twice, createUnrelated, restart, measureRSS(others+"RSS, MiB"), measureHeap(others+"live heap, MiB"))
	alone  = []step{start, untilQuiet, measureRSS("RSS, MiB"), measureHeap("live heap, MiB")}
	burst  = []step{start, untilQuiet, createHundred}
	single = []step{start, untilQuiet, oneByOne, measureLatencies}
	beside = []step{start, createBeside, measureLatencies}
	edits  = append(cold, editAll)
	idle   = append(cold, beIdle)
)

var scenarios = []scenario{
	{name: "alone", namespaces: 1, contenders: []string{watch, ours, lean, full, plain}, steps: alone},
	{name: "cold-1000-in-50", foos: 1000, namespaces: 50, contenders: []string{watch, ours, lean, full}, steps: twice},
	{name: "cold-4000-in-50", foos: 4000, namespaces: 50, contenders: []string{raw, watch, ours, lean, full}, steps: cold},
	{name: "cold-10000", foos: 10_000, namespaces: 1, contenders: []string{watch, ours}, steps: cold},
	{name: "cold-10000-in-50", foos: 10_000, namespaces: 50, contenders: []string{watch, ours, lean, full}, steps: twice},
	{name: "unrelated", foos: 10_000, namespaces: 50, contenders: []string{ours, lean, full}, steps: among},
	{name: "burst", namespaces: 1, contenders: []string{ours, lean, full, plain}, steps: burst},
	{name: "single", namespaces: 1, contenders: []string{watch, ours, lean, full}, steps: single},
	{name: "neighbour", foos: 1500, namespaces: 1, contenders: []string{ours, lean, full}, steps: beside},
	{name: "edited", foos: 1000, namespaces: 50, contenders: []string{ours, lean, full}, steps: edits},
	{name: "cold-50000-in-50", foos: 50_000, namespaces: 50, contenders: []string{ours, lean}, steps: twice, once: true},
	{name: "cold-100000-in-50", foos: 100_000, namespaces: 50, contenders: []string{ours, lean}, steps: twice, once: true},
	{name: "idle", foos: hundred, namespaces: 1, contenders: []string{ours, lean, full, plain}, steps: idle, once: true},
}

func start(r *trial) error      { return r.startAt("0") }
func untilQuiet(r *trial) error { return r.untilReported(0) }

// until waits until condition is true of the audit log.
func (r *trial) until(what string, condition func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := errors.Join(r.audit.update(), r.ctx.Err()); err != nil || condition() {
			return err
		}
	}
	return fmt.Errorf("within %v, %s", patience, what)
}

// untilReported waits until the contender has written the statuses of so many Foos, and then sends no more writes.
func (r *trial) untilReported(foos int) error {
	return r.until(fmt.Sprintf("%d Foos did not all get their status", foos), func() bool {
		return r.audit.reported >= foos && time.Since(r.lastWrite()) > quiet
	})
}

func (r *trial) lastWrite() time.Time {
	if n := len(r.audit.writes); n > 0 {
		return r.audit.writes[n-1] // The log is in this order.
	}
	return r.begun
}

// work measures until the contender has done all for so many Foos.
func (r *trial) work(foos int) error {
	err := r.untilReported(foos)
	r.metrics["seconds"] = r.lastWrite().Sub(r.begun).Seconds()
	r.metrics["writes a Foo"] = float64(len(r.audit.writes)) / float64(foos)
	return err
}

// coldStart measures until all is done for the Foos that were there before the contender.
func coldStart(r *trial) error {
	err := r.work(r.foos)
	cpu, rss, errUsage := r.usage()
	r.metrics["CPU, ms a Foo"], r.metrics["RSS, MiB"] = cpu/float64(r.foos), rss
	return errors.Join(err, errUsage)
}

func measureRSS(name string) step {
	return func(r *trial) (err error) {
		_, r.metrics[name], err = r.usage()
		return err
	}
}

// measureHeap starts the contender again, with profiles. foo-controller then records syncs, too.
func measureHeap(name string) step {
	return func(r *trial) error {
		err := r.restartAt(profileAddress)
		if err == nil {
			r.metrics[name], err = heap()
		}
		return err
	}
}

func restart(r *trial) error { return r.restartAt("0") }

// restartAt starts the contender again, creates a Foo meanwhile, and waits until it has a status and all is quiet.
func (r *trial) restartAt(address string) error {
	foo := fmt.Sprint("new-", r.process.Process.Pid)
	if err := errors.Join(r.stop(), r.startAt(address), r.createFoo(namespaceName(0), foo)); err != nil {
		return err
	}
	return r.untilReported(1)
}

func measureRestart(r *trial) error {
	r.metrics["restart: seconds until a new Foo has its status"] = r.audit.writes[1].Sub(r.begun).Seconds()
	r.metrics["restart: requests"] = float64(r.audit.requests)
	r.metrics["restart: writes for other Foos"] = float64(len(r.audit.writes) - 2)
	return nil
}

// editAll scales all Deployments, each in its own request, and measures until the contender has put them right.
func editAll(r *trial) error {
	before, _, err := r.usage()
	if err := errors.Join(err, r.audit.reset()); err != nil {
		return err
	}
	r.begun = time.Now()
	err = inParallel(r.foos, func(i int) error {
		namespace, name := fooName(i, r.namespaces)
		_, err := r.kube.AppsV1().Deployments(namespace).Patch(r.ctx, name, types.StrategicMergePatchType,
			[]byte(`{"spec":{"replicas":9}}`), metav1.PatchOptions{})
		return err
	})
	err = errors.Join(err, r.until("not all Deployments were put right", func() bool {
		return len(r.audit.writes) >= r.foos && time.Since(r.lastWrite()) > quiet
	}))
	after, _, errUsage := r.usage()
	edits := float64(r.foos)
	r.metrics["edited: seconds"] = r.lastWrite().Sub(r.begun).Seconds()
	r.metrics["edited: requests an edit"] = float64(r.audit.requests) / edits
	r.metrics["edited: CPU, ms an edit"] = (after - before) / edits
	return errors.Join(err, errUsage)
}

// createUnrelated creates Deployments of which no Foo knows.
func createUnrelated(r *trial) error {
	return inParallel(10_000, func(i int) error {
		dep := plan.Deployment(&v1alpha1.Foo{Spec: v1alpha1.FooSpec{DeploymentName: fmt.Sprint("other-", i)}})
		dep.OwnerReferences, dep.Labels = nil, map[string]string{"app": "unrelated"}
		_, err := r.kube.AppsV1().Deployments(metav1.NamespaceDefault).Create(r.ctx, dep, metav1.CreateOptions{})
		return err
	})
}

// createHundred creates Foos at once.
func createHundred(r *trial) error {
	r.begun = time.Now()
	err := inParallel(hundred, func(i int) error { return r.createFoo(namespaceName(0), fmt.Sprint("burst-", i)) })
	return errors.Join(err, r.work(hundred))
}

// complete writes the status of a Deployment that a rollout ends with.
func (r *trial) complete(namespace, name string) error {
	const status = `{"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"readyReplicas":2,` +
		`"availableReplicas":2}}`
	_, err := r.kube.AppsV1().Deployments(namespace).Patch(r.ctx, name, types.StrategicMergePatchType, []byte(status),
		metav1.PatchOptions{}, "status")
	return err
}

// oneByOne creates Foos one after another, and completes their rollouts, except for raw-watch, which reports only once.
func oneByOne(r *trial) error {
	for i := range hundred {
		name := fmt.Sprint("single-", i)
		err := errors.Join(r.createFoo(namespaceName(0), name),
			r.until(name+" got no status", func() bool { return r.audit.reported > i }))
		if err == nil && r.contender != watch {
			isReady := func() bool { return len(r.audit.latencies(rollout, statusUpdate)) > i }
			err = errors.Join(r.complete(namespaceName(0), name), r.until(name+" did not become Ready", isReady))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createBeside creates ten Foos a second beside a cold start in another namespace, and completes each a second later.
func createBeside(r *trial) error {
	const elsewhere = "elsewhere"
	err := errors.Join(r.createNamespace(elsewhere),
		r.until("no Foo got a status", func() bool { return r.audit.reported > 0 }))
	created := 0
	for ; err == nil && r.audit.reported < r.foos; created++ {
		time.Sleep(time.Second / 10)
		err = errors.Join(r.createFoo(elsewhere, fmt.Sprint("new-", created)), r.audit.update(), r.ctx.Err())
		if before := created - 10; err == nil && before >= 0 {
			err = r.complete(elsewhere, fmt.Sprint("new-", before))
		}
	}
	return errors.Join(err, r.untilReported(r.foos+created))
}

func measureLatencies(r *trial) error {
	for what, latencies := range map[string][]float64{
		"Foo to Deployment":           r.audit.latencies(fooCreation, deploymentCreation),
		"Deployment to status of Foo": r.audit.latencies(rollout, statusUpdate),
	} {
		if len(latencies) > 0 {
			r.metrics[what+", p50, ms"] = percentile(latencies, 50)
			r.metrics[what+", p99, ms"] = percentile(latencies, 99)
		}
	}
	return nil
}

// beIdle leaves the contender alone when all is done.
func beIdle(r *trial) error {
	before, _, err := r.usage()
	if err := errors.Join(err, r.audit.reset()); err != nil {
		return err
	}
	end := time.Now().Add(silence)
	err = r.until("the idle time did not end", func() bool { return time.Now().After(end) })
	after, _, errUsage := r.usage()
	r.metrics["idle: CPU, ms a minute"] = (after - before) / silence.Minutes()
	r.metrics["idle: requests a minute"] = float64(r.audit.requests) / silence.Minutes()
	return errors.Join(err, errUsage)
}
