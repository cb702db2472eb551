package apiserver_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

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

// Some kinds have rules of their own for names, and fields of their own for selectors.
func TestNamesAndFieldsOfBuiltInKinds(t *testing.T) {
	core, rbac := corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	s := apiserver.New(apiserver.Namespaces(),
		apiserver.Kind{Resource: core.WithResource("pods"), Kind: "Pod", Object: &corev1.Pod{}},
		apiserver.Kind{Resource: rbac.WithResource("roles"), Kind: "Role", Object: &rbacv1.Role{}})
	r := &requester{t, s}
	const inDefault = "/api/v1/namespaces/default/"
	for _, test := range []struct {
		request string
		want    string
	}{
		{`POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/roles {"metadata":{"name":"system:A"}}`, "201"},
		{`POST /api/v1/namespaces {"metadata":{"name":"a.b"}}`, "422"},
		{`POST ` + inDefault + `pods {"metadata":{"name":"a.b"},"spec":{"nodeName":"n"}}`, "201"},
		{`GET ` + inDefault + `pods?fieldSelector=spec.nodeName=n,spec.hostNetwork=false`, "a.b@4 at 4"},
		{`GET ` + inDefault + `pods?fieldSelector=spec.nodeName=m`, " at 4"},
		{
			`GET ` + inDefault + `pods?fieldSelector=spec.color=x`,
			"400 BadRequest: field label not supported: spec.color",
		},
		{`GET /api/v1/namespaces?fieldSelector=status.phase=Active`, "default@2 at 4"},
		{
			`GET /api/v1/namespaces?fieldSelector=metadata.namespace=x`,
			"400 BadRequest: field label not supported: metadata.namespace",
		},
	} {
		code, answer := r.do(test.request)
		got := strconv.Itoa(code)
		if strings.HasPrefix(test.request, "GET") {
			got = listed(code, answer)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.request, diff)
		}
	}
}
