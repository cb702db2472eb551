package conformance

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// TestRulesOfBuiltInKinds compares which names and which field selectors the servers refuse, for kinds that random
// operations do not use. Nothing is stored.
func TestRulesOfBuiltInKinds(t *testing.T) {
	t.Parallel()
	requests := []string{
		`POST /api/v1/namespaces?dryRun=All {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a.b"}}`,
		`POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/roles?dryRun=All ` +
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"system:A"}}`,
		`POST /apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All ` +
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a/b"}}`,
	}
	var all []apiserver.Kind
	for _, obj := range []runtime.Object{
		&corev1.Namespace{}, &corev1.Node{}, &corev1.PersistentVolume{}, &corev1.Pod{},
		&corev1.ReplicationController{}, &corev1.Secret{}, &corev1.Service{}, &batchv1.Job{},
		&certificatesv1.CertificateSigningRequest{}, &rbacv1.Role{}, &rbacv1.ClusterRole{},
	} {
		one := apiserver.KindOf(obj, scheme.Scheme)
		all = append(all, one)
		k := &kind{group: one.Resource.Group, version: one.Resource.Version, resource: one.Resource.Resource}
		for _, field := range []string{
			"metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
			"spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
			"spec.unschedulable", "status.replicas", "status.successful", "type", "spec.clusterIP", "spec.type",
			"spec.signerName", "spec.color",
		} {
			requests = append(requests, "GET "+k.path("")+"?fieldSelector="+field+"=none")
		}
	}
	want, have := againstRealServer(t), server{url: "http://apiserver", transport: apiserver.New(all...)}
	for _, request := range requests {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		var codes [2]int
		for i, s := range []server{want, have} {
			answer, err := (&player{server: s}).send(t.Context(), method, path, plainJSON, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			codes[i] = answer.code
		}
		if codes[0] != codes[1] {
			t.Errorf("%s: real %d, simulated %d", request, codes[0], codes[1])
		}
	}
}
