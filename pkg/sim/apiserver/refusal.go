package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: denied,
	}}
}

// WebhookFailed returns the error for a webhook that cannot be reached: 500, reason InternalError.
func WebhookFailed(webhook string, why error) error {
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %w", webhook, why))
}
