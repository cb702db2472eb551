// Package drift compares an object with the fields that a controller wants it to have, and makes the patch that corrects
// it. All other fields are neither compared nor part of the patch: those that the API server has defaulted, and those of
// an autoscaler, a webhook or a user. It is pure: it sends nothing.
package drift

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ErrNoPrecondition is returned for an object without a uid or a resourceVersion: the API server would take a patch
// with an empty one as a patch of any version.
var ErrNoPrecondition = errors.New("no uid or no resourceVersion")

// A Patch corrects an object.
type Patch struct {
	// Body is a strategic merge patch. It has the uid and the resourceVersion of the object that was compared, so the API
	// server answers with a conflict if the object has changed since.
	Body []byte
	// Fields are the paths of the fields that it changes, sorted, such as spec.replicas. The path of a list stands for its
	// elements. There are no values, which may be secret.
	Fields []string
}

// Find returns the patch that gives have all fields of want, or nil if have has them. The types of both must be the same
// kind of Kubernetes itself, such as *appsv1.Deployment: custom resources take no strategic merge patch. Elements of a
// list are merged by their key if the type has one, as containers by their name; other lists are replaced.
//
// A field that is absent in the JSON of want is not compared: so it cannot remove a field, nor an element of a list that
// is merged, and it cannot set a number, bool or text to its zero value unless the field is a pointer. Find changes
// neither argument and may be called concurrently.
func Find[T metav1.Object](have, want T) (*Patch, error) {
	if have.GetUID() == "" || have.GetResourceVersion() == "" {
		return nil, fmt.Errorf("compare %s: %w", have.GetName(), ErrNoPrecondition)
	}
	stored, storedErr := json.Marshal(have)
	wanted, wantedErr := json.Marshal(want)
	if err := errors.Join(storedErr, wantedErr); err != nil {
		return nil, fmt.Errorf("encode %s: %w", have.GetName(), err)
	}
	body, err := changes(stored, wanted, *new(T))
	if err != nil {
		return nil, fmt.Errorf("compare %s: %w", have.GetName(), err)
	}
	fields := paths("", body)
	if len(fields) == 0 {
		return nil, nil
	}
	metadata, _ := body["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = have.GetUID(), have.GetResourceVersion()
	body["metadata"] = metadata
	encoded, err := json.Marshal(body)
	return &Patch{Body: encoded, Fields: fields}, err
}

// changes returns the strategic merge patch from stored to stored with the fields of wanted.
func changes(stored, wanted []byte, kind any) (body map[string]any, err error) {
	merged, err := strategicpatch.StrategicMergePatch(stored, wanted, kind)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(stored, merged, kind)
	if err != nil {
		return nil, err
	}
	return body, json.Unmarshal(patch, &body)
}

// paths returns the paths of the leaves of value, which is at path. Directives of the patch are left out.
func paths(path string, value any) []string {
	object, isObject := value.(map[string]any)
	if !isObject {
		return []string{path}
	}
	var all []string
	for name, field := range object {
		if !strings.HasPrefix(name, "$") {
			all = append(all, paths(strings.TrimPrefix(path+"."+name, "."), field)...)
		}
	}
	slices.Sort(all)
	return all
}
