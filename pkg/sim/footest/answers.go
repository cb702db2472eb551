package footest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

var errNoAnswer = errors.New("dial tcp 10.0.0.1:443: i/o timeout")

// refusalOf returns a function that makes the error for a refused request, with this kind and message. The kinds are
// those of the step "refuse".
func refusalOf(kind, message, resource string) (func(name string) error, error) {
	gr := resourceOf(resource).GroupResource()
	reason := errors.New(message)
	switch kind {
	case "forbidden":
		return func(name string) error { return apierrors.NewForbidden(gr, name, reason) }, nil
	case "invalid":
		return func(name string) error { return invalid(name, message) }, nil
	case "conflict":
		return func(name string) error { return modified(gr, name) }, nil
	case "broken":
		return func(string) error { return apierrors.NewInternalError(reason) }, nil
	case "throttled":
		return func(string) error { return apierrors.NewTooManyRequests(message, 0) }, nil
	case "terminating":
		return func(name string) error { return terminating(gr, name) }, nil
	}
	return nil, fmt.Errorf("no such answer: %q", kind)
}

func invalid(name, message string) error {
	errs := field.ErrorList{field.Forbidden(field.NewPath("spec"), message)}
	return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), name, errs)
}

func modified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New("the object has been modified; please apply your changes to the "+
		"latest version and try again"))
}

func terminating(gr schema.GroupResource, name string) error {
	err := apierrors.NewForbidden(gr, name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// reasonOf returns the reason in an answer that is an error, or "" for a success.
func reasonOf(answer *http.Response) string {
	if answer.StatusCode < http.StatusBadRequest {
		return ""
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	status := &metav1.Status{}
	if err := cmp.Or(err, decodeInto(body, status)); err != nil {
		return err.Error()
	}
	return string(status.Reason)
}

// decodeInto decodes the body of a request or an answer.
func decodeInto(body []byte, into runtime.Object) error {
	return runtime.DecodeInto(decoder, body, into)
}

var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := errors.Join(kubescheme.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()
