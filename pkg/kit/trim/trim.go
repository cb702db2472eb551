package trim

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxText is how many bytes are kept of each text in an owner reference. Names and uids are shorter.
const maxText = 256

// Identity returns what every object has: names, versions and times. It leaves out what users write: labels,
// annotations, finalizers, and owners.
func Identity(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		Generation: obj.GetGeneration(), CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
}

// Child is Identity with the controller of obj, if it has one. A text of the reference that is too long is cut: it is
// then no name or uid that exists.
func Child(obj metav1.Object) metav1.ObjectMeta {
	meta := Identity(obj)
	if ref := metav1.GetControllerOf(obj); ref != nil {
		for _, text := range []*string{&ref.APIVersion, &ref.Kind, &ref.Name, (*string)(&ref.UID)} {
			if len(*text) > maxText {
				*text = strings.ToValidUTF8(strings.Clone((*text)[:maxText-len(dots)]), "") + dots
			}
		}
		meta.OwnerReferences = []metav1.OwnerReference{*ref}
	}
	return meta
}

const dots = "..."
