//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestVariablesAreExpanded(t *testing.T) {
	env := []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}}
	for text, want := range map[string]string{
		"":             "",
		"x$(A)y$(A)":   "x1y1",
		"$(B)":         "$(A)", // What a value contains is not expanded again.
		"$$(A)":        "$(A)",
		"$(C) $A $(A":  "$(C) $A $(A",
		"100$":         "100$",
		"$$$(A)$$":     "$1$",
		"--name=$(A)1": "--name=11",
	} {
		if got := expand(text, env); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestThePodDecidesHowItsContainerIsStarted(t *testing.T) {
	img := &image{config: v1.Config{
		User: "65532:65532", Entrypoint: []string{"/program"}, Cmd: []string{"--default"}, WorkingDir: "/work",
		Env: []string{"FROM_IMAGE=1", "REPLACED=image"},
	}}
	pod := newPod()
	pod.Labels = map[string]string{"example.com/team": "blue"}
	c := &pod.Spec.Containers[0]
	c.Args = []string{"--ip=$(POD_IP)", "--team=$(TEAM)"}
	from := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	c.Env = []corev1.EnvVar{
		{Name: "REPLACED", Value: "pod"},
		{Name: "POD_IP", ValueFrom: from("status.podIP")},
		{Name: "POD", ValueFrom: from("metadata.name")},
		{Name: "TEAM", ValueFrom: from("metadata.labels['example.com/team']")},
		{Name: "BOTH", Value: "$(POD)/$(TEAM)"},
	}
	c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true)}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets", ReadOnly: true}}

	spec, err := containerSpecOf(pod, img, "127.0.1.1", "10.245.1.2")
	if err != nil {
		t.Fatal(err)
	}
	want := &containerSpec{
		Args: []string{"/program", "--ip=10.245.1.2", "--team=blue"},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=web", "FROM_IMAGE=1",
			"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443",
			"REPLACED=pod", "POD_IP=10.245.1.2", "POD=web", "TEAM=blue", "BOTH=web/blue",
		},
		Dir: "/work", UID: 65532, GID: 65532, HostUID: hostID(65532), HostGID: hostID(65532), ReadOnly: true,
		Capabilities: capabilities(nil), Mounts: []mount{{Volume: "token", Path: "/var/run/secrets", ReadOnly: true}},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	c.SecurityContext.RunAsUser = new(int64(0))
	if _, err := containerSpecOf(pod, img, "", ""); err == nil {
		t.Error("a container with runAsNonRoot is started as root")
	}
}

// Without the fields, a container has what any runtime gives it. So a test of a pod that has neither shows that its
// manifest takes them away.
func TestOnlyTheSecurityContextTakesCapabilitiesAndNewPrivilegesAway(t *testing.T) {
	const all = "[0 1 3 4 5 6 7 8 10 13 18 27 29 31]" // As containerd: 00000000a80425fb.
	for _, test := range []struct {
		name         string
		security     *corev1.SecurityContext
		capabilities string
		noNew        bool
	}{
		{name: "none", capabilities: all},
		{name: "empty", security: &corev1.SecurityContext{}, capabilities: all},
		{
			name:         "one is dropped",
			security:     &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"NET_RAW"}}},
			capabilities: strings.Replace(all, " 13", "", 1),
		},
		{
			name:         "all are dropped",
			security:     &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			capabilities: "[]",
		},
		{
			name:         "escalation is permitted",
			security:     &corev1.SecurityContext{AllowPrivilegeEscalation: new(true)},
			capabilities: all,
		},
		{
			name:         "escalation is forbidden",
			security:     &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)},
			capabilities: all, noNew: true,
		},
	} {
		pod := newPod()
		pod.Spec.Containers[0].SecurityContext = test.security
		img := &image{config: v1.Config{Entrypoint: []string{"/program"}}}
		spec, err := containerSpecOf(pod, img, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(spec.Capabilities); got != test.capabilities || spec.NoNewPrivileges != test.noNew {
			t.Errorf("%s: capabilities %s and no new privileges %t; want %s, %t", test.name, got, spec.NoNewPrivileges,
				test.capabilities, test.noNew)
		}
	}
}

func TestTheTokenBelongsToThePodAndIsReplacedBeforeItExpires(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: "default"},
		Data:       map[string]string{"ca.crt": "the authority"},
	})
	var asked authenticationv1.TokenRequestSpec
	token := "first"
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		asked = request.Spec
		request.Status = authenticationv1.TokenRequestStatus{
			Token: token, ExpirationTimestamp: metav1.NewTime(testTime.Add(1000 * time.Second))}
		return true, request, nil
	})
	pod := newPod()
	pod.Spec.ServiceAccountName = "main"
	pod.Spec.Volumes = []corev1.Volume{{Name: "access", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}}}
	v := volumes{client: client, dir: t.TempDir(), uid: os.Getuid(), gid: os.Getgid()}
	for _, token = range []string{"first", "second"} {
		if err := v.write(t.Context(), pod, testTime); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, name := range []string{"token", "ca.crt", "namespace"} {
			content, err := os.ReadFile(filepath.Join(v.dirs(pod)["access"], name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(content)
		}
		want := map[string]string{"token": token, "ca.crt": "the authority", "namespace": "default"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
	if ref := asked.BoundObjectRef; ref == nil || ref.Kind != "Pod" || ref.Name != "web" || ref.UID != "u" {
		t.Errorf("the token is bound to %+v, want the pod", ref)
	}
	if want := testTime.Add(800 * time.Second); !v.refreshAt.Equal(want) {
		t.Errorf("it is replaced at %s, want %s, after 80 %% of its time", v.refreshAt, want)
	}
}
