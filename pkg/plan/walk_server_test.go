package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file has the API server of the walk: what it answers when all is well, and every bad answer.

// A walkServer is what the API server has. It is a value: an object is replaced, never changed, so that a copy of the
// struct is a copy of the whole.
type walkServer struct {
	foo         *v1alpha1.Foo // Nil when it is gone.
	deployments []*appsv1.Deployment
	writes      int
	// cached is the Foo in the cache, and owners are the other Foos: an answer to a read names the owner.
	cached *v1alpha1.Foo
	owners []*v1alpha1.Foo
	// capped means that a policy sets replicas to 1 on the way in, undeletable that deletions are refused.
	capped, undeletable bool
	// eventDue means that the caches lack a change that somebody else has made, or that is of a write without an answer.
	// Its event will bring the key back.
	eventDue bool
	// held means that the caches lack a version which the controller has written or read live: it does not leave the key
	// to an event. It counts a deletion too, whose event brings the key back.
	held bool
}

// find returns the Deployment of this name, or nil.
func (server *walkServer) find(name string) *appsv1.Deployment {
	if i := slices.IndexFunc(server.deployments, named(name)); i >= 0 {
		return server.deployments[i]
	}
	return nil
}

// owner returns the Foo that controls dep, or nil, as the cache of Foos has it.
func (server *walkServer) owner(dep *appsv1.Deployment) *v1alpha1.Foo {
	for _, foo := range append(server.owners[:len(server.owners):len(server.owners)], server.cached) {
		if dep != nil && walkControls(foo, dep) {
			return foo
		}
	}
	return nil
}

// store puts dep in the place of the one of its name, and returns the answer that has it.
func (server *walkServer) store(dep *appsv1.Deployment) Answer {
	server.remove(dep.Name)
	server.deployments = append(server.deployments, dep)
	return Answer{Deployment: TrimDeployment(dep)}
}

func (server *walkServer) remove(name string) {
	server.deployments = slices.DeleteFunc(slices.Clone(server.deployments), named(name))
}

// version returns the next resourceVersion.
func (server *walkServer) version() string {
	server.writes++
	return strconv.Itoa(100 + server.writes)
}

// answer does what step asks for and returns the answer of a server for which all is well.
func (server *walkServer) answer(step *Step) Answer {
	switch step.Verb {
	case ReadFoo:
		return Answer{Foo: server.foo}
	case ReadDeployment:
		dep := server.find(step.Name)
		return Answer{Deployment: TrimDeployment(dep), Owner: server.owner(dep)}
	case CreateDeployment:
		return server.create(step)
	case PatchDeployment:
		return server.patch(step)
	case DeleteDeployment:
		return server.delete(step)
	}
	return server.updateStatus(step)
}

func (server *walkServer) create(step *Step) Answer {
	if server.find(step.Name) != nil {
		return Answer{Err: walkExists}
	}
	dep := *step.Create
	dep.UID, dep.Generation, dep.ResourceVersion = types.UID(fmt.Sprint("created-", server.writes)), 1, server.version()
	server.admit(&dep)
	return server.store(&dep)
}

// admit is the policy that changes a Deployment on its way in.
func (server *walkServer) admit(dep *appsv1.Deployment) {
	if server.capped {
		dep.Spec.Replicas = new(int32(1))
	}
}

func (server *walkServer) patch(step *Step) Answer {
	have := server.find(step.Name)
	if have == nil {
		return Answer{Err: walkNotFound}
	}
	dep := walkPatched(have, step.Patch)
	switch {
	case dep.UID != have.UID:
		return Answer{Err: walkOtherUID}
	case dep.ResourceVersion != have.ResourceVersion:
		return Answer{Err: walkConflict}
	}
	dep.ResourceVersion = server.version()
	server.admit(dep)
	if *dep.Spec.Replicas != *have.Spec.Replicas || imageOf(dep) != imageOf(have) {
		dep.Generation++
	}
	return server.store(dep)
}

// walkPatched returns have with the fields of patch, its uid and resourceVersion too.
func walkPatched(have *appsv1.Deployment, patch *Patch) *appsv1.Deployment {
	dep := &appsv1.Deployment{}
	before, err := json.Marshal(have)
	if err != nil {
		panic(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch.Body, dep)
	if err = errors.Join(err, json.Unmarshal(after, dep)); err != nil {
		panic(err)
	}
	return dep
}

func (server *walkServer) delete(step *Step) Answer {
	have, precondition := server.find(step.Name), step.Deployment
	switch {
	case have == nil:
		return Answer{Err: walkNotFound}
	case precondition.UID != "" && precondition.UID != have.UID,
		precondition.ResourceVersion != "" && precondition.ResourceVersion != have.ResourceVersion:
		return Answer{Err: walkConflict}
	case server.undeletable:
		return Answer{Err: walkForbidden}
	}
	server.remove(step.Name)
	return Answer{}
}

func (server *walkServer) updateStatus(step *Step) Answer {
	switch {
	case server.foo == nil:
		return Answer{Err: walkFooGone}
	case step.Foo.UID != server.foo.UID, step.Foo.ResourceVersion != server.foo.ResourceVersion:
		return Answer{Err: walkConflict}
	}
	foo := *server.foo
	foo.Status, foo.ResourceVersion = step.Foo.Status, server.version()
	server.foo = &foo
	return Answer{Foo: &foo}
}

var (
	walkFooResource        = schema.GroupResource{Group: v1alpha1.GroupName, Resource: "foos"}
	walkDeploymentResource = schema.GroupResource{Group: "apps", Resource: "deployments"}

	walkConflict      = apierrors.NewConflict(walkDeploymentResource, walkName, errors.New("object was modified"))
	walkExists        = apierrors.NewAlreadyExists(walkDeploymentResource, walkName)
	walkNotFound      = apierrors.NewNotFound(walkDeploymentResource, walkName)
	walkFooGone       = apierrors.NewNotFound(walkFooResource, "web")
	walkOtherUID      = walkInvalidField("metadata.uid")
	walkInvalidSpec   = walkInvalidField("spec")
	walkForbidden     = apierrors.NewForbidden(walkDeploymentResource, walkName, errors.New("no permission"))
	walkTooMany       = apierrors.NewTooManyRequests("too many requests", 1)
	walkServerError   = apierrors.NewInternalError(errors.New("something broke"))
	errWalkNoAnswer   = errors.New("connection reset by peer")
	walkNoSubresource = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource",
	}}
	walkNamespaceTerminating = func() error {
		err := apierrors.NewForbidden(walkDeploymentResource, walkName, errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}()
)

func walkInvalidField(field string) error {
	err := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, walkName, nil)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: field}}
	return err
}

// A walkReply is one way to answer a request.
type walkReply struct {
	name string
	// give returns the answer, and does to the server what comes with it.
	give func(server *walkServer, step *Step) Answer
}

// walkGood is the answer of a server for which all is well.
var walkGood = walkReply{name: "good", give: (*walkServer).answer}

// failsWith: the request is not done.
func failsWith(name string, err error) walkReply {
	return walkReply{name, func(*walkServer, *Step) Answer { return Answer{Err: err} }}
}

// doneBut: the request is done and the answer is lost.
func doneBut(name string, err error) walkReply {
	return walkReply{name, func(server *walkServer, step *Step) Answer {
		if done := server.answer(step); done.Err != nil {
			return done
		}
		server.eventDue = true // The controller does not know that this write is its own.
		return Answer{Err: err}
	}}
}

// after: somebody else changes something before the request comes.
func after(name string, change func(server *walkServer, step *Step)) walkReply {
	return walkReply{"good, but first " + name, func(server *walkServer, step *Step) Answer {
		server.eventDue = true
		change(server, step)
		return server.answer(step)
	}}
}

// afterFoo: somebody else changes the Foo before the request comes.
func afterFoo(name string, change func(*v1alpha1.Foo)) walkReply {
	return after("the Foo is "+name, func(server *walkServer, _ *Step) {
		if server.foo == nil {
			return
		}
		server.foo = server.foo.DeepCopy()
		server.foo.ResourceVersion = server.version()
		change(server.foo)
	})
}

// afterDeployment: somebody else changes the Deployment before the request comes.
func afterDeployment(name string, change func(*appsv1.Deployment)) walkReply {
	return after("the Deployment "+name, func(server *walkServer, step *Step) {
		have := server.find(step.Name)
		if have == nil {
			return
		}
		dep := have.DeepCopy()
		dep.ResourceVersion = server.version()
		change(dep)
		server.store(dep)
	})
}

// appears: somebody else creates a Deployment of the name before the request comes.
func appears(name string, change func(*appsv1.Deployment)) walkReply {
	return after(name+" Deployment appears", func(server *walkServer, step *Step) {
		if server.find(step.Name) == nil {
			foo := walkFoo()
			foo.Spec.DeploymentName = step.Name
			server.store(walkDeployment(foo, change))
		}
	})
}

// changedOnItsWay: what is written is not stored as it was written.
func changedOnItsWay() walkReply {
	give := func(server *walkServer, step *Step) Answer {
		before := server.capped
		server.capped = true
		answer := server.answer(step)
		server.capped = before
		return answer
	}
	return walkReply{"good, but changed on its way in", give}
}

func statusDropped() walkReply {
	give := func(server *walkServer, step *Step) Answer {
		pruned := *step
		pruned.Foo = step.Foo.DeepCopy()
		pruned.Foo.Status.Conditions = nil
		return server.answer(&pruned)
	}
	return walkReply{"good, but the conditions are dropped", give}
}

func fooDeletedFirst() walkReply {
	return after("the Foo is gone", func(server *walkServer, _ *Step) { server.foo = nil })
}

// pageOfAProxy: the answer is not the API server's. client-go adds the name of the request.
func pageOfAProxy() walkReply {
	return walkReply{"the 404 of a proxy", func(_ *walkServer, step *Step) Answer {
		return Answer{Err: apierrors.NewGenericServerResponse(404, "", walkDeploymentResource, step.Name, "<html>", 0, true)}
	}}
}

// deletionAnsweredByAPage: client-go takes any answer to a deletion with code 200 for a success, and does not read it. To
// other requests, such a page is the same as no answer.
func deletionAnsweredByAPage() walkReply {
	return walkReply{"a page with code 200", func(*walkServer, *Step) Answer { return Answer{} }}
}

func namespaceTerminates() walkReply {
	return walkReply{"namespace terminating", func(server *walkServer, _ *Step) Answer {
		server.eventDue = true // The Foo will be deleted too.
		return Answer{Err: walkNamespaceTerminating}
	}}
}

// walkFailures are the answers to any write.
var walkFailures = []walkReply{
	failsWith("conflict", walkConflict), failsWith("forbidden", walkForbidden), failsWith("429", walkTooMany),
	failsWith("500, not done", walkServerError), doneBut("500, done", walkServerError),
	failsWith("no answer, not done", errWalkNoAnswer), doneBut("no answer, done", errWalkNoAnswer),
	pageOfAProxy(),
}

var walkReadFailures = []walkReply{
	failsWith("forbidden", walkForbidden), failsWith("429", walkTooMany), failsWith("500", walkServerError),
	failsWith("no answer", errWalkNoAnswer), pageOfAProxy(),
}

// walkBad has, for each kind of request, every bad answer.
var walkBad = map[Verb][]walkReply{
	ReadFoo: append([]walkReply{
		fooDeletedFirst(), afterFoo("recreated", walkRecreated), afterFoo("deleted", walkDeletedFoo),
		afterFoo("renamed", walkRenamed), afterFoo("paused", walkPausedNow),
		afterFoo("given another status", walkOtherStatus),
	}, walkReadFailures...),
	ReadDeployment: append([]walkReply{
		after("the Deployment is gone", func(server *walkServer, step *Step) { server.remove(step.Name) }),
		afterDeployment("loses its pods", walkAvailable(0)), afterDeployment("is scaled", walkScaled(7)),
		afterDeployment("loses its owner", walkUnowned), afterDeployment("is deleted", walkTerminating),
		appears("an unowned", walkUnowned), appears("our own", walkNotObserved),
	}, walkReadFailures...),
	CreateDeployment: append([]walkReply{
		failsWith("exists", walkExists), failsWith("invalid", walkInvalidSpec), failsWith("not found", walkNotFound),
		namespaceTerminates(), changedOnItsWay(),
		appears("an unowned", walkUnowned), appears("our own", walkNotObserved),
	}, walkFailures...),
	PatchDeployment: append([]walkReply{
		failsWith("not found", walkNotFound), failsWith("another uid", walkOtherUID),
		failsWith("invalid", walkInvalidSpec),
		changedOnItsWay(), afterDeployment("is changed", func(*appsv1.Deployment) {}),
	}, walkFailures...),
	DeleteDeployment: append([]walkReply{
		afterDeployment("is changed", func(*appsv1.Deployment) {}),
		after("the Deployment is gone", func(server *walkServer, step *Step) { server.remove(step.Name) }),
		deletionAnsweredByAPage(),
	}, walkFailures...),
	UpdateStatus: append([]walkReply{
		failsWith("invalid", walkInvalidSpec), failsWith("no status subresource", walkNoSubresource), statusDropped(),
		fooDeletedFirst(), afterFoo("renamed", walkRenamed),
	}, walkFailures...),
}
