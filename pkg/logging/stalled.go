package logging

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Stalled compares a Foo before and after a write of its status. It logs if the Foo became Stalled, is Stalled for
// another reason, or recovered.
func Stalled(logger klog.Logger, before, after *v1alpha1.Foo) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionStalled)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case is != nil && (was == nil || was.Reason != is.Reason):
		logger.Info("Foo became Stalled", "reason", is.Reason, "message", is.Message)
	case was != nil && is == nil:
		logger.Info("Foo recovered from Stalled", "reason", was.Reason)
	}
}
