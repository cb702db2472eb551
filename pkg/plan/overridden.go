package plan

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// tolerated is how many patches of one Deployment for one spec, or creations after the first, with no ten minutes between
// them, are nothing special: one for the spec itself, and people try things out.
const tolerated = 3

// An OverriddenError says that something else decides about fields of the Deployment that the Foo sets.
type OverriddenError struct {
	Deployment string
	Fields     []Field
}

func (e *OverriddenError) Error() string {
	var fields []string
	for _, field := range e.Fields {
		fields = append(fields, fmt.Sprintf("%s to %s where this Foo says %s", field.Path, field.Have, field.Want))
	}
	return fmt.Sprintf("Something else keeps changing Deployment %q: %s. Remove what it sets from this Foo, or stop it: an autoscaler, an admission policy or another controller",
		e.Deployment, strings.Join(fields, ", "))
}

// Overridden judges the API server's answer to the create or patch of foo's Deployment; patch is nil for a
// create. patches is how often, lately and this time included, the Deployment had to be put back for the same
// spec. It returns an OverriddenError when the answer is not as it was asked for, or when there is no end of
// patching; else nil.
func Overridden(foo *v1alpha1.Foo, answer *appsv1.Deployment, patch *Patch, patches int) error {
	drift, err := Drift(answer, foo)
	switch {
	case err != nil:
		return err
	case drift != nil:
		return &OverriddenError{Deployment: answer.Name, Fields: drift.Fields}
	case patch != nil && patches > tolerated:
		return &OverriddenError{Deployment: answer.Name, Fields: patch.Fields}
	}
	return nil
}

// Recreated returns why, when it goes once more, a Deployment is not created again at once; nil when there have not been
// many times.
func Recreated(deployment string, times int) error {
	if times <= tolerated {
		return nil
	}
	return &TerminalError{
		Reason:  v1alpha1.ReasonCreating,
		Message: fmt.Sprintf("Something else keeps deleting Deployment %q: it is created again after a pause of up to a minute. Stop that, or delete this Foo", deployment),
		Passing: true,
	}
}
