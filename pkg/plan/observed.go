package plan

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Observed returns what is known of the objects of this sync, in one line for a person.
func (s *State) Observed() string {
	text := fmt.Sprintf("Foo at generation %d; %s", s.Foo.Generation, s.observedDeployment())
	for _, dep := range byName(s.Previous) {
		text += fmt.Sprintf("; also controls Deployment %q (%s)", dep.Name, describeReplicas(dep))
	}
	return text
}

// observedDeployment describes the Deployment that the Foo names.
func (s *State) observedDeployment() string {
	dep := s.Deployment
	switch {
	case dep == nil:
		return fmt.Sprintf("no Deployment %q", s.Foo.Spec.DeploymentName)
	case !Owns(s.Foo, dep):
		return fmt.Sprintf("Deployment %q is not controlled by this Foo", dep.Name)
	}
	return fmt.Sprintf("Deployment %q is controlled by it, written for generation %d (%s)",
		dep.Name, generationOf(dep), describeReplicas(dep))
}

func describeReplicas(dep *appsv1.Deployment) string {
	if dep.DeletionTimestamp != nil {
		return "being deleted, " + available(dep)
	}
	return available(dep)
}

// Summary returns the Ready condition of status, and Stalled or Reconciling, in one line for a person.
func Summary(status *v1alpha1.FooStatus) string {
	var parts []string
	for _, kind := range ownConditions {
		for i := range status.Conditions {
			if c := &status.Conditions[i]; c.Type == kind {
				parts = append(parts, fmt.Sprintf("%s=%s", c.Type, c.Status))
				if kind == v1alpha1.ConditionReady {
					parts = append(parts, c.Reason+": "+c.Message)
				}
			}
		}
	}
	if len(parts) == 0 {
		return "no conditions"
	}
	return strings.Join(parts, " ")
}

// Changes returns what a write changes, for a person. foo is the Foo before the write.
func (step *Step) Changes(foo *v1alpha1.Foo) []Field {
	switch {
	case step.Patch != nil:
		return step.Patch.Fields
	case step.Verb == CreateDeployment:
		return []Field{
			{Path: pathReplicas, Have: noValue, Want: strconv.Itoa(int(replicasOf(step.Deployment)))},
			{Path: pathImage, Have: noValue, Want: imageOf(step.Deployment)},
		}
	case step.Verb == UpdateStatus:
		return []Field{{Path: "status", Have: Summary(&foo.Status), Want: Summary(&step.Foo.Status)}}
	}
	return nil
}
