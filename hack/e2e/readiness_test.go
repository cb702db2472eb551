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

// This file is the contract of docs/readiness.md: all states of a Foo, and what tools that wait make of them.

const (
	readinessPage = "docs/readiness.md"

	// heldByTest is a finalizer that nobody but the test takes off again.
	heldByTest = "example.com/hold"
	// keptMeanwhile and servesMeanwhile are in the message of a Foo that is being renamed.
	keptMeanwhile   = " (1 available) is kept until its replacement is available"
	servesMeanwhile = " keeps serving with 1 until then"
)

// A place is the namespace that a Foo of the contract is in.
type place string

const (
	// These are on apiCluster, where nothing but the test acts on Deployments.
	placeStill      place = "still"
	placeEnding     place = "ending"     // The namespace is being deleted.
	placeUnattended place = "unattended" // The controller has ended when a Foo gets into its state.

	// These are on fullCluster.
	placeCommon        place = "common"
	placeRewritten     place = "rewritten"     // A policy sets the image.
	placeSpoiled       place = "spoiled"       // A policy sets an image that never becomes ready.
	placeDenied        place = "denied"        // A policy denies new Deployments.
	placeNoDeployments place = "noDeployments" // There is no quota for one more Deployment,
	placeNoPods        place = "noPods"        // or for one more pod.
)

func (p place) cluster() *shared {
	switch p {
	case placeStill, placeEnding, placeUnattended:
		return apiCluster
	default:
		return fullCluster
	}
}

// A contractRow is one state of the contract: a line of the table, and how a Foo gets there.
type contractRow struct {
	// line is the state, Ready, Reconciling, Stalled, the reason, what kstatus and Argo CD say, and whether
	// kubectl wait returns or waits until its timeout.
	line string
	in   place
	// spec is what the Foo is created with; the Deployment has the Foo's own name. Without spec and stored,
	// the Foo is created by how.
	spec *v1alpha1.FooSpec
	// stored is what a Foo consists of that the API server no longer takes.
	stored string
	// from is the reason that the Foo has before how brings it into the state.
	from string
	how  func(t *testing.T, w *world, foo string)
	// says is a part of the message.
	says string
}

// oneAvailable is a spec that is Available soon, noneAvailable one that never is.
func oneAvailable() *v1alpha1.FooSpec {
	return &v1alpha1.FooSpec{Replicas: new(int32(1)), Image: "nginx:1.29"}
}

func noneAvailable() *v1alpha1.FooSpec {
	return &v1alpha1.FooSpec{Replicas: new(int32(1)), Image: neverReadyImage}
}

// contract is the table, in its order.
var contract = []contractRow{
	{
		line: "pending: no controller has looked | Unknown | - | - | Pending | InProgress | Progressing | waits",
		in:   placeUnattended, how: byCreating(""),
	},
	{
		line: "edited: no controller has looked at that | True | - | - | Available | InProgress | Progressing | waits",
		in:   placeUnattended, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byEditing(`{"spec":{"replicas":2}}`),
	},
	{
		line: "creating | False | True | - | Creating | InProgress | Progressing | waits",
		in:   placeStill, spec: oneAvailable(),
	},
	{
		line: "rolling out | False | True | - | Progressing | InProgress | Progressing | waits",
		in:   placeCommon, spec: noneAvailable(), says: "0 of 1 replicas available",
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
		in:   placeCommon, how: byCreating("renaming-the-new-one-comes-up"), says: "to move from Deployment",
	},
	{
		line: "waiting for name: its Foo cannot move | False | - | True | WaitingForName | Failed | Degraded | waits",
		in:   placeCommon, how: byCreating("renaming-the-new-name-is-taken"), says: "cannot move",
	},
	{
		line: "waiting for name: its Foo is gone | False | True | - | WaitingForName | InProgress | Progressing | waits",
		in:   placeStill, how: byFindingDeploymentOfFormerFoo, says: "no longer exists",
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
		in:   placeSpoiled, how: byCreating(""),
	},
	{
		line: "overridden, stuck | False | - | True | FieldsOverridden | Failed | Degraded | waits",
		in:   placeSpoiled, how: byCreatingAndRunningOutOfTime,
	},
	{
		line: "invalid: stored before the rules | False | - | True | Invalid | Failed | Degraded | waits",
		in:   placeStill, stored: `"spec":{"replicas":1}`,
	},
	{
		line: "no quota for the Deployment | False | True | - | Refused | InProgress | Progressing | waits",
		in:   placeNoDeployments, how: byCreating(""), says: "exceeded quota",
	},
	{
		line: "denied by a policy | False | True | - | Refused | InProgress | Progressing | waits",
		in:   placeDenied, how: byCreating(""), says: "not on Fridays",
	},
	{
		line: "namespace terminating: it was ready | True | - | - | Available | Current | Healthy | returns",
		in:   placeEnding, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byLosingNamespace,
	},
	{
		line: "renaming: the new one is created | False | True | - | Renaming | InProgress | Progressing | waits",
		in:   placeStill, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, says: servesMeanwhile,
		how: byRenaming("", "nginx:1.29"),
	},
	{
		line: "renaming: the new one comes up | False | True | - | Renaming | InProgress | Progressing | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, says: servesMeanwhile,
		how: byRenaming("", neverReadyImage),
	},
	{
		line: "renaming: the new name is taken | False | - | True | NameTaken | Failed | Degraded | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, says: keptMeanwhile,
		how: byRenaming("ready", "nginx:1.29"),
	},
	{
		line: "renaming: no quota for the new one | False | True | - | Refused | InProgress | Progressing | waits",
		in:   placeNoDeployments, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, says: keptMeanwhile,
		how: byRenaming("", "nginx:1.29"),
	},
	{
		line: "renaming: no quota for its pods | False | True | - | ReplicaFailure | InProgress | Progressing | waits",
		in:   placeNoPods, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, says: keptMeanwhile,
		how: byRenaming("", "nginx:1.29"),
	},
	{
		line: "renaming: no quota for its pods in time | False | - | True | ReplicaFailure | Failed | Degraded | waits",
		in:   placeNoPods, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byRenamingAndRunningOutOfTime("nginx:1.29"), says: keptMeanwhile,
	},
	{
		line: "renaming: the new one is stuck | False | - | True | ProgressDeadlineExceeded | Failed | Degraded | waits",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable,
		how: byRenamingAndRunningOutOfTime(neverReadyImage), says: keptMeanwhile,
	},
	{
		line: "renaming: the old one is being deleted | True | - | - | Available | Current | Healthy | returns",
		in:   placeCommon, spec: oneAvailable(), from: v1alpha1.ReasonAvailable, how: byRenamingAndHoldingTheOldOne,
		says: "is being deleted",
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

// foo returns the name of the row's Foo: the state, as a name.
func (r *contractRow) foo() string {
	state, _, _ := strings.Cut(r.line, " | ")
	return strings.NewReplacer(" ", "-", ":", "", ",", "").Replace(strings.ToLower(state))
}

// conditions returns the part of the line that is about the Foo's conditions.
func (r *contractRow) conditions() string {
	return strings.Join(strings.Split(r.line, " | ")[1:5], " | ")
}

// conditionsOf says what a Foo's conditions are, as a line does.
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

// TestReadinessContract brings a Foo into each state of the contract and asks the tools. Before that it shows that
// what a Foo says stays the same, byte for byte, as long as nothing changes.
func TestReadinessContract(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	s := newContractStage(t)
	attended := contractRows(func(row *contractRow) bool { return row.in != placeUnattended })
	s.prepare(t)
	s.limit(t)
	s.bring(t, attended)
	before := s.settled(t, attended)
	s.touchTenTimes(t, attended, before)
	s.replacePods(t, attended, before)

	s.controllers[apiCluster].stop(t)
	s.bring(t, contractRows(func(row *contractRow) bool { return row.in == placeUnattended }))
	if diff := cmp.Diff(contractTable(), s.table(t)); diff != "" {
		t.Errorf("the contract (-want +got):\n%s", diff)
	}
}

// The page has the lines of the contract and no others.
func TestReadinessContractIsWhatThePageSays(t *testing.T) {
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
	if diff := cmp.Diff(contractTable(), strings.Join(table[2:], "\n")); diff != "" { // Behind the head.
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

// contractRows returns the rows of the contract that are wanted.
func contractRows(wanted func(*contractRow) bool) []*contractRow {
	var rows []*contractRow
	for i := range contract {
		if wanted(&contract[i]) {
			rows = append(rows, &contract[i])
		}
	}
	return rows
}

// A contractStage is where the Foos of the contract are.
type contractStage struct {
	worlds      map[place]*world
	controllers map[*shared]*process
}

// newContractStage makes the namespaces, stores the Foos that the rules do not allow, and starts a controller on each
// cluster.
func newContractStage(t *testing.T) *contractStage {
	t.Helper()
	s := &contractStage{worlds: map[place]*world{}, controllers: map[*shared]*process{}}
	for _, in := range []place{
		placeStill, placeEnding, placeUnattended,
		placeCommon, placeRewritten, placeSpoiled, placeDenied, placeNoDeployments, placeNoPods,
	} {
		s.worlds[in] = newWorld(t, in.cluster())
	}
	t.Cleanup(func() { s.clear(t) }) // When the controllers have ended.
	s.storeWithoutRules(t)
	for _, in := range []place{placeStill, placeCommon} {
		s.controllers[in.cluster()] = s.worlds[in].controller(t, "-v=4") // So that it says what it has synced.
	}
	return s
}

// clear deletes the Foos, so that no controller of a later test is concerned with them.
func (s *contractStage) clear(t *testing.T) {
	ctx := context.Background() // t.Context() has ended.
	release := []byte(`{"metadata":{"finalizers":null}}`)
	for in, w := range s.worlds {
		foos, deployments := w.samples.SamplecontrollerV1alpha1().Foos(w.namespace), w.kube.AppsV1().Deployments(w.namespace)
		err := foos.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)},
			metav1.ListOptions{})
		if err != nil {
			t.Errorf("clear %s: %v", in, err)
		}
		left, err := foos.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Errorf("clear %s: %v", in, err)
			continue
		}
		for i := range left.Items {
			if _, err := foos.Patch(ctx, left.Items[i].Name, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
				t.Errorf("clear %s: %v", in, err)
			}
		}
		held, err := deployments.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Errorf("clear %s: %v", in, err)
			continue
		}
		for i := range held.Items {
			if !slices.Contains(held.Items[i].Finalizers, heldByTest) {
				continue
			}
			if _, err := deployments.Patch(ctx, held.Items[i].Name, types.MergePatchType, release,
				metav1.PatchOptions{}); err != nil {
				t.Errorf("clear %s: %v", in, err)
			}
		}
	}
}

// storeWithoutRules creates the Foos that the rules do not allow, while a CRD without rules is in force.
func (s *contractStage) storeWithoutRules(t *testing.T) {
	t.Helper()
	w := s.worlds[placeStill]
	inForce := false
	t.Cleanup(func() {
		if !inForce { // Whatever else went wrong, the next test needs them.
			w.kubectl(t, "", "apply", "-f", crdFile)
		}
	})
	w.kubectl(t, noRules, "apply", "-f", "-")
	var stored string
	for _, row := range contractRows(func(row *contractRow) bool { return row.stored != "" }) {
		stored = row.stored
		until(t, "the API server takes every Foo", func(ctx context.Context) (bool, error) {
			return w.foosIn(w.namespace).create(ctx, row.foo(), stored) == nil, nil
		})
	}
	w.kubectl(t, "", "apply", "-f", crdFile)
	until(t, "the API server goes by our rules", func(ctx context.Context) (bool, error) {
		err := w.samples.SamplecontrollerV1alpha1().RESTClient().Post().Namespace(w.namespace).Resource("foos").
			Param("dryRun", metav1.DryRunAll).Body([]byte(fooManifest("probe", stored))).Do(ctx).Error()
		return apierrors.IsInvalid(err), nil
	})
	inForce = true
}

// prepare creates the Foos that something is to happen to, and waits until they are as they are before it.
func (s *contractStage) prepare(t *testing.T) {
	t.Helper()
	created := contractRows(func(row *contractRow) bool { return row.spec != nil })
	for _, row := range created {
		spec := *row.spec
		spec.DeploymentName = row.foo()
		s.worlds[row.in].createFoo(t, row.foo(), spec)
	}
	for _, row := range created {
		w := s.worlds[row.in]
		if row.in.cluster() == apiCluster && row.from == v1alpha1.ReasonAvailable {
			w.becomes(t, row.foo(), v1alpha1.ReasonCreating)
			w.reportAvailable(t, row.foo(), 1)
		}
	}
	for _, row := range created {
		if row.from != "" {
			s.worlds[row.in].becomes(t, row.foo(), row.from)
		}
	}
}

// limit puts what the places are named for in the Foos' way.
func (s *contractStage) limit(t *testing.T) {
	t.Helper()
	s.worlds[placeRewritten].rewriteImages(t, "mirror.example.com/nginx:1")
	s.worlds[placeSpoiled].rewriteImages(t, neverReadyImage)
	s.worlds[placeDenied].denyDeployments(t, "not on Fridays", admissionregistrationv1.Create)
	counted := map[place]corev1.ResourceName{
		placeNoDeployments: "count/deployments.apps",
		placeNoPods:        corev1.ResourcePods,
	}
	for in, counted := range counted {
		// Each has one Deployment with one pod.
		here := contractRows(func(row *contractRow) bool { return row.in == in && row.spec != nil })
		s.worlds[in].quota(t, corev1.ResourceList{counted: *resource.NewQuantity(int64(len(here)), resource.DecimalSI)})
	}
}

// bring brings Foos into their states.
func (s *contractStage) bring(t *testing.T, rows []*contractRow) {
	t.Helper()
	for _, row := range rows {
		if row.how != nil {
			row.how(t, s.worlds[row.in], row.foo())
		}
	}
	for _, row := range rows {
		s.becomesWith(t, row, "is "+row.conditions(), func(foo *v1alpha1.Foo) bool {
			looked := foo.Status.ObservedGeneration == foo.Generation || foo.DeletionTimestamp != nil ||
				row.in == placeUnattended
			return looked && conditionsOf(foo) == row.conditions() && strings.Contains(readyCondition(foo).Message, row.says)
		})
	}
}

// becomesWith waits until condition holds of the row's Foo, and returns it.
func (s *contractStage) becomesWith(t *testing.T, row *contractRow, what string,
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
		foo = s.worlds[row.in].foo(t, row.foo())
		holds = condition(foo)
		return holds, nil
	})
	return foo
}

// settled waits until the Deployments do not move any more and the Foos say so, and returns the Foos.
func (s *contractStage) settled(t *testing.T, rows []*contractRow) map[*contractRow]*v1alpha1.Foo {
	t.Helper()
	foos := map[*contractRow]*v1alpha1.Foo{}
	for _, row := range rows {
		foos[row] = s.becomesWith(t, row, "has settled", func(foo *v1alpha1.Foo) bool {
			return row.in.cluster() == apiCluster || s.worlds[row.in].saysWhatIs(t, foo)
		})
	}
	for _, in := range []place{placeStill, placeCommon} {
		s.worlds[in].settle(t)
	}
	return foos
}

// saysWhatIs reports whether a Foo's Deployment, if it has one, is as wanted or as near as it gets, and the Foo has
// the same numbers.
func (w *world) saysWhatIs(t *testing.T, foo *v1alpha1.Foo) bool {
	t.Helper()
	dep := w.deployments(t)[foo.Spec.DeploymentName]
	if dep == nil || !plan.Owns(foo, dep) {
		return true
	}
	pods := int32(len(w.pods(t, foo.Status.Selector)))
	return dep.Status.ObservedGeneration == dep.Generation &&
		(dep.Status.Replicas == *dep.Spec.Replicas || readyCondition(foo).Reason == v1alpha1.ReasonReplicaFailure) &&
		pods == dep.Status.Replicas && foo.Status.Replicas == dep.Status.Replicas &&
		foo.Status.AvailableReplicas == dep.Status.AvailableReplicas
}

// touchTenTimes makes the controllers sync the Foos ten times. They may not write a status.
func (s *contractStage) touchTenTimes(t *testing.T, rows []*contractRow, before map[*contractRow]*v1alpha1.Foo) {
	t.Helper()
	written := s.statusWrites(t)
	for round := range 10 {
		from := map[*shared]int{}
		for cluster, controller := range s.controllers {
			from[cluster] = len(controller.log.String())
		}
		for _, row := range rows {
			s.worlds[row.in].editFoo(t, row.foo(), fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, round))
		}
		for _, row := range rows {
			words := fmt.Sprintf(`"Synced" foo=%q`, s.key(row))
			until(t, row.foo()+" is synced", func(context.Context) (bool, error) {
				return strings.Contains(s.controllers[row.in.cluster()].log.String()[from[row.in.cluster()]:], words), nil
			})
		}
	}
	now := s.statusWrites(t)
	for _, row := range rows {
		if diff := cmp.Diff(before[row].Status, s.worlds[row.in].foo(t, row.foo()).Status); diff != "" {
			t.Errorf("%s: status after ten syncs (-before +after):\n%s", row.foo(), diff)
		}
		if n := now[s.key(row)] - written[s.key(row)]; n != 0 {
			t.Errorf("%s: ten syncs wrote %d statuses", row.foo(), n)
		}
	}
}

// replacePods deletes the pods of the Foos' Deployments, so that there are others with other names, and expects the
// Foos to say the same again. It leaves alone those pods for which there might be no others, and the old ones of Foos
// that are being renamed: without these it is another state.
func (s *contractStage) replacePods(t *testing.T, rows []*contractRow, before map[*contractRow]*v1alpha1.Foo) {
	t.Helper()
	written := s.statusWrites(t)
	former := map[*contractRow][]types.UID{}
	for _, row := range rows {
		w, selector := s.worlds[row.in], before[row].Status.Selector
		if row.in.cluster() == apiCluster || row.in == placeNoPods || selector == "" {
			continue
		}
		former[row] = w.pods(t, selector)
		err := w.kube.CoreV1().Pods(w.namespace).DeleteCollection(t.Context(),
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
	}
	for row, former := range former {
		until(t, row.foo()+" has other pods", func(context.Context) (bool, error) {
			pods := s.worlds[row.in].pods(t, before[row].Status.Selector)
			isFormer := func(uid types.UID) bool { return slices.Contains(former, uid) }
			return len(pods) == len(former) && !slices.ContainsFunc(pods, isFormer), nil
		})
	}
	s.worlds[placeCommon].settle(t)
	for _, row := range rows {
		s.becomesWith(t, row, "says what it said before its pods were replaced: "+readyCondition(before[row]).Message,
			func(foo *v1alpha1.Foo) bool {
				return slices.Equal(wordsOf(before[row]), wordsOf(foo))
			})
	}
	now := s.statusWrites(t)
	for _, row := range rows {
		tellsOfPods := len(former[row]) > 0 && before[row].DeletionTimestamp == nil
		if n := now[s.key(row)] - written[s.key(row)]; n != 0 && !tellsOfPods {
			t.Errorf("%s: %d statuses were written for pods that it does not tell of", row.foo(), n)
		}
	}
}

// wordsOf returns what a Foo's conditions say.
func wordsOf(foo *v1alpha1.Foo) []string {
	var words []string
	for _, cond := range foo.Status.Conditions {
		words = append(words, cond.Type, cond.Reason, cond.Message)
	}
	return words
}

// key returns the namespace and name of the row's Foo.
func (s *contractStage) key(row *contractRow) string {
	return s.worlds[row.in].namespace + "/" + row.foo()
}

// statusWrites returns how often the controllers have written, or tried to write, the statuses of Foos, by key.
func (s *contractStage) statusWrites(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, in := range []place{placeStill, placeCommon} {
		for _, write := range s.worlds[in].writes(t, "") {
			if _, of, ok := strings.Cut(write, " foos/status "); ok {
				key, _, _ := strings.Cut(of, ":")
				n[key]++
			}
		}
	}
	return n
}

// table returns the contract as it is: what the Foos that the API server has say, and what the tools make of them.
func (s *contractStage) table(t *testing.T) string {
	t.Helper()
	ends := s.waitForReady(t)
	argoCD, err := argoCD(healthScript)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(contract))
	for i := range contract {
		w := s.worlds[contract[i].in]
		client := w.samples.SamplecontrollerV1alpha1().RESTClient()
		name := contract[i].foo()
		object, err := client.Get().Namespace(w.namespace).Resource("foos").Name(name).Do(t.Context()).Raw()
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
			if ready := readyCondition(&foo); cond.Reason != ready.Reason || cond.Message != ready.Message {
				t.Errorf("%s: %s has %s, %q and Ready %s, %q",
					state, cond.Type, cond.Reason, cond.Message, ready.Reason, ready.Message)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// waitForReady runs kubectl wait for each Foo and returns how it ended.
func (s *contractStage) waitForReady(t *testing.T) []string {
	t.Helper()
	ends := make([]string, len(contract))
	slots := make(chan struct{}, 12) // Each takes a processor for a moment and then waits.
	var running sync.WaitGroup
	for i := range contract {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			timeout := "1s"
			if strings.HasSuffix(contract[i].line, " returns") {
				timeout = eventually.String() // It returns at once, except on a machine that is busy.
			}
			w := s.worlds[contract[i].in]
			out, err := w.try("", "wait", "--for=condition=Ready", "foo/"+contract[i].foo(), "-n", w.namespace,
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

// The functions below are the how of rows. An empty name of a Deployment is the Foo's own, or in a rename that
// with "-new" behind it.

func byCreating(deployment string) func(*testing.T, *world, string) {
	return func(t *testing.T, w *world, foo string) {
		t.Helper()
		spec := oneAvailable()
		if spec.DeploymentName = deployment; deployment == "" {
			spec.DeploymentName = foo
		}
		w.createFoo(t, foo, *spec)
	}
}

func byEditing(patch string) func(*testing.T, *world, string) {
	return func(t *testing.T, w *world, foo string) {
		t.Helper()
		w.editFoo(t, foo, patch)
	}
}

func byRenaming(deployment, image string) func(*testing.T, *world, string) {
	return func(t *testing.T, w *world, foo string) {
		t.Helper()
		to := deployment
		if to == "" {
			to = foo + "-new"
		}
		w.editFoo(t, foo, fmt.Sprintf(`{"spec":{"deploymentName":%q,"image":%q}}`, to, image))
	}
}

func byRenamingAndRunningOutOfTime(image string) func(*testing.T, *world, string) {
	return func(t *testing.T, w *world, foo string) {
		t.Helper()
		byRenaming("", image)(t, w, foo)
		byRunningOutOfTime(t, w, foo+"-new")
	}
}

func byRenamingAndHoldingTheOldOne(t *testing.T, w *world, foo string) {
	t.Helper()
	w.editDeployment(t, foo, `{"metadata":{"finalizers":["`+heldByTest+`"]}}`)
	byRenaming("", "nginx:1.29")(t, w, foo)
}

func byCreatingAndRunningOutOfTime(t *testing.T, w *world, foo string) {
	t.Helper()
	byCreating("")(t, w, foo)
	byRunningOutOfTime(t, w, foo)
}

// runsOutOfTime makes the Deployment controller give up soon.
func byRunningOutOfTime(t *testing.T, w *world, deployment string) {
	t.Helper()
	until(t, "there is a Deployment "+deployment, func(context.Context) (bool, error) {
		return w.exists(t, deployment), nil
	})
	w.editDeployment(t, deployment, `{"spec":{"progressDeadlineSeconds":2}}`)
}

func byPausingDeployment(t *testing.T, w *world, deployment string) {
	t.Helper()
	w.editDeployment(t, deployment, `{"spec":{"paused":true}}`)
}

func byDeletingDeployment(t *testing.T, w *world, deployment string) {
	t.Helper()
	w.editDeployment(t, deployment, `{"metadata":{"finalizers":["`+heldByTest+`"]}}`)
	if err := w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), deployment,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func byFindingForeignDeployment(t *testing.T, w *world, foo string) {
	t.Helper()
	w.createDeployment(t, foo, func(*appsv1.Deployment) {})
	byCreating("")(t, w, foo)
}

func byFindingDeploymentOfFormerFoo(t *testing.T, w *world, foo string) {
	t.Helper()
	former := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: foo, UID: "00000000-0000-0000-0000-000000000000"}}
	w.createDeployment(t, foo, func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(former, plan.FooKind)}
	})
	byCreating("")(t, w, foo)
}

func bySwappingNames(t *testing.T, w *world, foo string) {
	t.Helper()
	spec := oneAvailable()
	spec.DeploymentName = foo + "-other"
	w.createReady(t, foo+"-other", *spec)
	w.rename(t, foo, foo+"-other")
	w.rename(t, foo+"-other", foo)
}

func byBeingDeletedAndHeld(t *testing.T, w *world, foo string) {
	t.Helper()
	w.editFoo(t, foo, `{"metadata":{"finalizers":["`+heldByTest+`"]}}`)
	w.deleteFoo(t, foo, metav1.DeletePropagationBackground)
}

// losesNamespace does what the namespace controller does, except the Foo.
func byLosingNamespace(t *testing.T, w *world, foo string) {
	t.Helper()
	if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.kube.AppsV1().Deployments(w.namespace).Delete(t.Context(), foo, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the controller tries to create the Deployment again", func(context.Context) (bool, error) {
		return w.countWrites(t, "create deployments/ "+w.namespace+"/"+foo+": 403") > 0, nil
	})
}

// editDeployment applies a patch as somebody would who does not know of the Foo.
func (w *world) editDeployment(t *testing.T, name, patch string) {
	t.Helper()
	if _, err := w.kube.AppsV1().Deployments(w.namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
