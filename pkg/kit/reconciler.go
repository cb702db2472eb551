package kit

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/consistency"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/syncs"
)

// A Reconciler runs the syncs of a plan: it sends their requests, logs and counts them, sends their events, records
// the versions that the caches must reach, shows all that to /debug/syncs, and keeps what is remembered between the
// syncs of an object. It may be used concurrently.
type Reconciler struct {
	// Name is the field manager of the writes.
	Name string
	// Queue has the metrics and the expected versions, Recorder takes the events.
	Queue    *Queue
	Recorder events.EventRecorder
	// Trim is the transform of the informers: it makes of an answer what a cache would have.
	Trim cache.TransformFunc
	// Kinds are those of the steps.
	Kinds []Kind
	// Random returns the random part of the delays, in [0, 1). Nil is that of math/rand.
	Random func() float64

	mu sync.Mutex
	// memories has what is remembered of each object. Only the worker that has a key changes its entry.
	memories map[cache.ObjectName]reconcile.Memory
}

// A Kind is how the steps about objects of a kind are sent.
type Kind struct {
	// Name is that in the steps, such as "Deployment".
	Name string
	// Informer fills Store, the cache. Both are empty for what is outside of the cluster.
	Informer Informer
	Store    consistency.Store
	// Send returns the object that was read or written, nil after a deletion.
	Send func(ctx context.Context, manager string, step *reconcile.Step) (metav1.Object, error)
	// Expect is for --explain: it returns the answer that Send would probably get, and sends nothing but reads. Without
	// this function, the answer is the body of the step.
	Expect func(ctx context.Context, step *reconcile.Step) (metav1.Object, error)
}

// A Client is what a Kind uses of a typed client of client-go.
type Client[T any, L runtime.Object] interface {
	Lister[L]
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// KindOf returns how the steps of a kind are sent to a resource, such as configmaps, through a client of client-go,
// such as kubernetes.Interface.CoreV1().ConfigMaps.
func KindOf[O reconcile.Object, T metav1.Object, L runtime.Object, C Client[T, L]](kind reconcile.Kind[O],
	resource string, informer cache.SharedIndexInformer, client func(namespace string) C) Kind {
	return Kind{
		Name: kind.Kind, Store: informer.GetIndexer(),
		Informer: NewInformer(kind.GroupVersion().WithResource(resource), informer, client),
		Send: func(ctx context.Context, manager string, step *reconcile.Step) (metav1.Object, error) {
			obj, err := sendThrough[T, L](ctx, client(step.Namespace), manager, step)
			switch {
			case err != nil, step.Verb == reconcile.Delete:
				return nil, err
			case obj.GetUID() == "", obj.GetName() != step.Name:
				return nil, errOtherObject
			}
			return obj, nil
		},
		Expect: expect[T, L](client),
	}
}

// sendThrough sends the request of step through a client.
func sendThrough[T metav1.Object, L runtime.Object](ctx context.Context, client Client[T, L], manager string,
	step *reconcile.Step) (obj T, err error) {
	switch step.Verb {
	case reconcile.Get:
		return client.Get(ctx, step.Name, metav1.GetOptions{})
	case reconcile.Create:
		return client.Create(ctx, step.Body.(T), metav1.CreateOptions{FieldManager: manager})
	case reconcile.Patch:
		kind := types.StrategicMergePatchType
		if step.JSONMerge {
			kind = types.MergePatchType
		}
		return client.Patch(ctx, step.Name, kind, step.Patch, metav1.PatchOptions{FieldManager: manager})
	case reconcile.Delete:
		// Delete only the version that the rule has seen: after an edit, or when it has become available, the object may be
		// needed. The garbage collector deletes its children in the background.
		return obj, client.Delete(ctx, step.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: new(types.UID(step.UID)), ResourceVersion: &step.ResourceVersion},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
	case reconcile.UpdateStatus:
		patch, err := step.StatusPatch()
		if err != nil {
			return obj, err
		}
		return client.Patch(ctx, step.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager}, "status")
	}
	panic("there is no request " + step.Request())
}

// errOtherObject is the error of an answer that can be decoded and does not have the object, for example "{}".
var errOtherObject = errors.New("the answer does not have the object, so it is not from the API server")

// Reconcile plays a sync, which has not begun, to its end.
func (r *Reconciler) Reconcile(ctx context.Context, sync *reconcile.Sync) Outcome {
	key := cache.MetaObjectToName(sync.Object())
	random := r.Random
	if random == nil {
		random = rand.Float64
	}
	sync.Begin(r.recall(key), time.Now(), random())
	shown := syncs.From(ctx)
	if shown != nil {
		shown.Observed(sync.Describe())
	}
	for step := sync.Next(); step != nil; step = sync.Next() {
		sent := time.Now()
		name := sync.NameOf(step.Op)
		reply := r.send(ctx, key, step, name)
		if shown != nil {
			show(shown, step, name, sent, reply)
		}
		if event := sync.Record(step, reply, time.Now()); event != nil {
			// client-go takes the object only for its names.
			r.Recorder.Eventf(sync.Object().(runtime.Object), nil, event.Type, event.Reason, event.Action, "%s", event.Note)
		}
	}
	if shown != nil {
		var answers []syncs.Rule
		for _, answer := range sync.Explain() {
			answers = append(answers, syncs.Rule(answer))
		}
		shown.Concluded(answers)
	}
	outcome, memory := sync.End()
	r.remember(key, memory)
	return outcome
}

// send sends a request, logs and counts it, and records the version that the caches must show. name is that of the
// object for the log.
func (r *Reconciler) send(ctx context.Context, key cache.ObjectName, step *reconcile.Step,
	name string) reconcile.Reply {
	kind := r.kind(step.Kind)
	r.Queue.Progress(key)
	reply := step.Answered(r.trim(kind)(kind.Send(ctx, r.Name, step)))
	logRequest(klog.FromContext(ctx), step, name, reply.Err)
	r.Queue.Metrics.Requested(step.Rule, step.Request(), reply.Err)
	r.expect(key, kind, step, reply)
	return reply
}

// expect records the version that the cache must show after an answer.
func (r *Reconciler) expect(key cache.ObjectName, kind *Kind, step *reconcile.Step, reply reconcile.Reply) {
	writes := r.Queue.Writes
	switch {
	case reply.Err != nil, kind.Store == nil:
	case step.Verb == reconcile.Delete:
		writes.Deleted(key, kind.Store, step.Have())
	case !step.IsRead():
		writes.Wrote(key, kind.Store, reply.Object)
	case reply.Object != nil:
		writes.Read(key, kind.Store, reply.Object)
	}
}

// Informers returns those of the Kinds.
func (r *Reconciler) Informers() (informers []Informer) {
	for _, kind := range r.Kinds {
		if kind.Store != nil {
			informers = append(informers, kind.Informer)
		}
	}
	return informers
}

// trim returns a function that makes of an answer what the cache would have.
func (r *Reconciler) trim(kind *Kind) func(metav1.Object, error) (metav1.Object, error) {
	return func(obj metav1.Object, err error) (metav1.Object, error) {
		if obj == nil || err != nil || kind.Store == nil {
			return obj, err
		}
		trimmed, err := r.Trim(obj)
		if err != nil {
			return nil, err
		}
		return trimmed.(metav1.Object), nil
	}
}

// kind returns the Kind of this name.
func (r *Reconciler) kind(name string) *Kind {
	for i := range r.Kinds {
		if r.Kinds[i].Name == name {
			return &r.Kinds[i]
		}
	}
	panic("a rule has a step for the kind " + name + ", which is not among the Kinds of the Reconciler")
}

// logRequest logs a request and the rule that asked for it: at level 0 when it has changed another object, otherwise at
// V(2). The lines about a Deployment are "Created Deployment", "Updated Deployment" for a new spec, "Corrected
// Deployment", "Deleted Deployment" and "Read Deployment".
func logRequest(logger klog.Logger, step *reconcile.Step, name string, err error) {
	logger = klog.LoggerWithValues(logger, "rule", step.Rule)
	child := []any{strings.ToLower(step.Kind), klog.KRef(step.Namespace, step.Name)}
	switch {
	case err != nil:
		logger.V(2).Info("Request failed", "request", step.Request(), "name", name, "err", err)
	case step.IsRead():
		logger.V(2).Info("Read "+step.Kind, child...)
	case step.Verb == reconcile.Create:
		logger.Info("Created "+step.Kind, child...)
	case step.Verb == reconcile.Patch && step.Spec:
		logger.Info("Updated "+step.Kind, append(child, "fields", reconcile.Clip(step.FieldList(), reconcile.NoteLimit))...)
	case step.Verb == reconcile.Patch:
		logger.Info("Corrected "+step.Kind, append(child, "fields", reconcile.Clip(step.FieldList(), reconcile.NoteLimit))...)
	case step.Verb == reconcile.Delete:
		logger.Info("Deleted "+step.Kind, child...)
	case step.Verb == reconcile.UpdateStatus:
		logger.V(2).Info("Updated status", step.Log...)
	}
}

// show shows a request to /debug/syncs.
func show(shown *syncs.Sync, step *reconcile.Step, name string, sent time.Time, reply reconcile.Reply) {
	request := syncs.Request{At: sent, Rule: step.Rule, Why: step.Why, Request: step.Request(), Name: name}
	if step.IsRead() && reply.Object == nil {
		request.Answer = "not found"
	}
	for _, field := range step.Fields {
		request.Fields = append(request.Fields, syncs.Field(field))
	}
	shown.Sent(request, reply.Err)
	if step.Verb == reconcile.UpdateStatus && reply.Err == nil {
		shown.Reported(step.Fields[0].Want)
	}
}

// Gone is the outcome for an object that does not exist, or for which nothing is to be done because it is being
// deleted. It is forgotten.
func (r *Reconciler) Gone(ctx context.Context, key cache.ObjectName) Outcome {
	syncs.From(ctx).Observed("the object is gone or being deleted, so nothing is written", "")
	r.Queue.Writes.Forget(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
	return Done()
}

func (r *Reconciler) recall(key cache.ObjectName) reconcile.Memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memories[key]
}

func (r *Reconciler) remember(key cache.ObjectName, memory reconcile.Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories == nil {
		r.memories = map[cache.ObjectName]reconcile.Memory{}
	}
	r.memories[key] = memory
}
