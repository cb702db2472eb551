package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// This file tests the tools that read the status of a Foo: kstatus, which kpt, Flux and Helm 4 use to wait, and Argo CD
// with our health check. They need no cluster. Here they get Foos in states that the controller rarely or never
// reports. TestReadinessContract has the states that it does report.

const healthScript = "artifacts/argocd/health.lua"

// A tool returns the status of an object as one word, and a message.
type tool func(obj *unstructured.Unstructured) (word, message string, err error)

func kstatus(obj *unstructured.Unstructured) (word, message string, err error) {
	result, err := status.Compute(obj)
	if err != nil {
		return "", "", err
	}
	return result.Status.String(), result.Message, nil
}

// fooOf returns a Foo of generation 2 as JSON. more and spec are additional fields of its metadata and its spec. status
// is its whole status, "" for none.
func fooOf(more, spec, status string) string {
	if status == "" {
		status = "null"
	}
	return fmt.Sprintf(`{
		"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
		"metadata": {"name": "web", "namespace": "default", "uid": "a-b-c", "generation": 2%s},
		"spec": {"deploymentName": "web-1", "replicas": 3%s},
		"status": %s
	}`, more, spec, status)
}

// statusOf returns a status with this observedGeneration. 0 leaves it out, as the default of the API server does.
func statusOf(generation int, conditions ...string) string {
	observed := ""
	if generation != 0 {
		observed = fmt.Sprintf(`"observedGeneration": %d, `, generation)
	}
	return fmt.Sprintf(`{%s"replicas": 3, "availableReplicas": 2, "conditions": [%s]}`,
		observed, strings.Join(conditions, ", "))
}

// condition returns a condition of generation 2 whose message is "The message of " and its type.
func condition(kind, value, reason string) string {
	return fmt.Sprintf(`{
		"type": %q, "status": %q, "reason": %q, "message": "The message of %s",
		"observedGeneration": 2, "lastTransitionTime": "2026-11-21T12:00:00Z"
	}`, kind, value, reason, kind)
}

func TestToolsUnderstandStatesThatTheControllerDoesNotReport(t *testing.T) {
	available := condition("Ready", "True", "Available")
	progressing := condition("Reconciling", "True", "Progressing")
	notOwned := []string{condition("Ready", "False", "NotOwned"), condition("Stalled", "True", "NotOwned")}
	const (
		pending      = "Progressing\tNo controller has seen this Foo yet. Is foo-controller running?"
		unseen       = "Progressing\tWaiting for the controller to see the newest spec"
		outdated     = "InProgress\tFoo generation is 2, but latest observed generation is 1"
		deletionTime = `, "deletionTimestamp": "2026-11-21T12:00:00Z"`
	)
	for _, test := range []struct {
		name            string
		foo             string
		kstatus, argoCD string
	}{
		// kstatus reports this as Current. Therefore the CRD has a default for status.
		{
			name:    "no status",
			foo:     fooOf("", "", ""),
			kstatus: "Current\tResource is current",
			argoCD:  pending,
		},
		{
			name:    "no conditions",
			foo:     fooOf("", "", `{"observedGeneration": 2}`),
			kstatus: "Current\tResource is current",
			argoCD:  pending,
		},
		{
			name:    "empty conditions",
			foo:     fooOf("", "", `{"observedGeneration": 2, "conditions": []}`),
			kstatus: "Current\tResource is current",
			argoCD:  pending,
		},
		{
			name:    "conditions without Ready",
			foo:     fooOf("", "", statusOf(2, condition("Synced", "True", "Synced"))),
			kstatus: "Current\tResource is current",
			argoCD:  pending,
		},

		{
			name:    "Ready for an earlier generation",
			foo:     fooOf("", "", statusOf(1, available)),
			kstatus: outdated,
			argoCD:  unseen,
		},
		{
			name:    "stalled with an earlier generation",
			foo:     fooOf("", "", statusOf(1, notOwned...)),
			kstatus: outdated,
			argoCD:  unseen,
		},
		{
			name:    "paused just now",
			foo:     fooOf("", `, "paused": true`, statusOf(1, available)),
			kstatus: outdated,
			argoCD:  unseen,
		},
		// kstatus accepts a status without observedGeneration.
		{
			name:    "Ready without a generation",
			foo:     fooOf("", "", statusOf(0, available)),
			kstatus: "Current\tResource is Ready",
			argoCD:  unseen,
		},

		{
			name:    "being deleted, Ready",
			foo:     fooOf(deletionTime, "", statusOf(2, available)),
			kstatus: "Terminating\tResource scheduled for deletion",
			argoCD:  "Progressing\tPending deletion",
		},
		{
			name:    "being deleted, stalled",
			foo:     fooOf(deletionTime, "", statusOf(2, notOwned...)),
			kstatus: "Terminating\tResource scheduled for deletion",
			argoCD:  "Progressing\tPending deletion",
		},
		{
			name:    "being deleted, no status yet",
			foo:     fooOf(deletionTime, "", ""),
			kstatus: "Terminating\tResource scheduled for deletion",
			argoCD:  "Progressing\tPending deletion",
		},

		{
			name:    "not Ready and nothing more",
			foo:     fooOf("", "", statusOf(2, condition("Ready", "False", "Progressing"))),
			kstatus: "InProgress\tThe message of Ready",
			argoCD:  "Progressing\tThe message of Ready",
		},
		{
			name:    "Ready and still reconciling",
			foo:     fooOf("", "", statusOf(2, available, progressing)),
			kstatus: "InProgress\tThe message of Reconciling",
			argoCD:  "Progressing\tThe message of Reconciling",
		},
		{
			name:    "Ready and stalled",
			foo:     fooOf("", "", statusOf(2, available, condition("Stalled", "True", "NotOwned"))),
			kstatus: "Failed\tThe message of Stalled",
			argoCD:  "Degraded\tThe message of Stalled",
		},
		{
			name: "neither reconciling nor stalled",
			foo: fooOf("", "", statusOf(2, available,
				condition("Reconciling", "False", "Available"), condition("Stalled", "False", "Available"))),
			kstatus: "Current\tResource is Ready",
			argoCD:  "Healthy\tThe message of Ready",
		},
		// kstatus uses the first of the two conditions.
		{
			name:    "stalled and reconciling",
			foo:     fooOf("", "", statusOf(2, append(notOwned, progressing)...)),
			kstatus: "Failed\tThe message of Stalled",
			argoCD:  "Degraded\tThe message of Stalled",
		},
		{
			name:    "reconciling and stalled",
			foo:     fooOf("", "", statusOf(2, append([]string{progressing}, notOwned...)...)),
			kstatus: "InProgress\tThe message of Reconciling",
			argoCD:  "Degraded\tThe message of Stalled",
		},

		{
			name:    "pending",
			foo:     fooOf("", "", statusOf(0, condition("Ready", "Unknown", "Pending"))),
			kstatus: "InProgress\tThe message of Ready",
			argoCD:  "Progressing\tThe message of Ready",
		},
		{
			name:    "paused",
			foo:     fooOf("", `, "paused": true`, statusOf(2, available)),
			kstatus: "Current\tResource is Ready",
			argoCD:  "Suspended\tThe message of Ready",
		},
		{
			name:    "not paused",
			foo:     fooOf("", `, "paused": false`, statusOf(2, available)),
			kstatus: "Current\tResource is Ready",
			argoCD:  "Healthy\tThe message of Ready",
		},
		{
			name: "no spec",
			foo: `{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
				"metadata": {"name": "web", "generation": 2}, "status": ` + statusOf(2, notOwned...) + `}`,
			kstatus: "Failed\tThe message of Stalled",
			argoCD:  "Degraded\tThe message of Stalled",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectTools(t, test.foo, test.kstatus, test.argoCD)
		})
	}
}

// expectTools checks the results of both tools: the status, a tab, and the message. The check of the starter of make mine
// has the same result as ours, for its kind, which cannot be paused.
func expectTools(t *testing.T, foo, wantKstatus, wantArgoCD string) {
	t.Helper()
	ofStarter, err := argoCD("hack/mine/starter/artifacts/argocd/health.lua")
	if err != nil {
		t.Fatal(err)
	}
	argoCD, err := argoCD(healthScript)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		assess tool
		want   string
	}{
		{"kstatus", kstatus, wantKstatus},
		{"Argo CD", argoCD, wantArgoCD},
		{"the starter", ofStarter, strings.NewReplacer("Foo", "Widget", "foo-", "widget-").Replace(wantArgoCD)},
	} {
		if test.name == "the starter" && strings.Contains(foo, `"paused": true`) {
			continue
		}
		word, message, err := test.assess(objectOf(t, foo))
		if got := word + "\t" + message; err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}

// objectOf decodes an object. Unlike encoding/json, it converts a whole number to an int64, as kstatus expects.
func objectOf(t *testing.T, encoded string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(encoded)); err != nil {
		t.Fatal(err)
	}
	return obj
}

// The tests of our health check are valid only if it runs as in Argo CD.
func TestHealthChecksRunAsInArgoCD(t *testing.T) {
	const object = `{"kind": "Foo", "metadata": {"name": "web"}, "spec": {"whole": 3, "list": ["a", "b"], "none": null}}`
	for _, test := range []struct {
		name    string
		script  string
		want    string
		wantErr string
	}{
		{
			name:   "a whole number is a number",
			script: `return {status = "Healthy", message = type(obj.spec.whole) .. " " .. obj.spec.whole + 1}`,
			want:   "Healthy\tnumber 4",
		},
		{
			name:   "a list begins at 1, and the library table is there",
			script: `return {status = "Healthy", message = obj.spec.list[1] .. table.concat(obj.spec.list)}`,
			want:   "Healthy\taab",
		},
		{
			name:   "null is nil",
			script: `return {status = "Healthy", message = tostring(obj.spec.none)}`,
			want:   "Healthy\tnil",
		},
		{
			name:   "a message is optional",
			script: `return {status = "Missing"}`,
			want:   "Missing\t",
		},
		{
			name:   "a status that Argo CD does not know",
			script: `return {status = "Fine"}`,
			want:   "Unknown\tLua returned an invalid health status",
		},
		{
			name:    "no table",
			script:  `local x = 1`,
			wantErr: "the health check returned nil, not a table",
		},
		{
			name:    "a syntax error",
			script:  `return {status = `,
			wantErr: "health.lua",
		},
		{
			name:    "an error at runtime",
			script:  "\nreturn {status = obj.status.phase}",
			wantErr: "health.lua:2: attempt to index a non-table object(nil)",
		},
		{
			name:    "an endless loop",
			script:  `while true do end`,
			wantErr: "context deadline exceeded",
		},
		{
			name:    "the library string is missing",
			script:  `return {status = string.upper("x")}`,
			wantErr: "attempt to index a non-table object(nil) with key 'upper'",
		},
		{
			name:    "the library math is missing",
			script:  `return {status = math.max(1, 2)}`,
			wantErr: "attempt to index a non-table object(nil) with key 'max'",
		},
		{
			name:    "the library os is missing",
			script:  `os.execute("touch touched")`,
			wantErr: "attempt to index a non-table object(nil) with key 'execute'",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "health.lua")
			if err := os.WriteFile(file, []byte(test.script), 0o600); err != nil {
				t.Fatal(err)
			}
			var word, message string
			assess, err := argoCD(file)
			if err == nil {
				word, message, err = assess(objectOf(t, object))
			}
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want %q in it", err, test.wantErr)
				}
				return
			}
			if got := word + "\t" + message; err != nil || got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}
