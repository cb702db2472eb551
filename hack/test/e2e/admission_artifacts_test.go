package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests the admission policies of artifacts/deploy. They apply to a whole cluster, so the tests have
// clusters of their own.

const (
	writesPolicy = "foo-controller-writes"
	labelsPolicy = "foo-controller-labels"
	podsPolicy   = "foo-controller-pods"
	// manifests is the kustomization of the controller.
	manifests = "artifacts/deploy"

	madeFor    = v1alpha1.LabelMadeFor
	generation = v1alpha1.LabelFooGeneration
)

// as returns a client for the Deployments of the namespace of the test as a user. "" is the administrator.
func (e *env) as(t *testing.T, user string) typedappsv1.DeploymentInterface {
	t.Helper()
	config := rest.CopyConfig(e.config)
	config.Impersonate.UserName = user
	config.WarningHandler = rest.NoWarnings{} // A dry run has the warnings of a write.
	return newUser(t, config).kube.AppsV1().Deployments(e.namespace)
}

// A request is a dry run of a user: the API server decides as it does otherwise, and stores nothing.
type request func(ctx context.Context, user typedappsv1.DeploymentInterface) error

func creates(edits ...func(*appsv1.Deployment)) request {
	return func(ctx context.Context, user typedappsv1.DeploymentInterface) error {
		dep := deploymentOf("new", nothing)
		for _, edit := range edits {
			edit(dep)
		}
		_, err := user.Create(ctx, dep, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
}

// patches sends a merge patch, of the Deployment or of a subresource.
func patches(name, body string, subresource ...string) request {
	return func(ctx context.Context, user typedappsv1.DeploymentInterface) error {
		options := metav1.PatchOptions{DryRun: dryRun}
		_, err := user.Patch(ctx, name, types.MergePatchType, []byte(body), options, subresource...)
		return err
	}
}

// replaces replaces a Deployment by what edit makes of it.
func replaces(name string, edit func(*appsv1.Deployment)) request {
	return func(ctx context.Context, user typedappsv1.DeploymentInterface) error {
		dep, err := user.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(dep)
		_, err = user.Update(ctx, dep, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
}

func deletes(name string) request {
	return func(ctx context.Context, user typedappsv1.DeploymentInterface) error {
		return user.Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun})
	}
}

func deletesAll(selector string) request {
	return func(ctx context.Context, user typedappsv1.DeploymentInterface) error {
		return user.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{LabelSelector: selector})
	}
}

// The edits of the rows.

func owned(dep *appsv1.Deployment) {
	dep.OwnerReferences = []metav1.OwnerReference{fooOwner()}
}

func labelled(dep *appsv1.Deployment) {
	dep.Labels[madeFor], dep.Labels[generation] = "a-hash", "1"
}

func fooOwner() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "web", UID: "uid-of-web",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// ownedBy returns an edit that adds the owner reference of a Foo with a difference.
func ownedBy(differ func(*metav1.OwnerReference)) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		ref := fooOwner()
		differ(&ref)
		dep.OwnerReferences = []metav1.OwnerReference{ref}
	}
}

// templated returns an edit that applies a strategic merge patch to the pod template.
func templated(patch string) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		before, err := json.Marshal(dep.Spec.Template)
		after, errPatch := strategicpatch.StrategicMergePatch(before, []byte(patch), dep.Spec.Template)
		dep.Spec.Template = corev1.PodTemplateSpec{}
		if err := errors.Join(err, errPatch, json.Unmarshal(after, &dep.Spec.Template)); err != nil {
			panic(err)
		}
	}
}

// ownerPatch is a merge patch that sets the owners.
func ownerPatch(owners ...metav1.OwnerReference) string {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": owners}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// labelPatch is a merge patch that sets a label, or removes it if value is "".
func labelPatch(name, value string) string {
	quoted := "null"
	if value != "" {
		quoted = fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, name, quoted)
}

const (
	// newer is a merge patch as the controller sends it after an edit of the Foo.
	newer = `{"metadata":{"labels":{"samplecontroller.k8s.io/foo-generation":"2"}},"spec":{"replicas":2}}`
	scale = `{"spec":{"replicas":7}}`

	// privileged makes the pods of a Deployment take over their node.
	privileged = `{"spec":{"serviceAccountName":"namespace-controller","hostPID":true,
		"containers":[{"name":"nginx","securityContext":{"privileged":true}}]}}`
	// favoured has privileges that somebody may give who may change the Deployment.
	favoured = `{"spec":{"hostPID":true,"serviceAccountName":"admin",
		"volumes":[{"name":"data","hostPath":{"path":"/var"}}],
		"containers":[{"name":"nginx","securityContext":{"capabilities":{"add":["NET_ADMIN"]}},
			"envFrom":[{"secretRef":{"name":"passwords"}}]}]}}`
	// mutated has changes that webhooks make, and that give no privileges.
	mutated = `{"spec":{"serviceAccountName":"default","nodeSelector":{"pool":"web"},
		"tolerations":[{"key":"pool","operator":"Exists"}],"imagePullSecrets":[{"name":"registry"}],
		"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"},
			"seLinuxOptions":{"level":"s0:c1,c2"}},
		"volumes":[{"name":"tmp","emptyDir":{}},{"name":"certificates","configMap":{"name":"ca"}}],
		"initContainers":[{"name":"wait","image":"a"}],
		"containers":[
			{"name":"nginx","securityContext":{"allowPrivilegeEscalation":false,
				"capabilities":{"drop":["ALL"],"add":["NET_BIND_SERVICE"]}}},
			{"name":"proxy","image":"a","ports":[{"containerPort":15001}],
				"env":[{"name":"NODE","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]}]}}`
)

// An admissionRow is one request. A request that is refused is accepted without the policies.
type admissionRow struct {
	name    string
	request request
	refused string // The policy that refuses it.
	message string // A part of its message.
}

// The stored Deployments are: foreign, which no Foo controls; unlabelled, which has no labels either; web, which a Foo
// controls, with the labels; sample, which a Foo controls, without the labels; and favoured, which a Foo controls and
// to which somebody has given privileges.
var controllerRows = []admissionRow{
	{name: "creates a Deployment that a Foo controls", request: creates(owned, labelled)},
	{name: "creates one that webhooks change", request: creates(owned, templated(mutated))},
	{name: "creates a Deployment without an owner", request: creates(labelled), refused: writesPolicy},
	{
		name:    "creates a Deployment that a Foo owns and does not control",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.Controller = nil })), refused: writesPolicy,
	},
	{
		name:    "creates a Deployment that a Foo of a group which begins like ours controls",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io.example/v1" })),
		refused: writesPolicy,
	},
	{
		name:    "creates a Deployment that another kind of our group controls",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" })), refused: writesPolicy,
	},
	{name: "corrects its Deployment", request: patches("web", newer)},
	{name: "corrects a Deployment that webhooks change", request: replaces("web", templated(mutated))},
	{name: "corrects a Deployment with privileges", request: patches("favoured", newer)},
	{name: "adds the labels to the Deployment of a sample", request: patches("sample", newer)},
	{
		name:    "changes another field of its owner reference",
		request: replaces("web", ownedBy(func(ref *metav1.OwnerReference) { ref.BlockOwnerDeletion = nil })),
	},
	{name: "changes a Deployment that no Foo controls", request: patches("foreign", newer), refused: writesPolicy},
	{name: "gives a foreign Deployment to a Foo", request: replaces("foreign", owned), refused: writesPolicy},
	{name: "takes a Deployment from its Foo", request: patches("web", ownerPatch()), refused: writesPolicy},
	{
		name:    "gives a Deployment to another Foo",
		request: replaces("web", ownedBy(func(ref *metav1.OwnerReference) { ref.UID = "another" })), refused: writesPolicy,
	},
	{name: "scales its Deployment, which it never does", request: patches("web", scale, "scale"), refused: writesPolicy},
	{name: "deletes its Deployment, as a rename does", request: deletes("web")},
	{name: "deletes a Deployment that no Foo controls", request: deletes("foreign"), refused: writesPolicy},
	{name: "deletes a collection of its Deployments", request: deletesAll("name=web")},
	{name: "deletes a collection with a foreign Deployment", request: deletesAll(""), refused: writesPolicy},
	{
		name:    "creates a privileged Deployment",
		request: creates(owned, templated(privileged)), refused: podsPolicy,
		message: "hostPID; serviceAccountName namespace-controller; nginx privileged",
	},
	{
		name: "adds a capability to those that somebody gave",
		request: replaces("favoured", templated(
			`{"spec":{"containers":[{"name":"nginx","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}}`)),
		refused: podsPolicy, message: "privileges: nginx with the capabilities SYS_PTRACE",
	},
	{
		name:    "changes a volume that somebody gave",
		request: replaces("favoured", templated(`{"spec":{"volumes":[{"name":"data","hostPath":{"path":"/etc"}}]}}`)),
		refused: podsPolicy, message: "privileges: the volume data",
	},
}

// userRows are requests of everybody else, also of an administrator.
var userRows = []admissionRow{
	{name: "creates a Deployment with the labels", request: creates(labelled)},
	{name: "creates a privileged Deployment", request: creates(templated(privileged))},
	{name: "changes other fields", request: patches("web", scale)},
	{name: "writes a label that is there", request: patches("web", labelPatch(generation, "1"))},
	{name: "removes made-for", request: patches("web", labelPatch(madeFor, ""))},
	{name: "removes foo-generation", request: patches("web", labelPatch(generation, ""))},
	{name: "takes a Deployment from its Foo", request: patches("web", ownerPatch())},
	{name: "scales a Deployment", request: patches("web", scale, "scale")},
	{name: "deletes all Deployments", request: deletesAll("")},
	{name: "adds made-for", request: patches("sample", labelPatch(madeFor, "a-hash")), refused: labelsPolicy},
	{name: "adds foo-generation", request: patches("sample", labelPatch(generation, "9")), refused: labelsPolicy},
	{name: "changes made-for", request: patches("web", labelPatch(madeFor, "another")), refused: labelsPolicy},
	{name: "changes foo-generation", request: patches("web", labelPatch(generation, "9")), refused: labelsPolicy},
	{
		name:    "adds made-for to a Deployment without labels",
		request: patches("unlabelled", labelPatch(madeFor, "a-hash")), refused: labelsPolicy,
	},
}

// privileges are what the controller may not give to pods: the words of the refusal, and a patch of the template.
var privileges = []struct{ words, patch string }{
	{"hostNetwork", `{"spec":{"hostNetwork":true}}`},
	{"hostPID", `{"spec":{"hostPID":true}}`},
	{"hostIPC", `{"spec":{"hostIPC":true}}`},
	{"automountServiceAccountToken", `{"spec":{"automountServiceAccountToken":true}}`},
	{"serviceAccountName admin", `{"spec":{"serviceAccountName":"admin"}}`},
	{"serviceAccountName old", `{"spec":{"serviceAccount":"old"}}`}, // By the former name of the field.
	{
		"sysctls kernel.shm_rmid_forced=1",
		`{"spec":{"securityContext":{"sysctls":[{"name":"kernel.shm_rmid_forced","value":"1"}]}}}`,
	},
	{
		"an annotation against AppArmor",
		`{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/nginx":"unconfined"}}}`,
	},
	{"pod without AppArmor", `{"spec":{"securityContext":{"appArmorProfile":{"type":"Unconfined"}}}}`},
	{"nginx without AppArmor", inNginx(`"securityContext":{"appArmorProfile":{"type":"Unconfined"}}`)},
	{"pod without seccomp", `{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}}`},
	{"nginx with SELinux ::spc_t", inNginx(`"securityContext":{"seLinuxOptions":{"type":"spc_t","level":"s0"}}`)},
	{ // Without hostNetwork, the API server refuses hostProcess.
		"pod as hostProcess",
		`{"spec":{"hostNetwork":true,"securityContext":{"windowsOptions":{"hostProcess":true}}}}`,
	},
	{"nginx privileged", inNginx(`"securityContext":{"privileged":true}`)},
	{
		"prepare privileged",
		`{"spec":{"initContainers":[{"name":"prepare","image":"a","securityContext":{"privileged":true}}]}}`,
	},
	{ // Without hostUsers, the API server refuses this procMount.
		"nginx with another procMount",
		`{"spec":{"hostUsers":false,"containers":[{"name":"nginx","securityContext":{"procMount":"Unmasked"}}]}}`,
	},
	{
		"nginx with the capabilities NET_BIND_SERVICE,SYS_ADMIN",
		inNginx(`"securityContext":{"capabilities":{"add":["NET_BIND_SERVICE","SYS_ADMIN"]}}`),
	},
	{"nginx with the host ports 22", inNginx(`"ports":[{"containerPort":80},{"containerPort":22,"hostPort":22}]`)},
	{
		"nginx with the Secrets passwords",
		inNginx(`"env":[{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"passwords","key":"admin"}}}]`),
	},
	{"nginx with all of the Secrets passwords", inNginx(`"envFrom":[{"secretRef":{"name":"passwords"}}]`)},
	{"the volume data", `{"spec":{"volumes":[{"name":"data","hostPath":{"path":"/"}}]}}`},
	{"the volume data", `{"spec":{"volumes":[{"name":"data","secret":{"secretName":"passwords"}}]}}`},
	{
		"the volume data",
		`{"spec":{"volumes":[{"name":"data","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}]}}`,
	},
}

// inNginx is a patch of the container of a Foo.
func inNginx(fields string) string {
	return `{"spec":{"containers":[{"name":"nginx",` + fields + `}]}}`
}

func TestAdmissionPolicies(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	t.Run("refuse what they are for", e.testRows)
	t.Run("refuse nothing without their parameter", e.testMissingParameter)
	t.Run("for restricted pods add only what is missing", e.testRestrictedPods)
}

// Each request that is refused is accepted when the policies are gone, so nothing else refuses it.
func (e *env) testRows(t *testing.T) {
	e.createDeployment(t, "foreign", nothing)
	e.createDeployment(t, "unlabelled", func(dep *appsv1.Deployment) { dep.Labels = nil })
	e.createDeployment(t, "sample", owned)
	e.createDeployment(t, "web", func(dep *appsv1.Deployment) { owned(dep); labelled(dep) })
	e.createDeployment(t, "favoured", func(dep *appsv1.Deployment) { owned(dep); labelled(dep); templated(favoured)(dep) })
	ofController := slices.Clone(controllerRows)
	for _, p := range privileges {
		ofController = append(ofController, admissionRow{
			name: "gives its Deployment " + p.words, request: replaces("web", templated(p.patch)),
			refused: podsPolicy, message: p.words,
		})
	}
	e.deploy(t, "foo-system")
	const other = "system:serviceaccount:kube-public:foo-controller" // Also a controller in another namespace is a user.
	for _, user := range []string{controllerUser, "", other} {
		rows := userRows
		if user != "" {
			e.allowEverything(t, user)
		}
		if user == controllerUser {
			rows = ofController
		}
		for _, row := range rows {
			t.Run(user+" "+row.name, func(t *testing.T) {
				if strings.Contains(row.name, "procMount") {
					e.needsMinor(t, 33, "field procMount")
				}
				row.check(t, e.as(t, user))
			})
		}
	}
	e.deploy(t, "elsewhere") // The policies follow the controller.
	e.kubectl(t, "", "delete", "validatingadmissionpolicybinding", writesPolicy, labelsPolicy, podsPolicy)
	e.waitForPolicies(t, "elsewhere", false)
	for user, rows := range map[string][]admissionRow{"": userRows, controllerUser: ofController} {
		for _, row := range rows {
			if err := row.request(t.Context(), e.as(t, user)); err != nil {
				t.Errorf("without the policies, %s %s: %v", user, row.name, err)
			}
		}
	}
}

func (row admissionRow) check(t *testing.T, user typedappsv1.DeploymentInterface) {
	err := row.request(t.Context(), user)
	switch {
	case row.refused == "" && err != nil:
		t.Errorf("it is refused: %v", err)
	case row.refused != "" && !(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'"+row.refused+"'") &&
		strings.Contains(err.Error(), row.message)):
		t.Errorf("the answer is %v, want a refusal of the policy %s with %q", err, row.refused, row.message)
	}
}

// deploy applies artifacts/deploy in a namespace, and waits until its admission policies are in force.
func (e *env) deploy(t *testing.T, namespace string) {
	t.Helper()
	e.kubectl(t, "", "apply", "--server-side", "-k",
		overlay(t, "resources: [../../"+manifests+"]\nnamespace: "+namespace))
	e.waitForPolicies(t, namespace, true)
}

// waitForPolicies waits until the policies are in force, or no more, for a controller in a namespace. A policy takes
// effect within a second.
func (e *env) waitForPolicies(t *testing.T, namespace string, inForce bool) {
	t.Helper()
	probes := &env{cluster: e.cluster, namespace: metav1.NamespaceDefault} // Not among the Deployments of the test.
	controller, user := probes.as(t, serviceAccount(namespace)), probes.as(t, "")
	if !probes.exists(t, policyProbe) {
		probes.createDeployment(t, policyProbe, nothing)
	}
	refuses := func(policy string, err error) bool { return err != nil && strings.Contains(err.Error(), policy) }
	until(t, "the policies apply", func(ctx context.Context) (bool, error) {
		writes := refuses(writesPolicy, creates()(ctx, controller)) && creates(owned)(ctx, controller) == nil
		labels := refuses(labelsPolicy, patches(policyProbe, labelPatch(madeFor, "x"))(ctx, user))
		pods := refuses(podsPolicy, creates(owned, templated(privileged))(ctx, controller))
		return writes == inForce && labels == inForce && pods == inForce, nil
	})
}

// allowEverything gives a user all permissions, so that only policies refuse requests.
func (e *env) allowEverything(t *testing.T, user string) {
	t.Helper()
	name := strings.ReplaceAll("everything:"+user, ":", "-")
	e.kubectl(t, "", "create", "clusterrolebinding", name, "--clusterrole=cluster-admin", "--user="+user)
	until(t, "the permissions are in force", func(ctx context.Context) (bool, error) {
		deployments := permission{verb: "create", group: "apps", resource: "deployments", namespace: e.namespace}
		return e.may(ctx, t, user, deployments), nil
	})
}

// serviceAccount returns the user name of the controller in a namespace.
func serviceAccount(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + controllerName
}

// Without the ClusterRoleBinding that names the controller, the policies refuse nothing: an accident with it must not
// stop all Deployments of the cluster. The controller has no permissions then.
func (e *env) testMissingParameter(t *testing.T) {
	const namespace = "a-third" // Where the controller has only its own permissions.
	e.deploy(t, namespace)
	e.kubectl(t, "", "delete", "clusterrolebinding", "foo-controller")
	until(t, "a user may write labels", func(ctx context.Context) (bool, error) {
		return patches("foreign", labelPatch(madeFor, "x"))(ctx, e.as(t, "")) == nil, nil
	})
	controller := e.as(t, serviceAccount(namespace))
	err := creates(owned)(t.Context(), controller)
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), writesPolicy) {
		t.Errorf("the controller creates a Deployment: %v, want that it has no permission", err)
	}
	e.deploy(t, namespace) // With the parameter, they refuse again.
}
