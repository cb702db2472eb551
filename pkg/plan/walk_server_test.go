package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file has the API server of the walk: what it answers when all is well, and every bad answer.

// A walkServer is what the API server has. It is a value: an object is replaced, never changed, so that a copy of the
// struct is a copy of the whole.
type walkServer struct {
	foo         *v1alpha1.Foo // Nil when it is gone.
	deployments []*appsv1.Deployment
	writes      int
	// capped means that a policy sets replicas to 1 on the way in, undeletable that deletions are refused.
	capped, undeletable bool
	// ahead means that the caches lack for long what the controller wrote.
	ahead bool
	// eventDue means that the caches lack a change that the controller does not know to be its own. Its event will
	// bring the key back.
	eventDue bool
}

// find returns the Deployment of this name, or nil.
func (server *walkServer) find(name string) *appsv1.Deployment {
	for _, dep := range server.deployments {
		if dep.Name == name {
			return dep
		}
	}
	return nil
}

// store puts dep in the place of the one of its name.
func (server *walkServer) store(dep *appsv1.Deployment) *appsv1.Deployment {
	server.remove(dep.Name)
	server.deployments = append(server.deployments, dep)
	return dep
}

func (server *walkServer) remove(name string) {
	rest := make([]*appsv1.Deployment, 0, len(server.deployments)+1)
	for _, dep := range server.deployments {
		if dep.Name != name {
			rest = append(rest, dep)
		}
	}
	server.deployments = rest
}

// version returns the next resourceVersion.
func (server *walkServer) version() string {
	server.writes++
	return strconv.Itoa(100 + server.writes)
}

// answer does what step asks for and returns the answer of a server for which all is well.
func (server *walkServer) answer(step *Step, cached *walkCaches) Answer {
	switch step.Verb {
	case ReadFoo:
		return Answer{Foo: server.foo}
	case ReadDeployment:
		dep := server.find(step.Name)
		return Answer{Deployment: dep, OwnerChain: walkOwnerChain(dep, cached)}
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
	dep := *step.Deployment
	dep.UID, dep.Generation, dep.ResourceVersion = types.UID(fmt.Sprint("created-", server.writes)), 1, server.version()
	server.admit(&dep)
	return Answer{Deployment: server.store(&dep)}
}

// admit is the policy that changes a Deployment on its way in.
func (server *walkServer) admit(dep *appsv1.Deployment) {
	if server.capped {
		dep.Spec.Replicas = new(int32(1))
	}
}

func (server *walkServer) patch(step *Step) Answer {
	patch, have := walkParse(step.Patch), server.find(step.Name)
	switch {
	case have == nil:
		return Answer{Err: walkNotFound}
	case patch.Metadata.UID != "" && patch.Metadata.UID != have.UID:
		return Answer{Err: walkOtherUID}
	case patch.Metadata.ResourceVersion != "" && patch.Metadata.ResourceVersion != have.ResourceVersion:
		return Answer{Err: walkConflict}
	}
	dep := *have
	dep.ResourceVersion = server.version()
	if len(patch.Metadata.Labels) > 0 {
		dep.Labels = maps.Clone(dep.Labels)
		if dep.Labels == nil {
			dep.Labels = map[string]string{}
		}
		maps.Copy(dep.Labels, patch.Metadata.Labels)
	}
	for _, ref := range patch.Metadata.OwnerReferences { // They are merged by uid.
		others := slices.DeleteFunc(slices.Clone(dep.OwnerReferences), func(have metav1.OwnerReference) bool {
			return have.UID == ref.UID
		})
		dep.OwnerReferences = append(others, ref)
	}
	if patch.Spec.Replicas != nil {
		dep.Spec.Replicas = patch.Spec.Replicas
	}
	if containers := patch.Spec.Template.Spec.Containers; len(containers) > 0 {
		dep.Spec.Template.Spec.Containers = containers
	}
	server.admit(&dep)
	if replicasOf(&dep) != replicasOf(have) || imageOf(&dep) != imageOf(have) {
		dep.Generation++
	}
	return Answer{Deployment: server.store(&dep)}
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
	// The event of the deletion brings the Foo back. That matters when another Foo waits for the name.
	inCycle := func(owner *v1alpha1.Foo) bool { return owner.Spec.DeploymentName == step.Name }
	server.eventDue = server.eventDue || slices.ContainsFunc(walkOwners, inCycle)
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

// A walkPatch is the body of a patch.
type walkPatch struct {
	Metadata struct {
		UID             types.UID
		ResourceVersion string
		Labels          map[string]string
		OwnerReferences []metav1.OwnerReference
	}
	Spec struct {
		Replicas *int32
		Template struct {
			Spec struct{ Containers []corev1.Container }
		}
	}
	// paths are the fields that the body mentions.
	paths []string
}

// walkPatches has the patches that were parsed already. There are few that differ.
var walkPatches = map[string]*walkPatch{}

func walkParse(patch *Patch) *walkPatch {
	if known := walkPatches[string(patch.Body)]; known != nil {
		return known
	}
	parsed, fields := &walkPatch{}, map[string]any{}
	if err := errors.Join(json.Unmarshal(patch.Body, parsed), json.Unmarshal(patch.Body, &fields)); err != nil {
		panic(err)
	}
	parsed.paths = walkPaths("", fields)
	walkPatches[string(patch.Body)] = parsed
	return parsed
}

// walkPaths returns where the values in fields are. An owner reference and a container count as one value each.
func walkPaths(prefix string, fields map[string]any) []string {
	var paths []string
	for name, value := range fields {
		if inner, ok := value.(map[string]any); ok {
			paths = append(paths, walkPaths(prefix+name+".", inner)...)
			continue
		}
		paths = append(paths, prefix+name)
	}
	return paths
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
	give func(server *walkServer, step *Step, cached *walkCaches) Answer
}

// walkGood is the answer of a server for which all is well.
var walkGood = walkReply{name: "good", give: (*walkServer).answer}

// failsWith: the request is not done.
func failsWith(name string, err error) walkReply {
	return walkReply{name, func(*walkServer, *Step, *walkCaches) Answer { return Answer{Err: err} }}
}

// doneBut: the request is done and the answer is lost.
func doneBut(name string, err error) walkReply {
	return walkReply{name, func(server *walkServer, step *Step, cached *walkCaches) Answer {
		if done := server.answer(step, cached); done.Err != nil {
			return done
		}
		server.eventDue = true // The controller does not know that this write is its own.
		return Answer{Err: err}
	}}
}

// after: somebody else changes something before the request comes.
func after(name string, change func(server *walkServer, step *Step)) walkReply {
	return walkReply{"good, but first " + name, func(server *walkServer, step *Step, cached *walkCaches) Answer {
		server.eventDue = true
		change(server, step)
		return server.answer(step, cached)
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
	give := func(server *walkServer, step *Step, cached *walkCaches) Answer {
		before := server.capped
		server.capped = true
		answer := server.answer(step, cached)
		server.capped = before
		return answer
	}
	return walkReply{"good, but changed on its way in", give}
}

func statusDropped() walkReply {
	give := func(server *walkServer, step *Step, cached *walkCaches) Answer {
		pruned := *step
		pruned.Foo = step.Foo.DeepCopy()
		pruned.Foo.Status.Conditions = nil
		return server.answer(&pruned, cached)
	}
	return walkReply{"good, but the conditions are dropped", give}
}

func fooDeletedFirst() walkReply {
	return after("the Foo is gone", func(server *walkServer, _ *Step) { server.foo = nil })
}

func namespaceTerminates() walkReply {
	return walkReply{"namespace terminating", func(server *walkServer, _ *Step, _ *walkCaches) Answer {
		server.eventDue = true // The Foo will be deleted too.
		return Answer{Err: walkNamespaceTerminating}
	}}
}

// walkFailures are the answers to any write.
var walkFailures = []walkReply{
	failsWith("conflict", walkConflict), failsWith("forbidden", walkForbidden), failsWith("429", walkTooMany),
	failsWith("500, not done", walkServerError), doneBut("500, done", walkServerError),
	failsWith("no answer, not done", errWalkNoAnswer), doneBut("no answer, done", errWalkNoAnswer),
}

// walkBad has, for each kind of request, every bad answer.
var walkBad = map[Verb][]walkReply{
	ReadFoo: {
		failsWith("forbidden", walkForbidden), failsWith("429", walkTooMany), failsWith("500", walkServerError),
		failsWith("no answer", errWalkNoAnswer),
		{"an older state", func(server *walkServer, _ *Step, cached *walkCaches) Answer {
			if server.ahead { // A live read is never older than a write that was acknowledged.
				return Answer{Foo: server.foo}
			}
			return Answer{Foo: cached.foo}
		}},
		fooDeletedFirst(), afterFoo("recreated", walkRecreated), afterFoo("deleted", walkDeletedFoo),
		afterFoo("renamed", walkRenamed), afterFoo("paused", walkPausedNow),
		afterFoo("given another status", walkOtherStatus),
	},
	ReadDeployment: {
		failsWith("forbidden", walkForbidden), failsWith("429", walkTooMany), failsWith("500", walkServerError),
		failsWith("no answer", errWalkNoAnswer),
		{"an older state", func(server *walkServer, step *Step, cached *walkCaches) Answer {
			if server.ahead {
				dep := server.find(step.Name)
				return Answer{Deployment: dep, OwnerChain: walkOwnerChain(dep, cached)}
			}
			return Answer{Deployment: cached.deployment, OwnerChain: walkOwnerChain(cached.deployment, cached)}
		}},
		after("the Deployment is gone", func(server *walkServer, step *Step) { server.remove(step.Name) }),
		afterDeployment("loses its pods", walkAvailable(0)), afterDeployment("is scaled", walkScaled(7)),
		afterDeployment("loses its owner", walkUnowned), afterDeployment("is deleted", walkTerminating),
		appears("an unowned", walkUnowned), appears("our own", walkNotObserved),
	},
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
	}, walkFailures...),
	UpdateStatus: append([]walkReply{
		failsWith("invalid", walkInvalidSpec), failsWith("no status subresource", walkNoSubresource), statusDropped(),
		fooDeletedFirst(), afterFoo("renamed", walkRenamed),
	}, walkFailures...),
}
