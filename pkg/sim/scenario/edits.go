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

// Patch returns an edit that merges a patch into the object with one of the names. N in the patch is a number from 0 to
// 4.
func Patch(resource schema.GroupVersionResource, names []string, patch string) Edit {
	return func(ctx context.Context, user *rest.Config, random *rand.Rand) error {
		name := names[random.Intn(len(names))]
		body := []byte(strings.ReplaceAll(patch, "N", strconv.Itoa(random.Intn(5))))
		_, err := dynamic.NewForConfigOrDie(user).Resource(resource).Namespace(namespace).
			Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
}

// Delete returns an edit that deletes the object with one of the names.
func Delete(resource schema.GroupVersionResource, names []string) Edit {
	return func(ctx context.Context, user *rest.Config, random *rand.Rand) error {
		name := names[random.Intn(len(names))]
		return dynamic.NewForConfigOrDie(user).Resource(resource).Namespace(namespace).
			Delete(ctx, name, metav1.DeleteOptions{})
	}
}
