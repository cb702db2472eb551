package plan_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/plan"
)

var deployments = appsv1.Resource("deployments")

// invalidError is a 422 about the fields of a Deployment.
func invalidError(fields ...string) error {
	var problems field.ErrorList
	for _, name := range fields {
		problems = append(problems, field.Invalid(field.NewPath(name), "x", "field is immutable"))
	}
	return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), "web-1", problems)
}

// namespaceTerminating is the 403 for a create in a namespace that is being deleted.
func namespaceTerminating() error {
	err := apierrors.NewForbidden(deployments, "web-1", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// Errors as the controller meets them, for both tests below.
var (
	forbidden   = apierrors.NewForbidden(deployments, "web-1", errors.New("exceeded quota: small"))
	exists      = apierrors.NewAlreadyExists(deployments, "web-1")
	notFound    = apierrors.NewNotFound(deployments, "web-1")
	conflict    = apierrors.NewConflict(deployments, "web-1", errors.New("the object has been modified"))
	tooMany     = apierrors.NewTooManyRequests("slow down", 1)
	serverFails = apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	withoutMore = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}} // A 422 without details.
)

func TestOutcomeOf(t *testing.T) {
	terminal := &plan.TerminalError{Reason: "NotOwned", Message: "not ours"}
	wait := &plan.WaitError{After: time.Second, For: "the caches"}
	told := func(err error) error { return &plan.WaitError{After: time.Second, For: plan.Backoff, Err: err} }
	write := func(err error) error { return &plan.WriteError{Verb: "create", Deployment: "web-1", Err: err} }
	loud, quiet := plan.Outcome{Kind: plan.Retry}, plan.Outcome{Kind: plan.Retry, Quiet: true}

	for _, tc := range []struct {
		name string
		err  error
		want plan.Outcome
	}{
		{"no error", nil, plan.Outcome{Kind: plan.Done}},
		{"time must pass", wait, plan.Outcome{Kind: plan.Wait, After: time.Second, Quiet: true}},
		{"time must pass, and the status says why", told(conflict), plan.Outcome{Kind: plan.Wait, After: time.Second}},
		{"time must pass until a refused write is tried again", told(write(forbidden)), plan.Outcome{Kind: plan.Wait, After: time.Second}},
		{"time must pass although only a person can help", told(terminal), plan.Outcome{Kind: plan.Wait, After: time.Second}},
		{"time must pass until a field is corrected again", told(&plan.OverriddenError{}), plan.Outcome{Kind: plan.Wait, After: time.Second}},
		{"only a person can help", terminal, plan.Outcome{Kind: plan.Terminal}},
		{"only a person can help until what is in the way has gone", &plan.TerminalError{Passing: true}, plan.Outcome{Kind: plan.Terminal}},
		{"what was seen live in the way is going", &plan.TerminalError{Passing: true, Unseen: true}, plan.Outcome{Kind: plan.Retry, Told: true}},
		{"the namespace is being deleted", namespaceTerminating(), plan.Outcome{Kind: plan.Terminal, Quiet: true}},
		{"only a person can help, if what was seen live is still there", &plan.TerminalError{Unseen: true}, plan.Outcome{Kind: plan.Retry, Told: true}},
		{"the cache is behind: conflict", conflict, quiet},
		{"the cache is behind: exists", exists, quiet},
		{"the cache is behind: not found", notFound, quiet},
		{"the cache is behind: another uid", invalidError("metadata.uid"), quiet},
		{"the cache is behind: another uid and more", invalidError("spec", "metadata.uid"), quiet},
		{"a field is invalid", invalidError("spec.selector"), loud},
		{"something is invalid", withoutMore, loud},
		{"an error of another kind about the uid", &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonBadRequest, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.uid"}}}}}, loud},
		{"a policy or quota refuses", forbidden, loud},
		{"the server is busy", tooMany, loud},
		{"the server fails", serverFails, loud},
		{"the server gives no answer", context.DeadlineExceeded, loud},
		{"a write for which the cache was behind", write(conflict), quiet},
		{"a write to what is gone", write(notFound), quiet},
		{"a write to another uid", write(invalidError("metadata.uid")), quiet},
		{"a write in a namespace that is being deleted", write(namespaceTerminating()), plan.Outcome{Kind: plan.Terminal, Quiet: true}},
		{"a write that a policy or quota refuses", write(forbidden), plan.Outcome{Kind: plan.Retry, Told: true}},
		{"a write that is invalid", write(invalidError("spec.selector")), plan.Outcome{Kind: plan.Retry, Told: true}},
		{"a write that the server is too busy for", write(tooMany), plan.Outcome{Kind: plan.Retry, Told: true}},
		{"a write that has no answer", write(context.DeadlineExceeded), plan.Outcome{Kind: plan.Retry, Told: true}},
		{"a refusal and a look that failed", errors.Join(forbidden, serverFails), loud},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.OutcomeOf(tc.err)); diff != "" {
				t.Errorf("wrong outcome (-want +got):\n%s", diff)
			}
			if tc.err == nil {
				return
			}
			if diff := cmp.Diff(tc.want, plan.OutcomeOf(fmt.Errorf("patch Deployment: %w", tc.err))); diff != "" {
				t.Errorf("wrong outcome when wrapped (-want +got):\n%s", diff)
			}
		})
	}
}

// Logs, metrics and documents use these words.
func TestKindsOfOutcome(t *testing.T) {
	if diff := cmp.Diff([]plan.Kind{"done", "retry", "wait", "terminal"}, []plan.Kind{plan.Done, plan.Retry, plan.Wait, plan.Terminal}); diff != "" {
		t.Errorf("wrong words (-want +got):\n%s", diff)
	}
}

func TestErrorsSayWhatTheyAreAbout(t *testing.T) {
	for want, err := range map[string]error{
		"NotOwned: not ours":                          &plan.TerminalError{Reason: "NotOwned", Message: "not ours"},
		"wait for the caches":                         &plan.WaitError{After: time.Second, For: "the caches"},
		"wait for another try: NotOwned: not ours":    &plan.WaitError{For: plan.Backoff, Err: &plan.TerminalError{Reason: "NotOwned", Message: "not ours"}},
		"delete Deployment web-1: connection refused": &plan.WriteError{Verb: "delete", Deployment: "web-1", Err: errors.New("connection refused")},
	} {
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("wrong words (-want +got):\n%s", diff)
		}
	}
}

// A write whose fate is not known must not be followed by another one before the API server is asked.
func TestUnanswered(t *testing.T) {
	withCode := func(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"time is up", context.DeadlineExceeded, true},
		{"the connection is gone", errors.New("connection reset by peer"), true},
		{"the server fails", serverFails, true},
		{"the server ran out of time", apierrors.NewTimeoutError("etcd", 1), true},
		{"a proxy in between has no server", apierrors.NewGenericServerResponse(503, "patch", deployments, "web-1", "", 1, true), true},
		{"the first code that leaves it open", withCode(500), true},
		{"the last code that does not", withCode(499), false},
		{"the server is busy and did nothing", tooMany, false},
		{"a policy or quota refuses", forbidden, false},
		{"the cache was behind", conflict, false},
		{"it is gone", notFound, false},
		{"it is there already", exists, false},
		{"something is invalid", withoutMore, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := plan.Unanswered(tc.err); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if got := plan.Unanswered(&plan.WriteError{Verb: "patch", Deployment: "web-1", Err: tc.err}); got != tc.want {
				t.Errorf("got %t when wrapped, want %t", got, tc.want)
			}
		})
	}
}

// Admission answers before the name is looked at, so some refusals say nothing about it.
func TestNameMayBeTaken(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"it is", exists, true},
		{"a policy or quota refuses", forbidden, true},
		{"the namespace is being deleted, and all in it", namespaceTerminating(), false},
		{"a webhook or the validation refuses", invalidError("spec"), true},
		{"there is no such namespace", notFound, false},
		{"the server is busy", tooMany, false},
		{"the server fails", serverFails, false},
		{"the server gives no answer", context.DeadlineExceeded, false},
		{"the create went well", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := plan.NameMayBeTaken(tc.err); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if got := plan.NameMayBeTaken(fmt.Errorf("create Deployment: %w", tc.err)); got != tc.want {
				t.Errorf("got %t when wrapped, want %t", got, tc.want)
			}
		})
	}
}
