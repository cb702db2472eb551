package plan_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// exampleFoo asks for three replicas of whatever image somebody else decides on.
func exampleFoo() *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "example-foo", UID: "7d9e", Generation: 1},
		Spec:       v1alpha1.FooSpec{DeploymentName: "example", Replicas: new(int32(3))},
	}
}

// exampleDeployment is what the API server made of that Foo's Deployment.
func exampleDeployment() *appsv1.Deployment {
	dep := plan.Deployment(exampleFoo())
	dep.UID, dep.ResourceVersion, dep.Generation = "04cc", "1200", 1
	return dep
}

// A Foo without a Deployment gets one. When it had one before, the cache is not trusted: Next first asks
// for a live look at the Foo.
func ExampleNext() {
	foo := exampleFoo()
	step := plan.Next(plan.Seen{Foo: foo})
	fmt.Println("new Foo: create", step.Create.Name)

	foo.Status.ObservedGeneration = 1
	step = plan.Next(plan.Seen{Foo: foo})
	fmt.Println("its Deployment is gone: look at the Foo:", step.LookAtFoo)

	step = plan.Next(plan.Seen{Foo: foo, Live: &plan.Live{Foo: foo}})
	fmt.Println("the Foo is still there: create", step.Create.Name)

	step = plan.Next(plan.Seen{Foo: foo, Live: &plan.Live{}})
	fmt.Println("the Foo is gone too: leave it:", step.Leave)
	// Output:
	// new Foo: create example
	// its Deployment is gone: look at the Foo: true
	// the Foo is still there: create example
	// the Foo is gone too: leave it: true
}

// A Deployment that differs is corrected by a patch of just that, which applies to just this version of
// just this object.
func ExampleDrift() {
	foo, dep := exampleFoo(), exampleDeployment()
	patch, err := plan.Drift(dep, foo)
	fmt.Println("as created:", patch, err)

	dep.Spec.Replicas = new(int32(9))                             // The Foo sets replicas.
	dep.Spec.Template.Spec.Containers[0].Image = "nginx:1.29"     // The Foo leaves the image to others.
	dep.Annotations = map[string]string{"example.com/note": "hi"} // Not of the Foo's concern.
	patch, err = plan.Drift(dep, foo)
	fmt.Println("edited:", patch.Fields, err)
	fmt.Printf("%s\n", patch.Body)
	// Output:
	// as created: <nil> <nil>
	// edited: [spec.replicas 9 -> 3] <nil>
	// {"metadata":{"uid":"04cc","resourceVersion":"1200"},"spec":{"replicas":3}}
}

// Status follows the Deployment. Reconciling is only there while something is on its way.
func ExampleStatus() {
	foo, dep := exampleFoo(), exampleDeployment()
	report := func(what string) {
		foo.Status = plan.Status(plan.Seen{Foo: foo, Named: dep}, nil, time.Now())
		fmt.Printf("%s, %d available:\n", what, foo.Status.AvailableReplicas)
		for _, c := range foo.Status.Conditions {
			fmt.Printf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}

	report("just created")
	dep.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 2}
	report("coming up")
	dep.Status.AvailableReplicas = 3
	report("up")
	// Output:
	// just created, 0 available:
	//   Ready=False Creating: Creating Deployment "example"
	//   Reconciling=True Creating: Creating Deployment "example"
	// coming up, 2 available:
	//   Ready=False Progressing: 2 of 3 replicas available
	//   Reconciling=True Progressing: 2 of 3 replicas available
	// up, 3 available:
	//   Ready=True Available: 3 of 3 replicas available
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
