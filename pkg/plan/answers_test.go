package plan_test

import (
	"context"
	"errors"
	"math/rand"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/plan"
)

// This file has the errors that a request may be answered with, for all tests here.

var (
	deployments = appsv1.Resource("deployments")

	forbidden   = apierrors.NewForbidden(deployments, "web-1", errors.New("exceeded quota: small"))
	exists      = apierrors.NewAlreadyExists(deployments, "web-1")
	notFound    = apierrors.NewNotFound(deployments, "web-1")
	conflict    = apierrors.NewConflict(deployments, "web-1", errors.New("the object has been modified"))
	tooMany     = apierrors.NewTooManyRequests("slow down", 1)
	serverFails = apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	noResponse  = context.DeadlineExceeded
	// invalidBare is a 422 without details.
	invalidBare = &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}}

	verbs = []plan.Verb{
		plan.ReadFoo, plan.ReadDeployment, plan.CreateDeployment, plan.PatchDeployment, plan.DeleteDeployment,
		plan.UpdateStatus,
	}
)

const (
	// quota is the message of forbidden, and overQuota the cause that it is reported as.
	quota     = `deployments.apps "web-1" is forbidden: exceeded quota: small`
	overQuota = refusedBy + quota
	refusedBy = "refused by the API server: "
	// noAnswer is the cause that noResponse is reported as.
	noAnswer = "no answer from the API server"
	// triesAgain ends the messages about what is refused.
	triesAgain = ". The controller tries again at least once a minute"
	// lasts ends those about a refusal, passes those about a failure of the API server.
	lasts = ". The refusal lasts until its cause is removed: change this Foo, the quota, the policy or the permission" +
		triesAgain
	passes = triesAgain + ". If the failure lasts, check the API server and its admission webhooks"
)

// invalidError is a 422 about fields of a Deployment.
func invalidError(fields ...string) error {
	var causes field.ErrorList
	for _, name := range fields {
		causes = append(causes, field.Invalid(field.NewPath(name), "x", "field is immutable"))
	}
	return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), "web-1", causes)
}

// namespaceTerminating is the 403 for a create in a namespace that is being deleted.
func namespaceTerminating() error {
	err := apierrors.NewForbidden(deployments, "web-1", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func newRandom() *rand.Rand { return rand.New(rand.NewSource(1)) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
