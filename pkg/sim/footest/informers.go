package footest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	samplesinformers "example.com/foo-controller/pkg/generated/informers/externalversions"
	fooinformers "example.com/foo-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// An idleInformer is never started. It stores the handlers that the controller registers, and the player calls them.
type idleInformer[T cache.Object] struct {
	cache.TypedSharedIndexInformer[T]
	handlers []cache.TypedResourceEventHandler[T]
}

func (i *idleInformer[T]) AddTypedEventHandler(handler cache.TypedResourceEventHandler[T],
	options ...cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	return i.TypedSharedIndexInformer.AddTypedEventHandler(handler, options...)
}

// A notification is a change for which an informer calls its handlers.
type notification struct {
	// before is the object that the cache had, or nil.
	before, obj metav1.Object
	deleted     bool
	// initial is true for an object of the first list.
	initial bool
}

func (i *idleInformer[T]) notify(n notification) {
	obj := n.obj.(any).(T)
	for _, handler := range i.handlers {
		switch {
		case n.deleted:
			handler.OnDelete(cache.DeletedObject[T]{OptionalObj: obj})
		case n.before == nil:
			handler.OnAdd(obj, n.initial)
		default:
			handler.OnUpdate(n.before.(any).(T), obj)
		}
	}
}

type idleFoos struct {
	fooinformers.TypedFooInformer
	idle *idleInformer[*v1alpha1.Foo]
}

func newIdleFoos(samples clientset.Interface) idleFoos {
	foos := samplesinformers.NewSharedInformerFactory(samples, 0).Samplecontroller().V1alpha1().Foos()
	idle := &idleInformer[*v1alpha1.Foo]{TypedSharedIndexInformer: foos.TypedInformer()}
	return idleFoos{foos, idle}
}

func (f idleFoos) TypedInformer() fooinformers.FooIndexInformer { return f.idle }

func newIdleDeployments(kube kubernetes.Interface) *idleInformer[*plan.Observed] {
	deployments := kubeinformers.NewSharedInformerFactory(kube, 0).Apps().V1().Deployments().Informer()
	return &idleInformer[*plan.Observed]{
		TypedSharedIndexInformer: cache.NewTypedSharedIndexInformer[*plan.Observed](deployments),
	}
}
