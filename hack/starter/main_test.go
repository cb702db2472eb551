package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/simtest"
)

// TestRun runs the whole controller in a cluster with a Deployment controller and a garbage collector. A user creates a
// Widget, breaks what the controller keeps, and deletes the Widget. Then the controller has used its permissions.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		running.Go(func() { apiserver.RunDeployments(ctx, f.server, apiserver.Rollouts{Lag: time.Second}) })
		running.Go(func() { apiserver.RunGarbageCollector(ctx, f.server, time.Second) })
		u := f.clientsOf("user")
		configMaps, widgets := u.kube.CoreV1().ConfigMaps("default"), u.widgets.AcmeV1alpha1().Widgets("default")
		edit := func(patch string) error {
			_, err := configMaps.Patch(ctx, "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
		for _, step := range []struct {
			name   string
			do     func() error
			writes []string
			ready  string
			events []string
		}{
			{
				name: "create", writes: append(slices.Clone(created), status), ready: "True/Available",
				events: []string{"Normal Available 3 of 3 replicas available"},
				do: func() error {
					_, err := widgets.Create(ctx, widget(), metav1.CreateOptions{})
					return err
				},
			},
			{
				name: "delete a child", writes: created[:1], ready: "True/Available",
				do: func() error { return configMaps.Delete(ctx, "web", metav1.DeleteOptions{}) },
			},
			{
				name: "edit a child", writes: []string{"patch configmaps web"}, ready: "True/Available",
				events: []string{`Normal Corrected Corrected ConfigMap "web": data.message`},
				do:     func() error { return edit(`{"data":null}`) },
			},
			{
				name: "take the ConfigMap", writes: []string{status}, ready: "False/NotOwned",
				events: []string{`Warning NotOwned ConfigMap "web" exists and is controlled by nobody. ` +
					"Delete it, or give the Widget another name. The Deployment waits for its ConfigMap"},
				do: func() error { return edit(`{"metadata":{"ownerReferences":null}}`) },
			},
			{
				name: "change the Widget", writes: []string{status}, ready: "False/NotOwned",
				do: func() error {
					patch := []byte(`{"spec":{"replicas":2}}`)
					w, err := widgets.Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
					if err == nil && w.Status.AvailableReplicas != 3 {
						t.Errorf("the status has %d pods, want those that run", w.Status.AvailableReplicas)
					}
					return err
				},
			},
			{
				name: "return the name", ready: "True/Available",
				writes: []string{"create configmaps web", "patch deployments web", status, status},
				events: []string{`Normal Corrected Corrected Deployment "web": spec.replicas`,
					"Normal Available 2 of 2 replicas available"},
				do: func() error { return configMaps.Delete(ctx, "web", metav1.DeleteOptions{}) },
			},
			{name: "delete", do: func() error { return widgets.Delete(ctx, "web", metav1.DeleteOptions{}) }},
		} {
			t.Log(step.name)
			if err := step.do(); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Second) // Of virtual time.
			f.check(t, step.writes, step.ready, step.events)
		}
		stop()
		running.Wait()
		want := []string{ // The informers got their lists by watches. The events were not sent, and there was no admission.
			"get configmaps", "get deployments.apps", // No write has failed.
			"create events.events.k8s.io", "list configmaps", "list deployments.apps", "list widgets.acme.example.com",
			"patch events.events.k8s.io", "update widgets.acme.example.com/finalizers",
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, f.unused()); diff != "" {
			t.Errorf("permissions without use (-want +got):\n%s", diff)
		}
	})
}

// TestExplain asks what the controller would do. Nothing is written.
func TestExplain(t *testing.T) {
	for _, test := range []struct {
		name   string
		stored objects
		want   error
		text   []string // Lines.
	}{
		{
			name: "a child that somebody has edited", want: kit.ErrWouldWrite,
			stored: complete(reported, func(c *corev1.ConfigMap) { c.Data["message"] = "x" }),
			text: []string{
				"Widget default/web, generation 1: the controller would send patch ConfigMap web",
				"  message            Hello",
				"  data.message       have x, want Hello",
				`  keep ConfigMap     sends patch ConfigMap web: ConfigMap "web" differs: data.message`,
				"  Ready              True Available: 3 of 3 replicas available",
			},
		},
		{
			name: "a ConfigMap of somebody else", want: kit.ErrWouldWrite,
			stored: complete(func(c *corev1.ConfigMap) { c.OwnerReferences = nil }),
			text: []string{
				"Widget default/web, generation 1: the controller would send update status of Widget web",
				`  keep ConfigMap     applies: ConfigMap "web" exists and is controlled by nobody`,
				"  keep Deployment    does not apply: there is no ConfigMap of the Widget to mount",
			},
		},
		{
			name: "a Widget that is being deleted", stored: complete(deleting[*v1alpha1.Widget]),
			text: []string{"Widget default/web, generation 1: the controller would send nothing"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, nil, test.stored...)
				question := &kit.Question{Kind: "Widget", Object: web}
				clients := f.clientsOf(controllerName)
				c := New(t.Context(), clients, newCaches(clients, nil, &kit.Options{Namespace: "default"}), nil, 1)
				defer c.queue.ShutDown()
				var out strings.Builder
				if err := c.Explain(t.Context(), question, c.syncOf, &out); !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				f.check(t, nil, "", nil)
				for _, line := range test.text {
					if !strings.Contains("\n"+out.String(), "\n"+line+"\n") {
						t.Errorf("%q is missing in:\n%s", line, out.String())
					}
				}
			})
		})
	}
}

// TestTheRoleGrantsWhatIsNeeded compares the permissions that the controller checks with those that it gets.
func TestTheRoleGrantsWhatIsNeeded(t *testing.T) {
	var granted []rbacv1.PolicyRule
	for _, p := range needs("").Permissions {
		granted = append(granted, rbacv1.PolicyRule{
			APIGroups: []string{p.Group}, Verbs: []string{p.Verb},
			Resources: []string{strings.TrimSuffix(p.Resource+"/"+p.Subresource, "/")},
		})
	}
	if diff := cmp.Diff(simtest.Permissions(granted), simtest.Permissions(clusterRole(t).Rules)); diff != "" {
		t.Errorf("wiring.go (-) and artifacts/deploy/rbac.yaml (+) differ:\n%s", diff)
	}
}

// TestThePolicyHasAllChildren: of a kind that the policy lacks, the controller could change all objects of the cluster.
func TestThePolicyHasAllChildren(t *testing.T) {
	file, err := os.Open("artifacts/deploy/admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var writes admissionv1.ValidatingAdmissionPolicy // The first one in the file.
	if err := yaml.NewYAMLOrJSONDecoder(file, 4096).Decode(&writes); err != nil {
		t.Fatal(err)
	}
	var limited []string
	for _, rule := range writes.Spec.MatchConstraints.ResourceRules {
		for _, resource := range rule.Resources {
			limited = append(limited, rule.APIGroups[0]+"/"+resource)
		}
	}
	for _, p := range needs("").Permissions {
		if p.Verb == "create" && p.Resource != "events" && !slices.Contains(limited, p.Group+"/"+p.Resource) {
			t.Errorf("%s: artifacts/deploy/admission.yaml has no rule for %s", writes.Name, p.Resource)
		}
	}
}

// clusterRole returns the ClusterRole of the controller in artifacts/deploy/rbac.yaml.
func clusterRole(t *testing.T) rbacv1.ClusterRole {
	file, err := os.Open("artifacts/deploy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for docs := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var role rbacv1.ClusterRole
		if err := docs.Decode(&role); err != nil {
			t.Fatalf("read the ClusterRole %s: %v", controllerName, err)
		}
		if role.Kind == "ClusterRole" && role.Name == controllerName {
			return role
		}
	}
}
