package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Kind describes one kind of object of a Server. KindOf and FromCRD make most of them. Only Resource, Kind and Object
// are required.
//
// A kind whose Go type comes with Kubernetes, from a package such as k8s.io/api/apps/v1, behaves like the built-in
// kind. Every other kind behaves like that of a CustomResourceDefinition: JSON and YAML only, no strategic merge patch,
// no update without a resourceVersion, a status write changes only the status, the generation counts every change
// outside metadata and status.
//
// All functions must be free of side effects, because the server may call them again for a request if another request
// changes the object meanwhile. The functions in Fields must not use the server, because the server calls them with its
// lock held.
type Kind struct {
	Resource schema.GroupVersionResource // As in a path, such as apps/v1, deployments.
	Kind     string                      // As in an object, such as Deployment.
	// Object is an empty object of the Go type, a pointer to a struct with JSON tags, or an
	// *unstructured.Unstructured. Fields that the type does not have are pruned, with a warning.
	Object runtime.Object

	// Schema is the schema of a custom resource whose Object is an *unstructured.Unstructured. Package crd makes it.
	Schema Schema
	// Strict returns obj as a type without UnmarshalJSON. A type whose UnmarshalJSON accepts what it cannot decode
	// needs it, because a real server refuses such requests.
	Strict func(obj runtime.Object) runtime.Object

	ClusterScoped bool   // Its objects have no namespace.
	Status        bool   // It has a status subresource, and other writes do not change the status.
	Scale         *Scale // It has a scale subresource.

	// The other names in discovery. The default of Singular is Kind in lower case, that of ListKind is Kind+"List".
	Singular, ListKind     string
	ShortNames, Categories []string

	// Columns are those of its tables, which kubectl prints after the name. Without any, there is the age.
	Columns []Column

	// Default sets the defaults of an object that was received or is about to be stored.
	Default func(obj runtime.Object)
	// PrepareCreate changes an object that is about to be created, before it is validated.
	PrepareCreate func(obj runtime.Object)
	// PrepareUpdate changes an object that is about to replace old, before it is validated.
	PrepareUpdate func(obj, old runtime.Object)
	// PrepareStatus changes an object that was sent to the status subresource. It runs after the spec was copied from
	// old. It is not called for a custom resource, for which everything except the status is copied from old.
	PrepareStatus func(obj, old runtime.Object)
	// NewGeneration reports whether an update outside the status subresource starts a new generation. The default of a
	// custom resource is every change outside metadata and status. The default of a built-in kind that has generations
	// is every change of the spec, or without one, outside the metadata. Services and Secrets, for instance, have none.
	NewGeneration func(obj, old runtime.Object) bool
	// Validate returns the errors of an object that is about to replace old, or to be created if old is nil. The
	// server validates the metadata itself.
	Validate func(obj, old runtime.Object) field.ErrorList
	// ValidateStatus does the same at the status subresource. For a custom resource, nil means Validate.
	ValidateStatus func(obj, old runtime.Object) field.ErrorList
	// ValidateName validates a name or the prefix of a name. The default is the rule of the built-in kind. For a custom
	// resource, it accepts DNS subdomains.
	ValidateName validation.ValidateNameFunc
	// Fields are the fields that field selectors may use, in addition to metadata.name and metadata.namespace. The
	// default is those of the built-in kind.
	Fields map[string]func(obj runtime.Object) string
}

// A Schema is the schema in a CustomResourceDefinition. The server calls it with objects of the kind, and with those
// that only claim to be of another kind.
type Schema interface {
	// Prune removes the fields from obj that are not in the schema, except those of its metadata. It returns their
	// paths. An error means that obj cannot be decoded.
	Prune(obj *unstructured.Unstructured) (unknown []string, err error)
	// Default sets the defaults in obj.
	Default(obj *unstructured.Unstructured)
	// Validate returns all errors of an object that is about to replace old, or to be created if old is nil: also those
	// of its kind, its metadata and the fields of its scale. The subresource is empty or status.
	Validate(obj, old *unstructured.Unstructured, subresource string) field.ErrorList
}

// A Scale has the paths of the fields of a scale subresource, such as ".spec.replicas". In custom resources, the server
// refuses negative numbers there.
type Scale struct {
	SpecReplicas   string // An integer. Required.
	StatusReplicas string // An integer. Required.
	// Selector is a string, or, as in a Deployment, a metav1.LabelSelector. Optional.
	Selector string
}

// A Column is a column of a table. Its fields are those of additionalPrinterColumns in a CustomResourceDefinition.
type Column struct {
	Name, Type, Format, Description, JSONPath string
	// Priority is 0 for a column that kubectl prints without -o wide.
	Priority int32
}

// A resource is a registered Kind with its objects. The lock of the Server guards the fields that can change.
type resource struct {
	Kind
	traits
	gvk  schema.GroupVersionKind
	list schema.GroupVersionKind // Of a list.
	gr   schema.GroupResource
	// typePrefix is how the JSON of a built-in object begins. Real servers leave it out in lists.
	typePrefix []byte
	keyPrefix  string // What keys in messages about storage begin with.

	columns []column // Of its tables.
	isView  bool     // It shows the objects of another resource.

	*storage
}

// A storage has the objects of a resource.
type storage struct {
	live    map[string]*Revision // By key.
	order   []string             // The keys of live in order, nil when somebody has to sort them again.
	history []*Revision          // Every revision since the last compaction, in order.
	dropped int64                // The newest version that was compacted away.
	base    *link                // The link before the first change in history. Watches follow the links.
	tail    *link                // The link of the last change in history, or base.
	wake    chan struct{}        // Closed at the next commit. Nil if nobody waits.
}

// A link is a change in a linked list. A pointer to a link keeps all later changes in memory, so that an open watch can
// send them after a compaction.
type link struct {
	revision *Revision
	next     *link // Nil in the last.
}

func newStorage() *storage {
	first := &link{}
	return &storage{live: map[string]*Revision{}, base: first, tail: first}
}

func newResource(k Kind) (*resource, error) {
	if k.Object == nil || k.Kind == "" || k.Resource.Resource == "" || k.Resource.Version == "" {
		return nil, fmt.Errorf("kind %q of %s: Resource, Kind and Object are required", k.Kind, k.Resource)
	}
	if _, err := meta.Accessor(k.Object); err != nil {
		return nil, fmt.Errorf("kind %q of %s: %w", k.Kind, k.Resource, err)
	}
	if k.Schema != nil && !isUnstructured(k.Object) {
		return nil, fmt.Errorf("kind %q of %s: a kind with a Schema is unstructured", k.Kind, k.Resource)
	}
	if k.ValidateName == nil {
		k.ValidateName = nameRule(k)
	}
	if k.Fields == nil && builtIn(k) {
		k.Fields = builtInFields[k.Resource]
	}
	k.Singular = cmp.Or(k.Singular, strings.ToLower(k.Kind))
	gv := k.Resource.GroupVersion()
	r := &resource{
		Kind:      k,
		traits:    traitsOf(k),
		list:      gv.WithKind(cmp.Or(k.ListKind, k.Kind+"List")),
		gvk:       gv.WithKind(k.Kind),
		gr:        k.Resource.GroupResource(),
		keyPrefix: "/registry/" + k.Resource.Resource + "/",
		storage:   newStorage(),
	}
	if err := r.setColumns(); err != nil {
		return nil, fmt.Errorf("kind %q of %s: %w", k.Kind, k.Resource, err)
	}
	if r.custom {
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

// empty returns a new, empty object of the kind.
func (r *resource) empty() runtime.Object {
	obj := r.Object.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(r.gvk)
	return obj
}

func (r *resource) setDefaults(obj runtime.Object) {
	if r.Schema != nil {
		r.Schema.Default(obj.(*unstructured.Unstructured))
	}
	if r.Default != nil {
		r.Default(obj)
	}
}

// key returns the key of a stored object. Keys sort as in a real server.
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

// isNamespaces reports whether the kind is Namespace.
func (r *resource) isNamespaces() bool {
	return r.gr == schema.GroupResource{Resource: "namespaces"}
}

// hasSubresource reports whether the kind has a subresource. Every kind has the subresource "", the object itself.
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

// accessor returns the metadata of an object of a registered kind. newResource has checked that the kind has metadata.
func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("apiserver: %T has no metadata: %v", obj, err))
	}
	return m
}

// fieldsOfPath splits a path such as ".spec.replicas".
func fieldsOfPath(path string) []string {
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}
