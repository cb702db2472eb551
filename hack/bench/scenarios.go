package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// The contenders, in the order of tables and plots.
const (
	raw       = "raw"
	watching  = "raw-watch"
	ours      = "foo-controller"
	framework = "controller-runtime"
	plain     = "plain"
)

// Names of scenarios that figures refer to.
const (
	cold1000, cold1000x50    = "cold-1000", "cold-1000-in-50"
	cold10000, cold10000x50  = "cold-10000", "cold-10000-in-50"
	burst, single, busySetup = "burst", "single", "busy"
	idle, unrelated          = "idle", "unrelated"
)

// A scenario is what a contender is measured in. Each run of it has a new control plane.
type scenario struct {
	name string
	// foos are created in so many namespaces before the contender starts.
	foos, namespaces int
	contenders       []string
	// rounds limits how often it is played; 0 is no limit.
	rounds int
	play   func(*run) error
}

func scenarios() []scenario {
	all := []string{raw, watching, ours, framework}
	return []scenario{
		{name: cold1000, foos: 1000, namespaces: 1, contenders: all, play: coldStart},
		{name: cold1000x50, foos: 1000, namespaces: 50, contenders: all, play: coldStart},
		{name: cold10000, foos: 10_000, namespaces: 1, contenders: []string{watching, ours}, play: coldStart},
		{name: cold10000x50, foos: 10_000, namespaces: 50, contenders: all[1:], play: coldStartAndRestart},
		{name: unrelated, foos: 10_000, namespaces: 50, contenders: []string{ours, framework}, play: coldStartAmong(10_000)},
		{name: burst, namespaces: 1, contenders: []string{ours, framework, plain}, play: burstOf(100)},
		{name: single, namespaces: 1, contenders: all[1:], play: one(100)},
		{name: busySetup, foos: 10_000, namespaces: 1, contenders: all[1:], play: whileStarting},
		{name: idle, foos: 100, namespaces: 1, contenders: []string{ours, framework, plain}, rounds: 1,
			play: idleFor(5 * time.Minute)},
	}
}

// quickScenarios take less than four minutes.
func quickScenarios() []scenario {
	few := []string{watching, ours, framework}
	return []scenario{
		{name: cold1000, foos: 1000, namespaces: 1, contenders: few[:2], play: coldStart},
		{name: cold1000x50, foos: 1000, namespaces: 50, contenders: few, play: coldStartAndRestart},
		{name: burst, namespaces: 1, contenders: []string{ours, plain}, play: burstOf(100)},
		{name: single, namespaces: 1, contenders: few[1:], play: one(30)},
		{name: busySetup, foos: 1000, namespaces: 1, contenders: few[1:2], play: whileStarting},
		{name: idle, foos: 100, namespaces: 1, contenders: few[1:2], play: idleFor(10 * time.Second)},
	}
}

const (
	// quiet is how long a contender sends no write until its work counts as done.
	quiet = 5 * time.Second
	// patience is how long a contender may take. In the scenarios for the plain one, that is enough for it.
	patience = 5 * time.Minute
)

// A run is a contender in a scenario, while it is measured.
type run struct {
	*scenario
	*cluster
	*process
	ctx       context.Context
	contender string
	dir       string // For logs.
	metrics   map[string]float64
	// timeline has the times of the writes of a burst, in seconds from its begin.
	timeline []float64
	// others is how many Deployments exist that no Foo has.
	others int
}

// measure plays a scenario with a contender. It returns an error, too, if the contender did not do its work right.
func measure(ctx context.Context, s *scenario, contender, dir string) (r *run, err error) {
	c, err := startCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	r = &run{scenario: s, cluster: c, ctx: ctx, contender: contender, dir: dir, metrics: map[string]float64{}}
	if err := c.createFoos(ctx, s.foos, s.namespaces); err != nil {
		return nil, err
	}
	defer func() {
		if r.process != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if err := s.play(r); err != nil {
		return nil, err
	}
	return r, c.check(ctx, r.others)
}

// start starts the contender, unless it runs.
func (r *run) start() (err error) {
	r.process, err = startProcess(r.contender, r.token, r.dir)
	return err
}

// until calls condition, with an audit log that is up to date, until it is true.
func (r *run) until(what string, condition func() bool) error {
	for end := time.Now().Add(patience); ; {
		select {
		case err := <-r.done:
			r.done <- err
			return fmt.Errorf("the contender has ended: %w", err)
		case <-r.ctx.Done():
			return r.ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if err := r.audit.update(); err != nil {
			return err
		}
		if condition() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v, %s is not true", patience, what)
		}
	}
}

// untilReported waits until the contender has reported on a number of Foos after a time.
func (r *run) untilReported(foos int, after time.Time) error {
	return r.until(fmt.Sprintf("%d Foos have a status", foos), func() bool {
		reported := map[types.NamespacedName]bool{}
		for _, request := range r.audit.writesAfter(after) {
			if ref := request.ObjectRef; request.is("update", "foos", "status") {
				reported[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = true
			}
		}
		return len(reported) >= foos
	})
}

// untilQuiet waits until the contender sends no write any more, and returns when the last one was answered.
func (r *run) untilQuiet(after time.Time) (last time.Time, err error) {
	err = r.until("it is quiet", func() bool {
		for _, request := range r.audit.writesAfter(after) {
			last = request.StageTimestamp.Time // The log is in this order.
		}
		return time.Since(last) > quiet
	})
	return last, err
}

// coldStart starts the contender on Foos without Deployments. It measures from the start of the process to the answer to
// the last write.
func coldStart(r *run) error {
	server, machine := r.serverCPU(), busy()
	if err := r.start(); err != nil {
		return err
	}
	if err := r.untilReported(r.foos, r.started); err != nil {
		return err
	}
	last, err := r.untilQuiet(r.started)
	if err != nil {
		return err
	}
	writes := r.audit.writesAfter(r.started)
	r.metrics["seconds"] = last.Sub(r.started).Seconds()
	r.metrics["requestsPerFoo"] = float64(len(writes)) / float64(r.foos)
	r.metrics["cpuPerFoo"] = cpu(r.cmd.Process.Pid) / float64(r.foos)
	r.metrics["serverCPUPerFoo"] = (r.serverCPU() - server) / float64(r.foos)
	r.metrics["machineCPUPerFoo"] = (busy() - machine) / float64(r.foos)
	return r.measureMemory("")
}

// measureMemory adds the heap and the resident set, with a suffix.
func (r *run) measureMemory(suffix string) (err error) {
	now, peak, err := r.rss()
	if err != nil {
		return err
	}
	r.metrics["rss"+suffix], r.metrics["peak"+suffix] = now, peak
	r.metrics["heap"+suffix], err = r.heap()
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

// coldStartAndRestart also restarts the contender, when all is done, and creates a Foo meanwhile.
func coldStartAndRestart(r *run) error {
	const fresh = "fresh"
	if err := coldStart(r); err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	if _, err := r.createFoo(r.ctx, namespaceName(0), fresh); err != nil {
		return err
	}
	if err := r.untilReported(1, r.started); err != nil {
		return err
	}
	select {
	case at := <-r.lists:
		r.metrics["restartLists"] = at.Sub(r.started).Seconds()
	default:
	}
	if _, err := r.untilQuiet(r.started); err != nil {
		return err
	}
	writes := r.audit.writesAfter(r.started)
	r.metrics["restartWrites"] = float64(len(writes) - 2) // Without those of the new Foo.
	for _, request := range slices.Backward(writes) {
		if request.is("update", "foos", "status") && request.ObjectRef.Name == fresh {
			r.metrics["restartSeconds"] = request.StageTimestamp.Sub(r.started).Seconds()
		}
	}
	return nil
}

// begin starts the contender in an empty cluster, and waits until it serves.
func (r *run) begin() error {
	if err := r.start(); err != nil {
		return err
	}
	if _, err := r.createFoo(r.ctx, namespaceName(0), "first"); err != nil {
		return err
	}
	if err := r.untilReported(1, r.started); err != nil {
		return err
	}
	return r.measureMemory("")
}

// burstOf creates Foos at once. It measures to the answer to the last write.
func burstOf(foos int) func(*run) error {
	return func(r *run) error {
		if err := r.begin(); err != nil {
			return err
		}
		started := time.Now()
		err := inParallel(foos, func(i int) error {
			_, err := r.createFoo(r.ctx, namespaceName(0), fmt.Sprint("burst-", i))
			return err
		})
		if err != nil {
			return err
		}
		if err := r.untilReported(foos, started); err != nil {
			return err
		}
		last, err := r.untilQuiet(started)
		for _, request := range r.audit.writesAfter(started) {
			r.timeline = append(r.timeline, request.StageTimestamp.Sub(started).Seconds())
		}
		r.metrics["seconds"] = last.Sub(started).Seconds()
		r.metrics["requestsPerFoo"] = float64(len(r.timeline)) / float64(foos)
		return err
	}
}

// one creates Foos one after another. For each it writes the status of the Deployment that a rollout ends with, and
// waits until the Foo reports that. It measures from the answer to the creation to that to the Deployment, and from the
// Deployment's status to the Foo's.
func one(samples int) func(*run) error {
	return func(r *run) error {
		if err := r.begin(); err != nil {
			return err
		}
		deployments := r.kube.AppsV1().Deployments(namespaceName(0))
		watches, err := deployments.Watch(r.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		defer watches.Stop()
		for i := range samples {
			name := fmt.Sprint("single-", i)
			if _, err := r.createFoo(r.ctx, namespaceName(0), name); err != nil {
				return err
			}
			if err := untilAdded(r.ctx, watches, name); err != nil {
				return err
			}
			if r.contender == watching {
				continue // It reports only once.
			}
			if err := r.reportAvailable(name); err != nil {
				return err
			}
		}
		err = r.audit.update()
		r.latencies(namespaceName(0), "single-")
		return err
	}
}

// untilAdded waits until a watch shows that an object was created.
func untilAdded(ctx context.Context, w watch.Interface, name string) error {
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return errors.New("the watch has ended")
			}
			if obj, ok := event.Object.(metav1.Object); ok && event.Type == watch.Added && obj.GetName() == name {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
			return fmt.Errorf("there is no %s", name)
		}
	}
}

// reportAvailable writes the status of a Deployment that a rollout ends with, and waits until the Foo has it.
func (r *run) reportAvailable(name string) error {
	const available = 2
	_, err := r.kube.AppsV1().Deployments(namespaceName(0)).Patch(r.ctx, name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"observedGeneration":1,"replicas":%[1]d,"updatedReplicas":%[1]d,`+
			`"readyReplicas":%[1]d,"availableReplicas":%[1]d}}`, available), metav1.PatchOptions{}, "status")
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		foo, err := r.samples.SamplecontrollerV1alpha1().Foos(namespaceName(0)).Get(r.ctx, name, metav1.GetOptions{})
		if err != nil || foo.Status.AvailableReplicas == available {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(err, fmt.Errorf("foo %s does not report the status of its Deployment", name))
}

// whileStarting creates a Foo four times a second in one namespace while the contender starts with those of another.
func whileStarting(r *run) error {
	const elsewhere = "elsewhere"
	if err := r.createNamespace(r.ctx, elsewhere); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	if err := r.untilReported(1, r.started); err != nil {
		return err
	}
	created, every := 0, time.NewTicker(250*time.Millisecond)
	defer every.Stop()
	for len(r.audit.writesAfter(r.started)) < 2*r.foos {
		<-every.C
		if _, err := r.createFoo(r.ctx, elsewhere, fmt.Sprint("other-", created)); err != nil {
			return err
		}
		created++
		if err := r.audit.update(); err != nil {
			return err
		}
	}
	if err := r.untilReported(r.foos+created, r.started); err != nil {
		return err
	}
	_, err := r.untilQuiet(r.started)
	r.latencies(elsewhere, "other-")
	return err
}

// latencies adds how long the Foos of a namespace took whose names have a prefix.
func (r *run) latencies(namespace, prefix string) {
	created, reported := r.audit.latencies(namespace, prefix)
	if len(reported) > 0 {
		r.metrics["report50"], r.metrics["report99"] = percentile(reported, 50), percentile(reported, 99)
	}
	r.metrics["create50"], r.metrics["create99"] = percentile(created, 50), percentile(created, 99)
	r.metrics["samples"] = float64(len(created))
}

// idleFor leaves the contender alone when all is done, and measures what it does.
func idleFor(length time.Duration) func(*run) error {
	return func(r *run) error {
		if err := r.start(); err != nil {
			return err
		}
		if err := r.untilReported(r.foos, r.started); err != nil {
			return err
		}
		if _, err := r.untilQuiet(r.started); err != nil {
			return err
		}
		before, used := len(r.audit.mine), cpu(r.cmd.Process.Pid)
		select {
		case <-r.ctx.Done():
			return r.ctx.Err()
		case <-time.After(length):
		}
		err := r.audit.update()
		r.metrics["idleRequests"] = float64(len(slices.DeleteFunc(slices.Clone(r.audit.mine[before:]), func(q *request) bool {
			return q.Verb == "watch" // client-go renews each after some minutes.
		}))) / length.Minutes()
		r.metrics["idleCPU"] = (cpu(r.cmd.Process.Pid) - used) / length.Minutes()
		return err
	}
}
