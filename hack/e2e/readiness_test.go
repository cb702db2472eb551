package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file tests the contract of docs/readiness.md: all states of a Foo, and how tools that wait for it read them.

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
	// These places are on apiCluster, where only the test changes Deployments.
	placeAPIOnly      place = "apiOnly"
	placeTerminating  place = "terminating"  // The namespace is being deleted.
	placeNoController place = "noController" // The controller has stopped before a Foo gets into its state.

	// These places are on fullCluster.
	placeCommon        place = "common"
	placeRewritten     place = "rewritten"     // A policy sets the image.
	placeNeverReady    place = "neverReady"    // A policy sets an image that never becomes ready.
	placeDenied        place = "denied"        // A policy denies new Deployments.
	placeNoWebhook     place = "noWebhook"     // The API server calls a webhook that does not answer.
	placeNoDeployments place = "noDeployments" // There is no quota for another Deployment.
	placeNoPods        place = "noPods"        // There is no quota for another pod.
)

func (p place) cluster() *shared {
	switch p {
	case placeAPIOnly, placeTerminating, placeNoController:
		return apiCluster
	default:
		return fullCluster
	}
}

// A contractRow is one state of the contract: a line of the table, and how a Foo gets into that state.
type contractRow struct {
	// line has the state, Ready, Reconciling, Stalled, the reason, the results of kstatus and Argo CD, and whether
	// kubectl wait returns or waits until its timeout.
	line string
	in   place
	// spec is the spec of the new Foo; the Deployment has the name of the Foo. Without spec and stored, how creates the
	// Foo.
	spec *v1alpha1.FooSpec
	// stored has the fields of a Foo that the API server refuses now.
	stored string
	// from is the reason of the Foo before how changes its state.
	from string
	how  func(t *testing.T, e *env, foo string)
	// message is a part of the message.
	message string
}

// oneAvailable returns a spec that becomes Available soon, noneAvailable one that never does.
func oneAvailable() *v1alpha1.FooSpec {
	return &v1alpha1.FooSpec{Replicas: new(int32(1)), Image: "nginx:1.29"}
}

func noneAvailable() *v1alpha1.FooSpec {
	return &v1alpha1.FooSpec{Replicas: new(int32(1)), Image: neverReadyImage}
}

// contract has the rows of the table in their order.
var contract = []contractRow{
	{
		line: "pending: not reconciled yet | Unknown | - | - | Pending | InProgress | Progressing | waits",
		in:   placeNoController, how: byCreating(""),
	},
	{
		line: "edited: the edit is not reconciled yet | True | - | - | Available | InProgress | Progressing | waits",
		in:   placeNoController, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byEditing(`{"spec":{"replicas":2}}`),
	},
	{
		line: "creating | False | True | - | Creating | InProgress | Progressing | waits",
		in:   placeAPIOnly, spec: oneAvailable(),
	},
	{
		line: "rolling out | False | True | - | Progressing | InProgress | Progressing | waits",
		in:   placeCommon, spec: noneAvailable(), message: "0 of 1 replicas available",
	},
	{
		line: "ready | True | - | - | Available | Current | Healthy | returns",
		in:   placeCommon, spec: oneAvailable(),
	},
	{
		line: "scaled to zero | True | - | - | Available | Current | Healthy | returns",
		in:   placeCommon, spec: &v1alpha1.FooSpec{Replicas: new(int32(0))},
	},
	{
		line: "stuck | False | - | True | ProgressDeadlineExceeded | Failed | Degraded | waits",
		in:   placeCommon, spec: noneAvailable(), from: v1alpha1.ReasonProgressing, how: byRunningOutOfTime,
	},
	{
		line: "no quota for the pods | False | - | True | ReplicaFailure | Failed | Degraded | waits",
		in:   placeNoPods, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byEditing(`{"spec":{"replicas":2}}`),
	},
	{
		line: "Deployment paused | False | - | True | DeploymentPaused | Failed | Degraded | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byPausingDeployment,
	},
	{
		line: "Deployment being deleted | False | True | - | WaitingForDeletion | InProgress | Progressing | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byDeletingDeployment,
	},
	{
		line: "Foo paused, available | True | - | - | Paused | Current | Suspended | returns",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byEditing(`{"spec":{"paused":true}}`),
	},
	{
		line: "Foo paused, not available | False | - | - | Paused | InProgress | Suspended | waits",
		in:   placeCommon, spec: noneAvailable(), from: v1alpha1.ReasonProgressing,
		how: byEditing(`{"spec":{"paused":true}}`),
	},
	{
		line: "name taken | False | - | True | NameTaken | Failed | Degraded | waits",
		in:   placeCommon, how: byCreating("ready"),
	},
	{
		line: "waiting for name: its Foo is renaming | False | True | - | WaitingForName | InProgress | Progressing | waits",
		in:   placeCommon, how: byCreating("renaming-the-new-one-comes-up"), message: "to move from Deployment",
	},
	{
		line: "waiting for name: its Foo cannot move | False | True | - | WaitingForName | InProgress | Progressing | waits",
		in:   placeCommon, how: byCreating("renaming-the-new-name-is-taken"), message: "to move from Deployment",
	},
	{
		line: "waiting for name: its Foo is deleted | False | True | - | WaitingForName | InProgress | Progressing | waits",
		in:   placeAPIOnly, how: byFindingDeploymentOfFormerFoo, message: "no longer exists",
	},
	{
		line: "name cycle | False | - | True | NameCycle | Failed | Degraded | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: bySwappingNames,
	},
	{
		line: "not owned | False | - | True | NotOwned | Failed | Degraded | waits",
		in:   placeCommon, how: byFindingForeignDeployment,
	},
	{
		line: "overridden, available | True | - | - | FieldsOverridden | Current | Healthy | returns",
		in:   placeRewritten, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byEditing(`{"spec":{"image":"nginx:1.30"}}`),
	},
	{
		line: "overridden, not available | False | True | - | FieldsOverridden | InProgress | Progressing | waits",
		in:   placeNeverReady, how: byCreating(""),
	},
	{
		line: "overridden, stuck | False | - | True | FieldsOverridden | Failed | Degraded | waits",
		in:   placeNeverReady, how: byCreatingAndRunningOutOfTime,
	},
	{
		line: "invalid: stored before the rules | False | - | True | Invalid | Failed | Degraded | waits",
		in:   placeAPIOnly, stored: `"spec":{"replicas":1}`,
	},
	{
		line: "no quota for the Deployment | False | True | - | Refused | InProgress | Progressing | waits",
		in:   placeNoDeployments, how: byCreating(""), message: "exceeded quota",
	},
	{
		line: "denied by a policy | False | True | - | Refused | InProgress | Progressing | waits",
		in:   placeDenied, how: byCreating(""), message: "not on Fridays",
	},
	{
		line: "a webhook does not answer | False | True | - | RequestFailed | InProgress | Progressing | waits",
		in:   placeNoWebhook, how: byCreating(""), message: "failed calling webhook",
	},
	{
		line: "namespace terminating: it was ready | True | - | - | Available | Current | Healthy | returns",
		in:   placeTerminating, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byLosingNamespace,
	},
	{
		line: "renaming: the new one is created | False | True | - | Renaming | InProgress | Progressing | waits",
		in:   placeAPIOnly, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, message: servesMeanwhile,
		how: byRenaming("", "nginx:1.29"),
	},
	{
		line: "renaming: the new one comes up | False | True | - | Renaming | InProgress | Progressing | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, message: servesMeanwhile,
		how: byRenaming("", neverReadyImage),
	},
	{
		line: "renaming: the new name is taken | False | - | True | NameTaken | Failed | Degraded | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, message: keptMeanwhile,
		how: byRenaming("ready", "nginx:1.29"),
	},
	{
		line: "renaming: no quota for the new one | False | True | - | Refused | InProgress | Progressing | waits",
		in:   placeNoDeployments, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, message: keptMeanwhile,
		how: byRenaming("", "nginx:1.29"),
	},
	{
		line: "renaming: no quota for its pods | False | True | - | ReplicaFailure | InProgress | Progressing | waits",
		in:   placeNoPods, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, message: keptMeanwhile,
		how: byRenaming("", "nginx:1.29"),
	},
	{
		line: "renaming: no quota for its pods in time | False | - | True | ReplicaFailure | Failed | Degraded | waits",
		in:   placeNoPods, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byRenamingAndRunningOutOfTime("nginx:1.29"), message: keptMeanwhile,
	},
	{
		line: "renaming: the new one is stuck | False | - | True | ProgressDeadlineExceeded | Failed | Degraded | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byRenamingAndRunningOutOfTime(neverReadyImage), message: keptMeanwhile,
	},
	{
		line: "renaming: the new one is too small | False | - | True | Renaming | Failed | Degraded | waits",
		in:   placeCommon, spec: &v1alpha1.FooSpec{Image: "nginx:1.29"}, from: v1alpha1.ReasonAvailable,
		how: byRenamingToLess, message: "is set to 2",
	},
	{
		line: "renaming: the old one is being deleted | True | - | - | Available | Current | Healthy | returns",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byRenamingAndHoldingTheOldOne,
		message: "is being deleted",
	},
	{
		line: "being deleted: it was ready | True | - | - | Available | Terminating | Progressing | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byBeingDeletedAndHeld,
	},
	{
		line: "being deleted: it was not ready | False | True | - | Progressing | Terminating | Progressing | waits",
		in:   placeCommon, spec: noneAvailable(), from: v1alpha1.ReasonProgressing, how: byBeingDeletedAndHeld,
	},
}

// foo returns the name of the row's Foo, which is derived from the state.
func (r *contractRow) foo() string {
	state, _, _ := strings.Cut(r.line, " | ")
	return strings.NewReplacer(" ", "-", ":", "", ",", "").Replace(strings.ToLower(state))
}

// conditions returns the part of the line with the conditions.
func (r *contractRow) conditions() string {
	return strings.Join(strings.Split(r.line, " | ")[1:5], " | ")
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

// contractTable returns the lines of the contract.
func contractTable() string {
	var lines []string
	for i := range contract {
		lines = append(lines, contract[i].line)
	}
	return strings.Join(lines, "\n")
}

// The page has exactly the lines of the contract.
func TestReadinessContractIsTheTableOfThePage(t *testing.T) {
	page, err := os.ReadFile(readinessPage)
	if err != nil {
		t.Fatal(err)
	}
	var table []string
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			table = append(table, strings.ReplaceAll(strings.Trim(line, "| "), "`", ""))
		}
	}
	if len(table) < 2 {
		t.Fatalf("%s has no table", readinessPage)
	}
	if diff := cmp.Diff(contractTable(), strings.Join(table[2:], "\n")); diff != "" { // Without the head of the table.
		t.Errorf("%s (-want +got):\n%s", readinessPage, diff)
	}
}

// Every reason that operations.md lists is the reason of a state of the contract, with the same conditions.
func TestReadinessContractHasTheReasonsOfTheOperationsPage(t *testing.T) {
	const page = "docs/operations.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, reasons, _ := strings.Cut(string(text), "\n## Conditions\n")
	reasons, _, _ = strings.Cut(reasons, "\n## ")
	words := regexp.MustCompile(`\b(True|False|Unknown|Reconciling|Stalled)\b`)
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(reasons, -1) {
		reason, column := match[1], match[2]
		var have []string
		for i := range contract {
			cells := strings.Split(contract[i].line, " | ")
			if cells[4] != reason {
				continue
			}
			have = append(have, cells[1])
			for i, conditionType := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				if cells[2+i] != "-" {
					have = append(have, conditionType)
				}
			}
		}
		if len(have) == 0 {
			t.Errorf("no state of the contract has the reason %s", reason)
		}
		want := words.FindAllString(column, -1)
		if diff := cmp.Diff(setOf(want), setOf(have)); column != "as observed" && diff != "" {
			t.Errorf("%s: conditions (-%s +contract):\n%s", reason, page, diff)
		}
	}
}

func setOf(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// contractRows returns the rows of the contract for which wanted returns true.
func contractRows(wanted func(*contractRow) bool) []*contractRow {
	var rows []*contractRow
	for i := range contract {
		if wanted(&contract[i]) {
			rows = append(rows, &contract[i])
		}
	}
	return rows
}

// A contractStage has the namespaces and controllers for the Foos of the contract.
type contractStage struct {
	envs        map[place]*env
	controllers map[*shared]*process
}

// prepare creates the Foos with a spec, and waits until they have the reason from.
func (s *contractStage) prepare(t *testing.T) {
	t.Helper()
	created := contractRows(func(row *contractRow) bool { return row.spec != nil })
	for _, row := range created {
		spec := *row.spec
		spec.DeploymentName = row.foo()
		s.envs[row.in].createFoo(t, row.foo(), spec)
	}
	for _, row := range created {
		e := s.envs[row.in]
		if row.in.cluster() == apiCluster && row.from == v1alpha1.ReasonAvailable {
			e.waitForReason(t, row.foo(), v1alpha1.ReasonCreating)
			e.reportAvailable(t, row.foo(), 1)
		}
	}
	for _, row := range created {
		if row.from != "" {
			s.envs[row.in].waitForReason(t, row.foo(), row.from)
		}
	}
}

// limit creates the policies and quotas that the places are named after.
func (s *contractStage) limit(t *testing.T) {
	t.Helper()
	s.envs[placeRewritten].rewriteImages(t, "mirror.example.com/nginx:1")
	s.envs[placeNeverReady].rewriteImages(t, neverReadyImage)
	s.envs[placeDenied].denyDeployments(t, "not on Fridays", admissionregistrationv1.Create)
	s.envs[placeNoWebhook].callAWebhookThatIsGone(t)
	counted := map[place]corev1.ResourceName{
		placeNoDeployments: "count/deployments.apps",
		placeNoPods:        corev1.ResourcePods,
	}
	for in, counted := range counted {
		// Each Foo has one Deployment with one pod.
		here := contractRows(func(row *contractRow) bool { return row.in == in && row.spec != nil })
		s.envs[in].quota(t, corev1.ResourceList{counted: *resource.NewQuantity(int64(len(here)), resource.DecimalSI)})
	}
}

// waitForRow waits until condition is true for the Foo of the row, and returns the Foo.
func (s *contractStage) waitForRow(t *testing.T, row *contractRow, what string,
	condition func(*v1alpha1.Foo) bool) *v1alpha1.Foo {
	t.Helper()
	var foo *v1alpha1.Foo
	holds := false
	defer func() {
		if !holds && foo != nil {
			t.Logf("%s is %s: %s", row.foo(), conditionsOf(foo), readyCondition(foo).Message)
		}
	}()
	until(t, row.foo()+" "+what, func(context.Context) (bool, error) {
		foo = s.envs[row.in].foo(t, row.foo())
		holds = condition(foo)
		return holds, nil
	})
	return foo
}

// settled waits until the Deployments do not change any more and the Foos have reported that, and returns the Foos.
func (s *contractStage) settled(t *testing.T, rows []*contractRow) map[*contractRow]*v1alpha1.Foo {
	t.Helper()
	foos := map[*contractRow]*v1alpha1.Foo{}
	for _, row := range rows {
		foos[row] = s.waitForRow(t, row, "has settled", func(foo *v1alpha1.Foo) bool {
			return row.in.cluster() == apiCluster || s.envs[row.in].isUpToDate(t, foo)
		})
	}
	for _, in := range []place{placeAPIOnly, placeCommon} {
		s.envs[in].settle(t)
	}
	return foos
}

// isUpToDate reports whether the Deployment of a Foo has as many replicas as it can get, and the Foo reports the same
// numbers. It returns true for a Foo without a Deployment.
func (e *env) isUpToDate(t *testing.T, foo *v1alpha1.Foo) bool {
	t.Helper()
	dep := e.deployments(t)[foo.Spec.DeploymentName]
	if dep == nil || !plan.Owns(foo, dep) {
		return true
	}
	pods := int32(len(e.pods(t, foo.Status.Selector)))
	return dep.Status.ObservedGeneration == dep.Generation &&
		(dep.Status.Replicas == *dep.Spec.Replicas || readyCondition(foo).Reason == v1alpha1.ReasonReplicaFailure) &&
		pods == dep.Status.Replicas && foo.Status.Replicas == dep.Status.Replicas &&
		foo.Status.AvailableReplicas == dep.Status.AvailableReplicas
}

// table returns the actual table: the conditions of the stored Foos, and the results of the tools for them.
func (s *contractStage) table(t *testing.T) string {
	t.Helper()
	ends := s.waitForReady(t)
	argoCD, err := argoCD(healthScript)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(contract))
	for i := range contract {
		e := s.envs[contract[i].in]
		client := e.samples.SamplecontrollerV1alpha1().RESTClient()
		name := contract[i].foo()
		object, err := client.Get().Namespace(e.namespace).Resource("foos").Name(name).Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		var foo v1alpha1.Foo
		if err := json.Unmarshal(object, &foo); err != nil {
			t.Fatal(err)
		}
		state, _, _ := strings.Cut(contract[i].line, " | ")
		cells := []string{state, conditionsOf(&foo)}
		for _, assess := range []tool{kstatus, argoCD} {
			word, _, err := assess(objectOf(t, string(object)))
			if err != nil {
				t.Fatalf("%s: %v", state, err)
			}
			cells = append(cells, word)
		}
		lines[i] = strings.Join(append(cells, ends[i]), " | ")
		for _, cond := range foo.Status.Conditions {
			ready := readyCondition(&foo)
			brief := strings.TrimSuffix(cond.Message, ". The condition Ready has the cause") // Ready alone has a long cause.
			if cond.Reason != ready.Reason || cond.Message != ready.Message && !strings.HasPrefix(ready.Message, brief+": ") {
				t.Errorf("%s: %s has %s, %q and Ready %s, %q",
					state, cond.Type, cond.Reason, cond.Message, ready.Reason, ready.Message)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// waitForReady runs kubectl wait for each Foo and returns the results.
func (s *contractStage) waitForReady(t *testing.T) []string {
	t.Helper()
	ends := make([]string, len(contract))
	slots := make(chan struct{}, 12) // Each kubectl needs a processor for a moment and then waits.
	var running sync.WaitGroup
	for i := range contract {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			timeout := "1s"
			if strings.HasSuffix(contract[i].line, " returns") {
				timeout = eventually.String() // It returns at once, except on a busy machine.
			}
			e := s.envs[contract[i].in]
			out, err := e.try("", "wait", "--for=condition=Ready", "foo/"+contract[i].foo(), "-n", e.namespace,
				"--timeout="+timeout)
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
		spec := oneAvailable()
		if spec.DeploymentName = deployment; deployment == "" {
			spec.DeploymentName = foo
		}
		e.createFoo(t, foo, *spec)
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
	if err := e.kube.AppsV1().Deployments(e.namespace).Delete(t.Context(), deployment,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func byFindingForeignDeployment(t *testing.T, e *env, foo string) {
	t.Helper()
	e.createDeployment(t, foo, func(*appsv1.Deployment) {})
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
	spec := oneAvailable()
	spec.DeploymentName = foo + "-other"
	e.createReady(t, foo+"-other", *spec)
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
	if err := e.kube.AppsV1().Deployments(e.namespace).Delete(t.Context(), foo, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the controller tries to create the Deployment again", func(context.Context) (bool, error) {
		return e.countWrites(t, "create deployments/ "+e.namespace+"/"+foo+": 403") > 0, nil
	})
}

// editDeployment applies a patch as a user who does not know about the Foo.
func (e *env) editDeployment(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := e.kube.AppsV1().Deployments(e.namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// callAWebhookThatIsGone makes the API server call a webhook that does not answer, for each Deployment that is created.
func (e *env) callAWebhookThatIsGone(t *testing.T) {
	t.Helper()
	match := e.deploymentsHere(admissionregistrationv1.Create)
	webhooks := e.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "gone.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			NamespaceSelector:       match.NamespaceSelector,
			Rules:                   []admissionregistrationv1.RuleWithOperations{match.ResourceRules[0].RuleWithOperations},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the webhook is called", func(ctx context.Context) (bool, error) {
		_, err := e.probePolicies(ctx)
		return apierrors.IsInternalError(err), nil
	})
}
