package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the API server, or nothing, may answer to a write.
var (
	resource = appsv1.Resource("deployments")
	dial     = &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40123}, Err: errors.New("refused"),
	}
	forbidden = apierrors.NewForbidden(resource, "web-1", errors.New("exceeded quota: small"))
	// badUID is a 400 about the uid.
	badUID = &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: 400, Reason: metav1.StatusReasonBadRequest,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.uid"}}},
	}}
)

// invalidFields is a 422 about fields of a Deployment.
func invalidFields(fields ...string) error {
	var causes field.ErrorList
	for _, name := range fields {
		causes = append(causes, field.Invalid(field.NewPath(name), "x", "field is immutable"))
	}
	return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), "web-1", causes)
}

// terminating is the 403 for a create in a namespace that is being deleted.
func terminating() error {
	err := apierrors.NewForbidden(resource, "web-1", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// proxyPage is an answer that is not in the form of the API server's. client-go adds the name from the request.
func proxyPage(code int) error {
	return apierrors.NewGenericServerResponse(code, "patch", resource, "web-1", "<html>", 0, true)
}

// answer is one without details.
func answer(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
}

func TestErrorsAreSorted(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		// What the functions return about it.
		conflict, unknown bool
	}{
		{name: "a conflict", err: apierrors.NewConflict(resource, "web-1", errors.New("modified")), conflict: true},
		{
			name: "the object exists already", err: apierrors.NewAlreadyExists(resource, "web-1"),
			conflict: true,
		},
		{name: "the object is not found", err: apierrors.NewNotFound(resource, "web-1"), conflict: true},
		{name: "the object has another uid", err: invalidFields("metadata.uid"), conflict: true},
		{
			name: "the object has another uid and more", err: invalidFields("spec", "metadata.uid"),
			conflict: true,
		},
		{name: "two conflicts", err: errors.Join(apierrors.NewNotFound(resource, "a"), apierrors.NewNotFound(resource, "b")),
			conflict: true},
		{name: "a conflict and a refusal", err: errors.Join(apierrors.NewNotFound(resource, "a"), forbidden)},
		{name: "a webhook refuses with 404", err: answer(404, metav1.StatusReasonNotFound, "denied")},
		{name: "a field is invalid", err: invalidFields("spec.selector")},
		{name: "something is invalid, without details", err: answer(422, metav1.StatusReasonInvalid, "")},
		{name: "a bad request about the uid", err: badUID},
		{name: "a policy or quota refuses", err: forbidden},
		{name: "the namespace is being deleted", err: terminating()},
		{name: "the server is busy and did nothing", err: apierrors.NewTooManyRequests("slow down", 1)},
		{name: "the last code after which nothing was done", err: answer(499, "", "")},
		{name: "the first code that leaves it open", err: answer(500, "", ""), unknown: true},
		{name: "the server fails", err: apierrors.NewInternalError(errors.New("etcd")), unknown: true},
		{name: "the server ran out of time", err: apierrors.NewTimeoutError("etcd", 1), unknown: true},
		{
			name:    "a proxy in between has no server",
			err:     apierrors.NewGenericServerResponse(503, "patch", resource, "web-1", "", 1, true),
			unknown: true,
		},
		{name: "a proxy in between answers 404 itself", err: proxyPage(404), unknown: true},
		{name: "a proxy in between answers 409 itself", err: proxyPage(409), unknown: true},
		{name: "a 429 that is plain text", err: proxyPage(429)},
		{name: "what is outside of the cluster refuses", err: &Problem{Reason: Refused}},
		{name: "what is outside of the cluster fails", err: &Problem{Reason: RequestFailed}, unknown: true},
		{name: "time is up", err: context.DeadlineExceeded, unknown: true},
		{name: "the connection is gone", err: errors.New("connection reset by peer"), unknown: true},
		{name: "there is no connection", err: dial, unknown: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for wrapped, err := range map[string]error{"": tc.err, " when wrapped": fmt.Errorf("patch: %w", tc.err)} {
				for name, got := range map[string][2]bool{
					"IsConflict":     {IsConflict(err), tc.conflict},
					"outcomeUnknown": {outcomeUnknown(err), tc.unknown},
				} {
					if got[0] != got[1] {
						t.Errorf("%s = %t%s, want %t", name, got[0], wrapped, got[1])
					}
				}
			}
		})
	}
}

// A user must know whether to act. What a retry can overcome needs no action.
func TestAdviceOn(t *testing.T) {
	const (
		orAsk   = ", or ask an administrator of the cluster to do it. " + TriesAgain
		lasts   = TriesAgain + ". If the failure lasts, check "
		server  = lasts + "the API server and its admission webhooks"
		policy  = "Change this Foo or the policy" + orAsk
		unknown = "Change the quota, the policy or the permission of the controller" + orAsk
		ask     = "Ask an administrator of the cluster to "
	)
	says := func(text string) error { return apierrors.NewForbidden(resource, "web-1", errors.New(text)) }
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{name: "a quota refuses", err: forbidden, want: "Raise the quota or delete what uses it" + orAsk},
		{
			name: "a permission is missing",
			err: says(`User "system:serviceaccount:x:foo-controller" cannot create resource "deployments" ` +
				`in API group "apps" in the namespace "default"`),
			want: ask + `give the controller this permission. Its log has the command, as "fix". ` + TriesAgain,
		},
		{
			name: "a policy refuses", want: policy,
			err: says(`ValidatingAdmissionPolicy 'images' with binding 'images' denied request: no latest`),
		},
		{
			name: "a policy refuses with the words of a missing permission", want: policy,
			err: says(`admission webhook "x" denied the request: container nginx cannot run without resource limits`),
		},
		{
			name: "a webhook refuses", want: policy,
			err: says(`admission webhook "images.example.com" denied the request: no latest`),
		},
		{name: "something is missing", err: apierrors.NewNotFound(resource, "web-1"), want: "Create what is missing. " + TriesAgain},
		{
			name: "the namespace of a child is being deleted", err: says("the namespace is being terminated"),
			want: "Create the namespace again when it is gone. " + TriesAgain,
		},
		{name: "who refuses cannot be known", err: says("you cannot have it"), want: unknown},
		{name: "who refuses cannot be known either", err: says("no resource today"), want: unknown},
		{
			name: "a field is invalid", err: invalidFields("spec.selector"),
			want: "Change this Foo, or ask an administrator of the cluster to change the policy. " + TriesAgain,
		},
		{
			name: "the credentials are wrong", err: apierrors.NewUnauthorized("expired"),
			want: ask + "renew the credentials of the controller. " + TriesAgain,
		},
		{name: "the server is busy", err: apierrors.NewTooManyRequests("slow down", 1), want: server},
		{name: "another client was faster", want: server,
			err: apierrors.NewConflict(resource, "web-1", errors.New("modified"))},
		{name: "the server fails", err: answer(500, "", ""), want: server},
		{name: "no connection", err: dial, want: server},
		{name: "something else has answered", err: proxyPage(404),
			want: lasts + "what is between the controller and the API server, such as a proxy"},
	} {
		problem := problemOf(tc.err, "Foo")
		if problem.Advice != tc.want || (problem.Reason == Refused) == strings.HasPrefix(tc.want, TriesAgain) {
			t.Errorf("%s: %s: %q, want %q", tc.name, problem.Reason, problem.Advice, tc.want)
		}
	}
}

// Addresses and ports change from try to try, and would cost a write each.
func TestCauseOf(t *testing.T) {
	const quota = `refused by the API server: deployments.apps "web-1" is forbidden: exceeded quota: small`
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{name: "the server's own message", err: forbidden, want: quota},
		{name: "the server's own message when wrapped", err: fmt.Errorf("get Deployment web: %w", forbidden), want: quota},
		{name: "no connection", err: dial, want: "no answer from the API server"},
		{name: "time is up", err: context.DeadlineExceeded, want: "no answer from the API server"},
		{
			name: "a server that failed has refused nothing", err: apierrors.NewInternalError(errors.New("etcd is full.")),
			want: "the API server failed: Internal error occurred: etcd is full",
		},
		{
			name: "the page of a proxy", err: proxyPage(499),
			want: "an answer that does not seem to be the API server's, with code 499",
		},
		{
			name: "the page of a proxy that failed", err: proxyPage(500),
			want: `the API server failed: an error on the server ("<html>") has prevented the request from succeeding ` +
				"(patch deployments.apps web-1)",
		},
		{
			name: "a server that is busy", err: apierrors.NewTooManyRequests("slow down", 1),
			want: "the API server has too many requests: slow down",
		},
		{name: "the last code of a refusal", err: answer(499, "", "closed"), want: "refused by the API server: closed"},
		{name: "an answer without a message", err: answer(422, "", ""), want: "refused by the API server"},
		{name: "the first code of a failure", err: answer(500, "", "closed"), want: "the API server failed: closed"},
		{
			name: "a number in a refusal stays", err: answer(403, metav1.StatusReasonForbidden, "at most: 3"),
			want: "refused by the API server: at most: 3",
		},
		{
			name: "the resourceVersion in a conflict is left out",
			err:  answer(409, metav1.StatusReasonConflict, "the object is at resourceVersion: 17 now"),
			want: "the API server reports a conflict: the object is at resourceVersion now",
		},
		{
			name: "the client's port is left out", err: answer(500, "", "read tcp 10.0.0.1:40007->10.9.0.9:443: reset"),
			want: "the API server failed: read tcp 10.9.0.9:443: reset",
		},
		{
			name: "the client's port of IPv6 is left out", err: answer(500, "", "read tcp [fd00::1]:40008->10.9.0.9:443: reset"),
			want: "the API server failed: read tcp 10.9.0.9:443: reset",
		},
		{name: "of several the first that is an answer", err: errors.Join(dial, forbidden), want: quota},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, causeOf(tc.err)); diff != "" {
				t.Errorf("wrong cause (-want +got):\n%s", diff)
			}
			report := Problem{Reason: problemOf(tc.err, "Foo").Reason, Message: tc.want, Advice: adviceOn(tc.err, "Foo"), Failed: true}
			if diff := cmp.Diff(&report, problemOf(tc.err, "Foo")); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
		})
	}
	own := Problem{Reason: "NotOwned", Message: "not ours", Stalled: true}
	if diff := cmp.Diff(&own, problemOf(fmt.Errorf("create: %w", &own), "Foo")); diff != "" {
		t.Errorf("an error that is for the status (-want +got):\n%s", diff)
	}
}

// A proxy may answer 404 with nothing but the code. It is not known what was not found then.
func TestANotFoundWithoutDetailsIsNotAboutTheObject(t *testing.T) {
	if isGone(answer(404, metav1.StatusReasonNotFound, ""), "web-1") {
		t.Error("the object counts as gone")
	}
	if !isGone(apierrors.NewNotFound(appsv1.Resource("deployments"), "web-1"), "web-1") {
		t.Error("the object does not count as gone")
	}
}
