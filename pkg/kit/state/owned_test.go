package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What want leaves out at a path that it owns is removed, and what others have set beside it stays.
func TestDriftRemovesWhatIsOwned(t *testing.T) {
	const pod = "spec.template.spec."
	container := func(edit func(*corev1.Container)) func(*appsv1.Deployment) {
		return func(dep *appsv1.Deployment) { edit(&dep.Spec.Template.Spec.Containers[0]) }
	}
	inElement := func(patch string) string {
		return `"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"},{"name":"sidecar"}],` +
			`"containers":[{` + patch + `"name":"web"}]}}}`
	}
	for _, test := range []struct {
		name       string
		owned      string
		have, want func(*appsv1.Deployment)
		patch      string
		fields     string
	}{
		{
			name: "a field", owned: "spec.paused", have: func(dep *appsv1.Deployment) { dep.Spec.Paused = true },
			patch: `"spec":{"paused":null}`, fields: "spec.paused",
		},
		{
			name: "a field of an element", owned: pod + "containers[web].args",
			want:  container(func(c *corev1.Container) { c.Args = nil }),
			patch: inElement(`"args":null,`),
		},
		{
			name: "an element", owned: pod + "containers[web].env",
			have:  container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A"}, {Name: "B", Value: "b"}} }),
			want:  container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "B", Value: "b"}} }),
			patch: inElement(`"$setElementOrder/env":[{"name":"B"}],"env":[{"$patch":"delete","name":"A"}],`),
		},
		{
			name: "all elements", owned: pod + "containers[web].env",
			have:  container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A"}} }),
			patch: inElement(`"env":null,`),
		},
		{
			name: "one alternative of an element", owned: pod + "containers[web].env",
			have: container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A", Value: "a"}} }),
			want: container(func(c *corev1.Container) {
				ref := &corev1.ObjectFieldSelector{FieldPath: "x"}
				c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: ref}}}
			}),
			patch: inElement(`"$setElementOrder/env":[{"name":"A"}],` +
				`"env":[{"name":"A","value":null,"valueFrom":{"fieldRef":{"fieldPath":"x"}}}],`),
		},
		{
			name: "a volume that changes its type", owned: pod + "volumes",
			have: func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{DefaultMode: new(int32(420))},
				}}}
			},
			want: func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					Secret: &corev1.SecretVolumeSource{SecretName: "s"},
				}}}
			},
			patch: `"spec":{"template":{"spec":{"$setElementOrder/volumes":[{"name":"v"}],` +
				`"volumes":[{"$retainKeys":["name","secret"],"configMap":null,"name":"v","secret":{"secretName":"s"}}]}}}`,
			fields: pod + "volumes",
		},
		{
			name: "an element by its name", owned: pod + "containers[sidecar]",
			patch: `"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"}],` +
				`"containers":[{"$patch":"delete","name":"sidecar"}]}}}`,
		},
		{
			name: "an element whose key is a number", owned: pod + "containers[web].ports[80]",
			have: container(func(c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81}}
			}),
			patch: inElement(`"$setElementOrder/ports":[{"containerPort":81}],` +
				`"ports":[{"$patch":"delete","containerPort":80}],`),
		},
		{
			name: "elements, and not what others have set in the one that stays", owned: pod + "containers[web].ports[]",
			have: container(func(c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}, {ContainerPort: 81, Protocol: "TCP"}}
			}),
			want: container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80}} }),
			patch: inElement(`"$setElementOrder/ports":[{"containerPort":80}],` +
				`"ports":[{"$patch":"delete","containerPort":81}],`),
		},
		{
			name: "a struct that is not a pointer", owned: pod + "containers[web].resources",
			want:  container(func(c *corev1.Container) { c.Resources = corev1.ResourceRequirements{} }),
			patch: inElement(`"resources":{"requests":null},`),
		},
		{
			name: "an entry with dots and an empty value", owned: "metadata.annotations[example.com/a]",
			have:  func(dep *appsv1.Deployment) { dep.Annotations["example.com/a"] = "" },
			patch: `"metadata":{"annotations":{"example.com/a":null}}`, fields: "metadata.annotations.example.com/a",
		},
		{
			name: "entries", owned: "metadata.labels[]",
			patch: `"metadata":{"labels":{"team":null}}`, fields: "metadata.labels.team",
		},
		{name: "what both have", owned: pod + "containers[web].args"},
		{name: "what nobody has", owned: pod + "containers[web].livenessProbe.httpGet"},
		{
			name: "a field of what others have set", owned: pod + "containers[web].livenessProbe.httpGet",
			have: container(func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{PeriodSeconds: 10} }),
		},
		{name: "an element that nobody has", owned: pod + "initContainers[x].args"},
	} {
		t.Run(test.name, func(t *testing.T) {
			have, want := stored(), wanted()
			for obj, edit := range map[*appsv1.Deployment]func(*appsv1.Deployment){have: test.have, want: test.want} {
				if edit != nil {
					edit(obj)
				}
			}
			before := []any{have.DeepCopy(), want.DeepCopy()}
			patch, err := Drift(have, want, test.owned)
			if diff := gocmp.Diff(before, []any{have, want}); diff != "" || err != nil {
				t.Fatalf("%v, the arguments are changed:\n%s", err, diff)
			}
			if test.patch == "" {
				want.Spec.Template.Spec.Containers[0].Resources.Requests = nil // 1000m and 1 need the JSON.
				allocs := testing.AllocsPerRun(10, func() { _, _ = Drift(have, want, test.owned) })
				if patch != nil || allocs > 300 { // The JSON needs 700.
					t.Errorf("%+v, %v allocations, want no patch, without a comparison of the JSON", patch, allocs)
				}
				return
			}
			if diff := gocmp.Diff(decoded(t, "{"+test.patch+"}"), decoded(t, string(patch.Body))); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if got := patch.Paths(); got != cmp.Or(test.fields, pod+"containers") {
				t.Errorf("fields %q, want %q", got, test.fields)
			}
			if again, err := Drift(apply(t, have, patch.Body), want, test.owned); again != nil || err != nil {
				t.Errorf("after the patch: %v, %v; want no difference", again, err)
			}
		})
	}
}

// decoded returns a patch without its preconditions.
func decoded(t *testing.T, patch string) (body map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(patch), &body); err != nil {
		t.Fatal(err)
	}
	metadata, _ := body["metadata"].(map[string]any)
	delete(metadata, "uid")
	if delete(metadata, "resourceVersion"); len(metadata) == 0 {
		delete(body, "metadata")
	}
	return body
}

// A mistake in a path is an error before anything differs.
func TestAPathThatTheTypeDoesNotHaveIsAnError(t *testing.T) {
	for _, test := range []struct{ path, message string }{
		{"", `*v1.Deployment has no "."`},
		{"spec.", `v1.DeploymentSpec has no "."`},
		{"spec..paused", `v1.DeploymentSpec has no "..paused"`},
		{"spec.Paused", `v1.DeploymentSpec has no ".Paused"`},
		{"spec[paused]", `v1.DeploymentSpec has no "[paused]"`},
		{"spec.replicas.x", `int32 has no ".x"`},
		{"spec.template.spec.containers[web", `[]v1.Container has no "[web"`},
		{"spec.template.spec.containers.web", `[]v1.Container has no ".web"`},
		{"spec.template.spec.containers[web].args[0]", `[]string has no "[0]"`},
		{"spec.template.spec.containers[web].args[]", `[]string has no "[]"`},
		{"spec.template.spec.containers[web].resources.requests[cpu].i", `v1.ResourceList has no "[cpu].i"`},
		{"metadata.annotations.example.com/a", `map[string]string has no ".example.com/a"`},
		{"metadata.labels[a]b", `map[string]string has no "[a]b"`},
		{"metadata.labels[].a", `map[string]string has no "[].a"`},
		{"metadata.finalizers", `[]string has no ""`},
	} {
		test.message = fmt.Sprintf("the path %q: %s", test.path, test.message)
		err := CheckPaths[*appsv1.Deployment](test.path)
		_, findErr := Drift(stored(), wanted(), "spec.paused", test.path)
		if fmt.Sprint(err) != test.message || !strings.Contains(fmt.Sprint(findErr), test.message) {
			t.Errorf("%q:\n%v\n%v, want\n%s", test.path, err, findErr, test.message)
		}
	}
}

// ownedPaths are paths of the samples, by their type.
var ownedPaths = map[string][]string{
	"*v1.Deployment": {
		"metadata.labels", "metadata.labels[]", "metadata.labels.team", "metadata.ownerReferences",
		"spec.replicas", "spec.strategy", "spec.template", "spec.template.spec.containers[]",
		"spec.template.spec.containers[sidecar]", "spec.template.spec.containers[web].args",
		"spec.template.spec.containers[web].resources", "spec.template.spec.tolerations", "spec.template.spec.volumes",
		"spec.template.spec.volumes[v].configMap",
	},
	"*v1.ConfigMap":   {"data", "data[]", "data.c", "binaryData.x"},
	"*v1.Service":     {"spec.ports", "spec.ports[]", "spec.ports[81]", "spec.ports[80].name", "spec.clusterIPs", "spec"},
	"*v1.Role":        {"rules", "metadata.labels"},
	"*v1.Ingress":     {"spec.rules", "spec"},
	"*v1.StatefulSet": {"spec.volumeClaimTemplates", "spec.serviceName"},
}

// In 1,800 pairs of an object and a changed one: after the patch, what is at an owned path is what want has there, and
// elsewhere nothing is lost.
func TestAPatchRemovesWhatIsOwnedAndNothingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	compared, removed := 0, 0
	for range 300 {
		for _, obj := range samples() {
			kind := reflect.TypeOf(obj)
			have, want := reflect.New(kind.Elem()), reflect.New(kind.Elem())
			changed(t, r, obj, have.Interface())
			changed(t, r, obj, want.Interface())
			text := ownedPaths[kind.String()][r.IntN(len(ownedPaths[kind.String()]))]
			left, withoutErr := without(have.Interface().(metav1.Object), want.Interface().(metav1.Object), []string{text})
			_, body, err := changes(have.Interface(), left, want.Interface(), obj)
			was, wants := leavesOf(t, have.Interface()), leavesOf(t, want.Interface())
			if was == nil || wants == nil {
				continue // With a repeated key.
			}
			isEqual := covers(have, want, listKind{}) && covers(reflect.ValueOf(left), have, listKind{})
			if isEqual && len(fieldsIn("", nil, body)) > 0 {
				t.Fatalf("%T owns %s: nothing differs, and the patch is %v", obj, text, body)
			}
			expected := maps.Clone(was)
			maps.DeleteFunc(expected, func(leaf, _ string) bool { return isOwned(leaf, text, wants) })
			compared, removed = compared+1, removed+len(was)-len(expected)
			maps.Copy(expected, wants)
			encoded, encodeErr := json.Marshal(body)
			is := leavesOf(t, apply(t, have.Interface(), encoded))
			if diff := gocmp.Diff(expected, is); diff != "" || errors.Join(withoutErr, err, encodeErr) != nil {
				t.Fatalf("%T owns %s: %v, %v, after the patch %v (-want +got):\n%s", obj, text, withoutErr, err, body, diff)
			}
		}
	}
	t.Logf("of %d objects, %d fields were owned", compared, removed)
	if compared < 1_200 || removed < 1_200 {
		t.Error("most have no field that is owned")
	}
}

// isOwned reports whether a leaf is at or below the path text, and not in an entry of it that stays.
func isOwned(leaf, text string, wants map[string]string) bool {
	parent, entries := strings.CutSuffix(text, "[]")
	rest, isBelow := strings.CutPrefix(leaf, parent)
	if isBelow = isBelow && (rest == "" || rest[0] == '.' || rest[0] == '['); !isBelow || !entries || rest == "" {
		return isBelow
	}
	entry := parent + rest[:1+strings.IndexAny(rest[1:]+".", ".]")]
	for wanted := range wants {
		if strings.HasPrefix(wanted, entry) {
			return false
		}
	}
	return true
}

// leavesOf returns the values in the JSON of obj by their paths, nil if two elements of a list have the same key. It
// knows the lists of the samples that are merged.
func leavesOf(t *testing.T, obj any) map[string]string {
	keys := map[string]string{
		"containers": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "port", "ownerReferences": "uid",
		"finalizers": "",
	}
	encoded, err := json.Marshal(obj)
	var value any
	if err := errors.Join(err, json.Unmarshal(encoded, &value)); err != nil {
		t.Fatal(err)
	}
	leaves, repeated := map[string]string{}, false
	var walk func(path, name string, value any)
	walk = func(path, name string, value any) {
		key, isMerged := keys[name]
		switch value := value.(type) {
		case nil:
		case map[string]any:
			for name, field := range value {
				walk(strings.TrimPrefix(path+"."+name, "."), name, field)
			}
		case []any:
			if !isMerged {
				leaves[path] = fmt.Sprint(value)
				return
			}
			seen := map[string]bool{}
			for _, element := range value {
				id := element
				if fields, isMap := element.(map[string]any); isMap {
					id = fields[key]
				}
				repeated = repeated || seen[fmt.Sprint(id)]
				seen[fmt.Sprint(id)] = true
				walk(fmt.Sprintf("%s[%v]", path, id), "", element)
			}
		default:
			leaves[path] = fmt.Sprint(value)
		}
	}
	if walk("", "", value); repeated {
		return nil
	}
	return leaves
}
