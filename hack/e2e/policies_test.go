package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file has helpers for obstacles: policies and quotas of a cluster, and pods that do not become Ready. Each helper
// has a test that shows its effect without our controller.

// neverReadyImage is an image whose pods never become Ready on the local control plane.
const neverReadyImage = "nginx:never-ready"

// policyProbe is the name of the Deployment that the helpers try to create to find out whether a policy is in force. It
// is never stored.
const policyProbe = "policy-probe"

func TestDeniedDeploymentsAreRefusedWithTheMessageUntilTheDenialIsLifted(t *testing.T) {
	e, other := newEnv(t, fullCluster), newEnv(t, fullCluster)
	const message = "Deployments are frozen"
	dep := e.createDeployment(t, "web", func(*appsv1.Deployment) {})

	lift := e.denyDeployments(t, message, admissionregistrationv1.Update)
	change := []byte(`{"spec":{"replicas":3}}`)
	if out, err := e.try("", "patch", "deployment/web", "-n", e.namespace, "-p", string(change)); err == nil ||
		!strings.Contains(out, message) {
		t.Errorf("an update was answered with %q, want a refusal with %q", out, message)
	}
	e.createDeployment(t, "another", func(*appsv1.Deployment) {}) // Creating is not denied.
	other.createDeployment(t, dep.Name, func(*appsv1.Deployment) {})
	e.kubectl(t, "", "delete", "deployment/another", "-n", e.namespace)            // Deleting is not denied.
	e.kubectl(t, "", "scale", "deployment/web", "--replicas=2", "-n", e.namespace) // Scaling is not denied.
	// Other namespaces are not affected.
	other.kubectl(t, "", "patch", "deployment/web", "-n", other.namespace, "-p", string(change))

	lift()
	e.kubectl(t, "", "patch", "deployment/web", "-n", e.namespace, "-p", string(change))

	e.denyDeployments(t, message, admissionregistrationv1.Create, admissionregistrationv1.Delete)
	for _, args := range [][]string{
		{"create", "deployment", "third", "--image=nginx", "-n", e.namespace},
		{"delete", "deployment/web", "-n", e.namespace},
	} {
		if out, err := e.try("", args...); err == nil || !strings.Contains(out, message) {
			t.Errorf("%s was answered with %q, want a refusal with %q", args[0], out, message)
		}
	}
}

func TestRewrittenImagesAreStored(t *testing.T) {
	e, other := newEnv(t, fullCluster), newEnv(t, fullCluster)
	e.rewriteImages(t, "mirror.example.com/nginx:1")
	image := func(dep *appsv1.Deployment) string { return dep.Spec.Template.Spec.Containers[0].Image }

	created := e.createDeployment(t, "web", func(*appsv1.Deployment) {})
	e.kubectl(t, "", "set", "image", "deployment/web", "*=nginx:2", "-n", e.namespace)
	updated := e.deployment(t, "web")
	if image(created) != "mirror.example.com/nginx:1" || image(updated) != "mirror.example.com/nginx:1" {
		t.Errorf("the image is %q after a create and %q after an update, want the policy's", image(created), image(updated))
	}
	if elsewhere := other.createDeployment(t, "web", func(*appsv1.Deployment) {}); image(elsewhere) != "main:1" {
		t.Errorf("the image is %q in another namespace, want it left alone", image(elsewhere))
	}
}

func TestQuotaIsInForce(t *testing.T) {
	e := newEnv(t, fullCluster)
	e.quota(t, corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("1")})
	e.kubectl(t, "", "create", "secret", "generic", "first", "-n", e.namespace)
	if out, err := e.try("", "create", "secret", "generic", "second", "-n", e.namespace); err == nil ||
		!strings.Contains(out, "exceeded quota") {
		t.Errorf("one Secret more than the quota allows was answered with %q, want a refusal", out)
	}
}

func TestPodsOfTheNeverReadyImageBlockTheirRollout(t *testing.T) {
	e := newEnv(t, fullCluster)
	e.createDeployment(t, "web", func(dep *appsv1.Deployment) {
		dep.Spec.ProgressDeadlineSeconds = new(int32(1))
		dep.Spec.Template.Spec.Containers[0].Image = neverReadyImage
	})
	until(t, "the Deployment has its pod and exceeds its progress deadline", func(context.Context) (bool, error) {
		dep := e.deployment(t, "web")
		if dep.Status.ReadyReplicas != 0 {
			t.Fatalf("%d pods are ready, want none", dep.Status.ReadyReplicas)
		}
		return dep.Status.Replicas == 1 && slices.ContainsFunc(dep.Status.Conditions,
			func(cond appsv1.DeploymentCondition) bool {
				return cond.Type == appsv1.DeploymentProgressing && cond.Reason == "ProgressDeadlineExceeded"
			}), nil
	})

	e.kubectl(t, "", "set", "image", "deployment/web", "main=nginx:1", "-n", e.namespace)
	until(t, "another image is rolled out", func(context.Context) (bool, error) { return e.rolledOut(t, "web"), nil })
}

// denyDeployments makes the API server refuse the operations on Deployments of this namespace, for all users and with
// the message. It ends with the test or when the returned function is called. The subresources status and scale are not
// denied. The error is that of a ValidatingAdmissionPolicy: 422 Invalid.
func (e *env) denyDeployments(
	t *testing.T, message string, operations ...admissionregistrationv1.OperationType,
) (lift func()) {
	t.Helper()
	denied, err := json.Marshal(operations) // A JSON list is also a CEL list.
	if err != nil {
		t.Fatal(err)
	}
	policies := e.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-deny-"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			// CREATE is always included, for the probe.
			MatchConstraints: e.deploymentsHere(append(operations, admissionregistrationv1.Create)...),
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("!(request.operation in %s || request.name == %q)", denied, policyProbe),
				Message:    message,
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings := e.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        policy.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(context.Background(), t, policy.Name, bindings, policies) }) // t.Context() has ended then.

	isDenied := func(ctx context.Context) bool {
		_, err := e.probePolicies(ctx)
		return err != nil && strings.Contains(err.Error(), message)
	}
	until(t, "Deployments are denied", func(ctx context.Context) (bool, error) { return isDenied(ctx), nil })
	return func() {
		t.Helper()
		remove(t.Context(), t, policy.Name, bindings, policies)
		until(t, "Deployments are no longer denied", func(ctx context.Context) (bool, error) { return !isDenied(ctx), nil })
	}
}

// rewriteImages makes the API server replace the images of all Deployments of this namespace by the image to, until the
// test ends.
func (e *env) rewriteImages(t *testing.T, to string) {
	t.Helper()
	e.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
	policies := e.kube.AdmissionregistrationV1().MutatingAdmissionPolicies()
	policy, err := policies.Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-rewrite-"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   e.deploymentsHere(admissionregistrationv1.Create, admissionregistrationv1.Update),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: fmt.Sprintf(`
					Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
						containers: object.spec.template.spec.containers.map(c,
							Object.spec.template.spec.containers{name: c.name, image: %q})}}}}`, to)},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings := e.kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if _, err := bindings.Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(context.Background(), t, policy.Name, bindings, policies) }) // t.Context() has ended then.
	until(t, "images are rewritten", func(ctx context.Context) (bool, error) {
		dep, err := e.probePolicies(ctx)
		return err == nil && dep.Spec.Template.Spec.Containers[0].Image == to, nil
	})
}

// remove deletes the objects with a name of several kinds, if they exist.
func remove(ctx context.Context, t *testing.T, name string, kinds ...interface {
	Delete(context.Context, string, metav1.DeleteOptions) error
}) {
	t.Helper()
	for _, kind := range kinds {
		if err := kind.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// deploymentsHere matches operations on the Deployments of this namespace.
func (e *env) deploymentsHere(
	operations ...admissionregistrationv1.OperationType,
) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: operations,
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{appsv1.GroupName},
					APIVersions: []string{"v1"},
					Resources:   []string{"deployments"},
				},
			},
		}},
	}
}

// probePolicies returns the result of a dry run that creates a Deployment. Policies take effect up to a second after
// they are stored.
func (e *env) probePolicies(ctx context.Context) (*appsv1.Deployment, error) {
	labels := map[string]string{"app": policyProbe}
	return e.kube.AppsV1().Deployments(e.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: policyProbe},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
			},
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// quota limits the namespace to hard, and returns when the limits are in force.
func (e *env) quota(t *testing.T, hard corev1.ResourceList) {
	t.Helper()
	// An additional limit, to test whether the quota is in force. A filled status only proves that the quota controller
	// has counted. Until the API server has seen that, it refuses all limited objects, with another message.
	limits := corev1.ResourceList{"count/podtemplates": resource.MustParse("0")}
	maps.Copy(limits, hard)
	quota, err := e.kube.CoreV1().ResourceQuotas(e.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "quota-"},
		Spec:       corev1.ResourceQuotaSpec{Hard: limits},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the quota is in force", func(ctx context.Context) (bool, error) {
		_, err := e.kube.CoreV1().PodTemplates(e.namespace).Create(ctx, &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: policyProbe},
			Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota: "+quota.Name), nil
	})
}
