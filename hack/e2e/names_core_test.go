package e2e

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The server stores Foos that it would refuse now; see storedFoos. The controller reports them, and continues when they
// are fixed.
func TestFoosStoredBeforeValidationAreInvalidUntilTheyAreFixed(t *testing.T) {
	c := newDedicatedEnv(t, apiCluster).cluster // Because the CRD is replaced.
	c.needsMinor(t, 33, "status update of what was stored before a rule of the CustomResourceDefinition")
	probe := c.foosIn(c.namespace(t))
	takes := func(everything bool) {
		t.Helper()
		until(t, "the server uses the new CRD", func(context.Context) (bool, error) {
			_, err := c.try(fooManifest("probe", `"spec":{"replicas":1}`),
				"create", "-n", probe.namespace, "--dry-run=server", "--validate=false", "-f", "-")
			return (err == nil) == everything, nil
		})
	}
	messages := map[string]string{ // The beginning of the message.
		"no-spec":           "spec.deploymentName is missing",
		"null-spec":         "spec.deploymentName is missing",
		"empty-spec":        "spec.deploymentName is missing",
		"no-name":           "spec.deploymentName is missing",
		"empty-name":        "spec.deploymentName is missing",
		"bad-name":          `spec.deploymentName is "Web_1", which is not a name`,
		"long-name":         `spec.deploymentName is "aaaa`,
		"image-with-spaces": "spec.image contains spaces",
		"image-too-long":    "spec.image is longer than 1024 characters",
		"negative-replicas": "spec.replicas is -1",
	}
	envs := map[string]*env{} // A namespace for each Foo, because most of them name the same Deployment.

	c.kubectl(t, noRules, "apply", "-f", "-")
	takes(true)
	for _, test := range storedFoos {
		e := c.env(t)
		envs[test.name] = e
		if err := c.foosIn(e.namespace).create(t.Context(), test.name, test.fields); err != nil {
			t.Fatal(err)
		}
	}
	c.kubectl(t, "", "apply", "-f", crdFile)
	takes(false)
	c.controller(t)

	for _, test := range storedFoos {
		e, message := envs[test.name], messages[test.name]
		if message != "" {
			foo := e.waitForReason(t, test.name, v1alpha1.ReasonInvalid)
			if !strings.HasPrefix(readyCondition(foo).Message, message) ||
				!meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
				t.Errorf("%s: conditions = %v, want Stalled and a message that begins with %q", test.name,
					foo.Status.Conditions, message)
			}
			if len(e.deployments(t)) > 0 {
				t.Errorf("%s: a Deployment was created", test.name)
			}
			e.editFoo(t, test.name, test.fix)
		}
		foo := e.waitForReason(t, test.name, v1alpha1.ReasonCreating)
		if !e.hasDeployments(t, "web") || meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionStalled) {
			t.Errorf("%s: conditions = %v, want a Deployment and not to be Stalled", test.name, foo.Status.Conditions)
		}
	}
}
