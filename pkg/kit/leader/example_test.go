package leader_test

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/foo-controller/pkg/kit/leader"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A controller whose writes pass the gate. In a cluster, config comes from rest.InClusterConfig, and the Lease needs no
// namespace.
func Example() {
	server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Leases())
	config := server.Config("controller")
	if err := server.Load(releasedLease()); err != nil {
		fmt.Println(err)
	}

	elector, err := leader.New(leader.Config{
		Connection: config, Namespace: "default", Name: "controller",
		LeaseDuration: leader.DefaultLeaseDuration,
		RenewDeadline: leader.DefaultRenewDeadline,
		RetryPeriod:   leader.DefaultRetryPeriod,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	config.Wrap(elector.Gate)
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	ctx, stop := context.WithCancel(context.Background()) // A signal would end it.
	create := func(name string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := maps.Create(context.Background(), cm, metav1.CreateOptions{})
		fmt.Println(name, err == nil, errors.Is(err, leader.ErrNotLeading))
	}

	create("before")
	err = elector.Run(ctx, func(context.Context) {
		create("while-leading")
		stop()
	})
	fmt.Println("Run:", err)
	create("afterwards")
	// Output:
	// before false true
	// while-leading true false
	// Run: <nil>
	// afterwards false true
}

// releasedLease returns the Lease that an earlier leader has released. Without it, the example would take 15 seconds.
func releasedLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "controller"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(""), LeaseDurationSeconds: new(int32(1)), LeaseTransitions: new(int32(3)),
		},
	}
}
