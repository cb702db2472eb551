package apisim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Kind is one kind of object that a Server knows, and how it behaves. Only Resource, Kind and Object are
// required. All functions must be free of side effects, as they may be called again for one request when another
// one came in between. Those in Fields must not use the server, which holds its lock meanwhile.
type Kind struct {
	Resource schema.GroupVersionResource // In a path, such as apps/v1, deployments.
	Kind     string                      // In an object, such as Deployment.
	// Object is an empty object of the Go type, a pointer to a struct with JSON tags, or an
	// *unstructured.Unstructured. Fields that the type does not have are pruned, with a warning.
	Object runtime.Object

	ClusterScoped bool   // Its objects are in no namespace.
	Status        bool   // It has a status subresource, and writes elsewhere leave the status alone.
	Scale         *Scale // It has a scale subresource.

	// Custom says that it behaves as a CustomResourceDefinition's kind does: JSON only, no strategic merge
	// patch, no update without a resourceVersion, a status write changes nothing but the status, the generation
	// counts every change outside metadata and status.
	Custom bool
	// AllowCreateOnUpdate says that a PUT creates what is not there, as with Leases and Events.
	AllowCreateOnUpdate bool
	// RequireVersion says that an update without a resourceVersion is refused, as with Leases. Custom implies it.
	RequireVersion bool
	// IgnorePropagation says that no finalizer is ever set for a propagation policy, as with Events.
	IgnorePropagation bool

	// Default fills in what is missing in an object that came in or is about to be stored.
	Default func(obj runtime.Object)
	// PrepareCreate changes an object that is about to be created, before it is validated.
	PrepareCreate func(obj runtime.Object)
	// PrepareUpdate changes an object that is about to replace old, before it is validated.
	PrepareUpdate func(obj, old runtime.Object)
	// PrepareStatus changes an object that came in at the status subresource. It runs after spec was taken from
	// old. With Custom everything but the status is taken from old, and PrepareStatus is not called.
	PrepareStatus func(obj, old runtime.Object)
	// NewGeneration says whether what an update outside the status subresource changes counts as a new generation.
	// Without it: with Custom, whatever is outside metadata and status; otherwise the spec, provided that there
	// is a status subresource. Without either the generation stays 0.
	NewGeneration func(obj, old runtime.Object) bool
	// Validate returns what is wrong with an object about to be created, when old is nil, or to replace old. The
	// metadata has been looked at already.
	Validate func(obj, old runtime.Object) field.ErrorList
	// ValidateStatus does the same at the status subresource. With Custom, Validate is asked there when it is nil.
	ValidateStatus func(obj, old runtime.Object) field.ErrorList
	// ValidateName tells what is wrong with a name, or with the prefix of one. Default: a DNS subdomain.
	ValidateName validation.ValidateNameFunc
	// Fields are what field selectors may name besides metadata.name and metadata.namespace.
	Fields map[string]func(obj runtime.Object) string
}

// A Scale tells where the scale subresource finds its fields, as paths such as ".spec.replicas". What a real server
// has against negative numbers in custom resources is for Validate to say.
type Scale struct {
	SpecReplicas   string // An integer. Required.
	StatusReplicas string // An integer. Required.
	// Selector is a string, or, as in a Deployment, a metav1.LabelSelector. Optional.
	Selector string
}

// A resource is a registered Kind with its objects. The Server's lock guards what can change.
type resource struct {
	Kind
	gvk schema.GroupVersionKind
	gr  schema.GroupResource
	// typePrefix is how the JSON of a built-in object begins. Real servers leave it out in lists.
	typePrefix []byte
	keyPrefix  string // What keys in messages about storage begin with.

	live    map[string]*Revision // By key.
	order   []string             // The keys of live in order, nil when somebody has to sort them again.
	history []*Revision          // Every revision since the last compaction, in order.
	dropped int64                // The newest version that was compacted away.
	base    *link                // Before the first of history. Watches go from link to link.
	tail    *link                // The last of history, or base.
	wake    chan struct{}        // Closed at the next commit. Nil when nobody waits.
}

// A link is a change and the next one. Who holds one keeps what comes after it from being forgotten.
type link struct {
	revision *Revision
	next     *link // Nil in the last.
}

func newResource(k Kind) (*resource, error) {
	if k.Object == nil || k.Kind == "" || k.Resource.Resource == "" || k.Resource.Version == "" {
		return nil, fmt.Errorf("kind %q of %s: Resource, Kind and Object are required", k.Kind, k.Resource)
	}
	if _, err := meta.Accessor(k.Object); err != nil {
		return nil, fmt.Errorf("kind %q of %s: %w", k.Kind, k.Resource, err)
	}
	if k.ValidateName == nil {
		k.ValidateName = validation.NameIsDNSSubdomain
	}
	r := &resource{
		Kind:      k,
		gvk:       k.Resource.GroupVersion().WithKind(k.Kind),
		gr:        k.Resource.GroupResource(),
		keyPrefix: "/registry/" + k.Resource.Resource + "/",
		live:      map[string]*Revision{},
		base:      &link{},
	}
	r.tail = r.base
	if k.Custom {
		r.keyPrefix = "/registry/" + k.Resource.Group + "/" + k.Resource.Resource + "/"
		return r, nil
	}
	prefix, err := json.Marshal(metav1.TypeMeta{Kind: k.Kind, APIVersion: r.gvk.GroupVersion().String()})
	if err != nil {
		return nil, fmt.Errorf("kind %q of %s: %w", k.Kind, k.Resource, err)
	}
	r.typePrefix = append(bytes.TrimSuffix(prefix, []byte("}")), ',')
	return r, nil
}

// empty returns a new object of the kind with nothing in it.
func (r *resource) empty() runtime.Object {
	obj := r.Object.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(r.gvk)
	return obj
}

func (r *resource) setDefaults(obj runtime.Object) {
	if r.Default != nil {
		r.Default(obj)
	}
}

// key returns what an object is stored under. Keys sort as a real server's.
func (r *resource) key(namespace, name string) string {
	if r.ClusterScoped {
		return name
	}
	return namespace + "/" + name
}

// listed returns the JSON of a revision as an item of a list.
func (r *resource) listed(encoded []byte) []byte {
	if rest, found := bytes.CutPrefix(encoded, r.typePrefix); found && len(r.typePrefix) > 0 {
		return append([]byte("{"), rest...)
	}
	return encoded
}

// isNamespaces says whether the objects are the namespaces that others live in.
func (r *resource) isNamespaces() bool {
	return r.gr == schema.GroupResource{Resource: "namespaces"}
}

// subresources names those that the kind has.
func (r *resource) hasSubresource(name string) bool {
	switch name {
	case "", "status":
		return name == "" || r.Status
	case "scale":
		return r.Scale != nil
	case "finalize":
		return r.isNamespaces()
	}
	return false
}

// accessor returns the metadata of an object of a registered kind, which newResource has checked to be there.
func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("apisim: %T has no metadata: %v", obj, err))
	}
	return m
}

// steps splits a path such as ".spec.replicas".
func steps(path string) []string {
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}
