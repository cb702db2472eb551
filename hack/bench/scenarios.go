package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	play             func(*run) error
}

func scenarios() []scenario {
	all, common := []string{watching, ours, framework, raw}, []string{ours, framework, plain}
	return []scenario{
		{cold1000, "1,000 Foos of one namespace exist when the contender starts. The end is the answer to its last write.",
			1000, 1, all, coldStart},
		{cold1000x50, "The same in 50 namespaces.",
			1000, 50, all, coldStart},
		{cold10000, "The same with 10,000 Foos in one namespace.",
			10_000, 1, []string{watching, ours}, coldStart},
		{cold10000x50, "10,000 Foos in 50 namespaces. Then the contender starts again, and a Foo is created.",
			10_000, 50, all[:3], coldStartAndRestart},
		{unrelated, "The cold start of 10,000 Foos among 10,000 Deployments of others.",
			10_000, 50, common[:2], coldStartAmong(10_000)},
		{burst, "100 Foos are created at once. It is quiet when 5 s pass without a write.",
			0, 1, common, burstOf(100)},
		{single, "100 Foos, one after another.",
			0, 1, all[:3], oneByOne(100)},
		{neighbour, "Four Foos a second in a namespace, while the contender starts with 10,000 of another.",
			10_000, 1, all[:3], besideColdStart},
		{idle, "100 Foos, and five minutes in which nothing changes.",
			100, 1, common, idleFor(5 * time.Minute)},
	}
}

// quickScenarios take less than four minutes.
func quickScenarios() []scenario {
	two := []string{watching, ours}
	return []scenario{
		{cold1000, "", 1000, 1, two, coldStart},
		{cold1000x50, "", 1000, 50, []string{watching, ours, framework}, coldStartAndRestart},
		{burst, "", 0, 1, []string{ours, plain}, burstOf(100)},
		{single, "", 0, 1, []string{ours, framework}, oneByOne(20)},
		{neighbour, "", 1000, 1, two[1:], besideColdStart},
		{idle, "", 100, 1, two[1:], idleFor(10 * time.Second)},
	}
}

// A run is a contender in a scenario, while it is measured.
type run struct {
	*scenario
	*cluster
	*process
	ctx       context.Context
	contender string
	dir       string // For logs.
	metrics   map[string]float64
	others    int // How many Deployments no Foo has.
}

// measure plays a scenario with a contender. It also returns an error if the contender did not do its work right.
func measure(ctx context.Context, s *scenario, contender, dir string) (metrics map[string]float64, err error) {
	before := busy()
	time.Sleep(time.Second) // To see what other programs use.
	r := &run{scenario: s, ctx: ctx, contender: contender, dir: dir,
		metrics: map[string]float64{"disturbance": busy() - before}}
	if r.cluster, err = startCluster(ctx); err != nil {
		return nil, err
	}
	defer r.Stop()
	if err := r.createFoos(ctx, s.foos, s.namespaces); err != nil {
		return nil, err
	}
	err = s.play(r)
	if r.process != nil {
		err = errors.Join(err, r.stop())
	}
	return r.metrics, errors.Join(err, r.check(ctx, r.others))
}

// start starts the contender.
func (r *run) start() (err error) {
	if err := r.audit.reset(); err != nil {
		return err
	}
	r.process, err = startProcess(r.contender, r.contenderKubeconfig(), r.dir)
	return err
}

// until waits until condition is true of the audit log.
func (r *run) until(what string, condition func() bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err := errors.Join(r.audit.update(), r.ctx.Err()); err != nil || condition() {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("within %v, %s", patience, what)
}

// untilReported waits until the contender has written the statuses of so many Foos.
func (r *run) untilReported(foos int) error {
	return r.until(fmt.Sprintf("not all of %d Foos got a status", foos), func() bool {
		return len(r.audit.reported) >= foos
	})
}

// untilQuiet waits until the contender sends no more writes, and returns the seconds from begun to the last one.
func (r *run) untilQuiet(begun time.Time) (seconds float64, err error) {
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
func coldStart(r *run) error {
	server := r.serverCPU()
	if err := r.start(); err != nil {
		return err
	}
	if err := r.untilReported(r.foos); err != nil {
		return err
	}
	seconds, err := r.untilQuiet(r.started)
	r.metrics["seconds"] = seconds
	r.metrics["writesPerFoo"] = float64(len(r.audit.writes)) / float64(r.foos)
	r.metrics["cpuPerFoo"] = cpu(r.cmd.Process.Pid) / float64(r.foos)
	r.metrics["serverCPUPerFoo"] = (r.serverCPU() - server) / float64(r.foos)
	return errors.Join(err, r.measureMemory())
}

func (r *run) measureMemory() (err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return err
	}
	r.metrics["rss"] = numberAfter("VmRSS:", status) * 1024
	r.metrics["heap"], err = r.heap()
	return err
}

// coldStartAmong is coldStart in a cluster with Deployments of which no Foo knows.
func coldStartAmong(deployments int) func(*run) error {
	return func(r *run) error {
		r.others = deployments
		if err := r.createUnrelated(r.ctx, deployments); err != nil {
			return err
		}
		return coldStart(r)
	}
}

// coldStartAndRestart restarts the contender when all is done, and creates a Foo meanwhile.
func coldStartAndRestart(r *run) error {
	if err := coldStart(r); err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		return err
	}
	if err := r.start(); err != nil {
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
	return err
}

// begin starts the contender, and waits until it serves.
func (r *run) begin() error {
	if err := r.start(); err != nil {
		return err
	}
	if _, err := r.createFoo(r.ctx, namespaceName(0), "first"); err != nil {
		return err
	}
	return errors.Join(r.untilReported(1), r.measureMemory())
}

// burstOf creates Foos at once. It measures to the answer to the last write.
func burstOf(foos int) func(*run) error {
	return func(r *run) error {
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
}

// oneByOne creates Foos one after another. For each it writes the status of the Deployment that a rollout ends with,
// except for raw-watch, which reports only once.
func oneByOne(foos int) func(*run) error {
	return func(r *run) error {
		if err := r.begin(); err != nil {
			return err
		}
		const prefix = "single-"
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
}

// complete writes the status of a Deployment that a rollout ends with, and waits until so many Foos have reported one.
func (r *run) complete(name, prefix string, foos int) error {
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

// besideColdStart creates four Foos a second in one namespace while the contender does the work of a start in another.
func besideColdStart(r *run) error {
	const elsewhere, prefix = "elsewhere", "new-"
	if err := r.createNamespace(r.ctx, elsewhere); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	created := 0
	for err := r.untilReported(1); len(r.audit.reported) < r.foos; err = r.audit.update() {
		if err != nil {
			return err
		}
		if _, err := r.createFoo(r.ctx, elsewhere, fmt.Sprint(prefix, created)); err != nil {
			return err
		}
		created++
		time.Sleep(time.Second / 4)
	}
	return errors.Join(r.untilReported(r.foos+created), r.measureLatencies(elsewhere, prefix))
}

func (r *run) measureLatencies(namespace, prefix string) error {
	err := r.audit.update()
	created, reported := r.audit.latencies(namespace, prefix)
	r.metrics["created50"], r.metrics["created99"] = percentile(created, 50), percentile(created, 99)
	if len(reported) > 0 {
		r.metrics["reported50"], r.metrics["reported99"] = percentile(reported, 50), percentile(reported, 99)
	}
	return err
}

// idleFor leaves the contender alone when all is done.
func idleFor(length time.Duration) func(*run) error {
	return func(r *run) error {
		if err := coldStart(r); err != nil {
			return err
		}
		before := cpu(r.cmd.Process.Pid)
		err := r.audit.reset()
		select {
		case <-r.ctx.Done():
		case <-time.After(length):
		}
		r.metrics["idleCPU"] = (cpu(r.cmd.Process.Pid) - before) / length.Minutes()
		err = errors.Join(err, r.ctx.Err(), r.audit.update())
		r.metrics["idleRequests"] = float64(len(r.audit.requests)) / length.Minutes()
		return err
	}
}
