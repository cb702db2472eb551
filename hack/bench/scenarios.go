package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// The contenders.
const (
	raw       = "raw"
	watching  = "raw-watch"
	ours      = "foo-controller"
	framework = "controller-runtime"
	plain     = "plain"
)

const (
	// replicas is how many each Foo asks for, and workers how many Foos a contender works on at a time. The plain one has
	// fewer.
	replicas, workers = 2, 32
	// quiet is how long a contender sends no write until its work counts as done.
	quiet = 3 * time.Second
	// patience is how long a step of a run may take.
	patience = 5 * time.Minute
	hundred  = 100
)

// A scenario is what contenders are measured in. It begins with Foos in namespaces, which no contender has seen.
type scenario struct {
	name             string
	foos, namespaces int
	contenders       []string
	once             bool // It has one round.
	together         bool // All contenders are measured at the same time, each with a control plane of its own.
	steps            []step
}

type step func(*trial) error

// The steps that scenarios share.
var (
	cold   = []step{start, untilAllReported, measureCold}
	again  = []step{restart, measureRestart}
	before = []step{startProfiled, measureBefore}
)

var scenarios = []scenario{
	{name: "cold-1000", foos: 1000, namespaces: 1, contenders: []string{raw, watching, ours, framework}, steps: cold},
	{name: "cold-10000", foos: 10_000, namespaces: 1, contenders: []string{watching, ours}, steps: cold},
	{
		name: "cold-1000-in-50", foos: 1000, namespaces: 50, contenders: []string{watching, ours, framework},
		steps: slices.Concat(cold, again),
	},
	{
		name: "cold-10000-in-50", foos: 10_000, namespaces: 50, contenders: []string{watching, ours},
		steps: slices.Concat(cold, again),
	},
	{
		name: "unrelated", foos: 10_000, namespaces: 50, contenders: []string{ours, framework}, once: true,
		steps: slices.Concat(cold, again, []step{createUnrelated, restart, measureUnrelated}),
	},
	{name: "burst", namespaces: 1, contenders: []string{ours, framework, plain}, steps: append(before, createHundred)},
	{
		name: "single", namespaces: 1, contenders: []string{watching, ours, framework},
		steps: append(before, oneByOne, measureLatencies),
	},
	{
		name: "neighbour", foos: 1500, namespaces: 1, contenders: []string{ours, framework},
		steps: []step{start, createBeside, measureLatencies},
	},
	{
		name: "idle", foos: hundred, namespaces: 1, contenders: []string{ours, framework, plain},
		once: true, together: true, steps: append(cold, beIdle),
	},
}

// A trial is a run, while it is measured.
type trial struct {
	scenario
	*bench
	*cluster
	*process
	ctx       context.Context
	contender string
	metrics   metrics
	unrelated int // How many Deployments no Foo has.
}

// measure does a run. It also returns an error if the contender did not do its work right.
func (b *bench) measure(ctx context.Context, s scenario, contender string) (metrics, error) {
	plane, err := startCluster(ctx, s.foos, s.namespaces, b.dir)
	if err != nil {
		return nil, err
	}
	defer plane.Stop()
	r := &trial{scenario: s, bench: b, cluster: plane, ctx: ctx, contender: contender, metrics: metrics{}}
	for _, step := range s.steps {
		if err = step(r); err != nil {
			break
		}
	}
	if r.process != nil {
		err = errors.Join(err, r.stop())
	}
	return r.metrics, errors.Join(err, r.check(ctx, r.unrelated))
}

func start(r *trial) error         { return r.startAt("0") }
func startProfiled(r *trial) error { return r.startAt(profileAddress) }

// until waits until condition is true of the audit log.
func (r *trial) until(what string, condition func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := errors.Join(r.audit.update(), r.ctx.Err()); err != nil || condition() {
			return err
		}
	}
	return fmt.Errorf("within %v, %s", patience, what)
}

// untilReported waits until the contender has written the statuses of so many Foos, and then sends no more writes. It
// returns the seconds from begun to the last one.
func (r *trial) untilReported(foos int, begun time.Time) (float64, error) {
	last := begun
	err := r.until(fmt.Sprintf("%d Foos did not all get their status", foos), func() bool {
		if n := len(r.audit.writes); n > 0 {
			last = r.audit.writes[n-1] // The log is in this order.
		}
		return r.audit.reported >= foos && time.Since(last) > quiet
	})
	return last.Sub(begun).Seconds(), err
}

// work measures until the contender has done all for so many Foos.
func (r *trial) work(foos int, begun time.Time) (err error) {
	r.metrics["seconds"], err = r.untilReported(foos, begun)
	r.metrics["writes a Foo"] = float64(len(r.audit.writes)) / float64(foos)
	return err
}

func untilAllReported(r *trial) error { return r.work(r.foos, r.started) }

func measureCold(r *trial) error {
	cpu, rss, err := r.usage()
	r.metrics["CPU, ms a Foo"], r.metrics["RSS, MiB"] = cpu/float64(r.foos), rss
	return err
}

// restart starts the contender again, creates a Foo meanwhile, and waits until all is quiet.
func restart(r *trial) error {
	foo := fmt.Sprint("new-", r.unrelated)
	if err := errors.Join(r.stop(), startProfiled(r), r.createFoo(r.ctx, namespaceName(0), foo)); err != nil {
		return err
	}
	_, err := r.untilReported(1, r.started)
	return err
}

func measureRestart(r *trial) error {
	r.metrics["restart: seconds until a new Foo has its status"] = r.audit.writes[1].Sub(r.started).Seconds()
	r.metrics["restart: requests"] = float64(r.audit.requests)
	r.metrics["restart: writes for other Foos"] = float64(len(r.audit.writes) - 2)
	return r.measureMemory("restart: RSS, MiB", "live heap, MiB")
}

func (r *trial) measureMemory(rss, heap string) (err error) {
	if _, r.metrics[rss], err = r.usage(); err == nil {
		r.metrics[heap], err = r.heap()
	}
	return err
}

func measureUnrelated(r *trial) error {
	const name = "restart among 10,000 unrelated Deployments: "
	return r.measureMemory(name+"RSS, MiB", name+"live heap, MiB")
}

// measureBefore waits until the contender serves.
func measureBefore(r *trial) error {
	_, err := r.untilReported(0, r.started)
	return errors.Join(err, r.measureMemory("without Foos: RSS, MiB", "without Foos: live heap, MiB"))
}

// createUnrelated creates Deployments of which no Foo knows.
func createUnrelated(r *trial) error {
	r.unrelated = 10_000
	return inParallel(r.unrelated, func(i int) error {
		dep := plan.Deployment(&v1alpha1.Foo{Spec: v1alpha1.FooSpec{DeploymentName: fmt.Sprint("other-", i)}})
		dep.OwnerReferences, dep.Labels = nil, map[string]string{"app": "other"}
		_, err := r.kube.AppsV1().Deployments(metav1.NamespaceDefault).Create(r.ctx, dep, metav1.CreateOptions{})
		return err
	})
}

// createHundred creates Foos at once.
func createHundred(r *trial) error {
	begun := time.Now()
	err := inParallel(hundred, func(i int) error { return r.createFoo(r.ctx, namespaceName(0), fmt.Sprint("burst-", i)) })
	return errors.Join(err, r.work(hundred, begun))
}

// oneByOne creates Foos one after another. For each it writes the status of the Deployment that a rollout ends with,
// except for raw-watch, which reports only once.
func oneByOne(r *trial) error {
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":1,"replicas":%[1]d,"updatedReplicas":%[1]d,`+
		`"readyReplicas":%[1]d,"availableReplicas":%[1]d}}`, replicas)
	for i := range hundred {
		name := fmt.Sprint("single-", i)
		err := errors.Join(r.createFoo(r.ctx, namespaceName(0), name), r.until(name+" got no status", func() bool {
			return r.audit.reported > i
		}))
		if err == nil && r.contender != watching {
			_, err = r.kube.AppsV1().Deployments(namespaceName(0)).Patch(r.ctx, name, types.StrategicMergePatchType, status,
				metav1.PatchOptions{}, "status")
			err = errors.Join(err, r.until(name+" did not become Ready", func() bool {
				return len(r.audit.latencies(rollout, statusUpdate)) > i
			}))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createBeside creates ten Foos a second in one namespace while the contender does the work of a start in another.
func createBeside(r *trial) error {
	const elsewhere = "elsewhere"
	err := errors.Join(r.createNamespace(r.ctx, elsewhere), r.until("no Foo got a status", func() bool {
		return r.audit.reported > 0
	}))
	created := 0
	for ; err == nil && r.audit.reported < r.foos; created++ {
		time.Sleep(time.Second / 10)
		err = errors.Join(r.createFoo(r.ctx, elsewhere, fmt.Sprint("new-", created)), r.audit.update(), r.ctx.Err())
	}
	_, errRest := r.untilReported(r.foos+created, r.started)
	return errors.Join(err, errRest)
}

func measureLatencies(r *trial) error {
	for what, latencies := range map[string][]float64{
		"Foo to Deployment":           r.audit.latencies(fooCreation, deploymentCreation),
		"Deployment to status of Foo": r.audit.latencies(rollout, statusUpdate),
	} {
		if len(latencies) > 0 {
			r.metrics[what+", p50, ms"], r.metrics[what+", p99, ms"] = percentile(latencies, 50), percentile(latencies, 99)
		}
	}
	return nil
}

// beIdle leaves the contender alone when all is done.
func beIdle(r *trial) error {
	length := 5 * time.Minute
	if r.quick {
		length = 10 * time.Second
	}
	before, _, err := r.usage()
	if err := errors.Join(err, r.audit.reset()); err != nil {
		return err
	}
	select {
	case <-r.ctx.Done():
	case <-time.After(length):
	}
	after, _, err := r.usage()
	err = errors.Join(err, r.ctx.Err(), r.audit.update())
	r.metrics["idle: CPU, ms a minute"] = (after - before) / length.Minutes()
	r.metrics["idle: requests a minute"] = float64(r.audit.requests) / length.Minutes()
	return err
}
