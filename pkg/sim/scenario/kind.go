// Package scenario plays a controller on the kit against a simulated API server, in virtual time, for its tests. It
// knows the kit, but no kind: a test describes its own as a [Kind].
//
//   - Scenarios are texts. [Play] plays the steps of a text, one sync at a time, and compares the requests and events
//     of the controller with the output in the text. The player decides when a cache sees a change, which request
//     fails, and when time passes.
//   - Schedules are random. In [PlaySchedules] the controller runs as in production, with its own informers and
//     workers, while users edit objects and requests fail. At the end the state and all writes are checked. A seed
//     decides all of it, and [ShowSchedule] shows what happens with a seed.
//   - A [Simulation] is such a cluster for tests that do something else in it.
//
// Everything runs in a bubble of testing/synctest, so that minutes of backoff cost nothing.
//
// # Scenarios
//
// Empty lines separate the blocks of a scenario. A block has steps, a line ----, and the output. All steps of a block
// happen before the controller runs. Lines that begin with # are comments. These are the steps for any kind; a Kind may
// have more. KIND is a resource, or a kind in lower case. NAME is in the namespace default, if the kind has namespaces.
//
//	create KIND NAME PATH=VALUE ...      a user creates an object; a PATH is like spec.replicas
//	edit KIND NAME PATH=VALUE ...        a user sets these fields; - removes one
//	delete KIND NAME                     a user deletes it; with foreground it exists until its children are deleted
//	rollout NAME                         the Deployment controller reports that all replicas are available, or the
//	                                     numbers in updated=N available=N replicas=N, or stuck, or failing
//	collect garbage                      the garbage collector deletes objects whose owners do not exist
//	lag                                  the caches get no more events; also lag RESOURCE
//	catch up                             they get all events that they missed
//	relist                               they list the current objects, without the events in between
//	refuse VERB RESOURCE ANSWER "TEXT"   the API server refuses such requests, of VERB create, patch, delete, get or
//	                                     status. ANSWER is forbidden, invalid, conflict, broken, throttled or
//	                                     terminating. once: only the next one; name=NAME: only for this object
//	lose VERB RESOURCE                   such requests do not arrive, and get no answer
//	lose the answer to VERB RESOURCE     such requests are executed, and get no answer
//	allow                                ends refuse and lose
//	stop overriding                      ends the Overrides of the Env, which a step of a Kind may add
//	restart                              a new process, without the memory of the old one; caches that lag still do
//	start over                           an empty cluster, and a new process
//	start another NAME                   one more controller runs at the same time; its lines begin with its name
//	wait 30s                             time passes
//	wait until NAME is tried again       time passes until a sync has sent something; also: again 5 times
//	sync NAME 100 times                  the object is synced although nothing has happened
//	show KIND NAME PATH ...              adds the conditions of an object to the output, and the fields at and below PATH
package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A Kind is what the players know of a kind of objects and of its controller. Only the first three fields are required.
type Kind struct {
	// Controller is the user name of the controller at the API server, and the field manager of its writes.
	Controller string
	// Served are the kinds of the API server that the controller has informers of. The first is the kind itself. It has a
	// status with observedGeneration and conditions.
	Served []apiserver.Kind
	// New makes a controller. Nothing of it may run.
	New func(ctx context.Context, wiring Wiring) (*Controller, error)

	// Steps are those of scenarios that only this kind has.
	Steps []Step
	// Describe, unless nil, returns the text after the name in the line of a create.
	Describe func(obj Object) string
	// Short, unless nil, shortens the names of fields in the output.
	Short *strings.Replacer
}

// Users are those of one schedule.
type Users struct {
	// Setup creates the objects, and Edits change them and their children. An edit that is listed more than once is more
	// likely.
	Setup func(ctx context.Context, user *rest.Config) error
	Edits []Edit
	// Dense are further edits of the schedules with dense faults, such as the deletion of a child. In them, no edit that
	// follows at once repairs what the controller misses.
	Dense []Edit
	// Resume, unless nil, undoes after the last edit what keeps an object from what it asks for, such as a pause.
	Resume func(ctx context.Context, user *rest.Config) error
	// Check, unless nil, returns what is wrong an hour after the last edit: each object must have what it asks for. What
	// holds for any controller is checked without it.
	Check func(s *Simulation) []string
}

// An Edit is what a user does. All of its choices come from random.
type Edit = func(ctx context.Context, user *rest.Config, random *rand.Rand) error

// Wiring is what a controller is made of. Its clients are made of Config.
type Wiring struct {
	Config   *rest.Config
	Recorder events.EventRecorder
	// Workers is the number of objects that it works on at a time.
	Workers int
}

// A Controller is a controller on the kit.
type Controller struct {
	*kit.Reconciler
	// Watch registers the event handlers with the informers of the Reconciler's Kinds.
	Watch func(klog.Logger) ([]cache.DoneChecker, error)
	// Run calls Watch, and works until ctx ends.
	Run func(ctx context.Context)
	// Others are further queues, whose syncs queue objects.
	Others []*kit.Queue
}

// An Object is one of a kind that is served.
type Object interface {
	metav1.Object
	runtime.Object
}

// served returns the kind with this name of a resource, or with this kind in lower case.
func (k *Kind) served(name string) *apiserver.Kind {
	i := slices.IndexFunc(k.Served, func(served apiserver.Kind) bool {
		return name == served.Resource.Resource || name == strings.ToLower(served.Kind)
	})
	if i < 0 {
		return nil
	}
	return &k.Served[i]
}

// short returns the name of a field in the output.
func (k *Kind) short(path string) string {
	if k.Short == nil {
		return path
	}
	return k.Short.Replace(path)
}

// namespaceOf returns the namespace of the objects of a kind, "" if they have none.
func namespaceOf(served *apiserver.Kind) string {
	if served.ClusterScoped {
		return ""
	}
	return namespace
}

func (k *Kind) resources() (all []schema.GroupVersionResource) {
	for _, served := range k.Served {
		all = append(all, served.Resource)
	}
	return all
}

// decoder decodes the kinds of Kubernetes.
var decoder = kubescheme.Codecs.UniversalDeserializer()

// decode returns the object in the body of a request. A JSON patch of a status has what it sets.
func (k *Kind) decode(r *apiserver.Request) (Object, error) {
	body := r.Body
	if types.PatchType(r.HTTP.Header.Get("Content-Type")) == types.JSONPatchType {
		patch, err := jsonpatch.DecodePatch(r.Body)
		if err == nil {
			body, err = patch.Apply([]byte(`{"metadata":{"uid":"","resourceVersion":""}}`))
		}
		if err != nil {
			return nil, err
		}
	}
	if obj, _, err := decoder.Decode(body, nil, nil); err == nil {
		return obj.(Object), nil
	}
	obj := k.served(r.Resource.Resource).Object.DeepCopyObject().(Object)
	return obj, json.Unmarshal(body, obj)
}

// A reported is what all statuses have.
type reported struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	Conditions         []metav1.Condition `json:"conditions"`
}

func statusOf(obj runtime.Object) reported {
	var with struct {
		Status reported `json:"status"`
	}
	text, err := json.Marshal(obj)
	if err := errors.Join(err, json.Unmarshal(text, &with)); err != nil {
		panic(err) // The API server has encoded it before.
	}
	return with.Status
}

// Patch returns an edit that merges a patch into the object of a resource with one of the names. N in the patch is a
// number from 0 to 4.
func (k *Kind) Patch(resource schema.GroupVersionResource, names []string, patch string) Edit {
	objects := k.objects(resource)
	return func(ctx context.Context, user *rest.Config, random *rand.Rand) error {
		name := names[random.Intn(len(names))]
		body := []byte(strings.ReplaceAll(patch, "N", strconv.Itoa(random.Intn(5))))
		_, err := objects(user).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
}

// Delete returns an edit that deletes the object of a resource with one of the names.
func (k *Kind) Delete(resource schema.GroupVersionResource, names []string) Edit {
	objects := k.objects(resource)
	return func(ctx context.Context, user *rest.Config, random *rand.Rand) error {
		return objects(user).Delete(ctx, names[random.Intn(len(names))], metav1.DeleteOptions{})
	}
}

// objects returns how a user reaches the objects of a resource, which is served.
func (k *Kind) objects(resource schema.GroupVersionResource) func(user *rest.Config) dynamic.ResourceInterface {
	namespace := namespaceOf(k.served(resource.Resource))
	return func(user *rest.Config) dynamic.ResourceInterface {
		return dynamic.NewForConfigOrDie(user).Resource(resource).Namespace(namespace)
	}
}
