package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
)

// A Request is one that the API server asks about. T is the type of the objects.
type Request[T any] struct {
	Operation admissionv1.Operation // What the client does: create, update, delete.
	// Object is what is to be stored, nil for a deletion. Old is what is stored now, nil for a creation.
	Object, Old     *T
	Namespace, Name string                    // The name is empty if the API server is to generate it.
	User            authenticationv1.UserInfo // Who does it.
	DryRun          bool                      // Nothing will be stored.
}

// A Decision admits a request if Err is nil. Warnings are for the user, also of a request that is
// admitted.
type Decision struct {
	// Err is why the request is refused: of errors of package field, joined or not, the user gets each with its field.
	Err      error
	Warnings []string
}

// A validation answers reviews of requests about objects of a kind. It may be used concurrently.
type validation struct {
	kind     schema.GroupVersionKind
	validate func(*admissionv1.AdmissionRequest) (Decision, error)
}

// Validate serves the validation of objects of a kind, which have the type T: the handler answers an AdmissionReview.
// kind has the version in which the API server asks, that of apiVersions in the configuration. A request about another
// one is refused, and so is one for which validate panics.
// validate is pure: it reads the request and nothing else, so that each copy of the controller gives the same answer.
// It may be called concurrently.
func Validate[T any](kind schema.GroupVersionKind, validate func(Request[T]) Decision) http.Handler {
	return &validation{kind, func(r *admissionv1.AdmissionRequest) (decision Decision, err error) {
		obj, objErr := objectOf[T](r.Object.Raw)
		old, oldErr := objectOf[T](r.OldObject.Raw)
		if err := errors.Join(objErr, oldErr); err != nil {
			return decision, err
		}
		return validate(Request[T]{
			Operation: r.Operation, Object: obj, Old: old, Namespace: r.Namespace, Name: r.Name, User: r.UserInfo,
			DryRun: r.DryRun != nil && *r.DryRun,
		}), nil
	}}
}

// objectOf returns an object, or nil.
func objectOf[T any](encoded []byte) (*T, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	obj := new(T)
	if err := json.Unmarshal(encoded, obj); err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	return obj, nil
}

// ServeHTTP answers an AdmissionReview.
func (v *validation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve(w, r, func(review *admissionv1.AdmissionReview) error {
		if review.Request == nil {
			return errors.New("there is no request in this AdmissionReview")
		}
		review.Response = v.answer(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		return nil
	})
}

func (v *validation) answer(r *admissionv1.AdmissionRequest) (answer *admissionv1.AdmissionResponse) {
	defer func() {
		if p := recover(); p != nil {
			klog.Background().Error(nil, "Validation panicked", "kind", v.kind.Kind, "namespace", r.Namespace, "name", r.Name,
				"panic", p, "stack", string(debug.Stack()))
			answer = refused(apierrors.NewInternalError(errors.New("the validation panicked, see the log of the controller")))
		}
	}()
	if asked := schema.GroupVersionKind(r.Kind); asked != v.kind {
		return refused(apierrors.NewBadRequest(fmt.Sprintf("this webhook is for %v, and was asked about %v", v.kind, asked)))
	}
	decision, err := v.validate(r)
	var status apierrors.APIStatus
	switch fields := fieldErrors(decision.Err); {
	case err != nil:
		answer = refused(apierrors.NewBadRequest(err.Error()))
	case decision.Err == nil:
		answer = &admissionv1.AdmissionResponse{Allowed: true}
	case len(fields) > 0:
		answer = refused(apierrors.NewInvalid(v.kind.GroupKind(), r.Name, fields))
	case errors.As(decision.Err, &status):
		answer = refused(status)
	default:
		resource := schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
		answer = refused(apierrors.NewForbidden(resource, r.Name, decision.Err))
	}
	answer.Warnings = decision.Warnings
	return answer
}

// refused is the answer that refuses a request with an error.
func refused(err apierrors.APIStatus) *admissionv1.AdmissionResponse {
	status := err.Status()
	return &admissionv1.AdmissionResponse{Result: &status}
}

// fieldErrors returns the errors of package field in err, nil if another one is in it.
func fieldErrors(err error) (all field.ErrorList) {
	switch e := err.(type) {
	case *field.Error:
		return field.ErrorList{e}
	case interface{ Unwrap() []error }: // Of errors.Join.
		for _, err := range e.Unwrap() {
			fields := fieldErrors(err)
			if fields == nil {
				return nil
			}
			all = append(all, fields...)
		}
	case interface{ Errors() []error }: // Of field.ErrorList.ToAggregate.
		for _, err := range e.Errors() {
			fields := fieldErrors(err)
			if fields == nil {
				return nil
			}
			all = append(all, fields...)
		}
	}
	return all
}
