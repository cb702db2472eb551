package apiserver_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// The other defaults of a Deployment are compared with those of a real server, but only with images without tags.
func TestDeploymentsPullTheLatestImageAlways(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                             corev1.PullAlways,
		"nginx:latest":                      corev1.PullAlways,
		"registry.example.com:5000/nginx":   corev1.PullAlways,
		"nginx:1.29":                        corev1.PullIfNotPresent,
		"registry.example.com:5000/nginx:1": corev1.PullIfNotPresent,
		"nginx@sha256:0123456789abcdef":     corev1.PullIfNotPresent,
	} {
		dep := &appsv1.Deployment{}
		dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
		apiserver.Deployments().Default(dep)
		if got := dep.Spec.Template.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s is pulled %s, want %s", image, got, want)
		}
	}
}
