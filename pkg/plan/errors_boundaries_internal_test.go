package plan

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A proxy may answer 404 with nothing but the code. It is not known what was not found then.
func TestANotFoundWithoutDetailsIsNotAboutTheDeployment(t *testing.T) {
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}}
	if isGone(bare, "web-1") {
		t.Error("the Deployment counts as gone")
	}
	if !isGone(apierrors.NewNotFound(appsv1.Resource("deployments"), "web-1"), "web-1") {
		t.Error("the Deployment does not count as gone")
	}
}

func TestWhoFailedAccordingToTheCause(t *testing.T) {
	for _, tc := range []struct {
		name    string
		code    int32
		reason  metav1.StatusReason
		message string
		want    string
	}{
		{
			name: "the last code of a refusal", code: 499, message: "closed",
			want: "refused by the API server: closed",
		},
		{
			name: "the first code of a failure", code: 500, message: "closed",
			want: "the API server failed: closed",
		},
		{
			name: "a number in a refusal stays", code: 403, reason: metav1.StatusReasonForbidden,
			message: "the most replicas that are allowed: 3",
			want:    "refused by the API server: the most replicas that are allowed: 3",
		},
		{
			name: "the resourceVersion in a conflict is left out", code: 409, reason: metav1.StatusReasonConflict,
			message: "the object is at resourceVersion: 17 now",
			want:    "the API server reports a conflict: the object is at resourceVersion now",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := &apierrors.StatusError{ErrStatus: metav1.Status{Code: tc.code, Reason: tc.reason, Message: tc.message}}
			if got := causeOf(err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The port is another one at each try, and would cost a write each.
func TestPortsAreNotReported(t *testing.T) {
	for _, from := range []string{"10.0.0.1:40007", "[fd00::1]:40008"} {
		err := apierrors.NewInternalError(errors.New("read tcp " + from + "->10.96.0.9:443: connection reset by peer"))
		want := "the API server failed: Internal error occurred: read tcp 10.96.0.9:443: connection reset by peer"
		if got := causeOf(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
