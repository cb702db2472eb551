package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The contenders.
const (
	raw       = "raw"
	watching  = "raw-watch"
	ours      = "foo-controller"
	framework = "controller-runtime"
	plain     = "plain"
)

// The names of scenarios.
const (
	cold1000, cold1000x50    = "cold-1000", "cold-1000-in-50"
	cold10000, cold10000x50  = "cold-10000", "cold-10000-in-50"
	unrelated, burst, single = "unrelated", "burst", "single"
	neighbour, idle          = "neighbour", "idle"
)

const (
	// replicas is how many each Foo asks for, and workers how many Foos a contender works on at a time. The plain one has
	// fewer.
	replicas, workers = 2, 32
	// quiet is how long a contender sends no write until its work counts as done.
	quiet = 5 * time.Second
	// patience is how long a step of a run may take.
	patience = 5 * time.Minute
)

// A scenario is what contenders are measured in. It begins with Foos in namespaces, which no contender has seen.
type scenario struct {
	name, what       string
	foos, namespaces int
	contenders       []string
	quick            []string // The contenders of make bench-quick.
	once             bool     // It has one round.
	play             func(*trial) error
}

var scenarios = []scenario{
	{
		name: cold1000, foos: 1000, namespaces: 1, contenders: []string{watching, ours, framework, raw}, play: coldStart,
		what: "1,000 Foos of one namespace exist when the contender starts. The end is the answer to its last write.",
	},
	{
		name: cold10000, foos: 10_000, namespaces: 1, contenders: []string{watching, ours}, play: coldStart,
		what: "The cold start of 10,000 Foos in one namespace.",
	},
	{
		name: cold1000x50, foos: 1000, namespaces: 50, contenders: []string{watching, ours, framework},
		quick: []string{watching, ours, framework}, play: coldStartAndRestart,
		what: "1,000 Foos in 50 namespaces. Then the contender starts again, and a Foo is created.",
	},
	{
		name: cold10000x50, foos: 10_000, namespaces: 50, contenders: []string{watching, ours, framework},
		play: coldStartAndRestart, what: "The same with 10,000 Foos.",
	},
	{
		name: unrelated, foos: 10_000, namespaces: 50, contenders: []string{ours}, play: coldStartAmongOthers,
		what: "The cold start of 10,000 Foos among 10,000 Deployments of others.",
	},
	{
		name: burst, namespaces: 1, contenders: []string{ours, framework, plain}, quick: []string{ours, plain},
		play: hundredAtOnce, what: "100 Foos are created at once. It is quiet when 5 s pass without a write.",
	},
	{
		name: single, namespaces: 1, contenders: []string{watching, ours, framework}, quick: []string{ours, framework},
		play: oneByOne, what: "100 Foos, one after another.",
	},
	{
		name: neighbour, foos: 3000, namespaces: 1, contenders: []string{watching, ours, framework},
		play: besideColdStart, what: "Ten Foos a second in a namespace, while the contender starts with 3,000 of another.",
	},
	{
		name: idle, foos: 100, namespaces: 1, contenders: []string{ours, framework, plain}, quick: []string{ours},
		once: true, play: beIdle, what: "100 Foos, and five minutes in which nothing changes. One round.",
	},
}

// A trial is a run, while it is measured.
type trial struct {
	task
	*cluster
	*process
	ctx     context.Context
	quick   bool
	dir     string // For logs.
	metrics metrics
	others  int // How many Deployments no Foo has.
}

// measure does a run. It also returns an error if the contender did not do its work right.
func (b *bench) measure(ctx context.Context, t task) (metrics, error) {
	disturbed, err := disturbance()
	if err != nil {
		return nil, err
	}
	r := &trial{task: t, ctx: ctx, quick: b.quick, dir: b.dir, metrics: metrics{"disturbance": disturbed}}
	if r.cluster, err = startCluster(ctx); err != nil {
		return nil, err
	}
	defer r.Stop()
	if err := r.createFoos(ctx, t.foos, t.namespaces); err != nil {
		return nil, err
	}
	err = t.play(r)
	if r.process != nil {
		err = errors.Join(err, r.stop())
	}
	return r.metrics, errors.Join(err, r.check(ctx, r.others))
}

// start starts the contender.
func (r *trial) start(profiled bool) (err error) {
	if err := r.audit.reset(); err != nil {
		return err
	}
	r.process, err = startProcess(r.contender, r.contenderKubeconfig(), r.dir, profiled)
	return err
}

// until waits until condition is true of the audit log.
func (r *trial) until(what string, condition func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := errors.Join(r.audit.update(), r.ctx.Err()); err != nil || condition() {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("within %v, %s", patience, what)
}

// untilReported waits until the contender has written the statuses of so many Foos.
func (r *trial) untilReported(foos int) error {
	return r.until(fmt.Sprintf("not all of %d Foos got a status", foos), func() bool {
		return len(r.audit.reported) >= foos
	})
}

// untilQuiet waits until the contender sends no more writes, and returns the seconds from begun to the last one.
func (r *trial) untilQuiet(begun time.Time) (seconds float64, err error) {
	last := begun
	err = r.until("it did not become quiet", func() bool {
		if n := len(r.audit.writes); n > 0 {
			last = r.audit.writes[n-1].StageTimestamp.Time // The log is in this order.
		}
		return time.Since(last) > quiet
	})
	return last.Sub(begun).Seconds(), err
}

// coldStart measures from the start of the process to the answer to its last write.
func coldStart(r *trial) error {
	if err := r.start(false); err != nil {
		return err
	}
	if err := r.untilReported(r.foos); err != nil {
		return err
	}
	seconds, err := r.untilQuiet(r.started)
	if err != nil {
		return err
	}
	cpu, rss, err := r.usage()
	r.metrics["seconds"], r.metrics["cpuPerFoo"], r.metrics["rss"] = seconds, cpu/float64(r.foos), rss
	r.metrics["writesPerFoo"] = float64(len(r.audit.writes)) / float64(r.foos)
	return err
}

// coldStartAmongOthers is a cold start in a cluster with Deployments of which no Foo knows.
func coldStartAmongOthers(r *trial) error {
	r.others = 10_000
	if err := r.createUnrelated(r.ctx, r.others); err != nil {
		return err
	}
	return coldStart(r)
}

// coldStartAndRestart restarts the contender when all is done, and creates a Foo meanwhile.
func coldStartAndRestart(r *trial) error {
	if err := coldStart(r); err != nil {
		return err
	}
	if err := errors.Join(r.stop(), r.start(true)); err != nil {
		return err
	}
	if _, err := r.createFoo(r.ctx, namespaceName(0), "new"); err != nil {
		return err
	}
	if err := r.untilReported(1); err != nil {
		return err
	}
	r.metrics["restartSeconds"] = r.audit.writes[len(r.audit.writes)-1].StageTimestamp.Sub(r.started).Seconds()
	if r.contender == watching {
		r.metrics["restartLists"] = (<-r.printed).Sub(r.started).Seconds()
	}
	_, err := r.untilQuiet(r.started)
	r.metrics["restartWrites"] = float64(len(r.audit.writes) - 2) // Without those for the new Foo.
	return errors.Join(err, r.measureHeap())
}

func (r *trial) measureHeap() (err error) {
	r.metrics["heap"], err = r.heap()
	return err
}

// begin starts the contender, and waits until it serves.
func (r *trial) begin() error {
	if err := r.start(true); err != nil {
		return err
	}
	_, err := r.createFoo(r.ctx, namespaceName(0), "first")
	return errors.Join(err, r.untilReported(1), r.measureHeap())
}

// hundredAtOnce measures from the creation of 100 Foos to the answer to the last write.
func hundredAtOnce(r *trial) error {
	const foos = 100
	if err := errors.Join(r.begin(), r.audit.reset()); err != nil {
		return err
	}
	begun := time.Now()
	err := inParallel(foos, func(i int) error {
		_, err := r.createFoo(r.ctx, namespaceName(0), fmt.Sprint("burst-", i))
		return err
	})
	if err := errors.Join(err, r.untilReported(foos)); err != nil {
		return err
	}
	r.metrics["seconds"], err = r.untilQuiet(begun)
	r.metrics["writesPerFoo"] = float64(len(r.audit.writes)) / float64(foos)
	return err
}

// oneByOne creates Foos one after another. For each it writes the status of the Deployment that a rollout ends with,
// except for raw-watch, which reports only once.
func oneByOne(r *trial) error {
	if err := r.begin(); err != nil {
		return err
	}
	const prefix = "single-"
	foos := 100
	if r.quick {
		foos = 20
	}
	for i := range foos {
		name := fmt.Sprint(prefix, i)
		if _, err := r.createFoo(r.ctx, namespaceName(0), name); err != nil {
			return err
		}
		err := r.untilReported(i + 2)
		if err == nil && r.contender != watching {
			err = r.complete(name, prefix, i+1)
		}
		if err != nil {
			return err
		}
	}
	return r.measureLatencies(namespaceName(0), prefix)
}

// complete writes the status of a Deployment that a rollout ends with, and waits until so many Foos have reported one.
func (r *trial) complete(name, prefix string, foos int) error {
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":1,"replicas":%[1]d,"updatedReplicas":%[1]d,`+
		`"readyReplicas":%[1]d,"availableReplicas":%[1]d}}`, replicas)
	_, err := r.kube.AppsV1().Deployments(namespaceName(0)).Patch(r.ctx, name, types.StrategicMergePatchType, status,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	return r.until(name+" did not become Ready", func() bool {
		_, reported := r.audit.latencies(namespaceName(0), prefix)
		return len(reported) >= foos
	})
}

// besideColdStart creates Foos in one namespace while the contender does the work of a start in another.
func besideColdStart(r *trial) error {
	const elsewhere, prefix = "elsewhere", "new-"
	if err := errors.Join(r.createNamespace(r.ctx, elsewhere), r.start(false)); err != nil {
		return err
	}
	if err := r.untilReported(1); err != nil {
		return err
	}
	created := 0
	for ; len(r.audit.reported) < r.foos; created++ {
		if _, err := r.createFoo(r.ctx, elsewhere, fmt.Sprint(prefix, created)); err != nil {
			return err
		}
		time.Sleep(time.Second / 10)
		if err := errors.Join(r.audit.update(), r.ctx.Err()); err != nil {
			return err
		}
	}
	return errors.Join(r.untilReported(r.foos+created), r.measureLatencies(elsewhere, prefix))
}

func (r *trial) measureLatencies(namespace, prefix string) error {
	err := r.audit.update()
	created, reported := r.audit.latencies(namespace, prefix)
	r.metrics["created50"], r.metrics["created99"] = percentile(created, 50), percentile(created, 99)
	if len(reported) > 0 {
		r.metrics["reported50"], r.metrics["reported99"] = percentile(reported, 50), percentile(reported, 99)
	}
	return err
}

// beIdle leaves the contender alone when all is done.
func beIdle(r *trial) error {
	length := 5 * time.Minute
	if r.quick {
		length = 10 * time.Second
	}
	if err := coldStart(r); err != nil {
		return err
	}
	if err := r.audit.reset(); err != nil {
		return err
	}
	before, _, err := r.usage()
	select {
	case <-r.ctx.Done():
	case <-time.After(length):
	}
	after, _, errAfter := r.usage()
	r.metrics["idleCPU"] = (after - before) / length.Minutes()
	err = errors.Join(err, errAfter, r.ctx.Err(), r.audit.update())
	r.metrics["idleRequests"] = float64(len(r.audit.requests)) / length.Minutes()
	return err
}
