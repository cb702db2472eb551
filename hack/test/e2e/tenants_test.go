package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/plan"
)

// This file tests what the users of docs/security.md reach, where no other test does.

// A user has clients that send requests as one user.
type user struct {
	kube    kubernetes.Interface
	samples clientset.Interface
}

func newUser(t *testing.T, config *rest.Config) user {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return user{kube: kube, samples: samples}
}

// user returns a user who may do something in the namespace of the test, and nothing elsewhere.
func (e *env) user(t *testing.T, rules ...rbacv1.PolicyRule) user {
	t.Helper()
	name := "user-of-" + e.namespace
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := e.kube.RbacV1().Roles(e.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, "", "create", "rolebinding", name, "--role="+name, "--user="+name, "-n", e.namespace)
	config := rest.CopyConfig(e.config)
	config.Impersonate.UserName = name
	first := permission{
		verb: rules[0].Verbs[0], group: rules[0].APIGroups[0], resource: rules[0].Resources[0], namespace: e.namespace,
	}
	until(t, "the role is in force", func(ctx context.Context) (bool, error) { return e.may(ctx, t, name, first), nil })
	return newUser(t, config)
}

var (
	// anyFoo are the permissions of the role edit for Foos. See TestDeployAndUndeploy.
	anyFoo = rbacv1.PolicyRule{
		APIGroups: []string{sampleGroup}, Resources: []string{"foos"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}
	anyDeployment = rbacv1.PolicyRule{
		APIGroups: []string{"apps"}, Resources: []string{"deployments"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}
	editDeployments = rbacv1.PolicyRule{
		APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "update", "patch"},
	}
)

// mustBeForbidden checks that a user has no permission for something.
func mustBeForbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want that it is forbidden", what, err)
	}
}

// A user who may write Foos, and nothing else, runs any image, as the ServiceAccount default. A Foo has no field for
// anything else of a pod: no command, no environment, no volume, no other ServiceAccount, no privileges.
func TestAFooAuthorRunsAnyImageAndSetsNothingElse(t *testing.T) {
	e := newEnv(t, servedCluster)
	author := e.user(t, anyFoo)
	foos := author.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	body := `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web",
		"labels":{"app":"other"},"annotations":{"container.seccomp.security.alpha.kubernetes.io/nginx":"unconfined"}},
		"spec":{"deploymentName":"web","image":"evil.example/miner:1","replicas":1,"serviceAccountName":"admin",
		"hostNetwork":true,"template":{"spec":{"hostPID":true}},"env":[{"name":"A","value":"b"}]}}`
	err := author.samples.SamplecontrollerV1alpha1().RESTClient().Post().Namespace(e.namespace).Resource("foos").
		Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	template := e.deployment(t, "web").Spec.Template
	want := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"app": "nginx", "controller": "web", v1alpha1.LabelDeployment: "web",
		}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: plan.ContainerName, Image: "evil.example/miner:1", ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			TerminationGracePeriodSeconds: new(int64(30)), SecurityContext: &corev1.PodSecurityContext{},
		},
	}
	if diff := cmp.Diff(want, template); diff != "" {
		t.Errorf("the pod template (-want +got):\n%s", diff)
	}
	pods, err := e.kube.CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Spec.ServiceAccountName != "default" {
		t.Errorf("pods: %+v, %v, want one as the ServiceAccount default", pods.Items, err)
	}

	_, err = author.kube.AppsV1().Deployments(e.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	mustBeForbidden(t, "reading the Deployment", err)
	mustBeForbidden(t, "deleting the Deployment",
		author.kube.AppsV1().Deployments(e.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	_, err = author.kube.CoreV1().Secrets(e.namespace).List(t.Context(), metav1.ListOptions{})
	mustBeForbidden(t, "reading Secrets", err)
	_, err = foos.UpdateStatus(t.Context(), e.foo(t, "web"), metav1.UpdateOptions{})
	mustBeForbidden(t, "writing the status of a Foo", err)
}

// A Foo does not reach a Deployment that it does not control, though the controller may write all of them: neither
// another one of its namespace, nor one of the same name in another namespace.
func TestAFooAuthorReachesNoOtherDeployment(t *testing.T) {
	e, other := newEnv(t, servedCluster), newEnv(t, servedCluster)
	there := other.createDeployment(t, "web", nothing)
	here := e.createDeployment(t, "precious", nothing)
	author := e.user(t, anyFoo).samples.SamplecontrollerV1alpha1()
	create := func(name, deployment string) error {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}}
		foo.Spec = v1alpha1.FooSpec{DeploymentName: deployment, Image: "evil.example/miner:1"}
		_, err := author.Foos(e.namespace).Create(t.Context(), foo, metav1.CreateOptions{})
		return err
	}
	for name, deployment := range map[string]string{"same-name": "web", "taken": "precious"} {
		if err := create(name, deployment); err != nil {
			t.Fatal(err)
		}
	}
	for _, deployment := range []string{other.namespace + "/web", "../" + other.namespace + "/web", "%2e%2e"} {
		if err := create("path", deployment); !apierrors.IsInvalid(err) {
			t.Errorf("a Foo that names %q: %v, want that it is refused", deployment, err)
		}
	}
	_, err := author.Foos(other.namespace).List(t.Context(), metav1.ListOptions{})
	mustBeForbidden(t, "reading the Foos of another namespace", err)
	e.waitForReason(t, "same-name", v1alpha1.ReasonAvailable)
	e.waitForReason(t, "taken", v1alpha1.ReasonNotOwned)
	e.rename(t, "taken", "another")
	e.waitForReason(t, "taken", v1alpha1.ReasonAvailable)
	e.deleteFoo(t, "taken", metav1.DeletePropagationForeground)
	until(t, "the Deployment of the Foo is deleted", func(context.Context) (bool, error) {
		return e.hasDeployments(t, "precious", "web"), nil
	})
	for _, want := range []*appsv1.Deployment{there, here} {
		at := &env{cluster: e.cluster, namespace: want.Namespace}
		if got := at.deployment(t, want.Name); got.UID != want.UID || got.Generation != want.Generation {
			t.Errorf("the Deployment %s/%s was changed or replaced", want.Namespace, want.Name)
		}
	}
}

// A user who may edit Deployments, and nothing else, cannot write Foos. What they change in the Deployment of a Foo
// stays, except for what the Foo sets.
func TestADeploymentEditorChangesOnlyWhatTheFooLeavesOpen(t *testing.T) {
	e := newEnv(t, servedCluster)
	e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "nginx:1.29"})
	before := e.foo(t, "web")
	editor := e.user(t, editDeployments)
	foos := editor.samples.SamplecontrollerV1alpha1().Foos(e.namespace)
	_, err := foos.Get(t.Context(), "web", metav1.GetOptions{})
	mustBeForbidden(t, "reading a Foo", err)
	_, err = foos.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":9}}`), metav1.PatchOptions{})
	mustBeForbidden(t, "changing a Foo", err)
	_, err = foos.UpdateStatus(t.Context(), before, metav1.UpdateOptions{})
	mustBeForbidden(t, "changing the status of a Foo", err)
	edit := `{"spec":{"replicas":9,"template":{"spec":{"serviceAccountName":"another","containers":[
		{"name":"nginx","image":"evil.example/miner:1"},{"name":"sidecar","image":"evil.example/miner:1"}]}}}}`
	if _, err := editor.kube.AppsV1().Deployments(e.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(edit), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the fields of the Foo are corrected", func(context.Context) (bool, error) {
		return plan.Drift(plan.TrimDeployment(e.deployment(t, "web")), before) == nil, nil
	})
	spec := e.deployment(t, "web").Spec.Template.Spec
	if len(spec.Containers) != 2 || spec.ServiceAccountName != "another" {
		t.Errorf("fields that no Foo sets were changed: %+v", spec)
	}
	for replicas := range 3 { // With the fourth correction, the Foo reports that another client is at work.
		edit := fmt.Sprintf(`{"spec":{"replicas":%d}}`, 5+replicas)
		if _, err := editor.kube.AppsV1().Deployments(e.namespace).Patch(t.Context(), "web", types.MergePatchType,
			[]byte(edit), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "it is corrected again", func(context.Context) (bool, error) {
			return plan.Drift(plan.TrimDeployment(e.deployment(t, "web")), before) == nil, nil
		})
	}
	e.waitForReason(t, "web", v1alpha1.ReasonFieldsOverridden)
	if foo := e.foo(t, "web"); foo.Generation != before.Generation || foo.UID != before.UID {
		t.Error("the Foo was changed")
	}
}

// A tenant with all permissions in one namespace changes nothing in another one: not by equal names, and not by an
// owner reference to a Foo there, which does not cross namespaces.
func TestATenantReachesNoOtherNamespace(t *testing.T) {
	e, other := newEnv(t, servedCluster), newEnv(t, servedCluster)
	other.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2))})
	victim := other.foo(t, "web")
	before, status := other.workload(t, victim.Status.Selector), victim.Status
	tenant := e.user(t, anyFoo, anyDeployment)

	_, err := tenant.kube.AppsV1().Deployments(other.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	mustBeForbidden(t, "reading a Deployment of another namespace", err)
	mustBeForbidden(t, "deleting a Foo of another namespace", tenant.samples.SamplecontrollerV1alpha1().
		Foos(other.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	forged := deploymentOf("forged", func(dep *appsv1.Deployment) {
		made := plan.Deployment(victim)
		dep.OwnerReferences, dep.Labels = made.OwnerReferences, made.Labels
		dep.Spec.Selector, dep.Spec.Template.Labels = made.Spec.Selector, made.Spec.Template.Labels
	})
	deployments := tenant.kube.AppsV1().Deployments(e.namespace)
	if _, err := deployments.Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.samples.SamplecontrollerV1alpha1().Foos(e.namespace).Create(t.Context(), &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(1)), Image: "evil.example/miner:1"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.deleteFoo(t, "web", metav1.DeletePropagationForeground)
	until(t, "the garbage collector deletes all Deployments of the tenant", func(context.Context) (bool, error) {
		return e.hasDeployments(t), nil
	})
	other.settle(t)
	if diff := cmp.Diff(before, other.workload(t, victim.Status.Selector)); diff != "" {
		t.Errorf("pods of another namespace (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(status, other.foo(t, "web").Status); diff != "" {
		t.Errorf("the status of a Foo of another namespace (-before +after):\n%s", diff)
	}
}
