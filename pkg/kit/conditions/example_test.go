package conditions_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/conditions"
)

func ExampleSet() {
	var status []metav1.Condition
	for generation, report := range []conditions.Report{
		{True: conditions.Reconciling, Reason: "Progressing", Message: "1 of 2 replicas available"},
		{True: conditions.Ready, Reason: "Available", Message: "2 of 2 replicas available"},
	} {
		status = conditions.Set(status, report, int64(generation), time.Now())
		for _, c := range status {
			fmt.Printf("%s=%s: %s\n", c.Type, c.Status, c.Message)
		}
	}
	// Output:
	// Ready=False: 1 of 2 replicas available
	// Reconciling=True: 1 of 2 replicas available
	// Ready=True: 2 of 2 replicas available
}
