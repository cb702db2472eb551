package state

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": "b", "c": ""}, BinaryData: map[string][]byte{"x": {1}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{port, {Name: "b", Port: 81}}, ClusterIPs: []string{"a", "b"},
		}},
		&rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, Resources: []string{"pods"}}, {Verbs: []string{"watch"}}}},
		&networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a"}, {Host: "b"}}}},
		&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{ServiceName: "a", VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}}}},
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

func BenchmarkDrift(b *testing.B) {
	have, want := stored(), wanted()
	want.Spec.Template.Spec.Containers[0].Resources.Requests = nil
	for name, find := range map[string]func(){
		"structs": func() { _, _ = Drift(have, want) },
		"owned":   func() { _, _ = Drift(have, want, "spec.template.spec.containers[web].args") },
		"JSON":    func() { _, _, _ = changes(have, have, want, &appsv1.Deployment{}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				find()
			}
		})
	}
}
