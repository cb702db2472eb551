package apisim

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Quota returns a function for Server.Review that lets there be only hard objects of a kind in each namespace, as a
// ResourceQuota of that name does with "count/<resource>".
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

// Forbidden words a refusal by a plugin of admission, such as the quota: 403, reason Forbidden.
func (a *Admission) Forbidden(why error) error {
	return forbidden(a.Resource.GroupResource(), a.Object, a.Name, why)
}

// DeniedByPolicy words a refusal by a ValidatingAdmissionPolicy: 422, reason Invalid. The message is the policy's.
func (a *Admission) DeniedByPolicy(policy, binding, message string) error {
	why := fmt.Errorf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy, binding, message)
	err := forbidden(a.Resource.GroupResource(), a.Object, a.Name, why)
	err.ErrStatus.Reason = metav1.StatusReasonInvalid
	err.ErrStatus.Code = http.StatusUnprocessableEntity
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: why.Error()})
	return err
}

// DeniedByWebhook words a refusal by a webhook, as most make it: 403, reason Forbidden. The message is the webhook's.
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

// WebhookFailed words that a webhook could not be asked: 500, reason InternalError.
func WebhookFailed(webhook string, why error) error {
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: %w", webhook, why))
}
