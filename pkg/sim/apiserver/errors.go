package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// storageError returns the error of a real server's storage for a failed precondition.
func storageError(key, message string) error {
	return fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s",
		key, message)
}

// storageKey returns a key as errors of a real server's storage show it. In a dry run, the prefix of all keys is
// missing because the server adds it later.
func (c *call) storageKey(key string) string {
	if c.dryRun {
		return strings.TrimPrefix(c.kind.keyPrefix+key, "/registry")
	}
	return c.kind.keyPrefix + key
}

func unsupportedMediaType(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join(accepted, ", "),
	}}
}

// unknownPatchType returns the error of a real server for a patch whose media type is not one of patches.
func unknownPatchType() error {
	err := unsupportedMediaType(nil)
	err.ErrStatus.Message = "415: Unsupported Media Type"
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

func notAcceptable(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(accepted, ", "),
	}}
}

// noRepresentation returns the error of the kinds that come with Kubernetes for media types that no kind has.
func noRepresentation(available []string, verb string) error {
	if verb == "list" || verb == "watch" {
		available = append(available, string(mediaJSON)+";stream=watch", string(mediaBinary)+";stream=watch")
	}
	err := notAcceptable(nil)
	err.ErrStatus.Message = "406: Not Acceptable\n\nAvailable representations: " + strings.Join(available, ", ")
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

// unrouted returns the error of the kinds that come with Kubernetes for a path or a method that they do not have.
func unrouted(code int) error {
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false)
}

// tooLarge returns the error for a resourceVersion that does not exist yet, after the server has waited for it.
func tooLarge(wanted, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{
		{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
	}
	return err
}

// badVersion is the error for a resourceVersion in a query that is not a number. The response depends on the verb.
type badVersion struct {
	errors field.ErrorList
}

func (e *badVersion) Error() string {
	return e.errors.ToAggregate().Error()
}

// parseVersion reads a resourceVersion from a query. Empty and "0" are 0.
func parseVersion(version string) (int64, error) {
	if version == "" || version == "0" {
		return 0, nil
	}
	parsed, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		path := field.NewPath("resourceVersion")
		return 0, &badVersion{field.ErrorList{field.Invalid(path, version, err.Error())}}
	}
	return int64(min(parsed, 1<<62)), nil
}
