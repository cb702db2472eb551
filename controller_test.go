package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/cache"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/foo-controller/pkg/footest"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/syncs"
)

// TestMain fails if the tests leave a goroutine behind. The flags for logging start one that flushes the log, and that
// nothing ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

var (
	deploymentsGR = schema.GroupResource{Group: "apps", Resource: "deployments"}
	webKey        = cache.NewObjectName("default", "web")
)

// held is the outcome of a sync that has nothing left to do, and wrote or found something that the caches may lack.
var held = reconcile.WaitFor(reconcile.CacheStale, 5*time.Millisecond)

// TestSync syncs one Foo, default/web, and compares all requests that the API server received. Each row also checks
// that the sync changes no cached object. If the key is held, the row syncs once more with caches that show the
// result: that sync must write nothing.
func TestSync(t *testing.T) {
	const moved = `Normal Moved Moved to Deployment "web" (3 of 3 replicas available) and deleted previous Deployment ` +
		`"other"`
	for _, test := range []struct {
		name string
		// cached are the objects in the caches, live those in the API server. A nil live is the same as cached.
		cached, live []runtime.Object
		// want are the requests, in order.
		want []string
		// ready is the Ready condition after the sync, as status/reason. It is "" if no status is written.
		ready   string
		events  []string
		outcome kit.Outcome
	}{
		{
			name:    "a new Foo gets its Deployment, with two writes",
			cached:  objects(newFoo()),
			want:    []string{"create deployments web", "patch foos/status web"},
			ready:   "False/Creating",
			outcome: held,
		},
		{
			name:    "a Foo whose status is up to date needs no request",
			cached:  objects(newFoo(upToDate), newDeployment()),
			outcome: kit.Outcome{Kind: "done"},
		},
		{
			name:    "drift is corrected by one patch, after a live read of the Foo",
			cached:  objects(newFoo(upToDate), newDeployment(scaledTo(9))),
			want:    []string{"get foos web", "patch deployments web", "patch foos/status web"},
			ready:   "False/Progressing",
			events:  []string{`Normal Corrected Corrected Deployment "web": spec.replicas was 9, must be 3`},
			outcome: held,
		},
		{
			name:    "a deleted Deployment is created again if a live read shows the Foo",
			cached:  objects(newFoo(upToDate)),
			want:    []string{"get foos web", "create deployments web", "patch foos/status web"},
			ready:   "False/Creating",
			outcome: held,
		},
		{
			name:   "a Foo that is renamed back continues after the patch: no event would requeue it",
			cached: objects(newFoo(), newDeployment(writtenFor(5)), newDeployment(writtenFor(6), named("other"))),
			want: []string{
				"patch deployments web", "get foos web", "get deployments web", "delete deployments other",
				"patch foos/status web",
			},
			ready:   "True/Available",
			events:  []string{moved, "Normal Synced"},
			outcome: held,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.live == nil {
				test.live = test.cached
			}
			f := newFixture(t, test.cached, test.live)
			before := f.cacheContent()

			outcome := f.queue.Sync(f.ctx, webKey)
			if outcome.Kind != test.outcome.Kind || outcome.For != test.outcome.For && test.outcome.For != "" ||
				outcome.Kind != "done" && outcome.Expected != test.outcome.Expected {
				t.Errorf("outcome = %+v, want %+v", outcome, test.outcome)
			}
			if diff := cmp.Diff(test.want, f.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, f.cacheContent()); diff != "" {
				t.Errorf("cached objects were changed (-before +after):\n%s", diff)
			}
			f.checkEvents(test.events)
			if test.ready != "" {
				f.checkReady(test.ready)
			}
			if outcome.For != reconcile.CacheStale || countWrites(test.want) == 0 {
				return // Not done yet, or nothing was written that a second sync could repeat.
			}
			f.refresh()
			if got := f.queue.Sync(f.ctx, webKey); got.ComesBack() {
				t.Errorf("second sync: %+v, want none after it", got)
			}
			if got := f.requests(); countWrites(got) > 0 {
				t.Errorf("the second sync wrote: %v", got)
			}
		})
	}
}

func TestDeploymentsOfOtherNamespacesAreNotPreviousOnes(t *testing.T) {
	elsewhere := newDeployment(named("other"), func(dep *appsv1.Deployment) { dep.Namespace = "elsewhere" })
	f := newFixture(t, objects(newFoo(), elsewhere), nil)
	if previous := f.othersOf(newFoo()); len(previous) > 0 {
		t.Errorf("previous Deployments: %v, want none", previous)
	}
}

// Each write causes an event, and so a sync with nothing to do.
func TestASyncWithNothingToDoAllocatesLittle(t *testing.T) {
	footest.WithoutRaceDetector(t)
	const most = 67 // Lower it when fewer are needed.
	foo := newFoo(upToDate)
	f := newFixture(t, objects(foo, newDeployment()), objects(foo, newDeployment()))
	ctx := klog.NewContext(f.ctx, klog.Logger{}) // That of a test allocates.
	sync := func() {
		if outcome := f.queue.Sync(ctx, webKey); outcome.Kind != "done" {
			t.Fatalf("outcome %+v", outcome)
		}
	}
	if allocations := testing.AllocsPerRun(100, sync); allocations > most {
		t.Errorf("%.0f allocations, want at most %d", allocations, most)
	}
	if sent := f.requests(); len(sent) > 0 {
		t.Errorf("requests: %v", sent)
	}
}

// BenchmarkSync is an event and the sync that finds nothing to do, without and with /debug/syncs.
func BenchmarkSync(b *testing.B) {
	for _, shown := range []bool{false, true} {
		b.Run(fmt.Sprint("shown=", shown), func(b *testing.B) {
			nothing := []runtime.Object{newFoo(upToDate), newDeployment()}
			f := newFixture(b, nothing, nothing)
			ctx := b.Context() // Its logger is at level 0.
			if shown {
				f.queue.Syncs = syncs.New("foo", func() syncs.Queue { return syncs.Queue{} })
			}
			dep := cachedDeployment()
			f.queue.AddAs(webKey, fairqueue.Change)
			f.queue.ProcessNextWorkItem(ctx, ctx)
			b.ReportAllocs()
			for b.Loop() {
				f.enqueueFoo(f.resolveOwner(dep), "its Deployment has changed")
				f.queue.ProcessNextWorkItem(ctx, ctx)
			}
		})
	}
}

// At the default level, an operator sees each change of a Deployment, each failure, and each Foo that becomes Stalled.
func TestDefaultLogHasChangesFailuresAndStalledFoos(t *testing.T) {
	quota := apierrors.NewForbidden(deploymentsGR, "web", errors.New("exceeded quota"))
	for _, test := range []struct {
		name         string
		cached, live []runtime.Object
		fails        map[string]error
		syncs        int // One, when it is 0.
		want         []string
	}{
		{
			name:   "a Deployment is created",
			cached: objects(newFoo()),
			want:   []string{`INFO Created Deployment foo=default/web rule=create deployment=default/web`},
		},
		{
			name:   "a Foo becomes Stalled",
			cached: objects(newFoo(), newDeployment(foreign)),
			want:   []string{`INFO Foo became Stalled foo=default/web reason=NotOwned`},
		},
		{
			name:   "the API server refuses the same request repeatedly",
			cached: objects(newFoo()),
			fails:  map[string]error{"create deployments web": quota},
			syncs:  2, // The second one backs off.
			want: []string{`ERROR Sync failed: create Deployment web: deployments.apps "web" is forbidden: exceeded quota ` +
				`foo=default/web`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, test.cached, test.cached)
				defer f.shutDown()
				f.fails = test.fails
				logger := newLog(0)
				for range max(test.syncs, 1) {
					f.queue.Add(webKey)
					f.queue.ProcessNextWorkItem(klog.NewContext(f.ctx, logger), klog.NewContext(f.ctx, logger))
				}
				time.Sleep(time.Second) // A Foo that is Stalled for less makes no line.
				synctest.Wait()
				if diff := cmp.Diff(test.want, linesOf(logger)); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// newLog returns a logger that keeps all lines up to a level for linesOf.
func newLog(level int) klog.Logger {
	return ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(level)))
}

// linesOf returns the lines that were logged, without the messages of conditions and the reconcile ids.
func linesOf(logger klog.Logger) []string {
	var lines []string
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		line := fmt.Sprintf("%s %s", entry.Type, entry.Message)
		if entry.Err != nil {
			line += fmt.Sprintf(": %v", entry.Err)
		}
		for pair := range slices.Chunk(slices.Concat(entry.WithKVList, entry.ParameterKVList), 2) {
			if pair[0] != "reconcileID" && pair[0] != "message" {
				line += fmt.Sprintf(" %v=%v", pair[0], pair[1])
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// The manifests grant what the controller asks for, and nothing else.
func TestTheManifestsGrantWhatTheControllerAsksFor(t *testing.T) {
	t.Setenv("KUBECONFIG", "/does/not/exist")
	for file, flags := range map[string][]string{
		"artifacts/deploy/rbac.yaml":     {"--leader-elect-namespace=foo-system"},
		"artifacts/namespaced/rbac.yaml": {"--leader-elect-namespace=default", "--namespace=default"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Cleanup(func() {
				if err := logsapi.ResetForTest(nil); err != nil {
					t.Error(err)
				}
			})
			options, err := kit.Parse(kit.Program{Name: controllerName},
				append(flags, "--leader-elect", "--master=http://127.0.0.1:1"), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			process, err := kit.NewProcess(t.Context(), options, preflight.Hints{})
			if err != nil {
				t.Fatal(err)
			}
			var asked []string
			for _, p := range process.Permissions(needs(options.Namespace)) {
				asked = append(asked, p.String())
			}
			asked = append(asked, "update foos.samplecontroller.k8s.io/status") // For the copies of an older version.
			slices.Sort(asked)
			if diff := cmp.Diff(asked, grantedBy(t, file)); diff != "" {
				t.Errorf("- asked for, + granted:\n%s", diff)
			}
		})
	}
}

// grantedBy returns the permissions of all roles in a file, as preflight.Permission prints them.
func grantedBy(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var granted []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole // A Role has the same rules.
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					p := preflight.Permission{Verb: verb, Group: rule.APIGroups[0]}
					p.Resource, p.Subresource, _ = strings.Cut(resource, "/")
					p.Name = strings.Join(rule.ResourceNames, ",")
					granted = append(granted, p.String())
				}
			}
		}
	}
	slices.Sort(granted)
	return granted
}
