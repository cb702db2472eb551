package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the API server, or nothing, may answer to a write.
var (
	resource  = appsv1.Resource("deployments")
	forbidden = apierrors.NewForbidden(resource, "web-1", errors.New("exceeded quota: small"))
)

// invalidFields is a 422 about fields of a Deployment.
func invalidFields(fields ...string) error {
	var causes field.ErrorList
	for _, name := range fields {
		causes = append(causes, field.Invalid(field.NewPath(name), "x", "field is immutable"))
	}
	return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), "web-1", causes)
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
	notFound := apierrors.NewNotFound(resource, "web-1")
	for _, test := range []struct {
		name string
		err  error
		// What the functions return about it.
		conflict, unknown bool
	}{
		{name: "a conflict", err: apierrors.NewConflict(resource, "web-1", errors.New("modified")), conflict: true},
		{name: "the object exists already", err: apierrors.NewAlreadyExists(resource, "web-1"), conflict: true},
		{name: "the object is not found", err: notFound, conflict: true},
		{name: "the object has another uid and more", err: invalidFields("spec", "metadata.uid"), conflict: true},
		{name: "two conflicts", err: errors.Join(notFound, notFound), conflict: true},
		{name: "a conflict and a refusal", err: errors.Join(notFound, forbidden)},
		{name: "a webhook refuses with 404", err: answer(404, metav1.StatusReasonNotFound, "denied")},
		{name: "a field is invalid", err: invalidFields("spec.selector")},
		{name: "something is invalid, without details", err: answer(422, metav1.StatusReasonInvalid, "")},
		{name: "a policy or quota refuses", err: forbidden},
		{name: "the server is busy and did nothing", err: apierrors.NewTooManyRequests("slow down", 1)},
		{name: "the last code after which nothing was done", err: answer(499, "", "")},
		{name: "the first code that leaves it open", err: answer(500, "", ""), unknown: true},
		{name: "a proxy in between answers 404 itself", err: proxyPage(404), unknown: true},
		{name: "a 429 that is plain text", err: proxyPage(429)},
		{name: "what is outside of the cluster refuses", err: &Problem{Reason: Refused}},
		{name: "what is outside of the cluster fails", err: &Problem{Reason: RequestFailed}, unknown: true},
		{name: "there is no answer", err: context.DeadlineExceeded, unknown: true},
	} {
		err := fmt.Errorf("patch: %w", test.err)
		if conflict, unknown := IsConflict(err), outcomeUnknown(err); conflict != test.conflict || unknown != test.unknown {
			t.Errorf("%s: conflict %t, outcome unknown %t", test.name, conflict, unknown)
		}
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
	for _, test := range []struct {
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
			name: "a policy refuses with the words of a missing permission", want: policy,
			err: says(`admission webhook "x" denied the request: container nginx cannot run without resource limits`),
		},
		{name: "something is missing", err: apierrors.NewNotFound(resource, "web-1"),
			want: "Create what is missing. " + TriesAgain},
		{name: "the namespace of a child is being deleted", err: says("the namespace is being terminated"),
			want: "Create the namespace again when it is gone. " + TriesAgain},
		{name: "who refuses cannot be known", err: says("you cannot have it"), want: unknown},
		{name: "who refuses cannot be known either", err: says("no resource today"), want: unknown},
		{name: "a field is invalid", err: invalidFields("spec.selector"),
			want: "Change this Foo, or ask an administrator of the cluster to change the policy. " + TriesAgain},
		{name: "the credentials are wrong", err: apierrors.NewUnauthorized("expired"),
			want: ask + "renew the credentials of the controller. " + TriesAgain},
		{name: "the server is busy", err: apierrors.NewTooManyRequests("slow down", 1), want: server},
		{name: "another client was faster", err: apierrors.NewConflict(resource, "web-1", errors.New("modified")),
			want: server},
		{name: "no answer", err: context.DeadlineExceeded, want: server},
		{name: "something else has answered", err: proxyPage(404),
			want: lasts + "what is between the controller and the API server, such as a proxy"},
	} {
		reason := Refused
		if strings.HasPrefix(test.want, TriesAgain) {
			reason = RequestFailed
		}
		want := &Problem{Reason: reason, Message: causeOf(test.err), Advice: test.want, Failed: true}
		if diff := cmp.Diff(want, problemOf(test.err, "Foo")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// Addresses and ports change from try to try, and would cost a write each.
func TestCauseOf(t *testing.T) {
	const quota = `refused by the API server: deployments.apps "web-1" is forbidden: exceeded quota: small`
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{name: "the server's own message", err: fmt.Errorf("get Deployment web: %w", forbidden), want: quota},
		{name: "no answer", err: context.DeadlineExceeded, want: "no answer from the API server"},
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
			name: "the client's ports are left out",
			err:  answer(500, "", "read tcp 10.0.0.1:40007->10.9.0.9:443: reset, [fd00::1]:40008->10.9.0.9:443: reset"),
			want: "the API server failed: read tcp 10.9.0.9:443: reset, 10.9.0.9:443: reset",
		},
	} {
		if diff := cmp.Diff(test.want, causeOf(test.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	own := Problem{Reason: "NotOwned", Message: "not ours", Stalled: true}
	if diff := cmp.Diff(&own, problemOf(fmt.Errorf("create: %w", &own), "Foo")); diff != "" {
		t.Errorf("an error that is for the status (-want +got):\n%s", diff)
	}
}

// A delay doubles up to a minute, however often something fails, and its random part shortens it.
func TestDelays(t *testing.T) {
	for _, attempts := range []int{15, 100, math.MaxInt} {
		if got := delayAfter(firstDelay, attempts, 0); got != time.Minute {
			t.Errorf("after %d attempts the delay is %s", attempts, got)
		}
	}
	if got := delayAfter(time.Second, 2, 0.25); got != 1900*time.Millisecond {
		t.Errorf("with a random part the delay is %s", got)
	}
}

// A few bytes stand for a status: equal for equal statuses only. Times and the conditions of others do not count.
func TestDigest(t *testing.T) {
	type conditions []metav1.Condition
	type status struct {
		Replicas   any        `json:"replicas"`
		Conditions conditions `json:"conditions"`
	}
	type team struct {
		metav1.ObjectMeta
		Status *status
	}
	of := func(replicas any, all conditions) string {
		return digest(&team{Status: &status{replicas, all}})
	}
	ready, none := of(3, conditions{{Type: "Ready"}}), of(3, conditions{})
	if ready != of(3, conditions{{Type: "Ready", LastTransitionTime: metav1.Unix(2, 0)}, {Type: "Audited"}}) {
		t.Error("equal statuses have different digests")
	}
	if of(json.RawMessage(`{"b":1,"a":2}`), nil) != of(json.RawMessage(`{"a":2, "b":1}`), nil) {
		t.Error("the order of keys makes a difference, which the API server does not keep")
	}
	digests := map[string]bool{"": true, ready: true, none: true, of(4, conditions{{Type: "Ready"}}): true}
	for _, name := range []string{"Ready", "Reconciling", "Stalled"} {
		digests[of(3, conditions{{Type: name, Reason: "a"}})] = true
	}
	if len(digests) != 7 {
		t.Error("different statuses have the same digest")
	}
	type odd struct {
		metav1.ObjectMeta
		Status string
	}
	if unknown := digest(&odd{Status: "of another form"}); unknown != "" {
		t.Errorf("a status that cannot be read has the digest %q", unknown)
	}
	if unknown := digest(&metav1.ObjectMeta{}) + digest(&team{}); unknown != "" {
		t.Errorf("an object without a status has the digest %q", unknown)
	}
}
