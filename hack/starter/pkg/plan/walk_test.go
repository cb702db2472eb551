package plan

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/sim/walktest"
)

// TestWalk plays the conversations that a sync of a Widget can have with the API server, see package walktest. With
// -walk-all, it plays all of them.
func TestWalk(t *testing.T) {
	walk := &walktest.Walk[Input, *v1alpha1.Widget]{
		Plan: Widgets, Kind: WidgetKind, Trim: Trim, Progress: rollOut, Ready: isReady,
		Observe: func(cached walktest.Objects) *Input {
			return &Input{
				Widget:     walktest.Get(cached, WidgetKind, "default", "web"),
				ConfigMap:  walktest.Get(cached, ConfigMapKind, "default", "web"),
				Deployment: walktest.Get(cached, DeploymentKind, "default", "web"),
			}
		},
		Object: &v1alpha1.Widget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       v1alpha1.WidgetSpec{Replicas: new(int32(3)), Image: "web:1", Message: "Hello"},
		},
		Objects: []walktest.Edit[*v1alpha1.Widget]{
			{Name: "reported", Do: func(w *v1alpha1.Widget) { w.Status.ObservedGeneration = w.Generation }},
		},
		Changes: []walktest.Edit[*v1alpha1.Widget]{
			{Name: "one of another image", Do: func(w *v1alpha1.Widget) { w.Spec.Image = "web:2" }},
		},
		Children: []walktest.Child[*v1alpha1.Widget]{{
			Kind: ConfigMapKind.Kind, Want: func(w *v1alpha1.Widget) metav1.Object { return ConfigMap(w) },
			Edits: []walktest.Edit[metav1.Object]{
				{Name: "with another message", Do: func(c metav1.Object) {
					c.(*corev1.ConfigMap).Data = map[string]string{"message": "other", "more": "x"}
				}},
			},
			Admit: func(c metav1.Object) { c.(*corev1.ConfigMap).Data["message"] = "censored" },
		}, {
			Kind: DeploymentKind.Kind, Want: func(w *v1alpha1.Widget) metav1.Object { return Deployment(w) },
			Edits: []walktest.Edit[metav1.Object]{
				{Name: "scaled", Do: func(d metav1.Object) { d.(*appsv1.Deployment).Spec.Replicas = new(int32(9)) }},
				{Name: "rolled out", Do: func(d metav1.Object) { rollOut(nil, d) }},
				{Name: "stuck", Stuck: true, Do: func(d metav1.Object) {
					d.(*appsv1.Deployment).Status = rolledOut(1, 3, 3, 2, appsv1.DeploymentCondition{
						Type: appsv1.DeploymentProgressing, Status: "False", Reason: "ProgressDeadlineExceeded",
					})
				}},
			},
			Admit: func(d metav1.Object) { d.(*appsv1.Deployment).Spec.Replicas = new(int32(1)) },
		}},
		Oracles: []walktest.Oracle{{
			Name: "no Deployment is written while the ConfigMap that it mounts is absent or another's", Holds: mayMount,
		}},
	}
	walk.Test(t)
}

// rollOut is the Deployment controller.
func rollOut(_ *v1alpha1.Widget, obj metav1.Object) bool {
	d, ok := obj.(*appsv1.Deployment)
	if !ok || isRolledOut(d) {
		return false
	}
	n := *d.Spec.Replicas
	d.Status = rolledOut(d.Generation, n, n, n)
	return true
}

func isRolledOut(d *appsv1.Deployment) bool {
	s, n := d.Status, *d.Spec.Replicas
	return s.ObservedGeneration >= d.Generation && s.Replicas == n && s.UpdatedReplicas == n && s.AvailableReplicas == n
}

// isReady reports whether the children of a Widget, which exist, are as it asks.
func isReady(w *v1alpha1.Widget, objects walktest.Objects) bool {
	c := walktest.Get(objects, ConfigMapKind, "default", "web")
	d := walktest.Get(objects, DeploymentKind, "default", "web")
	return c.Data["message"] == w.Spec.Message && *d.Spec.Replicas == *w.Spec.Replicas && isRolledOut(d) &&
		d.Spec.Template.Spec.Containers[0].Image == w.Spec.Image
}

// mayMount asks the API server, unless somebody else has changed the ConfigMap since the sync has seen it.
func mayMount(s walktest.Situation) bool {
	if s.Kind != DeploymentKind.Kind || s.Verb == reconcile.Get {
		return true
	}
	seen := walktest.Get(s.Seen, ConfigMapKind, "default", "web")
	live := walktest.Get(s.Live, ConfigMapKind, "default", "web")
	w := walktest.Get(s.Seen, WidgetKind, "default", "web")
	if seen != nil && (live == nil || live.ResourceVersion != seen.ResourceVersion) {
		live = seen
	}
	return live != nil && metav1.IsControlledBy(live, w) && live.DeletionTimestamp == nil
}
