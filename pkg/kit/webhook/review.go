package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/conversion"
)

const (
	// maxBody is how many bytes a review may have. The API server takes objects of 3 MiB at most, an admission review may
	// have two, and it mostly asks for the conversion of one object, also for a list.
	maxBody = 8 << 20
	// largeBody is what counts against maxLarge, the sum of large bodies that are in work: an answer needs several times
	// the memory of its review.
	largeBody, maxLarge = 256 << 10, 2 * maxBody
	// maxMessage is how many bytes the message of a failed conversion has.
	maxMessage = 4 << 10
)

// large is shared by all webhooks of the process.
var large = semaphore.NewWeighted(maxLarge)

// serve returns a handler that reads a review, and sends back what answer makes of it.
func serve[R any](answer func(review *R) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "a webhook takes POST", http.StatusMethodNotAllowed)
			return
		}
		if size := r.ContentLength; size < 0 || size > largeBody {
			if size < 0 || size > maxBody {
				size = maxBody
			}
			if err := large.Acquire(r.Context(), size); err != nil {
				http.Error(w, "too many large reviews", http.StatusTooManyRequests)
				return
			}
			defer large.Release(size)
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			http.Error(w, fmt.Sprintf("a review may have %d bytes", maxBody), http.StatusRequestEntityTooLarge)
			return
		}
		review := new(R)
		if err == nil {
			err = json.Unmarshal(body, review)
		}
		if err == nil {
			err = answer(review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(review) // The client may have left.
	})
}

// Convert serves a conversion: the handler answers a ConversionReview. If one object cannot be converted, the answer
// has no objects, and an error for each one that failed. It may be used concurrently.
func Convert(c *conversion.Conversion) http.Handler {
	return serve(func(review *apiextensionsv1.ConversionReview) error {
		request := review.Request
		if request == nil {
			return errors.New("there is no request in this ConversionReview")
		}
		review.Response, review.Request = converted(c, request), nil
		return nil
	})
}

// converted converts all objects, or none: the API server takes no part of a list. The message has the error of each
// object that cannot be converted.
func converted(c *conversion.Conversion,
	request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	var failed []string
	for _, obj := range request.Objects {
		encoded, err := c.Convert(obj.Raw, request.DesiredAPIVersion)
		var panicked *conversion.PanicError
		if errors.As(err, &panicked) {
			klog.Background().Error(nil, "Conversion panicked", "object", nameOf(obj.Raw), "to", request.DesiredAPIVersion,
				"panic", panicked.Value, "stack", panicked.Stack)
		}
		if err != nil {
			failed = append(failed, nameOf(obj.Raw)+": "+err.Error())
			continue
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: encoded})
	}
	if len(failed) > 0 {
		message := strings.Join(failed, "; ")
		if len(message) > maxMessage {
			message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
		}
		response.ConvertedObjects = nil
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: message}
	}
	return response
}

// nameOf returns the namespace and name of an object for people.
func nameOf(encoded []byte) string {
	obj := &metav1.PartialObjectMetadata{}
	_ = json.Unmarshal(encoded, obj) // Then it has no name.
	return strings.TrimPrefix(obj.Namespace+"/"+obj.Name, "/")
}

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

// Validate serves the validation of objects of a kind, which have the type T: the handler answers an AdmissionReview.
// kind has the version in which the API server asks, that of apiVersions in the configuration. A request about another
// one is refused, and so is one for which validate panics.
// validate is pure: it reads the request and nothing else, so that each copy of the controller gives the same answer.
// It may be called concurrently.
func Validate[T any](kind schema.GroupVersionKind, validate func(Request[T]) Decision) http.Handler {
	v := &validation{kind, func(r *admissionv1.AdmissionRequest) (decision Decision, err error) {
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
	return serve(func(review *admissionv1.AdmissionReview) error {
		if review.Request == nil {
			return errors.New("there is no request in this AdmissionReview")
		}
		review.Response = v.answer(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		return nil
	})
}

// objectOf returns an object, or nil.
func objectOf[T any](encoded []byte) (*T, error) {
	if len(encoded) == 0 {
		return nil, nil
	}
	obj := new(T)
	if err := utiljson.Unmarshal(encoded, obj); err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	return obj, nil
}

// A validation answers the requests about objects of a kind.
type validation struct {
	kind     schema.GroupVersionKind
	validate func(*admissionv1.AdmissionRequest) (Decision, error)
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
	var joined []error
	switch e := err.(type) {
	case *field.Error:
		return field.ErrorList{e}
	case interface{ Unwrap() []error }: // Of errors.Join.
		joined = e.Unwrap()
	case interface{ Errors() []error }: // Of field.ErrorList.ToAggregate.
		joined = e.Errors()
	}
	for _, err := range joined {
		fields := fieldErrors(err)
		if fields == nil {
			return nil
		}
		all = append(all, fields...)
	}
	return all
}
