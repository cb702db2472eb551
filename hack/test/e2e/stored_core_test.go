package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/hack/tools/controlplane"
	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about stored Foos: those from before the definition had its rules, which are invalid or have values that
// the Go type cannot have, and those from a backup. A list or watch of all Foos has them too.

// noRules is a CRD for the same Foos without validation, as a cluster may have had before ours.
const noRules = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: foos.samplecontroller.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, a test"}
spec:
  group: samplecontroller.k8s.io
  names: {kind: Foo, listKind: FooList, plural: foos, singular: foo}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// withoutRules calls store while the API server accepts each Foo. Then it applies our CRD.
func (e *env) withoutRules(t *testing.T, store func()) {
	t.Helper()
	accepts := func(want bool) {
		until(t, fmt.Sprintf("the API server accepts each Foo: %t", want), func(ctx context.Context) (bool, error) {
			err := e.createRaw(ctx, "probe", `"spec":{"replicas":1}`, metav1.CreateOptions{DryRun: dryRun})
			return (err == nil) == want, nil
		})
	}
	e.kubectl(t, noRules, "apply", "-f", "-")
	accepts(true)
	store()
	e.kubectl(t, "", "apply", "-f", crdFile)
	accepts(false)
}

// storedFoos are Foos that our validation refuses, or whose status our controller would not write like this.
var storedFoos = []struct {
	name, fields string
	message      string // The beginning of the message, "" if the spec is valid.
	fix          string // The patch that corrects the spec.
	// stuck is true if the server refuses each write of metadata until the Foo is fixed, also that which ends a deletion
	// in the foreground: because of the scale subresource, it validates replicas in every write.
	stuck bool
}{
	{name: "no-spec", message: "spec.deploymentName is missing", fix: `{"spec":{"deploymentName":"no-spec"}}`},
	{
		name: "null-spec", fields: `"spec":null`,
		message: "spec.deploymentName is missing", fix: `{"spec":{"deploymentName":"null-spec"}}`,
	},
	{
		name: "no-name", fields: `"spec":{"replicas":1}`,
		message: "spec.deploymentName is missing", fix: `{"spec":{"deploymentName":"no-name"}}`,
	},
	{
		name: "bad-name", fields: `"spec":{"deploymentName":"Web_1"}`,
		message: `spec.deploymentName is "Web_1", which is not a name`, fix: `{"spec":{"deploymentName":"bad-name"}}`,
	},
	{
		name: "long-name", fields: `"spec":{"deploymentName":"` + strings.Repeat("a", 254) + `"}`,
		message: `spec.deploymentName is "aaaa`, fix: `{"spec":{"deploymentName":"long-name"}}`,
	},
	{
		name: "image-with-spaces", fields: `"spec":{"deploymentName":"image-with-spaces","image":"a b"}`,
		message: "spec.image contains spaces", fix: `{"spec":{"image":"nginx:1.29"}}`,
	},
	{
		name: "long-image", fields: `"spec":{"deploymentName":"long-image","image":"` + strings.Repeat("a", 1025) + `"}`,
		message: "spec.image is longer than 1024 characters", fix: `{"spec":{"image":"nginx:1.29"}}`,
	},
	{
		name: "negative-replicas", fields: `"spec":{"deploymentName":"negative-replicas","replicas":-1}`,
		message: "spec.replicas is -1", fix: `{"spec":{"replicas":0}}`, stuck: true,
	},
	{name: "unknown-fields", fields: `"other":1,"spec":{"deploymentName":"unknown-fields","other":{"a":1}}`},
	{name: "null-status", fields: `"spec":{"deploymentName":"null-status"},"status":null`},
	{name: "null-conditions", fields: `"spec":{"deploymentName":"null-conditions"},"status":{"conditions":null}`},
	{
		name: "odd-conditions",
		fields: `"spec":{"deploymentName":"odd-conditions"},"status":{"observedGeneration":-1,"conditions":[
			{"type":"Ready","status":"Maybe","reason":"no good","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`,
	},
	{
		// The server cannot distinguish the old one of two entries with the same key, so it validates both as new.
		name: "doubled-conditions",
		fields: `"spec":{"deploymentName":"doubled-conditions"},"status":{"conditions":[
			{"type":"Ready","status":"True"},{"type":"Ready","status":"False"}]}`,
	},
}

// The controller reports them, and continues when they are fixed. Until then, they can be labelled and deleted.
func TestFoosStoredBeforeValidationAreInvalidUntilTheyAreFixed(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster) // The test replaces the CRD.
	e.needsMinor(t, 33, "status update of what was stored before a rule of the CustomResourceDefinition")
	deleted := e.cluster.env(t)
	e.withoutRules(t, func() {
		for _, foo := range storedFoos {
			for _, e := range []*env{e, deleted} {
				if err := e.createRaw(t.Context(), foo.name, foo.fields, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	e.cluster.controller(t)
	for _, stored := range storedFoos {
		if stored.message != "" {
			foo := e.waitForReason(t, stored.name, v1alpha1.ReasonInvalid)
			if !strings.HasPrefix(readyCondition(foo).Message, stored.message) ||
				!meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
				t.Errorf("%s: conditions = %v, want Stalled and a message that begins with %q", stored.name,
					foo.Status.Conditions, stored.message)
			}
			err := e.patchRaw(t.Context(), stored.name, `{"metadata":{"labels":{"a":"b"}}}`)
			if (err != nil) != stored.stuck {
				t.Errorf("%s: labelled before it is fixed: %v", stored.name, err)
			}
			if e.exists(t, stored.name) {
				t.Errorf("%s: a Deployment was created", stored.name)
			}
			e.editFoo(t, stored.name, stored.fix)
		}
		e.waitForReason(t, stored.name, v1alpha1.ReasonAvailable)
	}

	for _, stored := range storedFoos {
		deleted.deleteFoo(t, stored.name, metav1.DeletePropagationForeground)
		if stored.stuck {
			deleted.editFoo(t, stored.name, stored.fix)
		}
	}
	until(t, "all of them and their Deployments are deleted", func(ctx context.Context) (bool, error) {
		list, err := deleted.foos().List(ctx, metav1.ListOptions{})
		return len(list.Items) == 0 && deleted.hasDeployments(t), err
	})
}

// unreadableTimes are values that API servers accept for the format date-time and that Go cannot read, as JSON.
var unreadableTimes = []string{
	`"2020-01-01t00:00:00z"`, `"2020-01-01t00:00:00Z"`, `"2020-01-01T00:00:00z"`, `"2020-01-01T00:00:00+25:00"`,
	`"2020-01-01T00:00:00ZT00:00:00Z"`, `"2020-01-01T00:00:00x5Z"`, `["x"]`, `[]`,
}

// unsendableTimes are times that Go can read. In UTC, they are in a year that has no four digits, or the zero time,
// which is sent as null.
var unsendableTimes = []string{
	`"9999-12-31T23:59:59-23:59"`, `"0000-01-01T00:00:00+23:59"`, `"0001-01-01T00:00:00Z"`,
}

// statusWith returns a merge patch of a status with a condition of this time.
func statusWith(time string) string {
	return fmt.Sprintf(`{"status":{"conditions":[
		{"type":"Ready","status":"Unknown","reason":"X","message":"","lastTransitionTime":%s}]}}`, time)
}

func TestAFooWithATimeThatCannotBeReadStopsNoOther(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster) // The test replaces the CRD.
	next := e.cluster.env(t)
	times := slices.Concat(unreadableTimes, unsendableTimes)
	name := func(i int) string { return fmt.Sprintf("web-%d", i) }
	store := func() {
		t.Helper()
		for i, value := range times {
			if err := e.patchRaw(t.Context(), name(i), statusWith(value), "status"); err != nil {
				t.Fatalf("store the time %s: %v", value, err)
			}
		}
	}
	expectAllServed := func(newFoo string) {
		t.Helper()
		next.createReady(t, newFoo, fooSpec(newFoo))
		for i, value := range times {
			foo := e.waitForReason(t, name(i), v1alpha1.ReasonAvailable)
			if time := readyCondition(foo).LastTransitionTime; len(foo.Unread) > 0 || time.IsZero() {
				t.Errorf("the time %s is still stored: %+v", value, foo.Status)
			}
		}
	}

	older, err := controlplane.OlderCRD(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, older, "apply", "-f", "-")
	e.createFoo(t, "probe", v1alpha1.FooSpec{DeploymentName: "probe", Paused: true})
	accepted := func(ctx context.Context) bool {
		return e.patchRaw(ctx, "probe", statusWith(unreadableTimes[0]), "status") == nil
	}
	until(t, "the server uses the older CRD", func(ctx context.Context) (bool, error) { return accepted(ctx), nil })
	for i := range times {
		e.createFoo(t, name(i), fooSpec(name(i)))
	}
	store()
	p := e.cluster.controller(t)
	expectAllServed("new-at-start")
	store() // The watch has them.
	expectAllServed("new-behind-them")
	p.expectNoProblems(t)

	e.kubectl(t, "", "apply", "-f", crdFile)
	until(t, "the server uses our CRD", func(ctx context.Context) (bool, error) { return !accepted(ctx), nil })
	for _, time := range unreadableTimes {
		err := e.patchRaw(t.Context(), "probe", statusWith(time), "status")
		if err == nil || !strings.Contains(err.Error(), timeRule) && !strings.HasPrefix(time, "[") {
			t.Errorf("a time of %s: %v, want the error %q", time, err, timeRule)
		}
	}
}

// expectNoProblems checks that the process could read all objects.
func (p *process) expectNoProblems(t *testing.T) {
	t.Helper()
	for _, words := range []string{"Cannot list and watch", "Watch ended", "unable to decode", "Sync failed"} {
		if n := strings.Count(p.log.String(), words); n > 0 {
			t.Errorf("%q is logged %d times", words, n)
		}
	}
}

// createDeep creates a Foo whose managed fields have so many levels that Go can decode the Foo alone, but neither a
// watch event with it nor a list of it. The API server stores it.
func (e *env) createDeep(t *testing.T, name string) {
	t.Helper()
	const levels = 10_000 - 4 // The Foo, its metadata, the list of managed fields and its first entry are levels too.
	fields := strings.Repeat(`{"f:a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
	foo := fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo",
		"metadata":{"name":%q,"managedFields":[{"manager":"deep","operation":"Update","fieldsType":"FieldsV1",
		"apiVersion":"samplecontroller.k8s.io/v1alpha1","time":"2026-01-01T00:00:00Z","fieldsV1":%s}]},
		"spec":{"deploymentName":%q,"replicas":1}}`, name, fields, name)
	foos := e.samples.SamplecontrollerV1alpha1()
	post := foos.RESTClient().Post().Namespace(e.namespace).Resource("foos").Body([]byte(foo))
	if err := post.Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := foos.Foos(e.namespace).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatalf("Foo %s can be read in a list: the test is without effect", name)
	}
}

func TestAFooTooDeepForAListIsServedAndStopsNoOther(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)                             // No other test can list Foos meanwhile.
	e.needsMinor(t, 33, "list of objects that are too deep for one") // It answers 500, also to the check at the start.
	next := e.cluster.env(t)
	first := e.cluster.controller(t)
	e.createDeep(t, "deep-in-watch")
	next.createReady(t, "behind-it", fooSpec("behind-it"))
	e.waitForReason(t, "deep-in-watch", v1alpha1.ReasonAvailable)
	first.stop(t)
	first.expectNoProblems(t)

	e.createDeep(t, "deep-in-list")
	restarted := e.cluster.controller(t)
	next.createReady(t, "beside-it", fooSpec("beside-it"))
	e.waitForReason(t, "deep-in-list", v1alpha1.ReasonAvailable)
	restarted.expectNoProblems(t)
}

// An administrator restores an older state of etcd while the controller runs. The resourceVersions go back, so the
// watches of all clients are silent until the cluster has made as many writes again, and their caches have objects that
// do not exist any more. A controller that is not restarted creates and deletes nothing because of them: it reads live
// before. But it may correct a restored Deployment to a later spec of the Foo, which its cache still has. After a
// restart, as docs/install.md advises, each Foo gets what its restored spec asks for.
func TestAfterAnOlderStateIsRestoredARestartIsEnough(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil))
	e.createFoo(t, "kept", fooSpec("kept"))
	e.createFoo(t, "deleted", fooSpec("deleted"))
	e.createFoo(t, "renamed", fooSpec("before"))
	for name, deployment := range map[string]string{"kept": "kept", "deleted": "deleted", "renamed": "before"} {
		e.waitForReplicas(t, deployment, 1)
		e.waitForReason(t, name, v1alpha1.ReasonCreating)
	}
	backup := t.TempDir()
	e.kill(t, "kube-apiserver", "etcd")
	if err := os.CopyFS(backup, os.DirFS(e.etcdDir())); err != nil {
		t.Fatal(err)
	}
	e.revive(t, "etcd", "kube-apiserver")

	e.editFoo(t, "kept", `{"spec":{"replicas":5}}`)
	e.waitForReplicas(t, "kept", 5)
	e.deleteFoo(t, "deleted", metav1.DeletePropagationBackground)
	e.editFoo(t, "renamed", `{"spec":{"deploymentName":"after"}}`)
	e.waitForReplicas(t, "after", 1)
	e.reportAvailable(t, "after", 1)
	until(t, "its former Deployment is deleted", func(context.Context) (bool, error) {
		return !e.exists(t, "before"), nil
	})
	e.createFoo(t, "lost", fooSpec("lost"))
	e.waitForReplicas(t, "lost", 1)
	e.waitForReason(t, "lost", v1alpha1.ReasonCreating)

	// An API server refuses all requests until it has read the roles, and a watch that is refused begins again with a
	// list. So the process sleeps until then.
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) })
	e.kill(t, "kube-apiserver", "etcd")
	if err := os.RemoveAll(e.etcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.etcdDir(), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	e.revive(t, "etcd", "kube-apiserver")
	until(t, "the API server has read the roles", func(ctx context.Context) (bool, error) {
		return e.may(ctx, t, controllerUser, permission{verb: "watch", group: "apps", resource: "deployments"}) &&
			e.may(ctx, t, controllerUser, permission{verb: "watch", group: sampleGroup, resource: "foos"}), nil
	})
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	e.resumeWatches(t)
	uids := func() map[string]types.UID {
		uids := map[string]types.UID{}
		for name, dep := range e.deployments(t) {
			uids[name] = dep.UID
		}
		return uids
	}
	restored := uids()
	// The controller gets events about the restored Deployments before those about their Foos.
	for name := range restored {
		e.editDeployment(t, name, `{"metadata":{"annotations":{"touched":"yes"}}}`)
	}
	e.waitForReplicas(t, "kept", 5) // From the cache.
	e.settle(t)
	for _, name := range []string{"deleted", "renamed"} {
		e.editFoo(t, name, `{"metadata":{"annotations":{"touched":"yes"}}}`)
	}
	e.settle(t)
	if diff := cmp.Diff(restored, uids()); diff != "" || len(restored) != 3 {
		t.Errorf("the Deployments (-restored +now):\n%s", diff)
	}
	p.stop(t)
	startController(t, "--kubeconfig", e.kubeconfig(t, nil))
	e.createFoo(t, "new", v1alpha1.FooSpec{DeploymentName: "new", Replicas: new(int32(2))})
	e.waitForReplicas(t, "new", 2)
	for name := range restored {
		e.waitForReplicas(t, name, 1)
	}
	// Each restored Foo is still worked on: an edit of it and of its Deployment.
	for foo, deployment := range map[string]string{"kept": "kept", "deleted": "deleted", "renamed": "before"} {
		e.editFoo(t, foo, `{"spec":{"replicas":3}}`)
		e.waitForReplicas(t, deployment, 3)
	}
	if !e.hasDeployments(t, "kept", "deleted", "before", "new") {
		t.Errorf("there are other Deployments than those of the restored state and of a new Foo: %v", uids())
	}
}

// resumeWatches makes writes until the watches of the controller have events again: it serves a new Foo, and corrects
// its Deployment.
func (e *env) resumeWatches(t *testing.T) {
	t.Helper()
	foos := e.foos()
	var served string
	until(t, "a new Foo is served", func(ctx context.Context) (bool, error) {
		name := fmt.Sprintf("settle-%d", settled.Add(1))
		e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(0))})
		list, err := foos.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, foo := range list.Items {
			if strings.HasPrefix(foo.Name, "settle-") && foo.Status.ObservedGeneration == foo.Generation {
				served = foo.Name
			}
		}
		return served != "", nil
	})
	e.editDeployment(t, served, `{"spec":{"replicas":9}}`)
	until(t, "its Deployment is corrected", func(context.Context) (bool, error) {
		n := settled.Add(1)
		e.editDeployment(t, served, fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n))
		return *e.deployment(t, served).Spec.Replicas == 0, nil
	})
}

// Velero restores without uids, owner references and status, and Deployments before Foos. The Deployment then belongs
// to nobody. The selector of docs/install.md leaves out all that is made for a Foo.
func TestFoosThatAreRestoredAsByVelero(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createReady(t, "web", fooSpec("web"))
	page, err := os.ReadFile("docs/install.md")
	selector := regexp.MustCompile(`--selector '(.+)'`).FindSubmatch(page)
	if err != nil || selector == nil {
		t.Fatalf("docs/install.md has no selector: %v", err)
	}
	made := []string{"get", "deployments,replicasets,pods", "-n", e.namespace, "-o", "name", "-l"}
	if all := e.kubectl(t, "", append(made, "")...); strings.Count(all, "\n") != 3 {
		t.Errorf("for the Foo there are, want 3:\n%s", all)
	}
	if left := e.kubectl(t, "", append(made, string(selector[1]))...); left != "" {
		t.Errorf("the selector includes:\n%s", left)
	}
	var backups []string
	for _, object := range []string{"deployment/web", "foo/web"} {
		saved := objectOf(t, e.kubectl(t, "", "get", object, "-n", e.namespace, "-o", "json"))
		saved.SetUID("")
		saved.SetResourceVersion("")
		saved.SetOwnerReferences(nil)
		unstructured.RemoveNestedField(saved.Object, "status")
		text, err := saved.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		backups = append(backups, string(text))
	}
	e.kubectl(t, "", "delete", "foo/web", "--cascade=foreground", "-n", e.namespace)
	for _, object := range backups {
		e.kubectl(t, object, "create", "-f", "-")
	}
	e.waitForReason(t, "web", v1alpha1.ReasonNotOwned)
	e.kubectl(t, "", "delete", "deployment/web", "-n", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
}

// etcdDir returns the directory with the data of etcd.
func (e *env) etcdDir() string { return filepath.Join(filepath.Dir(e.Kubeconfig()), "etcd") }

// waitForReplicas waits until a Deployment exists and has that many replicas in its spec.
func (e *env) waitForReplicas(t *testing.T, name string, replicas int32) {
	t.Helper()
	until(t, "the Deployment "+name+" has the replicas of its Foo", func(ctx context.Context) (bool, error) {
		dep, err := e.deps().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil // Not yet, or the API server has just started.
		}
		return dep.Spec.Replicas != nil && *dep.Spec.Replicas == replicas, nil
	})
}
