package drift_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/drift"
)

// Somebody has scaled a Deployment, and somebody else has added a label, which stays.
func ExampleFind() {
	want := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3))},
	}
	have := want.DeepCopy()
	have.UID, have.ResourceVersion = "uid-of-web", "7"
	have.Labels = map[string]string{"team": "blue"}
	have.Spec.Replicas = new(int32(9))

	patch, err := drift.Find(have, want)
	fmt.Println(patch.Fields, err)
	fmt.Println(string(patch.Body)) // For the method Patch of a client, with types.StrategicMergePatchType.

	have.Spec.Replicas = new(int32(3))
	patch, err = drift.Find(have, want)
	fmt.Println(patch == nil, err)
	// Output:
	// [spec.replicas] <nil>
	// {"metadata":{"resourceVersion":"7","uid":"uid-of-web"},"spec":{"replicas":3}}
	// true <nil>
}
