package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	// Short, unless nil, shortens the fields in the line of a patch.
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
