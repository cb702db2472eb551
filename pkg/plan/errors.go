package plan

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file sorts the errors that the API server answers with.

// isConflict reports whether err means that the cache was behind when the write was made. The next sync sees more.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || anotherUID(err)
}

// anotherUID reports whether err is the API server's answer to a patch whose uid is not the object's: it takes the uid
// for a change of an immutable field, so the answer is 422 and not 409.
func anotherUID(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// nameMayExist reports whether err, the answer to a create, leaves open that an object of that name exists: admission
// answers before the name is checked.
func nameMayExist(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// noAnswer reports whether err means that the API server did not answer.
func noAnswer(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status)
}

// outcomeUnknown reports whether err leaves open whether the write that it is the answer to was done: there was no
// answer, or one that means that something broke on the way.
func outcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500
}

// isGone reports whether err is the API server's answer that there is no Deployment of this name. An admission webhook
// may answer 404 too, but does not name it.
func isGone(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Name == name
}

// versions are the resourceVersions in the message of a conflict. They are others at each try.
var versions = regexp.MustCompile(`\b: \d+\b`)

// ports are the addresses of the client's side of a connection. The port is another one at each try.
var ports = regexp.MustCompile(`(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.]+\]):\d+->`)

// causeOf returns what the status reports about err: the API server's own message when it gave an answer, and
// otherwise a constant, since addresses and ports change from try to try.
func causeOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "no answer from the API server"
	}
	cause := "refused by the API server"
	if status.Status().Code >= 500 {
		cause = "the API server failed"
	}
	message := ports.ReplaceAllString(strings.TrimRight(status.Status().Message, ". "), "")
	if apierrors.IsConflict(err) {
		cause = "the API server reports a conflict"
		message = versions.ReplaceAllString(message, "")
	}
	if message != "" {
		cause += ": " + message
	}
	return cause
}

// adviceOn returns what to do about err, the answer to a write.
func adviceOn(err error) string {
	passes := outcomeUnknown(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err)
	if passes {
		return triesAgain + ". If the failure lasts, check the API server and its admission webhooks"
	}
	return "The refusal lasts until its cause is removed: change this Foo, the quota, the policy or the permission. " +
		triesAgain
}
