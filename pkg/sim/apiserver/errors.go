package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Messages that real servers use in more than one place.
const (
	modifiedMessage = "the object has been modified; please apply your changes to the latest version and try again"

	listExpired     = "The resourceVersion for the provided list is too old."
	continueExpired = "The provided continue parameter is too old to display a consistent list result. You can start " +
		"a new list without the continue parameter, or use the continue token in this response to retrieve the " +
		"remainder of the results. Continuing with the provided token results in an inconsistent list - objects " +
		"that were created, modified, or deleted between the time the first chunk was returned and now may show " +
		"up in the list."
)

// Refuse returns the response to a request that an interceptor refuses with err. An error of apierrors has its own code
// and reason; any other error, and nil, becomes an internal error.
func (r *Request) Refuse(err error) (*http.Response, error) {
	if err == nil {
		err = errors.New("refused without an error")
	}
	response, result := respondError(r, err, nil)
	r.refusal = served{response, result}
	return response, nil
}

// statusOf returns the Status that a server responds with for an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		// A real server sets no reason either if the error is no API error.
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: http.StatusInternalServerError, Message: err.Error(),
		}
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &status
}

// preconditionFailed returns the message for a field that does not match a precondition.
func preconditionFailed(name string, want, have any) string {
	return fmt.Sprintf("Precondition failed: %s in precondition: %v, %s in object meta: %v", name, want, name, have)
}

// storageConflict returns the error of a real server's storage for a failed precondition. In a dry run, the prefix of
// all keys is missing because the server adds it later.
func (c *call) storageConflict(key, name, why string) error {
	key = c.kind.keyPrefix + key
	if c.dryRun {
		key = strings.TrimPrefix(key, "/registry")
	}
	return apierrors.NewConflict(c.kind.gr, name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s", key, why))
}

// statusError returns an error without details.
func statusError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

func unsupportedMediaType(accepted []string) error {
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

func notAcceptable(accepted []string) error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join(accepted, ", "))
}

// noRepresentation returns the error of the kinds that come with Kubernetes for media types that no kind has.
func noRepresentation(available []string, verb string) error {
	if verb == "list" || verb == "watch" {
		available = append(available, string(mediaJSON)+";stream=watch", string(mediaBinary)+";stream=watch")
	}
	return generic(http.StatusNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+strings.Join(available, ", "))
}

// generic returns the error of a real server's HTTP layer. Without a message it has that of its code.
func generic(code int, message string) error {
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", message, 0, false)
}

// tooLarge returns the error for a resourceVersion that does not exist yet, after the server has waited for it.
func tooLarge(wanted, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

// parseVersion reads a resourceVersion from a query. Empty and "0" are 0.
func parseVersion(version string) (int64, error) {
	if version == "" || version == "0" {
		return 0, nil
	}
	parsed, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		invalid := field.Invalid(field.NewPath("resourceVersion"), version, err.Error())
		return 0, field.ErrorList{invalid}.ToAggregate() // The response depends on the verb.
	}
	return int64(min(parsed, 1<<62)), nil
}

// Quota returns a function for Server.Review that limits the number of objects of a kind in each namespace to hard, as
// a ResourceQuota with "count/<resource>" does. name is the name of the quota.
func Quota(s *Server, name string, gvr schema.GroupVersionResource, hard int) func(*Admission) error {
	return func(a *Admission) error {
		if a.Operation != "CREATE" || a.Resource != gvr || a.Subresource != "" {
			return nil
		}
		used := 0
		for _, obj := range s.Objects(gvr) {
			if accessor(obj).GetNamespace() == a.Namespace {
				used++
			}
		}
		if used < hard {
			return nil
		}
		counted := "count/" + gvr.GroupResource().String()
		return a.Forbidden(fmt.Errorf("exceeded quota: %s, requested: %s=1, used: %s=%d, limited: %s=%d",
			name, counted, counted, used, counted, hard))
	}
}

// Forbidden returns the error of an admission plugin, such as the quota: 403, reason Forbidden.
func (a *Admission) Forbidden(why error) error {
	return forbidden(a.Resource.GroupResource(), a.Object, a.Name, why)
}

// DeniedByPolicy returns the error of a ValidatingAdmissionPolicy with this message: 422, reason Invalid.
func (a *Admission) DeniedByPolicy(policy, binding, message string) error {
	why := fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy, binding, message)
	err := forbidden(a.Resource.GroupResource(), a.Object, a.Name, why)
	err.ErrStatus.Reason = metav1.StatusReasonInvalid
	err.ErrStatus.Code = http.StatusUnprocessableEntity
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: why.Error()})
	return err
}

// DeniedByWebhook returns the error of a webhook that refuses a request with this message: 403, reason Forbidden.
func DeniedByWebhook(webhook, message string) error {
	denied := fmt.Sprintf("admission webhook %q denied the request", webhook)
	if message == "" {
		denied += " without explanation"
	} else {
		denied += ": " + message
	}
	return statusError(http.StatusForbidden, metav1.StatusReasonForbidden, denied)
}

// WebhookFailed returns the error for a webhook that cannot be reached: 500, reason InternalError.
func WebhookFailed(webhook string, why error) error {
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %w", webhook, why))
}

// wrongType returns the schema error of a custom resource for a value of a wrong type, nil if err is another error. For
// built-in kinds, servers return the error of Go's decoder instead.
func (c *call) wrongType(err error, into runtime.Object) error {
	var wrong *json.UnmarshalTypeError
	typed := into.GetObjectKind().GroupVersionKind() == c.kind.gvk && !isUnstructured(into)
	if !c.kind.custom || !typed || !errors.As(err, &wrong) {
		return nil
	}
	have, want := wrong.Value, schemaType(wrong.Type)
	path := field.NewPath(wrong.Field)
	detail := fmt.Sprintf("%s in body must be of type %s: %q", wrong.Field, want, have)
	name := cmp.Or(c.request.Name, accessor(into).GetName())
	return apierrors.NewInvalid(c.kind.gvk.GroupKind(), name, field.ErrorList{field.TypeInvalid(path, have, detail)})
}

// schemaType returns the name that a schema has for a Go type.
func schemaType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String:
		return "string"
	}
	return "object"
}

// An Admission is a write that passes through admission.
type Admission struct {
	Operation   string // CREATE, UPDATE or DELETE.
	User        string
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string // Empty if the server will generate it.
	// Object is the new object, nil for DELETE. Functions given to Admit may change it. At the scale subresource it is
	// a Scale, and so is Old.
	Object runtime.Object
	Old    runtime.Object // The stored object, nil for CREATE. It must not be modified.
	DryRun bool
}

// Admit adds a function to the mutating admission, which runs before validation. The function may change a write, or
// refuse it with an error. It may be called more than once for an update. No lock is held.
func (s *Server) Admit(f func(*Admission) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutating = append(slices.Clip(s.mutating), f)
}

// Review adds a function to the validating admission, which runs after validation. The function may refuse a write with
// an error, as a policy or a quota does. No lock is held.
func (s *Server) Review(f func(*Admission) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.validating = append(slices.Clip(s.validating), f)
}

func (c *call) admission(operation string, obj, old runtime.Object) *Admission {
	name := c.request.Name
	if obj != nil {
		name = cmp.Or(name, accessor(obj).GetName())
	}
	return &Admission{
		Operation: operation, User: c.request.User, Resource: c.kind.Resource, Subresource: c.request.Subresource,
		Namespace: c.request.Namespace, Name: name, Object: obj, Old: old, DryRun: c.dryRun,
	}
}

// admit passes a write through the mutating admission.
func (c *call) admit(operation string, obj, old runtime.Object) error {
	if err := c.admitNamespace(operation, obj); err != nil {
		return err
	}
	c.server.mu.Lock()
	mutating := c.server.mutating
	c.server.mu.Unlock()
	for _, f := range mutating {
		if err := f(c.admission(operation, obj, old)); err != nil {
			return err
		}
		if obj != nil && c.request.Subresource != "scale" {
			c.kind.setDefaults(obj)
		}
	}
	return nil
}

// review passes a write through the validating admission.
func (c *call) review(operation string, obj, old runtime.Object) error {
	c.server.mu.Lock()
	validating := c.server.validating
	c.server.mu.Unlock()
	for _, f := range validating {
		if err := f(c.admission(operation, obj, old)); err != nil {
			return err
		}
	}
	return nil
}

// admitNamespace refuses a create if the namespace does not exist or is being deleted.
func (c *call) admitNamespace(operation string, obj runtime.Object) error {
	namespaces := c.server.namespaces()
	if namespaces == nil || c.kind.ClusterScoped || operation == "DELETE" {
		return nil
	}
	have := c.server.find(namespaces, c.request.Namespace)
	if have == nil {
		return apierrors.NewNotFound(namespaces.gr, c.request.Namespace)
	}
	namespace, ok := have.Object.(*corev1.Namespace)
	if operation != "CREATE" || !ok || namespace.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	err := forbidden(c.kind.gr, obj, c.request.Name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace.Name))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", namespace.Name),
		Field:   "metadata.namespace",
	})
	return err
}

// forbidden returns the error with which admission refuses a write.
func forbidden(gr schema.GroupResource, obj runtime.Object, name string, why error) *apierrors.StatusError {
	if obj != nil {
		name = cmp.Or(name, accessor(obj).GetName(), accessor(obj).GetGenerateName())
	}
	return apierrors.NewForbidden(gr, cmp.Or(name, "Unknown"), why)
}
