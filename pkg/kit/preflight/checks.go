package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A Permission is something that the controller must be allowed to do.
type Permission struct {
	// Verb is a verb of the API, such as create. Resource is the plural, Subresource may be empty.
	Verb, Group, Resource, Subresource string
	// Namespace is where; empty is all namespaces, or none, if the resource has no namespace. Name is of which object;
	// empty is any.
	Namespace, Name string
}

// String returns the permission as in: update foos.samplecontroller.k8s.io/status.
func (p Permission) String() string {
	text := strings.TrimSuffix(p.Verb+" "+p.resource()+"/"+p.Subresource, "/")
	if p.Name != "" {
		text += " " + p.Name
	}
	return text
}

// canI returns the command that shows whether user has the permission. Without a user it asks for the user of the
// kubeconfig.
func (p Permission) canI(user string) string {
	command := []string{"kubectl auth can-i", p.Verb, strings.TrimSuffix(p.resource()+"/"+p.Name, "/")}
	if p.Subresource != "" {
		command = append(command, "--subresource="+p.Subresource)
	}
	namespace := "--namespace=" + p.Namespace
	if p.Namespace == "" {
		namespace = "--all-namespaces"
	}
	command = append(command, namespace)
	if user != "" {
		command = append(command, "--as="+user)
	}
	return strings.Join(command, " ")
}

// resource returns the resource in the form of kubectl: deployments.apps.
func (p Permission) resource() string {
	return schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()
}

// Permissions returns a check that asks the API server for each permission. Every authenticated user may ask that about
// itself. fix is what to do if one is missing. The check may be used concurrently.
func Permissions(client kubernetes.Interface, fix string, permissions ...Permission) Check {
	return func(ctx context.Context) ([]Problem, error) {
		var missing []Permission
		for _, p := range permissions {
			allowed, err := review(ctx, client, p)
			if err != nil {
				return nil, err
			}
			if !allowed {
				missing = append(missing, p)
			}
		}
		if len(missing) == 0 {
			return nil, nil
		}
		user := userName(ctx, client)
		var problems []Problem
		for _, p := range missing {
			problems = append(problems, Problem{
				Key: "permission to " + p.String(), Message: "A permission is missing, will keep trying",
				Values: []any{"permission", p.String(), "fix", fix, "show", p.canI(user)},
			})
		}
		return problems, nil
	}
}

// userName returns the name under which the API server knows the controller, or "" if it does not return it.
func userName(ctx context.Context, client kubernetes.Interface) string {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "" // The command is of less use without the name, but the problem is the permission.
	}
	return review.Status.UserInfo.Username
}

// review returns whether the controller has the permission.
func review(ctx context.Context, client kubernetes.Interface, p Permission) (bool, error) {
	reviews := client.AuthorizationV1().SelfSubjectAccessReviews()
	answer, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: p.Namespace, Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource,
			Name: p.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask for the permission to %s: %w", p, err)
	}
	return answer.Status.Allowed, nil
}

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
