// Package explain shows to people what package plan decides, and why: Observed, Sent and Concluded pass what a running
// sync does to /debug/syncs, and Foo is what --explain prints about one Foo.
//
// For that, Foo reads the Foo and its Deployments live, and plays a sync against the answers that it expects of the API
// server. So the rules that it prints are those that the controller follows, and nothing is written. Backoffs and
// recent writes are in the memory of a running controller, and Foo does not know them.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	typed "example.com/foo-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// A Question is what the flags ask for.
type Question struct {
	// Foo is empty if nothing is asked.
	Foo    cache.ObjectName
	Format Format
}

// AddFlags adds the flags that set q.
func (q *Question) AddFlags(fs *flag.FlagSet) {
	q.Format = Text
	fs.Func("explain", "print what the controller would do with the Foo `namespace/name` now, and why; nothing is "+
		"written, and the exit code is 2 if the controller would write something, else 0", q.setFoo)
	fs.Var(&q.Format, "explain-format", "`format` of what --explain prints: text or json")
}

// Check returns whether something is asked of a controller that serves this namespace; empty is all. An error is a
// mistake in the flags.
func (q *Question) Check(namespace string) (asked bool, err error) {
	switch {
	case q.Foo.Name == "" && q.Format != Text:
		return false, errors.New("--explain-format needs --explain=NAMESPACE/NAME")
	case q.Foo.Name != "" && namespace != "" && namespace != q.Foo.Namespace:
		return false, fmt.Errorf("--namespace=%s: this controller does not see the Foo %s", namespace, q.Foo)
	}
	return q.Foo.Name != "", nil
}

func (q *Question) setFoo(value string) (err error) {
	q.Foo.Namespace, q.Foo.Name, err = cache.SplitMetaNamespaceKey(value)
	if err != nil || q.Foo.Namespace == "" || q.Foo.Name == "" {
		return errors.New("give NAMESPACE/NAME of a Foo")
	}
	return nil
}

// Foo reads the Foo of this key, and what a sync of it depends on, and returns what the controller would do. It sends a
// get of one or two Foos and a list of the Deployments in the namespace. A Foo that does not exist is an error.
func Foo(ctx context.Context, kube kubernetes.Interface, samples clientset.Interface, key cache.ObjectName) (
	*Report, error) {
	foos := samples.SamplecontrollerV1alpha1().Foos(key.Namespace)
	foo, err := foos.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Foo %s: %w", key, err)
	}
	foo = plan.TrimFoo(foo)
	report := newReport(foo)
	if foo.DeletionTimestamp != nil {
		report.Then = "done: the Foo is being deleted, and the garbage collector deletes or orphans its Deployments"
		report.NotReady = ""
		return report, nil
	}
	now := time.Now()
	s := &server{foo: foo}
	state := &plan.State{Foo: foo, Now: now, Memory: plan.Memory{}.For(foo, now)}
	err = eachDeployment(ctx, kube, key.Namespace, func(dep *appsv1.Deployment) {
		trimmed := plan.TrimDeployment(dep)
		switch {
		case dep.Name == foo.Spec.DeploymentName:
			s.deployment, state.Deployment = dep.DeepCopy(), trimmed // A copy lets the page be freed.
		case plan.Owns(foo, trimmed):
			state.Previous = append(state.Previous, trimmed)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list Deployments of the namespace %s: %w", key.Namespace, err)
	}
	if s.owner, err = ownerOf(ctx, foos, foo, state.Deployment); err != nil {
		return nil, err
	}
	state.Owner = s.owner
	return report, report.play(state, s)
}

// eachDeployment lists the Deployments of a namespace in small pages, so that large ones need little memory.
func eachDeployment(ctx context.Context, kube kubernetes.Interface, namespace string,
	do func(*appsv1.Deployment)) error {
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return kube.AppsV1().Deployments(namespace).List(ctx, options)
	}))
	pages.PageSize, pages.PageBufferSize = 100, 1
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		do(obj.(*appsv1.Deployment))
		return nil
	})
}

// ownerOf returns the Foo that controls dep, which may be nil, or nil if there is none: its name finds it, and the uid
// decides. It is foo, or one that is read.
func ownerOf(ctx context.Context, foos typed.FooInterface, foo *v1alpha1.Foo, dep *plan.Observed) (
	*v1alpha1.Foo, error) {
	switch {
	case dep == nil, plan.FooReference(dep) == nil:
		return nil, nil
	case plan.Owns(foo, dep):
		return foo, nil
	}
	name := plan.FooReference(dep).Name
	if len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil // No Foo has such a name, and no request can ask for it.
	}
	owner, err := foos.Get(ctx, name, metav1.GetOptions{})
	switch {
	case plan.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Foo %s, the controller of Deployment %s: %w", name, dep.Name, err)
	case !plan.Owns(owner, dep):
		return nil, nil
	}
	return plan.TrimFoo(owner), nil
}

// play plays a sync against s. It adds to r the first write, the answers of the rules before it, the status, and the
// outcome.
func (r *Report) play(state *plan.State, s *server) error {
	if dep := state.Deployment; dep != nil && plan.Owns(state.Foo, dep) && dep.DeletionTimestamp == nil {
		if patch := plan.Drift(dep, state.Foo); patch != nil {
			r.Differences = patch.Fields
		}
	}
	for step := state.Next(); step != nil; step = state.Next() {
		isRead := step.Verb == plan.ReadFoo || step.Verb == plan.ReadDeployment
		if !isRead && !r.WouldSend {
			r.setWrite(step)
			r.Rules = state.Explain()
		}
		answer, err := s.answer(step)
		if err != nil {
			return err
		}
		if step.Verb == plan.UpdateStatus {
			r.Status, r.NotReady = &step.Foo.Status, notReady(&step.Foo.Status)
		}
		state.Record(step, answer, state.Now)
	}
	if !r.WouldSend {
		r.Rules = state.Explain()
	}
	r.Then = endOf(state.Outcome())
	return nil
}

// A server answers requests as the API server probably would, with what was read from it.
type server struct {
	foo        *v1alpha1.Foo
	deployment *appsv1.Deployment // The named one, complete.
	owner      *v1alpha1.Foo
}

func (s *server) answer(step *plan.Step) (answer plan.Answer, err error) {
	switch step.Verb {
	case plan.ReadFoo:
		answer.Foo = s.foo
	case plan.ReadDeployment:
		answer.Owner = s.owner
	case plan.CreateDeployment:
		s.deployment, s.owner = step.Create.DeepCopy(), s.foo
		s.deployment.UID, s.deployment.ResourceVersion, s.deployment.Generation = "new", "new", 1
	case plan.PatchDeployment:
		s.deployment, err = patched(s.deployment, step.Patch.Body)
	case plan.UpdateStatus:
		answer.Foo = step.Foo
	}
	answer.Deployment = plan.TrimDeployment(s.deployment)
	return answer, err
}

// patched returns dep after a strategic merge patch.
func patched(dep *appsv1.Deployment, patch []byte) (*appsv1.Deployment, error) {
	before, err := json.Marshal(dep)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, dep)
	if err != nil {
		return nil, fmt.Errorf("apply the patch of Deployment %s: %w", dep.Name, err)
	}
	result := &appsv1.Deployment{}
	if err := json.Unmarshal(after, result); err != nil {
		return nil, err
	}
	if !equality.Semantic.DeepEqual(dep.Spec, result.Spec) {
		result.Generation++
	}
	return result, nil
}
