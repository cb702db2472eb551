package main

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/footest"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/sim/scenario"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in docs/scenarios")

// TestScenarios plays docs/scenarios. To rewrite the outputs after a change of the controller, and then review the
// difference:
//
//	go test -run TestScenarios . -rewrite
func TestScenarios(t *testing.T) {
	scenario.Play(t, footest.Scenarios(newPlayedController), "docs/scenarios/*.txt", *rewrite)
}

func TestScenarioStepsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range scenario.StepWords(footest.Scenarios(newPlayedController)) {
		if !strings.Contains(string(text), "`"+words) {
			t.Errorf("docs/scenarios/README.md does not have the step %q", words)
		}
	}
}

var (
	schedules = flag.Int("schedules", 50, "number of schedules that TestSchedules plays")
	seeds     = flag.Int("seeds", 4, "number of schedules that TestASeedReplaysExactly plays")
	replays   = flag.Int("replays", 2, "how often TestASeedReplaysExactly plays each schedule")
	seed      = flag.Int64("seed", -1, "the schedule that TestSimulate shows")
	pairs     = flag.Int("pairs", 10000, "number of Foos in TestMemory")
	churn     = flag.Int("churn", 500, "number of Foos in TestNothingIsKeptOfFoosThatAreGone")
	edited    = flag.Duration("edited", 30*time.Second, "time in which TestNeighbours edits a Foo 100 times a second")
)

// TestSchedules plays schedules and logs how many it played per second:
//
//	go test -run TestSchedules -v . -schedules 2000
func TestSchedules(t *testing.T) {
	scenario.PlaySchedules(t, footest.Kind(newPlayedController), footest.Schedule, *schedules, "make simulate SEED=")
}

// TestASeedReplaysExactly checks a few seeds. More of them take minutes:
//
//	go test -run TestASeedReplaysExactly -timeout 1h . -seeds 100 -replays 10
func TestASeedReplaysExactly(t *testing.T) {
	scenario.ReplaySchedules(t, footest.Kind(newPlayedController), footest.Schedule, *seeds, *replays)
}

// TestSimulate shows one schedule: make simulate SEED=2
func TestSimulate(t *testing.T) {
	if *seed < 0 {
		t.Skip("no -seed")
	}
	scenario.ShowSchedule(t, footest.Kind(newPlayedController), footest.Schedule(), *seed, os.Stdout)
}

// TestNeighbours runs only small simulations with -short and with the race detector. With an hour of edits it takes
// about 20 minutes:
//
//	go test -run TestNeighbours -timeout 1h . -edited 1h
func TestNeighbours(t *testing.T) { footest.SimulateNeighbours(t, newPlayedController, *edited) }

func TestOutagesOfAWatchLoseNothing(t *testing.T) { footest.SimulateOutages(t, newPlayedController) }

// The other tests run without a resync, and do not need one.
func TestAResyncFindsAKeyThatWasLost(t *testing.T) {
	footest.SimulateResync(t, func(ctx context.Context, w scenario.Wiring) (*scenario.Controller, error) {
		c, err := newControllerWith(ctx, w, 10*time.Minute)
		if err != nil {
			return nil, err
		}
		add := c.queue.AddAs
		c.queue.AddAs = func(cache.ObjectName, fairqueue.Class) { c.queue.AddAs = add }
		return played(c), nil
	})
}

// TestNothingIsKeptOfFoosThatAreGone has fewer Foos with -short and with the race detector.
func TestNothingIsKeptOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	newPlayedController := func(ctx context.Context, w scenario.Wiring) (_ *scenario.Controller, err error) {
		controller, err = newControllerWith(ctx, w, 0)
		return played(controller), err
	}
	foos := *churn
	if testing.Short() {
		foos = min(foos, 100)
	}
	// The clients lead to the simulated API server.
	footest.SimulateChurn(t, newPlayedController, func() any { return controller }, foos)
}

// A standby has caches, and nobody takes keys from its queue.
func TestAStandbyKeepsNothingOfFoosThatAreGone(t *testing.T) {
	var controller *Controller
	newPlayedController := func(ctx context.Context, w scenario.Wiring) (_ *scenario.Controller, err error) {
		controller, err = newControllerWith(ctx, w, 0)
		standby := played(controller)
		standby.Run = func(ctx context.Context) {
			<-ctx.Done()
			controller.shutDown()
		}
		return standby, err
	}
	footest.SimulateStandby(t, newPlayedController, func() any { return controller })
}

// The limits are what is needed today, and some percent: lower them when less is needed. Deployments that do not have
// the name of their Foo need 680 bytes more.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the heap of a few Foos is mostly that of other things")
	}
	const bytes, goroutines = 2_304, 165
	writes := map[string]int{"create deployments": 1, "patch foos/status": 3}
	footest.MeasureMemory(t, newPlayedController, *pairs, bytes, goroutines, writes)
}

// newPlayedController makes a Controller for package scenario.
func newPlayedController(ctx context.Context, w scenario.Wiring) (*scenario.Controller, error) {
	c, err := newControllerWith(ctx, w, 0)
	return played(c), err
}

// newControllerWith makes a Controller whose Foos are resynced after this time, or never.
func newControllerWith(ctx context.Context, w scenario.Wiring, resync time.Duration) (*Controller, error) {
	kube, samples := kubernetes.NewForConfigOrDie(w.Config), clientset.NewForConfigOrDie(w.Config)
	foos := fooinformers.NewSharedInformerFactory(samples, resync).Samplecontroller().V1alpha1().Foos()
	deployments := observe(kubeinformers.NewSharedInformerFactory(kube, 0))
	return New(ctx, Clients{kube, samples}, w.Recorder, foos, deployments, w.Workers)
}

func played(c *Controller) *scenario.Controller {
	return &scenario.Controller{
		Reconciler: c.Reconciler, Watch: c.watch, Run: c.Run, Others: []*kit.Queue{c.deploymentQueue},
	}
}
