package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

const (
	// ContainerName is the one container that a Foo's Deployment is created with.
	ContainerName = "nginx"
	// DefaultImage is what that container runs when the Foo names no image.
	DefaultImage = "nginx:latest"
	// managedBy is the value of the label app.kubernetes.io/managed-by. It is for people: no decision depends on it.
	managedBy = "foo-controller"

	labelManagedBy = "app.kubernetes.io/managed-by"

	// Paths and the absent value of a Field.
	pathOwner    = "metadata.ownerReferences"
	pathReplicas = "spec.replicas"
	pathImage    = "spec.template.spec.containers[name=" + ContainerName + "].image"
	noValue      = "none"
)

// Deployment returns the Deployment that foo asks for; see desired for its replicas after a rename. The same foo gets
// the same answer.
func Deployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	replicas := int32(1)
	if foo.Spec.Replicas != nil {
		replicas = *foo.Spec.Replicas
	}
	selected := podLabels(foo.Name, foo.Spec.DeploymentName)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            foo.Spec.DeploymentName,
			Namespace:       foo.Namespace,
			Labels:          ownLabels(foo),
			OwnerReferences: []metav1.OwnerReference{ownerReference(foo)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selected},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: ContainerName, Image: cmp.Or(foo.Spec.Image, DefaultImage)}},
				},
			},
		},
	}
}

// podLabels returns the labels of the pods of a Deployment that we make, which are its selector, too.
func podLabels(foo, deployment string) map[string]string {
	return map[string]string{
		"app": "nginx", "controller": labelValue(foo), v1alpha1.LabelDeployment: labelValue(deployment),
	}
}

// Drift returns the patch that brings a stored Deployment to what foo asks for, or nil if nothing differs. It reads
// only the fields that foo owns: the owner reference, the controller's labels, and replicas and image when foo sets
// them. All other fields are neither compared nor mentioned in the patch.
//
// The patch carries the uid and resourceVersion of have.
func Drift(have *TrimmedDeployment, foo *v1alpha1.Foo) *state.Patch {
	metadata, spec := map[string]any{"uid": have.UID, "resourceVersion": have.ResourceVersion}, map[string]any{}
	var fields []reconcile.Field
	record := func(path, stored, want string) {
		fields = append(fields, reconcile.Field{Path: path, Have: cmp.Or(stored, noValue), Want: want})
	}

	labels, stored := map[string]string{}, have.storedLabels()
	for label, value := range ownLabels(foo) {
		if stored[label] != value {
			labels[label] = value
			record("metadata.labels["+label+"]", stored[label], value)
		}
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	// The API server merges owners by uid and containers by name, so those of others stay.
	if ref := ownerReference(foo); !slices.ContainsFunc(have.OwnerReferences, sameReference(ref)) {
		metadata["ownerReferences"] = []metav1.OwnerReference{ref}
		record(pathOwner, "another value", "Foo "+ref.Name)
	}
	if want := foo.Spec.Replicas; want != nil && have.Replicas != *want {
		spec["replicas"] = *want
		record(pathReplicas, strconv.Itoa(int(have.Replicas)), strconv.Itoa(int(*want)))
	}
	if want := foo.Spec.Image; want != "" && have.Image != want {
		containers := []any{map[string]any{"name": ContainerName, "image": want}}
		spec["template"] = map[string]any{"spec": map[string]any{"containers": containers}}
		record(pathImage, have.Image, want)
	}

	if len(fields) == 0 {
		return nil
	}
	body := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		body["spec"] = spec
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // Strings, numbers and bools can always be encoded.
	}
	slices.SortFunc(fields, func(a, b reconcile.Field) int { return cmp.Compare(a.Path, b.Path) })
	return &state.Patch{Body: encoded, Fields: fields}
}

// Owns reports whether foo is the controller of obj, a Deployment. Group, kind, uid and namespace decide. A reference
// with the same name but another uid is to an earlier Foo of that name.
func Owns(foo *v1alpha1.Foo, obj metav1.Object) bool {
	ref := FooReference(obj)
	return ref != nil && ref.UID == foo.UID && obj.GetNamespace() == foo.Namespace
}

// SameDeploymentForWaiters reports whether two versions of a Deployment are the same for Foos that name it and do not
// control it: these depend on its controller, on the made-for label and on whether it is being deleted.
func SameDeploymentForWaiters(a, b *TrimmedDeployment) bool {
	return a.UID == b.UID && a.MadeFor == b.MadeFor &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		equality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b))
}

// SameFooForWaiters reports whether two versions of a Foo are the same for other Foos that name a Deployment which it
// controls: these depend on whether it exists, is being deleted, and names another one.
func SameFooForWaiters(a, b *v1alpha1.Foo) bool {
	return a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		a.Spec.DeploymentName == b.Spec.DeploymentName
}

// FooReference returns the reference to the Foo that controls obj, or nil when no Foo does. It shares
// memory with obj.
func FooReference(obj metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != FooKind.Kind {
		return nil
	}
	if gv, _ := schema.ParseGroupVersion(ref.APIVersion); gv.Group != FooKind.Group { // What cannot be read has no group.
		return nil
	}
	return ref
}

// ownLabels are the labels on the Deployment itself, not on its pods, that foo owns. The generation is
// a label because the Deployment controller copies annotations to ReplicaSets, a write each.
func ownLabels(foo *v1alpha1.Foo) map[string]string {
	return map[string]string{
		labelManagedBy:              managedBy,
		v1alpha1.LabelMadeFor:       madeFor(foo, foo.Spec.DeploymentName),
		v1alpha1.LabelFooGeneration: strconv.FormatInt(foo.Generation, 10),
	}
}

// madeFor returns the label that means that a Deployment was made for foo under this name.
func madeFor(foo *v1alpha1.Foo, deployment string) string {
	return hash(20, string(foo.UID), deployment)
}

func ownerReference(foo *v1alpha1.Foo) metav1.OwnerReference {
	return *metav1.NewControllerRef(foo, FooKind.GroupVersionKind)
}

func sameReference(want metav1.OwnerReference) func(metav1.OwnerReference) bool {
	return func(have metav1.OwnerReference) bool {
		return have.UID == want.UID && have.APIVersion == want.APIVersion &&
			have.Kind == want.Kind && have.Name == want.Name &&
			isSet(have.Controller) && isSet(have.BlockOwnerDeletion)
	}
}

func isSet(b *bool) bool { return b != nil && *b }

// labelValue returns name as the value of a label: as it is, or, when it is longer than such a value
// may be, its beginning and a hash of the whole.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	const digits = 10
	return name[:validation.LabelValueMaxLength-digits-1] + "-" + hash(digits, name)
}

// hash returns the first digits, at most 64, of the SHA-256 of parts in hexadecimal.
func hash(digits int, parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s,", len(part), part) // The length keeps ("a", "bc") apart from ("ab", "c").
	}
	return hex.EncodeToString(h.Sum(nil))[:digits]
}
