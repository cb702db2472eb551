package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestReadinessContract creates a Foo in each state of the contract and runs the tools. Before that it checks that the
// status of a Foo stays the same, byte for byte, as long as nothing changes.
func TestReadinessContract(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	s := newContractStage(t)
	attended := contractRows(func(row *contractRow) bool { return row.in != placeNoController })
	s.prepare(t)
	s.limit(t)
	s.createStates(t, attended)
	before := s.settled(t, attended)
	s.touchTenTimes(t, attended, before)
	s.replacePods(t, attended, before)

	s.controllers[apiCluster].stop(t)
	s.createStates(t, contractRows(func(row *contractRow) bool { return row.in == placeNoController }))
	if diff := cmp.Diff(contractTable(), s.table(t)); diff != "" {
		t.Errorf("the contract (-want +got):\n%s", diff)
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
	for _, in := range []place{
		placeAPIOnly, placeTerminating, placeNoController,
		placeCommon, placeRewritten, placeNeverReady, placeDenied, placeNoWebhook, placeNoDeployments, placeNoPods,
	} {
		s.envs[in] = clusters[in.cluster()].env(t)
	}
	s.storeWithoutRules(t)
	for _, in := range []place{placeAPIOnly, placeCommon} {
		s.controllers[in.cluster()] = clusters[in.cluster()].controller(t, "-v=4") // With -v=4 it logs each sync.
	}
	return s
}

// storeWithoutRules creates the invalid Foos while a CRD without validation is in force.
func (s *contractStage) storeWithoutRules(t *testing.T) {
	t.Helper()
	e := s.envs[placeAPIOnly]
	e.kubectl(t, noRules, "apply", "-f", "-")
	var stored string
	for _, row := range contractRows(func(row *contractRow) bool { return row.stored != "" }) {
		stored = row.stored
		until(t, "the API server takes every Foo", func(ctx context.Context) (bool, error) {
			return e.foosIn(e.namespace).create(ctx, row.foo(), stored) == nil, nil
		})
	}
	e.kubectl(t, "", "apply", "-f", crdFile)
	until(t, "the API server uses our CRD", func(ctx context.Context) (bool, error) {
		err := e.samples.SamplecontrollerV1alpha1().RESTClient().Post().Namespace(e.namespace).Resource("foos").
			Param("dryRun", metav1.DryRunAll).Body([]byte(fooManifest("probe", stored))).Do(ctx).Error()
		return apierrors.IsInvalid(err), nil
	})
}

// createStates brings the Foos of rows into their states.
func (s *contractStage) createStates(t *testing.T, rows []*contractRow) {
	t.Helper()
	for _, row := range rows {
		if row.how != nil {
			row.how(t, s.envs[row.in], row.foo())
		}
	}
	for _, row := range rows {
		s.waitForRow(t, row, "is "+row.conditions(), func(foo *v1alpha1.Foo) bool {
			reconciled := foo.Status.ObservedGeneration == foo.Generation || foo.DeletionTimestamp != nil ||
				row.in == placeNoController
			return reconciled && conditionsOf(foo) == row.conditions() &&
				strings.Contains(readyCondition(foo).Message, row.message)
		})
	}
}

// touchTenTimes makes the controllers sync the Foos ten times, and checks that they write no status.
func (s *contractStage) touchTenTimes(t *testing.T, rows []*contractRow, before map[*contractRow]*v1alpha1.Foo) {
	t.Helper()
	written := s.statusWrites(t)
	for round := range 10 {
		from := map[*shared]int{}
		for cluster, controller := range s.controllers {
			from[cluster] = len(controller.log.String())
		}
		for _, row := range rows {
			s.envs[row.in].editFoo(t, row.foo(), fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, round))
		}
		for _, row := range rows {
			line := fmt.Sprintf(`"Synced" foo=%q`, s.key(row))
			until(t, row.foo()+" is synced", func(context.Context) (bool, error) {
				return strings.Contains(s.controllers[row.in.cluster()].log.String()[from[row.in.cluster()]:], line), nil
			})
		}
	}
	now := s.statusWrites(t)
	for _, row := range rows {
		if diff := cmp.Diff(before[row].Status, s.envs[row.in].foo(t, row.foo()).Status); diff != "" {
			t.Errorf("%s: status after ten syncs (-before +after):\n%s", row.foo(), diff)
		}
		if n := now[s.key(row)] - written[s.key(row)]; n != 0 {
			t.Errorf("%s: ten syncs wrote %d statuses", row.foo(), n)
		}
	}
}

// replacePods deletes the pods of the Foos' Deployments, so that they are replaced by pods with other names, and checks
// that the Foos report the same as before. It keeps pods that might not be replaced, and the pods of previous
// Deployments, without which the state would be another.
func (s *contractStage) replacePods(t *testing.T, rows []*contractRow, before map[*contractRow]*v1alpha1.Foo) {
	t.Helper()
	written := s.statusWrites(t)
	former := map[*contractRow][]types.UID{}
	for _, row := range rows {
		e, selector := s.envs[row.in], before[row].Status.Selector
		if row.in.cluster() == apiCluster || row.in == placeNoPods || selector == "" {
			continue
		}
		former[row] = e.pods(t, selector)
		err := e.kube.CoreV1().Pods(e.namespace).DeleteCollection(t.Context(),
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
	}
	for row, former := range former {
		until(t, row.foo()+" has other pods", func(context.Context) (bool, error) {
			pods := s.envs[row.in].pods(t, before[row].Status.Selector)
			isFormer := func(uid types.UID) bool { return slices.Contains(former, uid) }
			return len(pods) == len(former) && !slices.ContainsFunc(pods, isFormer), nil
		})
	}
	s.envs[placeCommon].settle(t)
	for _, row := range rows {
		s.waitForRow(t, row, "reports the same as before its pods were replaced: "+readyCondition(before[row]).Message,
			func(foo *v1alpha1.Foo) bool {
				return slices.Equal(reportOf(before[row]), reportOf(foo))
			})
	}
	now := s.statusWrites(t)
	for _, row := range rows {
		reportsPods := len(former[row]) > 0 && before[row].DeletionTimestamp == nil
		if n := now[s.key(row)] - written[s.key(row)]; n != 0 && !reportsPods {
			t.Errorf("%s: %d status writes because of pods that it does not report", row.foo(), n)
		}
	}
}

// reportOf returns the types, reasons and messages of a Foo's conditions.
func reportOf(foo *v1alpha1.Foo) []string {
	var report []string
	for _, cond := range foo.Status.Conditions {
		report = append(report, cond.Type, cond.Reason, cond.Message)
	}
	return report
}

// key returns the namespace and name of the row's Foo.
func (s *contractStage) key(row *contractRow) string {
	return s.envs[row.in].namespace + "/" + row.foo()
}

// statusWrites returns the number of status writes of the controllers by key, including failed ones.
func (s *contractStage) statusWrites(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, in := range []place{placeAPIOnly, placeCommon} {
		for _, write := range s.envs[in].writes(t, "") {
			if _, of, ok := strings.Cut(write, " foos/status "); ok {
				key, _, _ := strings.Cut(of, ":")
				n[key]++
			}
		}
	}
	return n
}
