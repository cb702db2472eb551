package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// A refusal answers requests of one verb for one resource, or one object.
type refusal struct {
	verb, resource string
	name           string // Empty for all objects.
	answer         func(name string) error
	done           bool // The API server executes the request nevertheless.
	once           bool // Only the next such request is answered.
}

var errNoAnswer = errors.New("dial tcp 10.0.0.1:443: i/o timeout")

// refuse makes requests fail with an error. The arguments are the verb, the resource, the kind of error, the message.
func (e *Env) refuse(args Arguments) error {
	served := e.kind.served(args.Word(1))
	if served == nil {
		return fmt.Errorf("no such resource: %q", args.Word(1))
	}
	if args.Has("terminating") {
		e.terminating = true
	}
	answer, err := refusalOf(served, args.Word(2), args.Word(3))
	name, _ := args.Value("name")
	e.refusals = append(e.refusals, &refusal{
		verb: args.Word(0), resource: served.Resource.Resource, name: name, answer: answer, once: args.Has("once"),
	})
	return err
}

// refusalOf returns a function that makes the error for a refused request, with this kind and message.
func refusalOf(served *apiserver.Kind, kind, message string) (func(name string) error, error) {
	gr, reason := served.Resource.GroupResource(), errors.New(message)
	switch kind {
	case "forbidden":
		return func(name string) error { return apierrors.NewForbidden(gr, name, reason) }, nil
	case "invalid":
		gk := schema.GroupKind{Group: gr.Group, Kind: served.Kind}
		errs := field.ErrorList{field.Forbidden(field.NewPath("spec"), message)}
		return func(name string) error { return apierrors.NewInvalid(gk, name, errs) }, nil
	case "conflict":
		return func(name string) error { return Modified(gr, name) }, nil
	case "broken":
		return func(string) error { return apierrors.NewInternalError(reason) }, nil
	case "throttled":
		return func(string) error { return apierrors.NewTooManyRequests(message, 0) }, nil
	case "terminating":
		return func(name string) error { return terminating(gr, name) }, nil
	}
	return nil, fmt.Errorf("no such answer: %q", kind)
}

// Modified returns the conflict with which an API server answers a write of an older version.
func Modified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New("the object has been modified; please apply your changes to the "+
		"latest version and try again"))
}

func terminating(gr schema.GroupResource, name string) error {
	err := apierrors.NewForbidden(gr, name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// lose makes requests fail without an answer. If done is true, the API server executes them and their answers are lost.
func (e *Env) lose(args Arguments, done bool) error {
	e.refusals = append(e.refusals, &refusal{
		verb: args.Word(0), resource: args.Word(1), done: done, once: args.Has("once"),
		answer: func(string) error { return errNoAnswer },
	})
	return nil
}

// answer answers a request of a controller, and adds the error of the answer to its line.
func (e *Env) answer(r *request) (*http.Response, error) {
	refused := e.refused(r)
	if refused == nil {
		return r.execute()
	}
	if refused.done {
		answer, err := r.execute()
		if err != nil || answer.StatusCode >= http.StatusBadRequest {
			return answer, err
		}
		answer.Body.Close()
	}
	err := refused.answer(r.name)
	if errors.Is(err, errNoAnswer) {
		r.line += " -> no answer"
		return nil, err
	}
	answer, err := r.Refuse(err)
	r.line += " -> " + reasonOf(answer)
	return answer, err
}

// execute passes r on to the API server.
func (r *request) execute() (*http.Response, error) {
	answer, err := r.next()
	if err != nil {
		return nil, err
	}
	if reason := reasonOf(answer); reason != "" {
		r.line += " -> " + reason
	}
	return answer, nil
}

// refused returns the refusal that answers such a request, or nil if the API server answers it.
func (e *Env) refused(r *request) *refusal {
	i := slices.IndexFunc(e.refusals, func(f *refusal) bool {
		return f.verb == r.verb && f.resource == r.Resource.Resource && (f.name == "" || f.name == r.name)
	})
	if i < 0 {
		return nil
	}
	found := e.refusals[i]
	if found.once {
		e.refusals = slices.Delete(e.refusals, i, i+1)
	}
	return found
}

// reasonOf returns the reason in an answer that is an error, or "" for a success.
func reasonOf(answer *http.Response) string {
	if answer.StatusCode < http.StatusBadRequest {
		return ""
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	status := &metav1.Status{}
	if err := cmp.Or(err, runtime.DecodeInto(decoder, body, status)); err != nil {
		return err.Error()
	}
	return string(status.Reason)
}
