package plan_test

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/plan"
)

// exampleFoo wants three replicas and leaves the image to others.
func exampleFoo() *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "example-foo", UID: "7d9e", ResourceVersion: "1199", Generation: 1,
		},
		Spec: v1alpha1.FooSpec{DeploymentName: "example", Replicas: new(int32(3))},
	}
}

// exampleDeployment is what the API server made of that Foo's Deployment.
func exampleDeployment() *appsv1.Deployment {
	dep := plan.Deployment(exampleFoo())
	dep.UID, dep.ResourceVersion, dep.Generation = "04cc", "1200", 1
	return dep
}

// A sync is a conversation: Next returns a request, and Record takes its answer. Here a new Foo gets its Deployment and
// its first status.
func Example() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	sync := plan.Foos.Sync(&plan.Input{Foo: exampleFoo()})
	sync.Begin(reconcile.Memory{}, now, 0)
	for step := sync.Next(); step != nil; step = sync.Next() {
		fmt.Println(step.Request(), step.Name, "because of the rule", step.Rule)
		answer := step.Body // What the API server returns.
		switch body := step.Body.(type) {
		case *appsv1.Deployment:
			answer = plan.TrimDeployment(exampleDeployment())
		case *v1alpha1.Foo:
			for _, c := range body.Status.Conditions {
				fmt.Printf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
			}
		}
		sync.Record(step, step.Answered(answer, nil), now)
	}
	outcome, _ := sync.End()
	fmt.Println(outcome.Kind)
	// Output:
	// create Deployment example because of the rule create
	// update status of Foo example-foo because of the rule update status
	//   Ready=False Creating: Created Deployment "example". Waiting for the Deployment controller to create its pods
	//   Reconciling=True Creating: Created Deployment "example". Waiting for the Deployment controller to create its pods
	// done
}

// A Deployment that differs is corrected by a patch of just that, which applies to just this version of just this
// object.
func ExampleDrift() {
	foo, dep := exampleFoo(), exampleDeployment()
	fmt.Println("as created:", plan.Drift(plan.TrimDeployment(dep), foo))

	dep.Spec.Replicas = new(int32(9))                             // The Foo sets replicas.
	dep.Spec.Template.Spec.Containers[0].Image = "nginx:1.29"     // The Foo leaves the image to others.
	dep.Annotations = map[string]string{"example.com/note": "hi"} // This is not the Foo's either.
	patch := plan.Drift(plan.TrimDeployment(dep), foo)
	fmt.Println("edited:", patch.Fields)
	fmt.Printf("%s\n", patch.Body)
	// Output:
	// as created: <nil>
	// edited: [spec.replicas 9 -> 3]
	// {"metadata":{"resourceVersion":"1200","uid":"04cc"},"spec":{"replicas":3}}
}

// The status follows the Deployment. Reconciling is only there while something changes.
func ExampleReadyReason() {
	foo, dep := exampleFoo(), exampleDeployment()
	report := func(what string) {
		sync := plan.Foos.Sync(&plan.Input{Foo: foo, Deployment: plan.TrimDeployment(dep)})
		sync.Begin(reconcile.Memory{}, time.Unix(0, 0), 0)
		foo = sync.Next().Body.(*v1alpha1.Foo)
		reason, message := plan.ReadyReason(foo)
		first, _, _ := strings.Cut(message, ". ")
		fmt.Printf("%s: %s: %s\n", what, reason, first)
	}

	report("just created")
	dep.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 2}
	report("coming up")
	dep.Status.AvailableReplicas = 3
	report("up")
	// Output:
	// just created: Creating: Created Deployment "example"
	// coming up: Progressing: 2 of 3 replicas available
	// up: Available: 3 of 3 replicas available
}

// What the Foo does not set gets a default when the Deployment is created.
func ExampleDeployment() {
	dep := plan.Deployment(exampleFoo())
	fmt.Println(dep.Namespace+"/"+dep.Name, "for", dep.OwnerReferences[0].Name)
	fmt.Println(*dep.Spec.Replicas, "replicas of", dep.Spec.Template.Spec.Containers[0].Image)
	fmt.Println("pods:", metav1.FormatLabelSelector(dep.Spec.Selector))
	// Output:
	// default/example for example-foo
	// 3 replicas of nginx:latest
	// pods: app=nginx,controller=example-foo,samplecontroller.k8s.io/deployment=example
}
