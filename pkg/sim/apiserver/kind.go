package apiserver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	wake    chan struct{}        // Closed at the next commit. Nil if nobody waits.
}

func newResource(k Kind) (*resource, error) {
	if k.Object == nil || k.Kind == "" || k.Resource.Resource == "" || k.Resource.Version == "" {
		return nil, errors.New("it lacks its Resource, its Kind or its Object")
	}
	if _, err := meta.Accessor(k.Object); err != nil {
		return nil, err
	}
	if k.Schema != nil && !isUnstructured(k.Object) {
		return nil, errors.New("a kind with a Schema is unstructured")
	}
	if k.ValidateName == nil {
		k.ValidateName = nameRule(k)
	}
	if k.Fields == nil && builtIn(k) {
		k.Fields = builtInFields(k.Resource)
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
		storage:   &storage{live: map[string]*Revision{}},
	}
	if err := r.setColumns(); err != nil {
		return nil, err
	}
	if r.custom {
		r.keyPrefix = "/registry/" + k.Resource.Group + "/" + k.Resource.Resource + "/"
		return r, nil
	}
	r.typePrefix = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, k.Kind, gv)
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
	_, is := r.Object.(*corev1.Namespace)
	return is
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

// traits are the ways in which a real server treats kinds differently, apart from what a Kind contains.
type traits struct {
	custom         bool // A custom resource.
	createOnUpdate bool // An update creates the object if it does not exist.
	requireVersion bool // An update must have a resourceVersion.
	orphans        bool // A deletion without a policy orphans the dependents.
	noPropagation  bool // The server ignores the policies of deletions.
	generations    bool // The objects have generations.
}

// traitsOf returns the traits of a kind.
func traitsOf(k Kind) traits {
	if !builtIn(k) {
		return traits{custom: true, requireVersion: true, generations: true}
	}
	of := k.Resource.GroupResource()
	return traits{
		createOnUpdate: createdOnUpdate.has(of), requireVersion: versioned.has(of), orphans: orphaning[k.Resource],
		noPropagation: of.Resource == "events", generations: k.NewGeneration != nil || generated.has(of),
	}
}

// builtIn reports whether the Go type of a kind comes with Kubernetes.
func builtIn(k Kind) bool {
	t := reflect.TypeOf(k.Object)
	if t.Kind() != reflect.Pointer {
		return false
	}
	path := t.Elem().PkgPath()
	return strings.HasPrefix(path, "k8s.io/api/") || strings.HasPrefix(path, "k8s.io/apiextensions-apiserver/") ||
		strings.HasPrefix(path, "k8s.io/kube-aggregator/")
}

// nameRule returns the rule for the names of a kind.
func nameRule(k Kind) validation.ValidateNameFunc {
	of := k.Resource.GroupResource()
	switch {
	case !builtIn(k):
	case of.Group == "rbac.authorization.k8s.io":
		return pathSegment
	case labelNames.has(of):
		return validation.NameIsDNSLabel
	}
	return validation.NameIsDNSSubdomain
}

// The exceptions among the kinds of the stable groups of Kubernetes 1.37, from the strategies in its pkg/registry.
var (
	createdOnUpdate = resourcesOf(
		"endpoints", "events", "limitranges", "services", "events.events.k8s.io", "*.coordination.k8s.io",
		"runtimeclasses.node.k8s.io", "*.rbac.authorization.k8s.io",
	)
	versioned = resourcesOf(
		"*.coordination.k8s.io", "*.admissionregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io",
		"apiservices.apiregistration.k8s.io", "poddisruptionbudgets.policy", "runtimeclasses.node.k8s.io",
		"csidrivers.storage.k8s.io", "csinodes.storage.k8s.io", "csistoragecapacities.storage.k8s.io",
		"volumeattachments.storage.k8s.io",
	)
	generated = resourcesOf(
		"pods", "podtemplates", "replicationcontrollers",
		"*.admissionregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io",
		"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps",
		"horizontalpodautoscalers.autoscaling", "*.batch",
		"endpointslices.discovery.k8s.io", "*.flowcontrol.apiserver.k8s.io",
		"ingressclasses.networking.k8s.io", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io",
		"poddisruptionbudgets.policy", "priorityclasses.scheduling.k8s.io",
		"deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io", "resourceslices.resource.k8s.io",
	)
	// labelNames are the kinds whose names have no dots.
	labelNames = resourcesOf("namespaces", "services", "statefulsets.apps")
	// orphaning are the kinds whose dependents stay when a deletion has no policy.
	orphaning = map[schema.GroupVersionResource]bool{
		{Group: "batch", Version: "v1", Resource: "jobs"}:              true,
		{Group: "batch", Version: "v1beta1", Resource: "cronjobs"}:     true,
		{Group: "", Version: "v1", Resource: "replicationcontrollers"}: true,
	}
)

// A resourceSet is a set of resources. The resource * of a group stands for all resources of the group.
type resourceSet map[schema.GroupResource]bool

func resourcesOf(names ...string) resourceSet {
	set := resourceSet{}
	for _, name := range names {
		set[schema.ParseGroupResource(name)] = true
	}
	return set
}

func (s resourceSet) has(gr schema.GroupResource) bool {
	return s[gr] || s[schema.GroupResource{Group: gr.Group, Resource: "*"}]
}

// nextUID returns a uid that was not used before. Uids are the same in every run.
func (s *Server) nextUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids++
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", scatter(s.uids), s.uids))
}

// nextName returns a name that begins with prefix. Like a real server, it adds five characters and shortens a prefix
// that leaves no room for them.
func (s *Server) nextName(prefix string) string {
	const (
		longest  = 63 - 5
		alphabet = "bcdfghjklmnpqrstvwxz2456789"
	)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
	if len(prefix) > longest {
		prefix = prefix[:longest]
	}
	name := []byte(prefix)
	for rest, i := scatter(s.names), 0; i < 5; i++ {
		name = append(name, alphabet[rest%uint32(len(alphabet))])
		rest /= uint32(len(alphabet))
	}
	return string(name)
}

// scatter hashes n, so that consecutive numbers result in different names.
func scatter(n int) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, n)
	return h.Sum32()
}
