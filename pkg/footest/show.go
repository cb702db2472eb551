package footest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/sim/scenario"
)

// This file has the steps that add objects to the output.

// showFoo shows the status of a Foo.
func showFoo(e *scenario.Env, args scenario.Arguments) error {
	e.Idle()
	foo := storedFoo(e, args.Word(0))
	if foo == nil {
		e.Show("there is no Foo %s", args.Word(0))
		return nil
	}
	status := &foo.Status
	e.Show("foo %s %s", foo.Name, scenario.Summary(foo))
	e.Show("    generation %d, observed %d; %d replicas, %d available, selector %s",
		foo.Generation, status.ObservedGeneration, status.Replicas, status.AvailableReplicas, cmp.Or(status.Selector, "none"))
	return nil
}

// showDeployment shows a Deployment.
func showDeployment(e *scenario.Env, args scenario.Arguments) error {
	e.Idle()
	dep := storedDeployment(e, args.Word(0))
	if dep == nil {
		e.Show("there is no Deployment %s", args.Word(0))
		return nil
	}
	line := fmt.Sprintf("deployment %s %s replicas=%d", dep.Name, shortUID(dep.UID), *dep.Spec.Replicas)
	for _, container := range dep.Spec.Template.Spec.Containers {
		line += fmt.Sprintf(" %s=%s", container.Name, container.Image)
	}
	for _, ref := range dep.OwnerReferences {
		line += fmt.Sprintf(" owner=%s(%s)", ref.Name, shortUID(ref.UID))
	}
	e.Show("%s", line)
	for _, label := range slices.Sorted(maps.Keys(dep.Labels)) {
		e.Show("    label %s=%s", label, dep.Labels[label])
	}
	for _, label := range slices.Sorted(maps.Keys(dep.Spec.Selector.MatchLabels)) {
		e.Show("    selects %s=%s", label, dep.Spec.Selector.MatchLabels[label])
	}
	return nil
}

// shortUID returns the end of a uid, in which the simulated API server counts the objects.
func shortUID(uid types.UID) string {
	n, _ := strconv.ParseUint(string(uid)[strings.LastIndex(string(uid), "-")+1:], 16, 64)
	return fmt.Sprintf("uid-%d", n)
}
