package preflight

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
	if p.Group == "" {
		return p.Resource
	}
	return p.Resource + "." + p.Group
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
