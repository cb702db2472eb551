package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// wanted returns the Deployment that a controller wants.
func wanted() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Widget", Name: "web", UID: "owner"}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "nginx:1.29", Args: []string{"-v"},
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")},
					},
				}}},
			},
		},
	}
}

// stored returns it as others have left it: with defaults, a sidecar, a label and an annotation.
func stored(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	dep := wanted()
	dep.UID, dep.ResourceVersion, dep.Generation = "uid", "7", 2
	dep.Labels["team"] = "blue"
	dep.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	dep.CreationTimestamp = metav1.Unix(1e9, 0)
	dep.Spec.RevisionHistoryLimit = new(int32(10))
	dep.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "today"}
	pod := &dep.Spec.Template.Spec
	pod.Containers[0].TerminationMessagePath = "/dev/termination-log"
	pod.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "proxy"})
	dep.Status.Replicas = 3
	for _, edit := range edits {
		edit(dep)
	}
	return dep
}

func TestDrift(t *testing.T) {
	const preconditions = `"resourceVersion":"7","uid":"uid"`
	for _, test := range []struct {
		name string
		edit func(have *appsv1.Deployment)
		want string
		// fields are those of the patch, "" if there is none.
		fields string
	}{
		{name: "what others have set is left alone", edit: func(*appsv1.Deployment) {}},
		{
			name: "a number", edit: func(dep *appsv1.Deployment) { dep.Spec.Replicas = new(int32(9)) },
			fields: "spec.replicas", want: `{"metadata":{` + preconditions + `},"spec":{"replicas":3}}`,
		},
		{
			name: "a label that is gone", edit: func(dep *appsv1.Deployment) { delete(dep.Labels, "app") },
			fields: "metadata.labels.app", want: `{"metadata":{"labels":{"app":"web"},` + preconditions + `}}`,
		},
		{
			name: "no labels at all", edit: func(dep *appsv1.Deployment) { dep.Labels = nil },
			fields: "metadata.labels.app", want: `{"metadata":{"labels":{"app":"web"},` + preconditions + `}}`,
		},
		{
			name: "an owner that is gone", edit: func(dep *appsv1.Deployment) { dep.OwnerReferences = nil },
			fields: "metadata.ownerReferences",
			want: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Widget","name":"web","uid":"owner"}],` +
				preconditions + `}}`,
		},
		{
			name: "an element of a list with a key",
			edit: func(dep *appsv1.Deployment) { dep.Spec.Template.Spec.Containers[0].Image = "mine" },

			fields: "spec.template.spec.containers",
			want: `{"metadata":{` + preconditions + `},"spec":{"template":{"spec":{` +
				`"$setElementOrder/containers":[{"name":"web"},{"name":"sidecar"}],` +
				`"containers":[{"image":"nginx:1.29","name":"web"}]}}}}`,
		},
		{
			name: "an element that is gone",
			edit: func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec.Containers = dep.Spec.Template.Spec.Containers[1:]
			},
			fields: "spec.template.spec.containers",
			want: `{"metadata":{` + preconditions + `},"spec":{"template":{"spec":{` +
				`"$setElementOrder/containers":[{"name":"web"},{"name":"sidecar"}],` +
				`"containers":[{"args":["-v"],"image":"nginx:1.29","name":"web","resources":{"requests":{"cpu":"1"}}}]}}}}`,
		},
		{
			name: "a list without a key is replaced",
			edit: func(dep *appsv1.Deployment) { dep.Spec.Template.Spec.Containers[0].Args = []string{"-v", "-x"} },

			fields: "spec.template.spec.containers",
			want: `{"metadata":{` + preconditions + `},"spec":{"template":{"spec":{` +
				`"$setElementOrder/containers":[{"name":"web"},{"name":"sidecar"}],` +
				`"containers":[{"args":["-v"],"name":"web"}]}}}}`,
		},
		{
			name: "several fields, in order",
			edit: func(dep *appsv1.Deployment) {
				dep.Spec.Replicas, dep.Labels["app"], dep.Spec.Template.Labels = nil, "", map[string]string{"a": "b"}
			},
			fields: "metadata.labels.app, spec.replicas, spec.template.metadata.labels.app",
			want: `{"metadata":{"labels":{"app":"web"},` + preconditions + `},"spec":{"replicas":3,` +
				`"template":{"metadata":{"labels":{"app":"web"}}}}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			have, want := stored(test.edit), wanted()
			patch, err := Drift(have, want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(stored(test.edit), have) + cmp.Diff(wanted(), want); diff != "" {
				t.Errorf("the arguments are changed:\n%s", diff)
			}
			if patch == nil {
				patch = &Patch{}
			}
			if got := patch.Paths(); got != test.fields {
				t.Errorf("fields: %q, want %q", got, test.fields)
			}
			if diff := cmp.Diff(test.want, string(patch.Body)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if test.want != "" {
				checkPatched(t, have, patch.Body)
			}
		})
	}
}

// checkPatched applies a patch as the API server does: then nothing differs, and what others have set is there.
func checkPatched(t *testing.T, have *appsv1.Deployment, body []byte) {
	t.Helper()
	patched := apply(t, have, body)
	if again, err := Drift(patched, wanted()); again != nil || err != nil {
		t.Errorf("after the patch: %+v, %v; want no difference", again, err)
	}
	pod := patched.Spec.Template
	if len(pod.Spec.Containers) != 2 || pod.Annotations == nil || patched.Spec.RevisionHistoryLimit == nil {
		t.Errorf("the patch has removed what others have set: %+v", patched)
	}
}

// A merge takes two ports of one number for one, and the patch would make both UDP.
func TestAListWithARepeatedKeyIsAnError(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "dns", UID: "uid", ResourceVersion: "7"}}
	service.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 53, Protocol: "TCP"},
		{Name: "udp", Port: 53, Protocol: "UDP"}}
	patch, err := Drift(service, service.DeepCopy())
	if patch != nil || !errors.Is(err, ErrRepeatedKey) || !strings.Contains(fmt.Sprint(err), "spec.ports") {
		t.Errorf("patch %+v, error %v", patch, err)
	}
}

func TestAPatchNeedsAVersion(t *testing.T) {
	for name, edit := range map[string]func(*appsv1.Deployment){
		"no uid":             func(dep *appsv1.Deployment) { dep.UID = "" },
		"no resourceVersion": func(dep *appsv1.Deployment) { dep.ResourceVersion = "" },
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := Drift(stored(edit), wanted())
			if patch != nil || !errors.Is(err, ErrNoPrecondition) || !strings.Contains(err.Error(), "web") {
				t.Errorf("%+v, %v; want ErrNoPrecondition with the name", patch, err)
			}
		})
	}
}

// The JSON of a Deployment has a null for a selector and for containers that are not set, also in lists.
func TestFieldsThatAreNotSetAreNotRemoved(t *testing.T) {
	want := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	if patch, err := Drift(stored(), want); patch != nil || err != nil {
		t.Errorf("%+v, %v; want no patch", patch, err)
	}
	meta := metav1.ObjectMeta{Name: "web", UID: "uid", ResourceVersion: "7"}
	role := func(resources []string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Resources: resources}}}
	}
	patch, err := Drift(role([]string{"pods"}), role([]string{"secrets"}))
	if err != nil || strings.Contains(string(patch.Body), "null") {
		t.Errorf("%s, %v; want no null", patch.Body, err)
	}
	if patch, err := Drift(role([]string{"pods"}), role([]string{"pods"})); patch != nil || err != nil {
		t.Errorf("%+v, %v; want no patch", patch, err)
	}
}

// The values of a ConfigMap are merged one by one, and shown. Those of a Secret are not.
func TestDriftOfOtherKinds(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web", UID: "uid", ResourceVersion: "7"}
	configMap := func(data map[string]string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: meta, Data: data} }
	patch, err := Drift(configMap(map[string]string{"a": "9", "other": "x"}),
		configMap(map[string]string{"a": "1", "b": "2"}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Field{{"data.a", "9", "1"}, {"data.b", "none", "2"}}, patch.Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	secret := func(value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"password": []byte(value)}}
	}
	if patch, err = Drift(secret("old"), secret("new")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Field{{Path: "data.password"}}, patch.Fields); diff != "" {
		t.Errorf("fields of a Secret (-want +got):\n%s", diff)
	}
	long := strings.Repeat("é", 40) // Of 80 bytes.
	if patch, err = Drift(configMap(nil), configMap(map[string]string{"a": long})); err != nil {
		t.Fatal(err)
	}
	forged, err := Drift(configMap(nil), configMap(map[string]string{"a": "x\nE1125 forged\x1b[2K"}))
	if err != nil || forged.Fields[0].Want != `"x\nE1125 forged\x1b[2K"` {
		t.Errorf("a value of several lines is shown as %s, %v", forged.Fields[0].Want, err)
	}
	if want := strings.Repeat("é", 32) + "..."; patch.Fields[0].Want != want {
		t.Errorf("a long value is shown as %q, want %q", patch.Fields[0].Want, want)
	}
}

// apply returns have after a patch, as the API server makes it.
func apply[T any](t *testing.T, have T, body []byte) T {
	t.Helper()
	before, err := json.Marshal(have)
	after, patchErr := strategicpatch.StrategicMergePatch(before, body, have)
	patched := reflect.New(reflect.TypeOf(have).Elem()).Interface().(T)
	if err := errors.Join(err, patchErr, json.Unmarshal(after, patched)); err != nil {
		t.Fatal(err)
	}
	return patched
}

// In 12,000 pairs of an object and a changed one, whatever covers calls covered needs no patch according to the JSON.
func TestWhatIsCoveredNeedsNoPatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	covered, needless := 0, 0
	for range 2_000 {
		for _, obj := range samples() {
			have, want := reflect.New(reflect.TypeOf(obj).Elem()), reflect.New(reflect.TypeOf(obj).Elem())
			changed(t, r, obj, have.Interface())
			changed(t, r, obj, want.Interface())
			_, patch, err := changes(have.Interface(), have.Interface(), want.Interface(), obj)
			needs := err != nil || len(fieldsIn("", nil, patch)) > 0
			switch is := covers(have, want, listKind{}); {
			case is && needs:
				t.Fatalf("%T is covered, and the patch is %v, %v:\nhave %+v\nwant %+v", obj, patch, err, have, want)
			case is:
				covered++
			case !needs:
				needless++
			}
		}
	}
	t.Logf("%d were covered, %d needed the JSON in vain", covered, needless)
	if covered < needless {
		t.Error("most need the JSON")
	}
}

func samples() []any {
	port := corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: "TCP"}
	deployment := stored()
	deployment.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Equal", Value: "b"}, {Key: "c"}}
	deployment.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}},
	}}}
	deployment.Finalizers = []string{"a", "b"}
	return []any{
		deployment,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": "b", "c": ""},
			BinaryData: map[string][]byte{"x": {1}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{port,
				{Name: "b", Port: 81}}, ClusterIPs: []string{"a", "b"},
		}},
		&rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, Resources: []string{"pods"}},
			{Verbs: []string{"watch"}}}},
		&networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a"}, {Host: "b"}}}},
		&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{ServiceName: "a",
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}},
	}
}

// changed decodes obj into result after up to three random changes.
func changed(t *testing.T, r *rand.Rand, obj, result any) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	for {
		if err := json.Unmarshal(encoded, &fields); err != nil {
			t.Fatal(err)
		}
		for range r.IntN(4) {
			change(r, fields)
		}
		again, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		clear(fields)
		if json.Unmarshal(again, result) == nil {
			return
		}
	}
}

// change deletes, repeats or changes something inside of value.
func change(r *rand.Rand, value any) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return
		}
		names := slices.Sorted(maps.Keys(value))
		name := names[r.IntN(len(names))]
		switch inner := value[name].(type) {
		case map[string]any, []any:
			if list, ok := inner.([]any); ok && r.IntN(4) == 0 && len(list) > 0 {
				value[name] = append(slices.Clone(list), list[r.IntN(len(list))])
				return
			}
			if list, ok := inner.([]any); ok && r.IntN(4) == 0 && len(list) > 1 {
				list[0], list[1] = list[1], list[0]
				return
			}
			if r.IntN(5) > 0 {
				change(r, inner)
				return
			}
		case string:
			if r.IntN(3) > 0 {
				value[name] = []string{"other", "", inner}[r.IntN(3)]
				return
			}
		case float64:
			if r.IntN(3) > 0 {
				value[name] = []float64{0, 7, inner}[r.IntN(3)]
				return
			}
		}
		delete(value, name)
	case []any:
		if len(value) > 0 {
			change(r, value[r.IntN(len(value))])
		}
	}
}
