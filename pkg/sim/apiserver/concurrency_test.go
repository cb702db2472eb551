package apiserver_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// Each of several users counts in its own key of the same object, with and without optimistic locking. No write is
// lost, and a watch sees every version once.
func TestConcurrentWrites(t *testing.T) {
	const users, edits = 8, 20
	s := apiserver.New(kinds()...)
	api := clientOf(s, "alice").CoreV1().ConfigMaps("default")
	if _, err := api.Create(t.Context(), configMap("shared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := api.Watch(t.Context(), listOptions("3"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var all sync.WaitGroup
	for user := range users {
		all.Go(func() {
			api := clientOf(s, fmt.Sprint("user-", user)).CoreV1().ConfigMaps("default")
			for edit := range edits {
				if user%2 == 0 {
					patch := fmt.Appendf(nil, `{"data":{"user-%d":"%d"}}`, user, edit)
					_, err := api.Patch(t.Context(), "shared", types.MergePatchType, patch, metav1.PatchOptions{})
					if err != nil {
						t.Error(err)
					}
					continue
				}
				for set := false; !set; {
					cm, err := api.Get(t.Context(), "shared", metav1.GetOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					metav1.SetMetaDataAnnotation(&cm.ObjectMeta, fmt.Sprint("user-", user), fmt.Sprint(edit))
					_, err = api.Update(t.Context(), cm, metav1.UpdateOptions{})
					if set = err == nil; !set && !apierrors.IsConflict(err) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	last := int64(3)
	for event := range w.ResultChan() {
		cm := event.Object.(*corev1.ConfigMap)
		if last++; event.Type != watch.Modified || cm.ResourceVersion != fmt.Sprint(last) {
			t.Fatalf("%s of version %s after %d", event.Type, cm.ResourceVersion, last-1)
		}
		if last == 3+users*edits {
			break
		}
	}
	all.Wait()
	cm := s.Object(configMaps, "default", "shared").(*corev1.ConfigMap)
	for user := range users {
		name, want := fmt.Sprint("user-", user), fmt.Sprint(edits-1)
		if cm.Data[name] != want && cm.Annotations[name] != want {
			t.Errorf("%s: %q, %q, want %s", name, cm.Data[name], cm.Annotations[name], want)
		}
	}
}
