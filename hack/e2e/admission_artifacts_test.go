package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file tests the admission policies of artifacts/deploy. They apply to a whole cluster, so the tests have
// clusters of their own.

const (
	writesPolicy = "foo-controller-writes"
	labelsPolicy = "foo-controller-labels"
	podsPolicy   = "foo-controller-pods"
	// manifests is the kustomization of the controller.
	manifests = "artifacts/deploy"
)

// A caller sends dry runs as one user: the API server decides as it does otherwise, and stores nothing.
type caller struct {
	typedappsv1.DeploymentInterface
	ctx context.Context
}

// as returns a caller for the Deployments of the namespace of the test. "" is the administrator.
func (e *env) as(t *testing.T, user string) caller {
	t.Helper()
	config := rest.CopyConfig(e.config)
	config.Impersonate.UserName = user
	config.WarningHandler = rest.NoWarnings{} // A dry run has the warnings of a write.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return caller{client.AppsV1().Deployments(e.namespace), t.Context()}
}

var dryRun = []string{metav1.DryRunAll}

func (c caller) create(edit func(*appsv1.Deployment)) error {
	dep := deploymentOf("new", edit)
	_, err := c.Create(c.ctx, dep, metav1.CreateOptions{DryRun: dryRun})
	return err
}

func (c caller) patch(name, body string) error {
	return c.patchAs(types.MergePatchType, name, body)
}

func (c caller) patchAs(format types.PatchType, name, body string) error {
	_, err := c.Patch(c.ctx, name, format, []byte(body), metav1.PatchOptions{DryRun: dryRun})
	return err
}

// put replaces a Deployment by what edit makes of it.
func (c caller) put(name string, edit func(*appsv1.Deployment)) error {
	dep, err := c.Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	edit(dep)
	_, err = c.Update(c.ctx, dep, metav1.UpdateOptions{DryRun: dryRun})
	return err
}

// apply is server-side apply. It creates a Deployment that does not exist.
func (c caller) apply(name string, edit func(*appsv1.Deployment)) error {
	dep := deploymentOf(name, edit)
	dep.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	body, err := json.Marshal(dep)
	if err != nil {
		return err
	}
	_, err = c.Patch(c.ctx, name, types.ApplyPatchType, body,
		metav1.PatchOptions{DryRun: dryRun, FieldManager: "a-test", Force: new(true)})
	return err
}

func (c caller) remove(name string) error {
	return c.Delete(c.ctx, name, metav1.DeleteOptions{DryRun: dryRun})
}

func (c caller) removeAll(selector string) error {
	return c.DeleteCollection(c.ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{LabelSelector: selector})
}

func (c caller) scale(name string) error {
	_, err := c.UpdateScale(c.ctx, name, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv1.ScaleSpec{Replicas: 7},
	}, metav1.UpdateOptions{DryRun: dryRun})
	return err
}

// The requests of the rows.

func creates(edit func(*appsv1.Deployment)) request {
	return func(c caller) error { return c.create(edit) }
}

func patches(name, body string) request {
	return func(c caller) error { return c.patch(name, body) }
}

func patchesAs(format types.PatchType, name, body string) request {
	return func(c caller) error { return c.patchAs(format, name, body) }
}

func replaces(name string, edit func(*appsv1.Deployment)) request {
	return func(c caller) error { return c.put(name, edit) }
}

func applies(name string, edit func(*appsv1.Deployment)) request {
	return func(c caller) error { return c.apply(name, edit) }
}

func deletes(name string) request { return func(c caller) error { return c.remove(name) } }

func deletesAll(selector string) request {
	return func(c caller) error { return c.removeAll(selector) }
}

func scales(name string) request { return func(c caller) error { return c.scale(name) } }

// deploymentOf returns a Deployment, after calling edit with it.
func deploymentOf(name string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": "test"}
	dep := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	dep.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	dep.Spec.Template.Labels = labels
	dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1"}}
	edit(dep)
	return dep
}

// The edits of the rows.

func nothing(*appsv1.Deployment) {}

func owned(dep *appsv1.Deployment) {
	dep.OwnerReferences = []metav1.OwnerReference{fooOwner()}
}

func labelled(dep *appsv1.Deployment) {
	dep.Labels[v1alpha1.LabelMadeFor], dep.Labels[v1alpha1.LabelFooGeneration] = "a-hash", "1"
}

func ownedAndLabelled(dep *appsv1.Deployment) {
	owned(dep)
	labelled(dep)
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

// newer is a merge patch as the controller sends it after an edit of the Foo.
const newer = `{"metadata":{"labels":{"samplecontroller.k8s.io/foo-generation":"2"}},"spec":{"replicas":2}}`

// ownerPatch is a merge patch that sets the owners.
func ownerPatch(owners ...metav1.OwnerReference) string {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": owners}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// A request is sent by a caller.
type request func(caller) error

// An admissionRow is one request.
type admissionRow struct {
	name    string
	request request
	refused string // The policy that refuses it.
	message string // A part of its message.
}

// The stored Deployments are: foreign, which no Foo controls; web, which a Foo controls, with the labels; sample, which
// a Foo controls, without the labels; and favoured, which a Foo controls and to which somebody has given privileges.
var controllerRows = []admissionRow{
	{name: "creates a Deployment that a Foo controls", request: creates(owned)},
	{name: "creates one with the labels", request: creates(ownedAndLabelled)},
	{
		name:    "creates a Deployment without an owner",
		request: creates(nothing), refused: writesPolicy,
	},
	{
		name:    "creates a Deployment with the labels only",
		request: creates(labelled), refused: writesPolicy,
	},
	{
		name:    "creates a Deployment that a Foo owns and does not control",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.Controller = nil })),
		refused: writesPolicy,
	},
	{
		name:    "creates a Deployment that a Foo of another group controls",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1" })),
		refused: writesPolicy,
	},
	{
		name:    "creates a Deployment that a Foo of a group which begins like ours controls",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io.example/v1" })),
		refused: writesPolicy,
	},
	{
		name:    "creates a Deployment that another kind of our group controls",
		request: creates(ownedBy(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" })),
		refused: writesPolicy,
	},
	{
		name:    "creates a Deployment without an owner by server-side apply",
		request: applies("new", nothing), refused: writesPolicy,
	},
	{name: "corrects its Deployment", request: patches("web", newer)},
	{
		name:    "corrects its Deployment by a strategic merge patch",
		request: patchesAs(types.StrategicMergePatchType, "web", newer),
	},
	{name: "adds the labels to the Deployment of a sample", request: patches("sample", newer)},
	{
		name: "changes another field of its owner reference",
		request: func(c caller) error {
			ref := fooOwner()
			ref.BlockOwnerDeletion = nil
			return c.patch("web", ownerPatch(ref))
		},
	},
	{
		name:    "changes a Deployment that no Foo controls",
		request: patches("foreign", newer), refused: writesPolicy,
	},
	{
		name:    "replaces a Deployment that no Foo controls",
		request: replaces("foreign", labelled), refused: writesPolicy,
	},
	{
		name:    "changes a Deployment that no Foo controls by server-side apply",
		request: applies("foreign", nothing), refused: writesPolicy,
	},
	{
		name:    "gives a foreign Deployment to a Foo",
		request: patches("foreign", ownerPatch(fooOwner())), refused: writesPolicy,
	},
	{
		name:    "takes a Deployment from its Foo",
		request: patches("web", ownerPatch()), refused: writesPolicy,
	},
	{
		name: "gives a Deployment to another Foo",
		request: func(c caller) error {
			ref := fooOwner()
			ref.UID = "uid-of-another"
			return c.patch("web", ownerPatch(ref))
		},
		refused: writesPolicy,
	},
	{
		name:    "scales a Deployment that no Foo controls",
		request: scales("foreign"), refused: writesPolicy,
	},
	{
		name:    "scales its Deployment, which it never does",
		request: scales("web"), refused: writesPolicy,
	},
	{name: "deletes its Deployment, as a rename does", request: deletes("web")},
	{
		name:    "deletes a Deployment that no Foo controls",
		request: deletes("foreign"), refused: writesPolicy,
	},
	{name: "deletes a collection of its Deployments", request: deletesAll("name=web")},
	{
		name:    "deletes a collection with a foreign Deployment",
		request: deletesAll(""), refused: writesPolicy,
	},
}

// userRows are requests of everybody else, also of an administrator.
var userRows = []admissionRow{
	{name: "creates a Deployment", request: creates(nothing)},
	{name: "creates a Deployment with the labels", request: creates(labelled)},
	{name: "creates one by server-side apply", request: applies("new", labelled)},
	{name: "changes other fields", request: patches("web", `{"spec":{"replicas":3}}`)},
	{name: "changes other labels", request: patches("web", labelPatch("other", "1"))},
	{name: "labels another Deployment", request: patches("foreign", labelPatch("other", "1"))},
	{name: "writes a label that is there", request: patches("web", labelPatch(generation, "1"))},
	{name: "replaces, and leaves the labels", request: replaces("web", scaled)},
	{name: "applies other fields", request: applies("web", scaled)},
	{name: "removes made-for", request: patches("web", labelPatch(madeFor, ""))},
	{name: "removes foo-generation", request: patches("web", labelPatch(generation, ""))},
	{
		name:    "removes all labels",
		request: replaces("web", func(dep *appsv1.Deployment) { dep.Labels = nil }),
	},
	{name: "gives a foreign Deployment to a Foo", request: patches("foreign", ownerPatch(fooOwner()))},
	{name: "takes a Deployment from its Foo", request: patches("web", ownerPatch())},
	{name: "creates a privileged Deployment", request: creates(favoured)},
	{name: "gives privileges to the Deployment of a Foo", request: replaces("web", favoured)},
	{name: "scales a Deployment", request: scales("web")},
	{name: "deletes a Deployment", request: deletes("web")},
	{name: "deletes all Deployments", request: deletesAll("")},
	{
		name:    "adds made-for to the Deployment of a Foo",
		request: patches("sample", labelPatch(madeFor, "a-hash")), refused: labelsPolicy,
	},
	{
		name:    "adds made-for to another Deployment",
		request: patches("foreign", labelPatch(madeFor, "a-hash")), refused: labelsPolicy,
	},
	{
		name:    "adds made-for without a value",
		request: patches("foreign", `{"metadata":{"labels":{"`+madeFor+`":""}}}`),
		refused: labelsPolicy,
	},
	{
		name:    "adds foo-generation",
		request: patches("sample", labelPatch(generation, "9")), refused: labelsPolicy,
	},
	{
		name:    "changes made-for",
		request: patches("web", labelPatch(madeFor, "another")), refused: labelsPolicy,
	},
	{
		name:    "changes foo-generation",
		request: patches("web", labelPatch(generation, "9")), refused: labelsPolicy,
	},
	{
		name: "adds made-for to a Deployment without labels",
		request: patchesAs(types.JSONPatchType, "unlabelled",
			`[{"op":"add","path":"/metadata/labels","value":{"samplecontroller.k8s.io/made-for":"a-hash"}}]`),
		refused: labelsPolicy,
	},
	{
		name:    "replaces a Deployment by one with the labels",
		request: replaces("foreign", labelled), refused: labelsPolicy,
	},
	{
		name:    "applies the labels to a Deployment that exists",
		request: applies("foreign", labelled), refused: labelsPolicy,
	},
	{
		name:    "adds the labels by a strategic merge patch",
		request: patchesAs(types.StrategicMergePatchType, "foreign", labelPatch(madeFor, "a-hash")),
		refused: labelsPolicy,
	},
	{
		name: "writes labels with the status, which the API server does not store",
		request: func(c caller) error {
			dep, err := c.Patch(c.ctx, "foreign", types.MergePatchType, []byte(labelPatch(madeFor, "a-hash")),
				metav1.PatchOptions{DryRun: dryRun}, "status")
			if err == nil && dep.Labels[madeFor] != "" {
				return fmt.Errorf("the label is stored: %v", dep.Labels)
			}
			return err
		},
	},
}

// A privilege is what the controller may not give to pods: how, and the words of the refusal.
type privilege struct {
	words string
	edit  func(pod *corev1.PodTemplateSpec, nginx *corev1.Container)
}

// inContext returns an edit of the security context of the container.
func inContext(edit func(*corev1.SecurityContext)) func(*corev1.PodTemplateSpec, *corev1.Container) {
	return func(_ *corev1.PodTemplateSpec, c *corev1.Container) {
		c.SecurityContext = &corev1.SecurityContext{}
		edit(c.SecurityContext)
	}
}

// inPodContext returns an edit of the security context of the pod.
func inPodContext(edit func(*corev1.PodSecurityContext)) func(*corev1.PodTemplateSpec, *corev1.Container) {
	return func(pod *corev1.PodTemplateSpec, _ *corev1.Container) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		edit(pod.Spec.SecurityContext)
	}
}

// withVolume returns an edit that adds a volume.
func withVolume(source corev1.VolumeSource) func(*corev1.PodTemplateSpec, *corev1.Container) {
	return func(pod *corev1.PodTemplateSpec, _ *corev1.Container) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: source})
	}
}

var (
	ofTheSecret = corev1.LocalObjectReference{Name: "passwords"}
	privileges  = []privilege{
		{words: "hostNetwork", edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) { pod.Spec.HostNetwork = true }},
		{words: "hostPID", edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) { pod.Spec.HostPID = true }},
		{words: "hostIPC", edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) { pod.Spec.HostIPC = true }},
		{
			words: "automountServiceAccountToken",
			edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) {
				pod.Spec.AutomountServiceAccountToken = new(true)
			},
		},
		{
			words: "serviceAccountName admin",
			edit:  func(pod *corev1.PodTemplateSpec, _ *corev1.Container) { pod.Spec.ServiceAccountName = "admin" },
		},
		{
			words: "serviceAccountName old", // By the former name of the field.
			edit:  func(pod *corev1.PodTemplateSpec, _ *corev1.Container) { pod.Spec.DeprecatedServiceAccount = "old" },
		},
		{
			words: "sysctls kernel.shm_rmid_forced=1",
			edit: inPodContext(func(c *corev1.PodSecurityContext) {
				c.Sysctls = []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}
			}),
		},
		{
			words: "an annotation against AppArmor",
			edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) {
				pod.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/nginx": "unconfined"}
			},
		},
		{
			words: "pod without AppArmor",
			edit: inPodContext(func(c *corev1.PodSecurityContext) {
				c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
			}),
		},
		{
			words: "nginx without AppArmor",
			edit: inContext(func(c *corev1.SecurityContext) {
				c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
			}),
		},
		{
			words: "pod without seccomp",
			edit: inPodContext(func(c *corev1.PodSecurityContext) {
				c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
			}),
		},
		{
			words: "nginx with SELinux ::spc_t",
			edit: inContext(func(c *corev1.SecurityContext) {
				c.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t", Level: "s0"}
			}),
		},
		{
			words: "pod as hostProcess",
			edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) {
				pod.Spec.HostNetwork = true // Without it, the API server refuses hostProcess.
				pod.Spec.SecurityContext = &corev1.PodSecurityContext{
					WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)},
				}
			},
		},
		{
			words: "nginx privileged",
			edit:  inContext(func(c *corev1.SecurityContext) { c.Privileged = new(true) }),
		},
		{
			words: "prepare privileged",
			edit: func(pod *corev1.PodTemplateSpec, _ *corev1.Container) {
				pod.Spec.InitContainers = []corev1.Container{{
					Name: "prepare", Image: "a", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
				}}
			},
		},
		{
			words: "nginx with another procMount",
			edit: func(pod *corev1.PodTemplateSpec, c *corev1.Container) {
				pod.Spec.HostUsers = new(false) // Without it, the API server refuses this procMount.
				c.SecurityContext = &corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}
			},
		},
		{
			words: "nginx with the capabilities NET_BIND_SERVICE,SYS_ADMIN",
			edit: inContext(func(c *corev1.SecurityContext) {
				c.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE", "SYS_ADMIN"}}
			}),
		},
		{
			words: "nginx with the host ports 22",
			edit: func(_ *corev1.PodTemplateSpec, c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 22, HostPort: 22}}
			},
		},
		{
			words: "nginx with the Secrets passwords",
			edit: func(_ *corev1.PodTemplateSpec, c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ofTheSecret, Key: "admin"},
				}}}
			},
		},
		{
			words: "nginx with all of the Secrets passwords",
			edit: func(_ *corev1.PodTemplateSpec, c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ofTheSecret}}}
			},
		},
		{
			words: "the volume data",
			edit:  withVolume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		},
		{
			words: "the volume data",
			edit:  withVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "passwords"}}),
		},
		{
			words: "the volume data",
			edit: withVolume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}),
		},
	}
)

// favoured gives the pods of a Deployment privileges, as somebody may who may change it.
func favoured(dep *appsv1.Deployment) {
	pod := &dep.Spec.Template.Spec
	pod.HostPID, pod.ServiceAccountName = true, "admin"
	pod.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var"}}}}
	nginx := &pod.Containers[0]
	nginx.SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}},
	}
	nginx.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ofTheSecret}}}
}

// mutated makes changes that webhooks make, and that give no privileges.
func mutated(dep *appsv1.Deployment) {
	pod := &dep.Spec.Template.Spec
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"},
	}
	pod.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{
			Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"},
		},
	}
	pod.InitContainers = []corev1.Container{{Name: "wait", Image: "a"}}
	pod.Containers = append(pod.Containers, corev1.Container{
		Name: "proxy", Image: "a", Ports: []corev1.ContainerPort{{ContainerPort: 15001}},
		Env: []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"},
		}}},
	})
	pod.ServiceAccountName, pod.NodeSelector = "default", map[string]string{"pool": "web"}
	pod.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
	pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	pod.Volumes = []corev1.Volume{
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "certificates", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}}}},
	}
}

// privilegeRows are requests of the controller for pods with and without privileges.
func privilegeRows() []admissionRow {
	rows := []admissionRow{
		{
			name:    "creates a Deployment that webhooks change",
			request: creates(func(dep *appsv1.Deployment) { owned(dep); mutated(dep) }),
		},
		{name: "corrects a Deployment that webhooks change", request: replaces("web", mutated)},
		{
			name:    "corrects a Deployment with privileges",
			request: patchesAs(types.StrategicMergePatchType, "favoured", newerImage),
		},
		{
			name: "takes privileges away",
			request: replaces("favoured", func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec = deploymentOf("", nothing).Spec.Template.Spec
			}),
		},
		{
			name: "adds a capability to those that somebody gave",
			request: replaces("favoured", func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities = &corev1.Capabilities{
					Add: []corev1.Capability{"SYS_PTRACE"},
				}
			}),
			refused: podsPolicy, message: "privileges: nginx with the capabilities SYS_PTRACE",
		},
		{
			name: "changes a volume that somebody gave",
			request: replaces("favoured", func(dep *appsv1.Deployment) {
				dep.Spec.Template.Spec.Volumes[0].HostPath.Path = "/etc"
			}),
			refused: podsPolicy, message: "privileges: the volume data",
		},
		{
			name:    "creates a privileged Deployment by server-side apply",
			request: applies("new", func(dep *appsv1.Deployment) { owned(dep); privileged(dep) }),
			refused: podsPolicy, message: "hostPID; serviceAccountName namespace-controller; nginx privileged",
		},
	}
	for _, p := range privileges {
		edit := func(dep *appsv1.Deployment) { p.edit(&dep.Spec.Template, &dep.Spec.Template.Spec.Containers[0]) }
		rows = append(rows,
			admissionRow{
				name:    "creates a Deployment with " + p.words,
				request: creates(func(dep *appsv1.Deployment) { owned(dep); edit(dep) }),
				refused: podsPolicy, message: p.words,
			},
			admissionRow{
				name:    "gives its Deployment " + p.words,
				request: replaces("web", edit), refused: podsPolicy, message: p.words,
			})
	}
	return rows
}

// newerImage is a strategic merge patch as the controller sends it after an edit of the Foo.
const newerImage = `{"metadata":{"labels":{"samplecontroller.k8s.io/foo-generation":"2"}},"spec":{"replicas":2,` +
	`"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:2"}]}}}}`

const (
	madeFor    = v1alpha1.LabelMadeFor
	generation = v1alpha1.LabelFooGeneration
)

// labelPatch is a merge patch that sets a label, or removes it if value is "".
func labelPatch(name, value string) string {
	quoted := "null"
	if value != "" {
		quoted = fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, name, quoted)
}

func scaled(dep *appsv1.Deployment) { dep.Spec.Replicas = new(int32(5)) }

func TestAdmissionPolicies(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	t.Run("refuse what they are for", e.testRows)
	t.Run("refuse nothing without their parameter", e.testMissingParameter)
	t.Run("for restricted pods add only what is missing", e.testRestrictedPods)
}

// The policies refuse what they are for, and nothing else: also in another namespace, to which they and the controller
// are moved by the kustomization alone. Each request that is refused is accepted when the policies are gone, so nothing
// else refuses it.
func (e *env) testRows(t *testing.T) {
	store := func(name string, edit func(*appsv1.Deployment)) {
		t.Helper()
		deployments := e.kube.AppsV1().Deployments(e.namespace)
		if _, err := deployments.Create(t.Context(), deploymentOf(name, edit), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	store("foreign", nothing)
	store("sample", owned)
	store("web", ownedAndLabelled)
	store("favoured", func(dep *appsv1.Deployment) { ownedAndLabelled(dep); favoured(dep) })
	store("unlabelled", func(dep *appsv1.Deployment) { dep.Labels = nil })
	for _, namespace := range []string{"foo-system", "elsewhere"} {
		e.deploy(t, namespace)
		t.Run(namespace, func(t *testing.T) { e.testAdmission(t, namespace) })
	}
	e.kubectl(t, "", "delete", "validatingadmissionpolicybinding", writesPolicy, labelsPolicy, podsPolicy)
	e.waitForPolicies(t, "elsewhere", false)
	user, controller := e.as(t, ""), e.as(t, serviceAccount("elsewhere"))
	for _, row := range slices.Concat(controllerRows, privilegeRows()) {
		if err := row.request(controller); err != nil {
			t.Errorf("without the policies, the controller %s: %v", row.name, err)
		}
	}
	for _, row := range userRows {
		if err := row.request(user); err != nil {
			t.Errorf("without the policies, a user %s: %v", row.name, err)
		}
	}
}

// testAdmission tests all rows with a controller in a namespace.
func (e *env) testAdmission(t *testing.T, namespace string) {
	// Also a controller of another cluster, or of an earlier installation, is only a user.
	users := map[string]string{
		"the controller":                        serviceAccount(namespace),
		"a user":                                "",
		"a foo-controller in another namespace": serviceAccount("kube-public"),
		"the Deployment controller":             "system:serviceaccount:kube-system:deployment-controller",
	}
	for who, user := range users {
		if user != "" {
			e.allowEverything(t, user)
		}
		rows := userRows
		if who == "the controller" {
			rows = slices.Concat(controllerRows, privilegeRows())
		}
		for _, row := range rows {
			t.Run(who+" "+row.name, func(t *testing.T) {
				if strings.Contains(row.name, "procMount") {
					e.needsMinor(t, 33, "field procMount")
				}
				row.check(t, e.as(t, user))
			})
		}
	}
}

func (row admissionRow) check(t *testing.T, c caller) {
	err := row.request(c)
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
	until(t, "the policies apply", func(context.Context) (bool, error) {
		writes := refuses(writesPolicy, controller.create(nothing)) && controller.create(owned) == nil
		labels := refuses(labelsPolicy, user.patch(policyProbe, labelPatch(madeFor, "x")))
		pods := refuses(podsPolicy, controller.create(func(dep *appsv1.Deployment) { owned(dep); privileged(dep) }))
		return writes == inForce && labels == inForce && pods == inForce, nil
	})
}

// allowEverything gives a user all permissions, so that only policies refuse requests.
func (e *env) allowEverything(t *testing.T, user string) {
	t.Helper()
	name := strings.ReplaceAll("everything:"+user, ":", "-")
	_, err := e.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	until(t, "the permissions are in force", func(ctx context.Context) (bool, error) {
		deployments := permission{verb: "create", group: "apps", resource: "deployments", namespace: e.namespace}
		return e.may(ctx, t, user, deployments), nil
	})
}

// serviceAccount returns the user name of the controller in a namespace.
func serviceAccount(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + controllerName
}

func TestAControllerWithAdmissionPolicies(t *testing.T) {
	e := newDedicatedEnv(t, fullCluster)
	t.Run("does all its work", e.testWork)
	t.Run("cannot be made to delete a Deployment by a patch", e.testForgedLabel)
	t.Run("serves Foos in a restricted namespace", e.testRestrictedNamespace)
}

// A controller with no more permissions than those of artifacts/deploy does all its work while the policies are in
// force.
func (e *env) testWork(t *testing.T) {
	for _, namespace := range []string{"elsewhere", "foo-system"} {
		t.Run(namespace, func(t *testing.T) {
			e := e.cluster.env(t)
			e.deploy(t, namespace)
			p := e.electedController(t, namespace)
			e.createReady(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(2)), Image: "nginx:1"})
			e.editDeployment(t, "web", `{"spec":{"replicas":5}}`)
			p.waitForLog(t, "Corrected Deployment")
			e.kubectl(t, "", "scale", "foo/web", "--replicas=3", "-n", e.namespace)
			e.kubectl(t, "", "label", "deployment/web", madeFor+"-", "-n", e.namespace)
			until(t, "the label is back", func(context.Context) (bool, error) {
				return e.deployment(t, "web").Labels[madeFor] != "", nil
			})
			e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
			e.rename(t, "web", "next")
			until(t, "the Foo has moved", func(context.Context) (bool, error) {
				return e.hasDeployments(t, "next") && isReady(e.foo(t, "web")), nil
			})
			e.kubectl(t, "", "delete", "deployment/next", "-n", e.namespace)
			e.waitForFoo(t, "web", func(foo *v1alpha1.Foo) bool { return isReady(foo) && e.exists(t, "next") })
			if status := *e.deployment(t, "next").Spec.Replicas; status != 3 {
				t.Errorf("%d replicas, want 3", status)
			}
			e.deleteFoo(t, "web", metav1.DeletePropagationBackground)
			until(t, "the Deployment is deleted", func(context.Context) (bool, error) { return e.hasDeployments(t), nil })
			if n := p.countLog("denied request") + p.countLog("forbidden"); n > 0 {
				t.Errorf("%d requests were refused", n)
			}
			e.waitForPolicies(t, namespace, true) // They were in force at the end, too.
		})
	}
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

// Without the ClusterRoleBinding that names the controller, the policies refuse nothing: an accident with it must not
// stop all Deployments of the cluster. The controller has no permissions then.
func (e *env) testMissingParameter(t *testing.T) {
	const namespace = "a-third" // Where the controller has only its own permissions.
	e.deploy(t, namespace)
	e.kubectl(t, "", "delete", "clusterrolebinding", "foo-controller")
	until(t, "a user may write labels", func(context.Context) (bool, error) {
		return e.as(t, "").patch("foreign", labelPatch(madeFor, "x")) == nil, nil
	})
	if err := e.as(t, "").create(nothing); err != nil {
		t.Errorf("a user creates a Deployment: %v", err)
	}
	controller := e.as(t, serviceAccount(namespace))
	if err := controller.create(owned); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), writesPolicy) {
		t.Errorf("the controller creates a Deployment: %v, want that it has no permission", err)
	}
	e.deploy(t, namespace) // With the parameter, they refuse again.
}

// restricted is a folder with an example for Foos in a namespace of the Pod Security level "restricted".
const restricted = "artifacts/examples/restricted"

// In such a namespace, the pods of a Foo are refused. With the policy of the example they are accepted, and the
// Deployment stays as the controller has written it. Without the policy, the kustomization for older versions of
// Kubernetes has the same effect, and the controller leaves its fields alone.
func (e *env) testRestrictedNamespace(t *testing.T) {
	e.needsMinor(t, 36, "MutatingAdmissionPolicy in v1")
	e.deploy(t, "foo-system")
	e = &env{cluster: e.cluster, namespace: "restricted-foos"}
	p := e.electedController(t, "foo-system")
	e.kubectl(t, "", "apply", "-f", restricted+"/namespace.yaml", "-f", restricted+"/foo.yaml")
	e.waitForReason(t, "web", v1alpha1.ReasonReplicaFailure)
	if message := readyCondition(e.foo(t, "web")).Message; !strings.Contains(message, "violates PodSecurity") {
		t.Errorf("the message is %q, want that of Pod Security", message)
	}

	const page = "docs/policies.md"
	playScenes(t, page, kubectlFunction(e.Kubectl()), scenesOf(t, page)) // It applies the whole folder.
	e.waitForRestrictedPods(t, true)
	e.rename(t, "web", "with-policy")
	e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
	e.checkRestricted(t, "with-policy", false)

	e.kubectl(t, "", "delete", "-f", restricted+"/policy.yaml")
	e.waitForRestrictedPods(t, false)
	e.rename(t, "web", "web")
	e.waitForReason(t, "web", v1alpha1.ReasonReplicaFailure)
	e.kubectl(t, "", "apply", "--server-side", "--field-manager=restricted-pods", "-k", restricted+"/older")
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
	e.kubectl(t, "", "apply", "-f", restricted+"/namespace.yaml", "-f", restricted+"/policy.yaml")
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
