package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Served returns a check of a custom resource that somebody may have installed in another version: the API server
// serves it, with a subresource for the status and with the given fields of the status. It would drop the others
// without an error. client is any client of the API server: discovery is allowed to every authenticated user. The
// check may be used concurrently.
func Served(client rest.Interface, kind schema.GroupVersionKind, resource, fix string, statusFields ...string) Check {
	r := customResource{client: client, kind: kind, resource: resource, fix: fix, fields: statusFields}
	return r.check
}

// A customResource is what Served checks.
type customResource struct {
	client        rest.Interface
	kind          schema.GroupVersionKind
	resource, fix string
	fields        []string
}

func (r customResource) check(ctx context.Context) ([]Problem, error) {
	var resources metav1.APIResourceList
	err := r.get(ctx, "/apis/"+r.kind.GroupVersion().String(), &resources)
	if apierrors.IsNotFound(err) {
		return r.otherVersions(ctx)
	}
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, resource := range resources.APIResources {
		names[resource.Name] = true
	}
	if !names[r.resource] {
		return nil, nil
	}
	if !names[r.resource+"/status"] {
		return []Problem{r.problem("The CustomResourceDefinition has no subresource status, will keep trying")}, nil
	}
	return r.checkFields(ctx)
}

// otherVersions returns a problem if the resource is there, but not in the version that the controller needs. If it is
// not there at all, the requests of the informers show that.
func (r customResource) otherVersions(ctx context.Context) ([]Problem, error) {
	var group metav1.APIGroup
	err := r.get(ctx, "/apis/"+r.kind.Group, &group)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, version := range group.Versions {
		versions = append(versions, version.Version)
	}
	return []Problem{r.problem("The CustomResourceDefinition is installed in another version, will keep trying",
		"installed", strings.Join(versions, ", "),
		"needed", r.kind.Version)}, nil
}

// get decodes a document of the API server.
func (r customResource) get(ctx context.Context, path string, into any) error {
	body, err := r.client.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// checkFields compares the fields of the status with the published schema.
func (r customResource) checkFields(ctx context.Context) ([]Problem, error) {
	var document openAPI
	err := r.get(ctx, "/openapi/v3/apis/"+r.kind.GroupVersion().String(), &document)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, nil // Some clusters restrict it, and it cannot be known then.
	}
	if err != nil {
		return nil, err
	}
	for _, schema := range document.Components.Schemas {
		status := schema.Properties.Status
		keepsAll := schema.PreserveUnknownFields || status.PreserveUnknownFields
		if !slices.Contains(schema.Kinds, metav1.GroupVersionKind(r.kind)) || keepsAll {
			continue
		}
		dropped := slices.DeleteFunc(slices.Clone(r.fields), func(field string) bool {
			return status.Properties[field] != nil
		})
		if len(dropped) > 0 {
			return []Problem{r.problem("The CustomResourceDefinition drops fields of the status, will keep trying",
				"fields", strings.Join(dropped, ", "))}, nil
		}
	}
	return nil, nil
}

// openAPI is the part of an OpenAPI document that checkFields needs.
type openAPI struct {
	Components struct {
		Schemas map[string]struct {
			Properties struct {
				Status struct {
					Properties            map[string]json.RawMessage `json:"properties"`
					PreserveUnknownFields bool                       `json:"x-kubernetes-preserve-unknown-fields"`
				} `json:"status"`
			} `json:"properties"`
			PreserveUnknownFields bool                      `json:"x-kubernetes-preserve-unknown-fields"`
			Kinds                 []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		} `json:"schemas"`
	} `json:"components"`
}

func (r customResource) problem(message string, keysAndValues ...any) Problem {
	name := r.resource + "." + r.kind.Group
	return Problem{
		Key: "definition of " + name, Message: message,
		Values: append([]any{"name", name, "fix", r.fix}, keysAndValues...),
	}
}
