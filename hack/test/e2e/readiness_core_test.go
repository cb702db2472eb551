package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file tests the table of docs/readiness.md: all states of a Foo, and how tools that wait for it read them.

const (
	readinessPage = "docs/readiness.md"

	// heldByTest is a finalizer that only the test removes.
	heldByTest = "example.com/hold"
	// keptMeanwhile and servesMeanwhile are in the message of a Foo that is being renamed.
	keptMeanwhile   = " (1 available) is kept until its replacement is available"
	servesMeanwhile = " keeps serving with 1 until then"
)

// A place is the namespace that a Foo of the contract is in.
type place string

const (
	// These places are on fullCluster.
	placeCommon        place = ""
	placeRewritten     place = "rewritten"     // A policy sets the image.
	placeNeverReady    place = "neverReady"    // A policy sets an image that never becomes ready.
	placeDenied        place = "denied"        // A policy denies new Deployments.
	placeNoWebhook     place = "noWebhook"     // The API server calls a webhook that does not answer.
	placeNoDeployments place = "noDeployments" // There is no quota for another Deployment.
	placeNoPods        place = "noPods"        // There is no quota for another pod.

	// These places are on apiCluster, where only the test changes Deployments.
	placeAPIOnly      place = "apiOnly"
	placeTerminating  place = "terminating"  // The namespace is being deleted.
	placeNoController place = "noController" // The controller has stopped before a Foo gets into its state.
)

func (p place) cluster() *shared {
	switch p {
	case placeAPIOnly, placeTerminating, placeNoController:
		return apiCluster
	default:
		return fullCluster
	}
}

// A contractRow is how a Foo gets into a state of the table. The Foo is named after the state.
type contractRow struct {
	state string
	in    place
	// spec is the spec of the new Foo; the Deployment has the name of the Foo. Without spec and stored, how creates the
	// Foo. It changes the state of a Foo with a spec when that is Available or, without available pods, Progressing.
	spec *v1alpha1.FooSpec
	// stored has the fields of a Foo that the API server refuses now.
	stored string
	how    func(t *testing.T, e *env, foo string)
	// message is a part of the message.
	message string
}

var (
	// available becomes Available soon, unavailable never does.
	available   = &v1alpha1.FooSpec{Replicas: new(int32(1)), Image: "nginx:1.29"}
	unavailable = &v1alpha1.FooSpec{Replicas: new(int32(1)), Image: neverReadyImage}

	toTwoReplicas = byEditing(`{"spec":{"replicas":2}}`)
	toPaused      = byEditing(`{"spec":{"paused":true}}`)
)

var contract = []contractRow{
	{state: "pending: not reconciled yet", in: placeNoController, how: byCreating("")},
	{state: "edited: the edit is not reconciled yet", in: placeNoController, spec: available, how: toTwoReplicas},
	{state: "creating", in: placeAPIOnly, spec: available},
	{state: "rolling out", spec: unavailable, message: "0 of 1 replicas available"},
	{state: "ready", spec: available},
	{state: "scaled to zero", spec: &v1alpha1.FooSpec{Replicas: new(int32(0))}},
	{state: "stuck", spec: unavailable, how: byRunningOutOfTime},
	{state: "no quota for the pods", in: placeNoPods, spec: available, how: toTwoReplicas},
	{state: "Deployment paused", spec: available, how: byPausingDeployment},
	{state: "Deployment being deleted", spec: available, how: byDeletingDeployment},
	{state: "Foo paused, available", spec: available, how: toPaused},
	{state: "Foo paused, not available", spec: unavailable, how: toPaused},
	{state: "name taken", how: byCreating("ready")},
	{
		state: "waiting for name: its Foo is renaming", how: byCreating("renaming-the-new-one-comes-up"),
		message: "to move from Deployment",
	},
	{
		state: "waiting for name: its Foo cannot move", how: byCreating("renaming-the-new-name-is-taken"),
		message: "to move from Deployment",
	},
	{
		state: "waiting for name: its Foo is deleted", in: placeAPIOnly, how: byFindingDeploymentOfFormerFoo,
		message: "no longer exists",
	},
	{state: "name cycle", spec: available, how: bySwappingNames},
	{state: "not owned", how: byFindingForeignDeployment},
	{
		state: "overridden, available", in: placeRewritten, spec: available,
		how: byEditing(`{"spec":{"image":"nginx:1.30"}}`),
	},
	{state: "overridden, not available", in: placeNeverReady, how: byCreating("")},
	{state: "overridden, stuck", in: placeNeverReady, how: byCreatingAndRunningOutOfTime},
	{state: "invalid: stored before the rules", in: placeAPIOnly, stored: `"spec":{"replicas":1}`},
	{
		state: "no quota for the Deployment", in: placeNoDeployments, how: byCreating(""), message: "exceeded quota",
	},
	{state: "denied by a policy", in: placeDenied, how: byCreating(""), message: "not on Fridays"},
	{
		state: "a webhook does not answer", in: placeNoWebhook, how: byCreating(""), message: "failed calling webhook",
	},
	{state: "namespace terminating: it was ready", in: placeTerminating, spec: available, how: byLosingNamespace},
	{
		state: "renaming: the new one is created", in: placeAPIOnly, spec: available,
		how: byRenaming("", "nginx:1.29"), message: servesMeanwhile,
	},
	{
		state: "renaming: the new one comes up", spec: available,
		how: byRenaming("", neverReadyImage), message: servesMeanwhile,
	},
	{
		state: "renaming: the new name is taken", spec: available,
		how: byRenaming("ready", "nginx:1.29"), message: keptMeanwhile,
	},
	{
		state: "renaming: no quota for the new one", in: placeNoDeployments, spec: available,
		how: byRenaming("", "nginx:1.29"), message: keptMeanwhile,
	},
	{
		state: "renaming: no quota for its pods", in: placeNoPods, spec: available,
		how: byRenaming("", "nginx:1.29"), message: keptMeanwhile,
	},
	{
		state: "renaming: no quota for its pods in time", in: placeNoPods, spec: available,
		how: byRenamingAndRunningOutOfTime("nginx:1.29"), message: keptMeanwhile,
	},
	{
		state: "renaming: the new one is stuck", spec: available,
		how: byRenamingAndRunningOutOfTime(neverReadyImage), message: keptMeanwhile,
	},
	{
		state: "renaming: the new one is too small", spec: &v1alpha1.FooSpec{Image: "nginx:1.29"},
		how: byRenamingToLess, message: "is set to 2",
	},
	{
		state: "renaming: the old one is being deleted", spec: available,
		how: byRenamingAndHoldingTheOldOne, message: "is being deleted",
	},
	{state: "being deleted: it was ready", spec: available, how: byBeingDeletedAndHeld},
	{state: "being deleted: it was not ready", spec: unavailable, how: byBeingDeletedAndHeld},
}

// foo returns the name of the row's Foo.
func (r *contractRow) foo() string {
	return strings.NewReplacer(" ", "-", ":", "", ",", "").Replace(strings.ToLower(r.state))
}

// from returns the reason of a Foo with a spec, before how changes its state.
func (r *contractRow) from() string {
	if r.spec == unavailable {
		return v1alpha1.ReasonProgressing
	}
	return v1alpha1.ReasonAvailable
}

// linesOfPage returns the lines of the table, by their states, and the whole table.
func linesOfPage(t *testing.T) (lines map[string]string, table string) {
	t.Helper()
	page, err := os.ReadFile(readinessPage)
	if err != nil {
		t.Fatal(err)
	}
	lines = map[string]string{}
	_, text, _ := strings.Cut(string(page), "\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	text, _, _ = strings.Cut(text, "\n\n")
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.Trim(line, "| \n"), "`", "")
		state, _, _ := strings.Cut(line, " | ")
		lines[state] = line
		table += line + "\n"
	}
	return lines, table
}

// conditionsOf returns the conditions of a Foo in the format of a line.
func conditionsOf(foo *v1alpha1.Foo) string {
	var cells []string
	for _, conditionType := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
	} {
		cell := "-"
		if cond := meta.FindStatusCondition(foo.Status.Conditions, conditionType); cond != nil {
			cell = string(cond.Status)
		}
		cells = append(cells, cell)
	}
	return strings.Join(append(cells, readyCondition(foo).Reason), " | ")
}

// A contractStage has the namespaces and controllers for the Foos of the contract.
type contractStage struct {
	lines       map[string]string
	envs        map[place]*env
	controllers map[*shared]*process
}

// TestReadinessContract creates a Foo in each state of the page, runs the tools, and compares their results with it.
func TestReadinessContract(t *testing.T) {
	s := newContractStage(t)
	lines, want := linesOfPage(t)
	s.lines = lines
	s.prepare(t)
	s.limit(t)
	s.createStates(t, false)
	s.controllers[apiCluster].stop(t)
	s.createStates(t, true)
	if diff := cmp.Diff(want, s.table(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", readinessPage, diff)
	}
}

// newContractStage creates the namespaces, stores the invalid Foos, and starts a controller on each cluster.
func newContractStage(t *testing.T) *contractStage {
	t.Helper()
	s := &contractStage{envs: map[place]*env{}, controllers: map[*shared]*process{}}
	clusters := map[*shared]*cluster{}
	for _, like := range []*shared{apiCluster, fullCluster} { // The test replaces the CRD.
		clusters[like] = newDedicatedEnv(t, like).cluster
	}
	for _, row := range contract {
		if s.envs[row.in] == nil {
			s.envs[row.in] = clusters[row.in.cluster()].env(t)
		}
	}
	e := s.envs[placeAPIOnly]
	e.withoutRules(t, func() {
		for _, row := range contract {
			if row.stored == "" {
				continue
			}
			if err := e.createRaw(t.Context(), row.foo(), row.stored, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
	for like, cluster := range clusters {
		s.controllers[like] = cluster.controller(t)
	}
	return s
}

// prepare creates the Foos with a spec, and waits until how may change them.
func (s *contractStage) prepare(t *testing.T) {
	t.Helper()
	for _, row := range contract {
		if row.spec != nil {
			spec := *row.spec
			spec.DeploymentName = row.foo()
			s.envs[row.in].createFoo(t, row.foo(), spec)
		}
	}
	for _, row := range contract {
		if row.spec == nil || row.how == nil {
			continue
		}
		e := s.envs[row.in]
		if row.in.cluster() == apiCluster {
			e.waitForReason(t, row.foo(), v1alpha1.ReasonCreating)
			e.reportAvailable(t, row.foo(), 1)
		}
		e.waitForReason(t, row.foo(), row.from())
	}
}

// limit creates the policies and quotas that the places are named after.
func (s *contractStage) limit(t *testing.T) {
	t.Helper()
	s.envs[placeRewritten].rewriteImages(t, "mirror.example.com/nginx:1")
	s.envs[placeNeverReady].rewriteImages(t, neverReadyImage)
	s.envs[placeDenied].denyDeployments(t, "not on Fridays", "CREATE")
	s.envs[placeNoWebhook].callAWebhookThatIsGone(t)
	for in, counted := range map[place]string{placeNoDeployments: "count/deployments.apps", placeNoPods: "pods"} {
		have := 0 // Each Foo has one Deployment with one pod.
		for _, row := range contract {
			if row.in == in && row.spec != nil {
				have++
			}
		}
		s.envs[in].quota(t, fmt.Sprintf("%s=%d", counted, have))
	}
}

// createStates brings the Foos into their states: those with a controller, or those without one.
func (s *contractStage) createStates(t *testing.T, withoutController bool) {
	t.Helper()
	for _, row := range contract {
		if row.how != nil && (row.in == placeNoController) == withoutController {
			row.how(t, s.envs[row.in], row.foo())
		}
	}
	for _, row := range contract {
		if (row.in == placeNoController) == withoutController {
			s.waitForRow(t, row)
		}
	}
}

// waitForRow waits until a Foo has the conditions that the page has.
func (s *contractStage) waitForRow(t *testing.T, row contractRow) {
	t.Helper()
	cells := strings.Split(s.lines[row.state], " | ")
	if len(cells) < 5 {
		t.Fatalf("%s has no state %q", readinessPage, row.state)
	}
	want := strings.Join(cells[1:5], " | ")
	var foo *v1alpha1.Foo
	defer func() {
		if t.Failed() {
			t.Logf("%s is %s: %s", row.foo(), conditionsOf(foo), readyCondition(foo).Message)
		}
	}()
	until(t, row.foo()+" is "+want, func(context.Context) (bool, error) {
		foo = s.envs[row.in].foo(t, row.foo())
		reconciled := foo.Status.ObservedGeneration == foo.Generation || foo.DeletionTimestamp != nil ||
			row.in == placeNoController
		return reconciled && conditionsOf(foo) == want && strings.Contains(readyCondition(foo).Message, row.message), nil
	})
}

// table returns the actual table: the conditions of the stored Foos, and the results of the tools for them.
func (s *contractStage) table(t *testing.T) string {
	t.Helper()
	ends := s.waitForReady(t)
	argoCD, err := argoCD(healthScript)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for i, row := range contract {
		e := s.envs[row.in]
		object, err := e.samples.SamplecontrollerV1alpha1().RESTClient().Get().Namespace(e.namespace).Resource("foos").
			Name(row.foo()).Do(t.Context()).Raw()
		var foo v1alpha1.Foo
		if err := errors.Join(err, json.Unmarshal(object, &foo)); err != nil {
			t.Fatal(err)
		}
		cells := []string{row.state, conditionsOf(&foo)}
		for _, assess := range []tool{kstatus, argoCD} {
			word, _, err := assess(objectOf(t, string(object)))
			if err != nil {
				t.Fatalf("%s: %v", row.state, err)
			}
			cells = append(cells, word)
		}
		table.WriteString(strings.Join(append(cells, ends[i]), " | ") + "\n")
		ready := readyCondition(&foo)
		for _, cond := range foo.Status.Conditions { // Ready alone has a long cause.
			brief := strings.TrimSuffix(cond.Message, ". The condition Ready has the cause")
			if cond.Reason != ready.Reason || cond.Message != ready.Message && !strings.HasPrefix(ready.Message, brief+": ") {
				t.Errorf("%s: %s has %s, %q and Ready %s, %q",
					row.state, cond.Type, cond.Reason, cond.Message, ready.Reason, ready.Message)
			}
		}
	}
	return table.String()
}

// waitForReady runs kubectl wait for each Foo and returns the results.
func (s *contractStage) waitForReady(t *testing.T) []string {
	t.Helper()
	ends := make([]string, len(contract))
	slots := make(chan struct{}, 12) // Each kubectl needs a processor for a moment and then waits.
	var running sync.WaitGroup
	for i, row := range contract {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			timeout := "1s"
			if strings.HasSuffix(s.lines[row.state], " returns") {
				timeout = eventually.String() // It returns at once, except on a busy machine.
			}
			e := s.envs[row.in]
			out, err := e.try("", "wait", "--for=condition=Ready", "foo/"+row.foo(), "-n", e.namespace, "--timeout="+timeout)
			switch {
			case err == nil:
				ends[i] = "returns"
			case strings.Contains(out, "timed out waiting for the condition"):
				ends[i] = "waits"
			default:
				ends[i] = fmt.Sprint(err, ": ", out)
			}
		})
	}
	running.Wait()
	return ends
}

// The functions below are values of contractRow.how. An empty name of a Deployment means the name of the Foo or, in a
// rename, the name of the Foo with the suffix "-new".

func byCreating(deployment string) func(*testing.T, *env, string) {
	return func(t *testing.T, e *env, foo string) {
		t.Helper()
		spec := *available
		if spec.DeploymentName = deployment; deployment == "" {
			spec.DeploymentName = foo
		}
		e.createFoo(t, foo, spec)
	}
}

func byEditing(patch string) func(*testing.T, *env, string) {
	return func(t *testing.T, e *env, foo string) {
		t.Helper()
		e.editFoo(t, foo, patch)
	}
}

func byRenaming(deployment, image string) func(*testing.T, *env, string) {
	return func(t *testing.T, e *env, foo string) {
		t.Helper()
		to := deployment
		if to == "" {
			to = foo + "-new"
		}
		e.editFoo(t, foo, fmt.Sprintf(`{"spec":{"deploymentName":%q,"image":%q}}`, to, image))
	}
}

func byRenamingAndRunningOutOfTime(image string) func(*testing.T, *env, string) {
	return func(t *testing.T, e *env, foo string) {
		t.Helper()
		byRenaming("", image)(t, e, foo)
		byRunningOutOfTime(t, e, foo+"-new")
	}
}

func byRenamingAndHoldingTheOldOne(t *testing.T, e *env, foo string) {
	t.Helper()
	e.editDeployment(t, foo, `{"metadata":{"finalizers":["`+heldByTest+`"]}}`)
	byRenaming("", "nginx:1.29")(t, e, foo)
}

// byRenamingToLess scales the new Deployment down before it can take over.
func byRenamingToLess(t *testing.T, e *env, foo string) {
	t.Helper()
	e.editDeployment(t, foo, `{"spec":{"replicas":2}}`)
	byRenaming("", neverReadyImage)(t, e, foo)
	until(t, "there is a Deployment "+foo+"-new", func(context.Context) (bool, error) {
		return e.exists(t, foo+"-new"), nil
	})
	e.editDeployment(t, foo+"-new", `{"spec":{"replicas":1}}`)
	e.editFoo(t, foo, `{"spec":{"image":"nginx:1.29"}}`)
}

func byCreatingAndRunningOutOfTime(t *testing.T, e *env, foo string) {
	t.Helper()
	byCreating("")(t, e, foo)
	byRunningOutOfTime(t, e, foo)
}

// byRunningOutOfTime sets a short progress deadline.
func byRunningOutOfTime(t *testing.T, e *env, deployment string) {
	t.Helper()
	until(t, "there is a Deployment "+deployment, func(context.Context) (bool, error) {
		return e.exists(t, deployment), nil
	})
	e.editDeployment(t, deployment, `{"spec":{"progressDeadlineSeconds":2}}`)
}

func byPausingDeployment(t *testing.T, e *env, deployment string) {
	t.Helper()
	e.editDeployment(t, deployment, `{"spec":{"paused":true}}`)
}

func byDeletingDeployment(t *testing.T, e *env, deployment string) {
	t.Helper()
	e.editDeployment(t, deployment, `{"metadata":{"finalizers":["`+heldByTest+`"]}}`)
	if err := e.deps().Delete(t.Context(), deployment,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func byFindingForeignDeployment(t *testing.T, e *env, foo string) {
	t.Helper()
	e.createDeployment(t, foo, nothing)
	byCreating("")(t, e, foo)
}

func byFindingDeploymentOfFormerFoo(t *testing.T, e *env, foo string) {
	t.Helper()
	former := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: foo, UID: "00000000-0000-0000-0000-000000000000"}}
	e.createDeployment(t, foo, func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(former, plan.FooKind.GroupVersionKind)}
	})
	byCreating("")(t, e, foo)
}

func bySwappingNames(t *testing.T, e *env, foo string) {
	t.Helper()
	spec := *available
	spec.DeploymentName = foo + "-other"
	e.createReady(t, foo+"-other", spec)
	e.rename(t, foo, foo+"-other")
	e.rename(t, foo+"-other", foo)
}

func byBeingDeletedAndHeld(t *testing.T, e *env, foo string) {
	t.Helper()
	e.editFoo(t, foo, `{"metadata":{"finalizers":["`+heldByTest+`"]}}`)
	e.deleteFoo(t, foo, metav1.DeletePropagationBackground)
}

// byLosingNamespace deletes the contents of the namespace as the namespace controller does, except the Foo.
func byLosingNamespace(t *testing.T, e *env, foo string) {
	t.Helper()
	if err := e.kube.CoreV1().Namespaces().Delete(t.Context(), e.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.deps().Delete(t.Context(), foo, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the controller tries to create the Deployment again", func(context.Context) (bool, error) {
		return e.countWrites(t, "create deployments/ "+e.namespace+"/"+foo+": 403") > 0, nil
	})
}

// callAWebhookThatIsGone makes the API server call a webhook that does not answer, for each Deployment that is created.
func (e *env) callAWebhookThatIsGone(t *testing.T) {
	t.Helper()
	e.kubectl(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: gone.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, e.namespace), "create", "-f", "-")
	until(t, "the webhook is called", func(ctx context.Context) (bool, error) {
		_, err := e.probePolicies(ctx)
		return apierrors.IsInternalError(err), nil
	})
}
