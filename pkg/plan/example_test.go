package plan_test

import (
	"fmt"
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
