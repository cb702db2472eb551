package trim

import (
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxText is how many bytes are kept of each text in an owner reference, and how many a shared text has at most. Names
// and uids are shorter.
const maxText = 256

// Identity returns what every object has: names, versions and times. It leaves out what users write: labels,
// annotations, finalizers, and owners.
func Identity(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: Shared(obj.GetNamespace()),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
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
		ref.APIVersion, ref.Kind = Shared(ref.APIVersion), Shared(ref.Kind)
		meta.OwnerReferences = []metav1.OwnerReference{*ref}
	}
	return meta
}

const dots = "..."

// Conditions returns a copy that needs less memory. A decoder leaves room for more conditions, and most conditions have
// the same few types and reasons.
func Conditions(conditions []metav1.Condition) []metav1.Condition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		c := &conditions[i]
		c.Type, c.Status, c.Reason = Shared(c.Type), Shared(c.Status), Shared(c.Reason)
	}
	return conditions
}

// Shared returns text, in memory that all equal texts share. It is for short texts that many objects have. It remembers
// 4,096 of them, and begins again when there are more: then equal texts may be in memory twice. It may be called
// concurrently.
func Shared[T ~string](text T) T {
	if len(text) > maxText {
		return text
	}
	texts.Lock()
	defer texts.Unlock()
	known, found := texts.known[string(text)]
	if !found {
		if len(texts.known) >= maxTexts {
			clear(texts.known)
		}
		known = strings.Clone(string(text))
		texts.known[known] = known
	}
	return T(known)
}

// maxTexts is how many texts are remembered: a megabyte at most.
const maxTexts = 4096

var texts = struct {
	sync.Mutex
	known map[string]string
}{known: map[string]string{}}
