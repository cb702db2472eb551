package kit

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/kit/fairqueue"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// Handlers are what AddTypedEventHandler of a typed informer takes.
type Handlers[T reconcile.Object] = cache.TypedResourceEventHandlerDetailedFuncs[T]

// Objects returns handlers that queue each object that is added, changed or deleted. The initial list and a resync come
// after changes, see fairqueue.Initial.
func Objects[T reconcile.Object](queue *Queue) Handlers[T] {
	return Handlers[T]{
		AddFunc: func(obj T, isInInitialList bool) {
			if isInInitialList {
				queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Initial, "the initial list")
				return
			}
			queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Change, "it was created")
		},
		UpdateFunc: func(have, obj T) {
			if have.GetResourceVersion() == obj.GetResourceVersion() {
				queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Initial, "a resync")
				return
			}
			queue.Enqueue(cache.MetaObjectToName(obj), fairqueue.Change, "it has changed")
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			queue.Enqueue(deleted.GetObjectName(), fairqueue.Change, "it was deleted")
		},
	}
}

// Children returns handlers for the children of objects of a kind. For each child that is added, changed or deleted,
// they call add with the name of its controller, of that kind, and with its own name: an object that is to have a child
// of this name may wait for it. So add should ignore names of objects that do not exist.
//
// An owner has the namespace of its children, or none: then add ignores the one that it gets. The handlers ignore the
// initial list, because the owners are in a list too, and resyncs. If a watch has missed a deletion, only the name of
// the child may be known. So a child should have the name of its owner, or add should know whose child has that name.
func Children[T reconcile.Object](owner schema.GroupKind, add func(cache.ObjectName)) Handlers[T] {
	changed := func(child T) {
		name := cache.MetaObjectToName(child)
		add(name)
		ref := metav1.GetControllerOf(child)
		if ref != nil && ref.Name != name.Name && isOf(ref, owner) {
			add(cache.NewObjectName(name.Namespace, ref.Name))
		}
	}
	return Handlers[T]{
		AddFunc: func(child T, isInInitialList bool) {
			if !isInInitialList {
				changed(child)
			}
		},
		UpdateFunc: func(have, child T) {
			if have.GetResourceVersion() != child.GetResourceVersion() {
				changed(have) // It may have had another owner.
				changed(child)
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			var unknown T
			if deleted.OptionalObj == unknown {
				add(deleted.GetObjectName())
				return
			}
			changed(deleted.OptionalObj)
		},
	}
}

// ByController is an index function: it returns the uid of the controller of an object, for those who keep a list of
// children.
func ByController(obj any) ([]string, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return []string{string(ref.UID)}, nil
	}
	return nil, nil
}

// isOf reports whether ref is to an object of this kind, in any version.
func isOf(ref *metav1.OwnerReference, kind schema.GroupKind) bool {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == kind
}
