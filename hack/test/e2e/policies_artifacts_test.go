package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file tests controllers, Foos and the token of the controller in clusters with the policies, and the policy of
// artifacts/examples/restricted.

func TestAControllerWithAdmissionPolicies(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	t.Run("does all its work", e.testWork)
	t.Run("cannot be made to delete a Deployment by a patch", e.testForgedLabel)
	t.Run("serves Foos in a restricted namespace", e.testRestrictedNamespace)
}

// A controller with no more permissions than those of artifacts/deploy does all its work while the policies are in
// force. The kustomization has moved it to another namespace.
func (e *env) testWork(t *testing.T) {
	const namespace = "elsewhere"
	e.deploy(t, namespace)
	p := e.electedController(t, namespace)
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2)), Image: "nginx:1"})
	e.editDeployment(t, "web", `{"spec":{"replicas":5}}`)
	p.waitForLog(t, "Corrected Deployment")
	e.kubectl(t, "", "label", "deployment/web", madeFor+"-", "-n", e.namespace)
	until(t, "the label is back", func(context.Context) (bool, error) {
		return e.deployment(t, "web").Labels[madeFor] != "", nil
	})
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.rename(t, "web", "next")
	e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.hasDeployments(t, "next") })
	e.deleteFoo(t, "web", metav1.DeletePropagationBackground)
	until(t, "the Deployment is deleted", func(context.Context) (bool, error) { return e.hasDeployments(t), nil })
	if n := p.countLog("denied request") + p.countLog("forbidden"); n > 0 {
		t.Errorf("%d requests were refused", n)
	}
	e.waitForPolicies(t, namespace, true) // They were in force at the end, too.
}

// electedController starts a controller as the ServiceAccount of artifacts/deploy in a namespace. It leads.
func (e *env) electedController(t *testing.T, namespace string) *process {
	t.Helper()
	p := startController(t, "--kubeconfig", e.kubeconfigOf(t, namespace, nil), "--leader-elect",
		"--leader-elect-namespace="+namespace)
	p.waitForLog(t, `"Started"`)
	return p
}

// Somebody who may patch Deployments, but not delete them, cannot let the controller delete one. Without the policy
// they can: the label that this takes is no secret.
func (e *env) testForgedLabel(t *testing.T) {
	e.deploy(t, "foo-system")
	e.electedController(t, "foo-system")
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1))})
	foo := e.foo(t, "web")
	e.createDeployment(t, "precious", func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)}
	})
	e.kubectl(t, "", "create", "role", "patcher", "--verb=get,patch", "--resource=deployments", "-n", e.namespace)
	e.kubectl(t, "", "create", "rolebinding", "patcher", "--role=patcher", "--user=mallory", "-n", e.namespace)
	forged := foo.DeepCopy()
	forged.Spec.DeploymentName = "precious"
	forge := []string{
		"label", "deployment/precious", madeFor + "=" + plan.Deployment(forged).Labels[madeFor], "-n", e.namespace,
		"--as=mallory",
	}
	if out, err := e.try("", forge...); err == nil || !strings.Contains(out, labelsPolicy) {
		t.Errorf("the answer to the label is %q, want a refusal of the policy %s", out, labelsPolicy)
	}
	if out, err := e.try("", "delete", "deployment/precious", "-n", e.namespace, "--as=mallory"); err == nil {
		t.Errorf("mallory may delete it anyway: %s", out)
	}
	e.settle(t)
	if !e.exists(t, "precious") {
		t.Fatal("the Deployment is deleted")
	}

	e.kubectl(t, "", "delete", "validatingadmissionpolicybinding", labelsPolicy)
	until(t, "the label is accepted, and the controller deletes the Deployment", func(context.Context) (bool, error) {
		_, _ = e.try("", forge...) // A policy is gone within a second.
		return !e.exists(t, "precious"), nil
	})
}

// restricted is a folder with an example for Foos in a namespace of the Pod Security level "restricted".
const restricted = "artifacts/examples/restricted"

// In such a namespace, the pods of a Foo are refused. With the policy of the example they are accepted, and the
// Deployment stays as the controller has written it. Without the policy, the manifest for older versions of Kubernetes
// has the same effect, and the controller leaves its fields alone.
func (e *env) testRestrictedNamespace(t *testing.T) {
	e.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
	e.deploy(t, "foo-system")
	e = &env{cluster: e.cluster, namespace: "restricted-foos"}
	p := e.electedController(t, "foo-system")
	e.kubectl(t, "", "apply", "-f", restricted+"/foo.yaml")
	e.waitForReason(t, "web", v1alpha1.ReasonReplicaFailure)
	if message := readyCondition(e.foo(t, "web")).Message; !strings.Contains(message, "violates PodSecurity") {
		t.Errorf("the message is %q, want that of Pod Security", message)
	}

	const page = "docs/policies.md"
	playScenes(t, page, kubectlFunction(e.Kubectl()), scenesOf(t, page)) // It applies the policy.
	e.waitForRestrictedPods(t, true)
	e.rename(t, "web", "with-policy")
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.checkRestricted(t, "with-policy", false)

	e.kubectl(t, "", "delete", "-f", restricted+"/policy.yaml")
	e.waitForRestrictedPods(t, false)
	e.rename(t, "web", "web")
	e.waitForReason(t, "web", v1alpha1.ReasonReplicaFailure)
	e.kubectl(t, "", "apply", "--server-side", "--field-manager=restricted-pods", "-f", restricted+"/older.yaml")
	until(t, "the Foo has moved", func(context.Context) (bool, error) {
		return e.hasDeployments(t, "web") && isReady(e.foo(t, "web")), nil
	})
	e.kubectl(t, "", "scale", "foo/web", "--replicas=3", "-n", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.checkRestricted(t, "web", true)
	if n := p.countLog("Updated Deployment") + p.countLog("Corrected Deployment"); n != 1 {
		t.Errorf("the controller has patched Deployments %d times, want once, for the scale", n)
	}
}

// checkRestricted checks that the pods of a Deployment are restricted, and whether the Deployment itself is.
func (e *env) checkRestricted(t *testing.T, name string, want bool) {
	t.Helper()
	isRestricted := func(spec corev1.PodSpec) bool {
		pod, container := spec.SecurityContext, spec.Containers[0].SecurityContext
		return pod != nil && pod.RunAsNonRoot != nil && pod.SeccompProfile != nil && container != nil &&
			container.AllowPrivilegeEscalation != nil && container.Capabilities != nil
	}
	if got := isRestricted(e.deployment(t, name).Spec.Template.Spec); got != want {
		t.Errorf("the Deployment %s is restricted: %t, want %t", name, got, want)
	}
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: v1alpha1.LabelDeployment + "=" + name})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	for i := range pods.Items {
		if !isRestricted(pods.Items[i].Spec) {
			t.Errorf("the pod %s is not restricted", pods.Items[i].Name)
		}
	}
}

// The policy of the example keeps what somebody has set, and adds the rest: to each container, and to the pod.
func (e *env) testRestrictedPods(t *testing.T) {
	e.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
	e.kubectl(t, "", "apply", "-f", restricted+"/foo.yaml", "-f", restricted+"/policy.yaml")
	e = &env{cluster: e.cluster, namespace: "restricted-foos"}
	e.kubectl(t, "", "create", "serviceaccount", "default", "-n", e.namespace) // No controller creates it here.
	e.waitForRestrictedPods(t, true)
	created, err := e.createPod(t.Context(), map[string]string{v1alpha1.LabelDeployment: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.createPod(t.Context(), nil); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that is not of a Foo: %v, want that Pod Security refuses it", err)
	}
	none := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	set := none.DeepCopy()
	set.ReadOnlyRootFilesystem, set.Capabilities.Add = new(true), []corev1.Capability{"NET_BIND_SERVICE"}
	want := []*corev1.SecurityContext{none, none, set}
	spec := created.Spec
	got := []*corev1.SecurityContext{
		spec.InitContainers[0].SecurityContext, spec.Containers[0].SecurityContext, spec.Containers[1].SecurityContext,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	wantPod := &corev1.PodSecurityContext{
		RunAsUser: new(int64(101)), RunAsNonRoot: new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(wantPod, spec.SecurityContext); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

// createPod creates a pod with several containers, of which one has a security context, as a dry run.
func (e *env) createPod(ctx context.Context, labels map[string]string) (*corev1.Pod, error) {
	return e.kube.CoreV1().Pods(e.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: policyProbe, Labels: labels},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(101))},
			InitContainers:  []corev1.Container{{Name: "init", Image: "a"}},
			Containers: []corev1.Container{{Name: "bare", Image: "a"}, {
				Name: "set", Image: "a",
				SecurityContext: &corev1.SecurityContext{
					ReadOnlyRootFilesystem: new(true),
					Capabilities:           &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}},
				},
			}},
		},
	}, metav1.CreateOptions{DryRun: dryRun})
}

// waitForRestrictedPods waits until pods of Foos are accepted in the namespace, or refused.
func (e *env) waitForRestrictedPods(t *testing.T, accepted bool) {
	t.Helper()
	until(t, "the policy for pods has an effect", func(ctx context.Context) (bool, error) {
		_, err := e.createPod(ctx, map[string]string{v1alpha1.LabelDeployment: "web"})
		return (err == nil) == accepted, nil
	})
}

// Where the API server enforces the permissions on owner references, who may not delete a Deployment cannot let the
// garbage collector do it. Elsewhere they can, with or without this controller.
func TestOwnersNeedThePermissionToDelete(t *testing.T) {
	e := newEnforcingEnv(t)
	e.createDeployment(t, "web", nothing)
	deployments := e.user(t, editDeployments).kube.AppsV1().Deployments(e.namespace)
	owner := fooOwner()
	owner.BlockOwnerDeletion = nil
	give := []byte(ownerPatch(owner))
	_, err := deployments.Patch(t.Context(), "web", types.MergePatchType, give, metav1.PatchOptions{})
	mustBeForbidden(t, "giving a Deployment to a Foo", err)
	_, err = deployments.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Errorf("scaling it: %v", err)
	}

	plain := newEnv(t, apiCluster)
	plain.createDeployment(t, "web", nothing)
	if _, err := plain.user(t, editDeployments).kube.AppsV1().Deployments(plain.namespace).Patch(t.Context(), "web",
		types.MergePatchType, give, metav1.PatchOptions{}); err != nil {
		t.Errorf("without that admission plugin: %v", err)
	}
}

// A tokenRow is a request with the token of the controller, as a dry run.
type tokenRow struct {
	name, request, body string
	as                  string // Another user, whom it impersonates.
	// allowed means that the request is accepted, and so a risk. Else it is forbidden, by the permissions or by policy.
	allowed bool
	policy  string
}

const (
	foosPath        = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/victim/foos"
	deploymentsPath = "/apis/apps/v1/namespaces/victim/deployments"
	inAnotherPath   = "/apis/apps/v1/namespaces/kube-system/deployments"
	leasesPath      = "/apis/coordination.k8s.io/v1/namespaces/foo-system/leases"
)

// jsonOf returns a Deployment after the edits.
func jsonOf(edits ...func(*appsv1.Deployment)) string {
	dep := deploymentOf("new", nothing)
	for _, edit := range edits {
		edit(dep)
	}
	text, err := json.Marshal(dep)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var tokenRows = []tokenRow{
	// What the token is for.
	{name: "reads all Foos", request: "GET /apis/samplecontroller.k8s.io/v1alpha1/foos", allowed: true},
	{
		name:    "reads all Deployments, with the environment of their containers",
		request: "GET /apis/apps/v1/deployments", allowed: true,
	},
	{
		name:    "runs an image in any namespace, in a Deployment with an invented Foo as its owner",
		request: "POST " + inAnotherPath, body: jsonOf(owned), allowed: true,
	},
	{
		name: "runs an image in the Deployment of a Foo", request: "PATCH " + deploymentsPath + "/web", allowed: true,
		body: `{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"evil.example/miner:1"}]}}}}`,
	},
	{
		name:    "mounts a ConfigMap of any namespace",
		request: "POST " + inAnotherPath, body: jsonOf(owned, templated(mutated)), allowed: true,
	},
	{name: "deletes the Deployment of a Foo", request: "DELETE " + deploymentsPath + "/web", allowed: true},
	{
		name:    "writes any status",
		request: "PATCH " + foosPath + "/web/status", body: `{"status":{"availableReplicas":99}}`, allowed: true,
	},
	{
		name: "writes events in any namespace", request: "POST /apis/events.k8s.io/v1/namespaces/kube-system/events",
		body: `{"metadata":{"name":"forged"},"eventTime":"2026-01-01T00:00:00.000000Z","type":"Normal","reason":"Forged",
			"action":"Forge","reportingController":"kubelet","reportingInstance":"node",
			"regarding":{"kind":"Pod","namespace":"kube-system","name":"any"}}`, allowed: true,
	},
	{
		name: "takes the Lease, so that no controller works", request: "PUT " + leasesPath + "/foo-controller",
		body:    `{"metadata":{"name":"foo-controller","resourceVersion":"VERSION"},"spec":{"holderIdentity":"somebody"}}`,
		allowed: true,
	},
	{
		name: "creates a Lease beside it", request: "POST " + leasesPath, body: `{"metadata":{"name":"new"}}`, allowed: true,
	},
	{
		name: "finds out whose a token is", request: "POST /apis/authentication.k8s.io/v1/tokenreviews",
		body: `{"spec":{"token":"any"}}`, allowed: true,
	},
	{
		name: "finds out what any user may do", request: "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		body: `{"spec":{"user":"any","nonResourceAttributes":{"path":"/metrics","verb":"get"}}}`, allowed: true,
	},

	// What the policies refuse.
	{
		name:    "takes over a node by a privileged Deployment with an invented Foo as its owner",
		request: "POST " + inAnotherPath, body: jsonOf(owned, templated(privileged)), policy: podsPolicy,
	},
	{
		name: "takes over a node by the Deployment of a Foo", request: "PATCH " + deploymentsPath + "/web",
		body: `{"spec":{"template":{"spec":{"hostPID":true}}}}`, policy: podsPolicy,
	},
	{
		name: "takes another ServiceAccount in the Deployment of a Foo", request: "PATCH " + deploymentsPath + "/web",
		body: `{"spec":{"template":{"spec":{"serviceAccountName":"admin"}}}}`, policy: podsPolicy,
	},
	{
		name:    "changes a Deployment that no Foo controls",
		request: "PATCH " + deploymentsPath + "/foreign", body: `{"spec":{"paused":true}}`, policy: writesPolicy,
	},
	{
		name:    "gives it to a Foo first",
		request: "PATCH " + deploymentsPath + "/foreign", body: ownerPatch(fooOwner()), policy: writesPolicy,
	},
	{
		name:    "deletes a Deployment that no Foo controls",
		request: "DELETE " + deploymentsPath + "/foreign", policy: writesPolicy,
	},
	{
		name:    "creates a Deployment without an owner",
		request: "POST " + deploymentsPath, body: jsonOf(), policy: writesPolicy,
	},

	// What no permission is for.
	{name: "reads Secrets", request: "GET /api/v1/namespaces/foo-system/secrets"},
	{name: "reads ConfigMaps", request: "GET /api/v1/namespaces/kube-system/configmaps"},
	{name: "reads pods", request: "GET /api/v1/namespaces/foo-system/pods"},
	{name: "reads the events of others", request: "GET /apis/events.k8s.io/v1/events"},
	{name: "reads metrics: those of the API server need the same permission as its own", request: "GET /metrics"},
	{name: "creates a pod", request: "POST /api/v1/namespaces/victim/pods", body: `{"metadata":{"name":"new"}}`},
	{name: "creates a Foo", request: "POST " + foosPath, body: `{"metadata":{"name":"new"}}`},
	{name: "changes the spec of a Foo", request: "PATCH " + foosPath + "/web", body: `{"spec":{"replicas":9}}`},
	{name: "deletes a Foo", request: "DELETE " + foosPath + "/web"},
	{name: "scales a Deployment", request: "PATCH " + deploymentsPath + "/web/scale", body: scale},
	{name: "deletes all Deployments at once", request: "DELETE " + deploymentsPath},
	{
		name: "makes a token for itself", request: "POST /api/v1/namespaces/foo-system/serviceaccounts/foo-controller/token",
		body: `{"spec":{}}`,
	},
	{
		name: "gives itself more permissions", body: `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`,
		request: "PATCH /apis/rbac.authorization.k8s.io/v1/clusterroles/foo-controller",
	},
	{
		name:    "lifts the policies",
		request: "DELETE /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" + writesPolicy,
	},
	{name: "acts as another user", request: "GET " + deploymentsPath, as: "kubernetes-admin"},
	{name: "reads another Lease", request: "GET " + leasesPath + "/new"},
	{name: "changes another Lease", request: "PUT " + leasesPath + "/new", body: `{"metadata":{"name":"new"}}`},
	{name: "deletes its Lease", request: "DELETE " + leasesPath + "/foo-controller"},
	{
		name: "writes a Lease of the nodes", body: `{"metadata":{"name":"new"}}`,
		request: "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
	},
	{
		name: "writes a Lease of another controller", body: `{"metadata":{"name":"new"}}`,
		request: "POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
	},
}

// send sends the request of a row as a user.
func (row tokenRow) send(ctx context.Context, u user) error {
	verb, path, _ := strings.Cut(row.request, " ")
	request := u.kube.Discovery().RESTClient().Verb(verb).AbsPath(path)
	if verb != http.MethodGet && !strings.HasSuffix(path, "reviews") {
		request.Param("dryRun", metav1.DryRunAll)
	}
	if verb == http.MethodPatch {
		request.SetHeader("Content-Type", string(types.MergePatchType))
	} else {
		request.SetHeader("Content-Type", "application/json")
	}
	if row.as != "" {
		request.SetHeader("Impersonate-User", row.as)
	}
	if row.body != "" {
		request.Body([]byte(row.body))
	}
	return request.Do(ctx).Error()
}

// What somebody reaches with the token of the controller, in a cluster with its permissions and its admission policies.
// What is allowed is as much a part of docs/security.md as what is not.
func TestWhatTheTokenOfTheControllerReaches(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.deploy(t, "foo-system")
	e.kubectl(t, "", "create", "namespace", "victim")
	victim := &env{cluster: e.cluster, namespace: "victim"}
	victim.createFoo(t, "web", fooSpec("web"))
	victim.createDeployment(t, "foreign", nothing)
	foo := victim.foo(t, "web")
	victim.createDeployment(t, "web", func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)}
	})
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"foo-controller"}}`
	version := e.kubectl(t, lease, "create", "-n", "foo-system", "-f", "-", "-o", "jsonpath={.metadata.resourceVersion}")

	config, err := clientcmd.BuildConfigFromFlags("", e.cluster.kubeconfig(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	thief := newUser(t, config)
	for _, row := range tokenRows {
		row.body = strings.ReplaceAll(row.body, "VERSION", version)
		err := row.send(t.Context(), thief)
		switch {
		case row.allowed && err != nil:
			t.Errorf("%s: %v, want that it is accepted", row.name, err)
		case !row.allowed && !apierrors.IsForbidden(err):
			t.Errorf("%s: %v, want that it is forbidden", row.name, err)
		case row.policy != "" && !strings.Contains(err.Error(), "'"+row.policy+"'"):
			t.Errorf("%s: %v, want a refusal of the policy %s", row.name, err, row.policy)
		case !row.allowed && row.policy == "" && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			t.Errorf("%s: %v, want that no permission is for it", row.name, err)
		}
	}
}
