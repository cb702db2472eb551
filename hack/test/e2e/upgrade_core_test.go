package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/foo-controller/hack/tools/faults"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file tests that the controller is replaced by another version, forwards and back, while users work.

// olderCommit is a version of the controller before the engine was a package of its own. It needs the same permissions,
// but updates statuses.
const olderCommit = "2a1233d"

// nextImage is the image of a Foo without one, in a next version.
const nextImage = "nginx:next"

// differences are what a next version may change of the Deployments that it creates and of what it reports. The old
// texts must be in the sources.
var differences = []faults.Fault{
	{
		File:   "pkg/plan/deployment.go",
		Before: `DefaultImage = "nginx:latest"`,
		After:  `DefaultImage = "` + nextImage + `"`,
	},
	{
		File:   "pkg/plan/deployment.go",
		Before: `{{Name: ContainerName, Image: cmp.Or(foo.Spec.Image, DefaultImage)}}`,
		After:  `{{Name: ContainerName, Image: cmp.Or(foo.Spec.Image, DefaultImage), ImagePullPolicy: corev1.PullAlways}}`,
	},
	{
		File:   "pkg/plan/readiness.go",
		Before: `"%d of %d replicas available"`,
		After:  `"%d of %d replicas are available"`,
	},
}

// buildNext builds a next version from the present sources with the differences. The build reads the changed files from
// another place, so no source is touched.
func buildNext(t *testing.T) (binary string) {
	t.Helper()
	binary = "bin/foo-controller-next"
	texts := map[string][]byte{}
	for _, d := range differences {
		text, err := texts[d.File], error(nil)
		if text == nil {
			text, err = os.ReadFile(d.File)
		}
		if err == nil {
			texts[d.File], err = d.Apply(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := faults.Overlay(".", t.TempDir(), "next", texts)
	if err != nil {
		t.Fatal(err)
	}
	// As `make bin/foo-controller-race` does, so that nearly all packages are compiled already.
	build := exec.Command("go", "build", "-race", "-overlay", file, "-ldflags", "-X main.buildVersion=next", "-o", binary,
		".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return binary
}

// buildOlder builds olderCommit.
func buildOlder(t *testing.T) (binary string) {
	t.Helper()
	if exec.Command("git", "cat-file", "-e", olderCommit+"^{commit}").Run() != nil {
		t.Skip("the clone has no commit " + olderCommit)
	}
	dir := t.TempDir()
	binary = filepath.Join(dir, "foo-controller")
	build := exec.Command("bash", "-o", "pipefail", "-c", `git archive "$0" | tar -x -C "$1" && go build -C "$1" -race .`,
		olderCommit, dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", olderCommit, err, out)
	}
	return binary
}

// While users create, change, rename and delete Foos, the controller is upgraded and downgraded, copy by copy. At the
// end each Foo has what its user wrote last. Foos that nobody changes keep their Deployments, ReplicaSets and pods,
// though the next version would create other ones. The same is true while both versions write at the same time.
func TestAnUpgradeAndADowngradeUnderLoad(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	t.Run("to a next version", func(t *testing.T) { e.upgradeAndDowngrade(t, buildNext(t), nextImage) })
	t.Run("to an older version", func(t *testing.T) { e.upgradeAndDowngrade(t, buildOlder(t), plan.DefaultImage) })
}

// upgradeAndDowngrade changes from this version to another one, which uses an image for Foos without one, and back.
func (e *env) upgradeAndDowngrade(t *testing.T, other, image string) {
	t.Helper()
	kubeconfig := e.kubeconfig(t, nil)
	start := func(t *testing.T, binary string, flags ...string) *process {
		t.Helper()
		flags = append(flags, "-v=2", "--kubeconfig", kubeconfig, "--health-probe-bind-address=127.0.0.1:0")
		p := startProcess(t, exec.Command(binary, flags...))
		p.waitUntilReady(t)
		return p
	}

	t.Run("one version after the other", func(t *testing.T) {
		e := e.cluster.env(t)
		copies := []*process{
			start(t, controllerBinary, patient.flags()...), start(t, controllerBinary, patient.flags()...),
		}
		check := e.still(t)
		work := e.startWork(t)
		for _, version := range []struct{ name, binary, image string }{
			{name: "upgraded", binary: other, image: image},
			{name: "downgraded", binary: controllerBinary, image: plan.DefaultImage},
		} {
			for i, old := range copies { // As a Deployment does with maxSurge 1 and maxUnavailable 0.
				copies[i] = start(t, version.binary, patient.flags()...)
				old.stop(t)
			}
			until(t, "a copy of the other version leads", func(context.Context) (bool, error) {
				return slices.ContainsFunc(copies, func(p *process) bool { return p.countLog("Became leader") > 0 }), nil
			})
			e.createReady(t, version.name, v1alpha1.FooSpec{DeploymentName: version.name})
			if image := imageOf(e.deployment(t, version.name)); image != version.image {
				t.Errorf("%s: the image of a new Foo is %s, want %s", version.name, image, version.image)
			}
			work.waitForChanges(t, 30)
		}
		work.finish(t, "upgraded", "downgraded")
		check(t)
	})

	t.Run("both versions at once", func(t *testing.T) {
		e := e.cluster.env(t)
		first := start(t, controllerBinary)
		check := e.still(t)
		began := time.Now()
		second := start(t, other)
		work := e.startWork(t)
		work.waitForChanges(t, 60)
		first.stop(t)
		work.waitForChanges(t, 30)
		start(t, controllerBinary)
		work.waitForChanges(t, 60)
		second.stop(t)
		work.finish(t)
		check(t)

		// Three processes have written, and the older version updates the status.
		// They report in different words, so each overwrites the status of the other. Each writes five times at once,
		// three times in the next 7 s, and then with a delay that begins with 8 s, less a fifth.
		rounds := 1 + math.Ceil(time.Since(began).Seconds()/6.4)
		for i := range stillFoos {
			status := fmt.Sprintf(" foos/status %s/still-%d: 200", e.namespace, i)
			n := e.countWrites(t, "patch"+status) + e.countWrites(t, "update"+status)
			if n > 3*8+int(2*rounds) {
				t.Errorf("the status of Foo still-%d was written %d times in %s", i, n, time.Since(began))
			}
		}
	})
}

var upgrade = flag.String("upgrade", "", "control planes of an upgrade, the oldest first: files separated by commas")

// While users work, the control plane is upgraded from version to version: first the API server, then its controllers.
// The data in etcd and the controller stay. At the end each Foo has what its user wrote last, and Foos that nobody
// changes keep their objects.
func TestTheControlPlaneIsUpgraded(t *testing.T) {
	if *upgrade == "" {
		t.Skip("-upgrade has the versions: make test-minors")
	}
	current := filepath.Join(t.TempDir(), "kubernetes")
	files := strings.Split(strings.Trim(*upgrade, ","), ",")
	if err := os.Symlink(files[0], current); err != nil {
		t.Fatal(err)
	}
	e := newDedicatedEnv(t, fullCluster, "--kubernetes="+current)
	e.cluster.controller(t)
	check := e.still(t)
	work := e.startWork(t)
	work.waitForChanges(t, 30)
	for _, file := range files[1:] {
		next := current + ".next"
		if err := errors.Join(os.Symlink(file, next), os.Rename(next, current)); err != nil {
			t.Fatal(err)
		}
		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			e.kill(t, component)
			e.revive(t, component)
		}
		version, err := e.kube.Discovery().ServerVersion()
		if err != nil || !strings.HasSuffix(file, version.GitVersion) {
			t.Fatalf("after the upgrade to %s, the API server has the version %v: %v", file, version, err)
		}
		t.Logf("upgraded to %s", version)
		work.waitForChanges(t, 60)
	}
	work.finish(t)
	check(t)
}

// stillFoos is how many Foos stay as they are.
const stillFoos = 6

// still creates Foos that nobody changes, and waits until they are Ready. It returns a function that checks that their
// Deployments, ReplicaSets and pods are still the same.
func (e *env) still(t *testing.T) (check func(*testing.T)) {
	t.Helper()
	for i := range stillFoos {
		spec := v1alpha1.FooSpec{DeploymentName: fmt.Sprintf("still-%d", i), Replicas: new(int32(2))}
		if i%2 == 0 {
			spec.Replicas = nil // Then the controller writes it once.
		}
		e.createFoo(t, spec.DeploymentName, spec)
	}
	for i := range stillFoos {
		e.waitForReason(t, fmt.Sprintf("still-%d", i), v1alpha1.ReasonAvailable)
	}
	before := e.stillObjects(t)
	return func(t *testing.T) {
		t.Helper()
		if diff := cmp.Diff(before, e.stillObjects(t)); diff != "" {
			t.Errorf("objects of Foos that nobody has changed (-before +after):\n%s", diff)
		}
		for _, write := range e.writes(t, e.namespace) {
			if strings.Contains(write, "/still-") && !strings.HasPrefix(write, "create deployments/") &&
				!strings.Contains(write, " foos/status ") && !strings.HasPrefix(write, "create events/") {
				t.Errorf("written, though nobody has changed it: %s", write)
			}
		}
	}
}

// stillObjects returns the uids of the ReplicaSets and pods, and the uids and generations of the Deployments, by name.
func (e *env) stillObjects(t *testing.T) map[string]string {
	t.Helper()
	objects := map[string]string{}
	for i := range stillFoos {
		foo := e.waitForReason(t, fmt.Sprintf("still-%d", i), v1alpha1.ReasonAvailable)
		dep := e.deployment(t, foo.Name)
		objects["Deployment "+dep.Name] = fmt.Sprint(dep.UID, " ", dep.Generation)
		maps.Copy(objects, e.workload(t, foo.Status.Selector))
	}
	return objects
}

func imageOf(dep *appsv1.Deployment) string { return dep.Spec.Template.Spec.Containers[0].Image }

// work is the work of users. It changes Foos until finish.
type work struct {
	*env
	stop func()

	mu      sync.Mutex
	want    map[string]v1alpha1.FooSpec // What each Foo must become. Foos that were deleted are not in it.
	changes int
}

// startWork starts changing ten Foos, ten times a second.
func (e *env) startWork(t *testing.T) *work {
	t.Helper()
	w := &work{env: e, want: map[string]v1alpha1.FooSpec{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			if err := w.change(context.WithoutCancel(ctx), n%10, n/10); err != nil {
				t.Errorf("change %d of a user: %v", n, err)
				return
			}
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

// change makes the next change of a Foo. It is created, changed in several ways, and deleted, again and again.
func (w *work) change(ctx context.Context, foo, round int) error {
	name := fmt.Sprintf("busy-%d", foo)
	foos := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
	spec, exists := w.want[name]
	switch step := (foo + round) % 8; {
	case !exists:
		spec = v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(1))}
		w.want[name] = spec
		return untilAnswered(ctx, apierrors.IsAlreadyExists, func() error {
			_, err := foos.Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
				metav1.CreateOptions{})
			return err
		})
	case step == 7:
		delete(w.want, name)
		return untilAnswered(ctx, apierrors.IsNotFound,
			func() error { return foos.Delete(ctx, name, metav1.DeleteOptions{}) })
	case step == 5:
		spec.DeploymentName = fmt.Sprintf("%s-%d", name, round)
	case step == 3:
		spec.Image = fmt.Sprintf("nginx:1.%d", round)
	default:
		spec.Replicas = new(int32(round % 3))
	}
	w.want[name] = spec
	body, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	return untilAnswered(ctx, func(error) bool { return false }, func() error {
		_, err := foos.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
}

// untilAnswered repeats a request until the API server answers, as users do. isDone is true of an error that means that
// an earlier request, whose answer was lost, was executed.
func untilAnswered(ctx context.Context, isDone func(error) bool, request func() error) (err error) {
	repeated := false
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, eventually, true, func(context.Context) (bool, error) {
		if err = request(); repeated && isDone(err) {
			err = nil
		}
		repeated = true
		return !errors.As(err, new(*url.Error)), nil
	})
	return err
}

// waitForChanges waits until users have made n more changes.
func (w *work) waitForChanges(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.changes
	}
	end := count() + n
	until(t, fmt.Sprintf("users have made %d more changes", n), func(context.Context) (bool, error) {
		return count() >= end, nil
	})
}

// finish stops the work, and waits until each Foo is what its user wrote last. Apart from their Deployments, there are
// only those of the Foos of still, and others.
func (w *work) finish(t *testing.T, others ...string) {
	t.Helper()
	w.stop()
	var wrong error
	defer func() {
		if wrong != nil {
			t.Logf("what is left to do: %v", wrong)
		}
	}()
	until(t, "each Foo is what its user wrote last", func(ctx context.Context) (bool, error) {
		now := w.compare(ctx, t, others)
		if ctx.Err() == nil { // Otherwise it is about the end of the time.
			wrong = now
		}
		return now == nil, nil
	})
}

func (w *work) compare(ctx context.Context, t *testing.T, others []string) error {
	list, err := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	found, deployments := map[string]v1alpha1.FooSpec{}, w.deployments(t)
	var wrong []error
	for i := range list.Items {
		foo := &list.Items[i]
		if !isReady(foo) || foo.Status.ObservedGeneration != foo.Generation {
			wrong = append(wrong, fmt.Errorf("the Foo %s reports %+v", foo.Name, readyCondition(foo)))
		}
		if !strings.HasPrefix(foo.Name, "busy-") {
			continue
		}
		found[foo.Name] = foo.Spec
		dep := deployments[foo.Spec.DeploymentName]
		if dep == nil || *dep.Spec.Replicas != *foo.Spec.Replicas || foo.Spec.Image != "" && imageOf(dep) != foo.Spec.Image {
			wrong = append(wrong, fmt.Errorf("the Deployment of Foo %s is not as specified", foo.Name))
		}
	}
	names := slices.Clone(others)
	for i := range stillFoos {
		names = append(names, fmt.Sprintf("still-%d", i))
	}
	for _, spec := range w.want {
		names = append(names, spec.DeploymentName)
	}
	slices.Sort(names)
	wrong = append(wrong, differ("Foos", w.want, found),
		differ("Deployments", names, slices.Sorted(maps.Keys(deployments))))
	return errors.Join(wrong...)
}

// differ returns the difference between what is wanted and found, or nil.
func differ(what string, want, found any) error {
	if diff := cmp.Diff(want, found); diff != "" {
		return fmt.Errorf("%s (-want +found):\n%s", what, diff)
	}
	return nil
}
