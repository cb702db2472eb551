package scenario

import (
	"context"
	"math/rand"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Patch returns an edit that merges a patch into the object of a resource with one of the names. N in the patch is a
// number from 0 to 4.
func (k *Kind) Patch(resource schema.GroupVersionResource, names []string, patch string) Edit {
	objects := k.objects(resource)
	return func(ctx context.Context, user *rest.Config, random *rand.Rand) error {
		name := names[random.Intn(len(names))]
		body := []byte(strings.ReplaceAll(patch, "N", strconv.Itoa(random.Intn(5))))
		_, err := objects(user).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
}

// Delete returns an edit that deletes the object of a resource with one of the names.
func (k *Kind) Delete(resource schema.GroupVersionResource, names []string) Edit {
	objects := k.objects(resource)
	return func(ctx context.Context, user *rest.Config, random *rand.Rand) error {
		return objects(user).Delete(ctx, names[random.Intn(len(names))], metav1.DeleteOptions{})
	}
}

// objects returns how a user reaches the objects of a resource, which is served.
func (k *Kind) objects(resource schema.GroupVersionResource) func(user *rest.Config) dynamic.ResourceInterface {
	namespace := namespaceOf(k.served(resource.Resource))
	return func(user *rest.Config) dynamic.ResourceInterface {
		return dynamic.NewForConfigOrDie(user).Resource(resource).Namespace(namespace)
	}
}
