package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

func TestDeployment(t *testing.T) {
	foo := newFoo(withReplicas(3), withImage("nginx:1.29"))
	unchanged(t, foo, nil)
	got, err := json.MarshalIndent(plan.Deployment(foo), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "metadata": {
    "name": "web-1",
    "namespace": "default",
    "labels": {
      "app.kubernetes.io/managed-by": "foo-controller",
      "samplecontroller.k8s.io/foo-generation": "2",
      "samplecontroller.k8s.io/made-for": "4523b0c0fe38360bd759"
    },
    "ownerReferences": [
      {
        "apiVersion": "samplecontroller.k8s.io/v1alpha1",
        "kind": "Foo",
        "name": "web",
        "uid": "foo-uid",
        "controller": true,
        "blockOwnerDeletion": true
      }
    ]
  },
  "spec": {
    "replicas": 3,
    "selector": {
      "matchLabels": {
        "app": "nginx",
        "controller": "web",
        "samplecontroller.k8s.io/deployment": "web-1"
      }
    },
    "template": {
      "metadata": {
        "labels": {
          "app": "nginx",
          "controller": "web",
          "samplecontroller.k8s.io/deployment": "web-1"
        }
      },
      "spec": {
        "containers": [
          {
            "name": "nginx",
            "image": "nginx:1.29",
            "resources": {}
          }
        ]
      }
    },
    "strategy": {}
  },
  "status": {}
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("wrong Deployment (-want +got):\n%s", diff)
	}
}

func TestDeploymentDefaults(t *testing.T) {
	for _, tc := range []struct {
		name     string
		foo      *v1alpha1.Foo
		replicas int32
		image    string
	}{
		{name: "absent fields get defaults", foo: newFoo(), replicas: 1, image: "nginx:latest"},
		{name: "no replicas are not absent replicas", foo: newFoo(withReplicas(0)), replicas: 0, image: "nginx:latest"},
		{
			name: "set fields are kept", foo: newFoo(withReplicas(2), withImage("nginx:1.29")),
			replicas: 2, image: "nginx:1.29",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := plan.Deployment(tc.foo).Spec
			if *spec.Replicas != tc.replicas || spec.Template.Spec.Containers[0].Image != tc.image {
				t.Errorf("got %d replicas of %s, want %d of %s",
					*spec.Replicas, spec.Template.Spec.Containers[0].Image, tc.replicas, tc.image)
			}
		})
	}
}

func TestDeploymentIsTheSameEveryTimeAndHasNoDrift(t *testing.T) {
	full := newFoo(withReplicas(3), withImage("nginx:1.29"))
	for _, foo := range []*v1alpha1.Foo{newFoo(), newFoo(withReplicas(0)), full} {
		unchanged(t, foo, nil)
		if diff := cmp.Diff(plan.Deployment(foo), plan.Deployment(foo)); diff != "" {
			t.Errorf("two calls differ:\n%s", diff)
		}
		if patch := plan.Drift(newDeployment(foo), foo); patch != nil {
			t.Errorf("just created, it is patched: %s", patch.Body)
		}
	}
}

// Names may have 253 characters, the values of labels 63.
func TestDeploymentOfLongNames(t *testing.T) {
	for _, tc := range []struct {
		name string
		long string
		want string
	}{
		{name: "63 characters are kept", long: strings.Repeat("a", 63), want: strings.Repeat("a", 63)},
		{
			name: "64 characters are shortened", long: strings.Repeat("a", 64),
			want: strings.Repeat("a", 52) + "-79ed788752",
		},
		{
			name: "253 characters are shortened", long: strings.Repeat("a", 253),
			want: strings.Repeat("a", 52) + "-9017330f29",
		},
		{
			name: "a cut behind a dot is a valid value", long: strings.Repeat("a.", 100) + "a",
			want: strings.Repeat("a.", 26) + "-5e55802a9d",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := plan.Deployment(newFoo(withName(tc.long), withDeploymentName(tc.long)))
			if dep.Name != tc.long {
				t.Errorf("the Deployment is named %q", dep.Name)
			}
			got := dep.Spec.Template.Labels
			want := map[string]string{"app": "nginx", "controller": tc.want, "samplecontroller.k8s.io/deployment": tc.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong labels (-want +got):\n%s", diff)
			}
			for label, value := range got {
				if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
					t.Errorf("%s=%s: %v", label, value, problems)
				}
			}
			selector, err := metav1.LabelSelectorAsSelector(dep.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			if !selector.Matches(labels.Set(got)) {
				t.Errorf("selector %s does not match pods %v", selector, got)
			}
		})
	}
}

func TestDeploymentsOfDifferentFoosDiffer(t *testing.T) {
	long := strings.Repeat("a", 100)
	base := plan.Deployment(newFoo(withName(long), withDeploymentName(long)))
	for _, tc := range []struct {
		name         string
		with         fooOption
		sameSelector bool
		sameMadeFor  bool
	}{
		{name: "another uid", with: withUID("other"), sameSelector: true},
		{name: "another long Foo name", with: withName(long + "b"), sameMadeFor: true},
		{name: "another long Deployment name", with: withDeploymentName(long + "b")},
		{name: "another generation", with: withGeneration(9), sameSelector: true, sameMadeFor: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dep := plan.Deployment(newFoo(withName(long), withDeploymentName(long), tc.with))
			if same := cmp.Equal(base.Spec.Selector, dep.Spec.Selector); same != tc.sameSelector {
				t.Errorf("same selector: %t, want %t", same, tc.sameSelector)
			}
			same := base.Labels[v1alpha1.LabelMadeFor] == dep.Labels[v1alpha1.LabelMadeFor]
			if same != tc.sameMadeFor {
				t.Errorf("same made-for label: %t, want %t", same, tc.sameMadeFor)
			}
		})
	}
}

func TestDeploymentHasTheGenerationThatItIsWrittenFor(t *testing.T) {
	for generation, want := range map[int64]string{1: "1", 12: "12", 9223372036854775807: "9223372036854775807"} {
		got := plan.Deployment(newFoo(withGeneration(generation))).Labels[v1alpha1.LabelFooGeneration]
		if got != want {
			t.Errorf("generation %d is written as %s", generation, got)
		}
	}
}

// The parts that are hashed must not run into each other.
func TestMadeForKeepsUIDAndNameApart(t *testing.T) {
	one := plan.Deployment(newFoo(withUID("a"), withDeploymentName("bc"))).Labels[v1alpha1.LabelMadeFor]
	other := plan.Deployment(newFoo(withUID("ab"), withDeploymentName("c"))).Labels[v1alpha1.LabelMadeFor]
	if one == other {
		t.Errorf("both are %s", one)
	}
	if problems := validation.IsValidLabelValue(one); len(one) != 20 || len(problems) > 0 {
		t.Errorf("%q: %v", one, problems)
	}
}
