package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/sim/faults"
	"example.com/foo-controller/pkg/sim/footest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in docs/scenarios")

// TestScenarios plays docs/scenarios. To rewrite the outputs after a change of the controller, and then review the
// difference:
//
//	go test -run TestScenarios . -rewrite
func TestScenarios(t *testing.T) {
	footest.RunScenarios(t, "docs/scenarios/*.txt", newSubject, *rewrite)
}

func TestScenariosNoticeFaults(t *testing.T) { footest.RunScenariosWithFaults(t, newSubject) }

func TestScenarioStepsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range footest.StepWords() {
		if !strings.Contains(string(text), "`"+words) {
			t.Errorf("docs/scenarios/README.md does not have the step %q", words)
		}
	}
}

var (
	dayFoos   = flag.Int("foos", 100, "number of Foos in TestASimulatedDay")
	rivals    = flag.String("rivals", "20,40", "numbers of Foos of which TestRivals logs the CPU time")
	schedules = flag.Int("schedules", 20, "number of schedules that TestSchedules plays")
	seeds     = flag.Int("seeds", 4, "number of schedules that TestASeedReplaysExactly plays")
	replays   = flag.Int("replays", 2, "how often TestASeedReplaysExactly plays each schedule")
	seed      = flag.Int64("seed", -1, "the schedule that TestSimulate shows")
	pairs     = flag.Int("pairs", 1000, "number of Foos in TestMemory")
	churn     = flag.Int("churn", 500, "number of Foos in TestNothingIsKeptOfFoosThatAreGone")
	edited    = flag.Duration("edited", 30*time.Second, "time in which TestNeighbours edits a Foo 100 times a second")
)

func TestASimulatedDay(t *testing.T) {
	foos := *dayFoos
	if testing.Short() {
		foos = min(foos, 20)
	}
	footest.SimulateDay(t, newRunner, foos)
}

// TestSchedules plays schedules and logs how many it played per second:
//
//	go test -run TestSchedules -v . -schedules 2000
func TestSchedules(t *testing.T) { footest.SimulateSchedules(t, newRunner, *schedules) }

// TestASeedReplaysExactly checks a few seeds. More of them take minutes:
//
//	go test -run TestASeedReplaysExactly -timeout 1h . -seeds 100 -replays 10
func TestASeedReplaysExactly(t *testing.T) { footest.ReplaySchedules(t, newRunner, *seeds, *replays) }

// TestSimulate shows one schedule: make simulate SEED=2
func TestSimulate(t *testing.T) {
	if *seed < 0 {
		t.Skip("no -seed")
	}
	footest.ShowSchedule(t, newRunner, *seed, os.Stdout)
}

// The faults of a dense schedule are shown. The words of readable and wordsFor have a test of their own.
func TestASimulationShowsItsFaults(t *testing.T) {
	var b strings.Builder
	footest.ShowSchedule(t, newRunner, 1, &b)
	shown := b.String()
	if !strings.HasSuffix(shown, "\nconverged\n") {
		t.Errorf("not converged:\n%s", shown)
	}
	for _, f := range faults.Random(1, true).Faults {
		if f.Nth < 5 && strings.Count(shown, f.String()) != 2 { // In the list, and when it happens.
			t.Errorf("%s is not shown twice:\n%s", f, shown)
		}
	}
}

// TestNeighbours runs only small simulations with -short and with the race detector. With an hour of edits it takes
// about 20 minutes:
//
//	go test -run TestNeighbours -timeout 1h . -edited 1h
func TestNeighbours(t *testing.T) { footest.SimulateNeighbours(t, newRunner, *edited) }

// TestRivals logs the CPU time of Foos that name one Deployment:
//
//	go test -run TestRivals -v -timeout 1h . -rivals 500,1000,2000,5000,10000
func TestRivals(t *testing.T) {
	var sizes []int
	if err := json.Unmarshal([]byte("["+*rivals+"]"), &sizes); err != nil {
		t.Fatal(err)
	}
	footest.MeasureRivals(t, newRunner, sizes)
}

func TestOutagesOfAWatchLoseNothing(t *testing.T) { footest.SimulateOutages(t, newRunner) }

// The other tests run without a resync, and do not need one.
func TestAResyncFindsAKeyThatWasLost(t *testing.T) {
	footest.SimulateResync(t, func(ctx context.Context, w footest.Wiring) (func(ctx context.Context), error) {
		c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		if err != nil {
			return nil, err
		}
		add := c.queue.AddAs
		c.queue.AddAs = func(cache.ObjectName, fairqueue.Class) { c.queue.AddAs = add }
		return c.Run, nil
	})
}

// TestNothingIsKeptOfFoosThatAreGone has fewer Foos with -short and with the race detector.
func TestNothingIsKeptOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	runner := func(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
		controller, err = New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		return func(ctx context.Context) { controller.Run(ctx) }, err
	}
	foos := *churn
	if testing.Short() {
		foos = min(foos, 100)
	}
	// The clients lead to the simulated API server.
	footest.SimulateChurn(t, runner, func() any { return controller }, foos, "Reconciler.Kinds",
		"Reconciler.Recorder.sink.EventSink")
}

// A standby has caches, and nobody takes keys from its queue.
func TestAStandbyKeepsNothingOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	runner := func(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
		controller, err = New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
		return func(ctx context.Context) {
			<-ctx.Done()
			controller.names.ShutDown()
			controller.queue.ShutDown()
		}, err
	}
	footest.SimulateStandby(t, runner, func() any { return controller }, "Reconciler.Kinds",
		"Reconciler.Recorder.sink.EventSink")
}

// The limits are what is needed today, and some percent: lower them when less is needed. Deployments that do not have
// the name of their Foo need 680 bytes more.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the heap of a few Foos is mostly that of other things")
	}
	footest.MeasureMemory(t, newRunner, *pairs, footest.Limits{
		HeapPerFoo: 3_072, Goroutines: 165, Writes: map[string]int{"create deployments": 1, "update foos/status": 3},
	})
}

// newRunner makes a Controller for a simulation.
func newRunner(ctx context.Context, w footest.Wiring) (run func(ctx context.Context), err error) {
	c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
	if err != nil {
		return nil, err
	}
	c.Random = w.Random
	if w.Settle != nil {
		c.queue.AddAs = w.Settle(c.queue.AddAs)
	}
	if w.OnSynced != nil {
		c.queue.OnSynced = func(key cache.ObjectName, _ kit.Outcome) { w.OnSynced(key) }
	}
	return c.Run, nil
}

// newSubject makes a Controller for a scenario. Its delays have no random part, because they are part of the output.
func newSubject(ctx context.Context, w footest.Wiring) (*footest.Subject, error) {
	c, err := New(ctx, Clients{w.Kube, w.Samples}, w.Recorder, w.Foos, w.Deployments, w.Workers)
	if err != nil {
		return nil, err
	}
	c.Random = func() float64 { return 0 }
	_, err = c.watch(klog.FromContext(ctx))
	return &footest.Subject{Queue: c.queue, Names: c.names}, err
}
