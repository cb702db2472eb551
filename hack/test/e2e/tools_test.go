package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
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
	ours, errOurs := argoCD(healthScript)
	ofStarter, errStarter := argoCD("hack/starter/artifacts/argocd/health.lua")
	if err := errors.Join(errOurs, errStarter); err != nil {
		t.Fatal(err)
	}
	forWidgets := strings.NewReplacer("Foo", "Widget", "foo-", "widget-")
	available := condition("Ready", "True", "Available")
	notOwned := condition("Ready", "False", "NotOwned")
	const (
		pending      = "Progressing\tNo controller has seen this Foo yet. Is foo-controller running?"
		unseen       = "Progressing\tWaiting for the controller to see the newest spec"
		outdated     = "InProgress\tFoo generation is 2, but latest observed generation is 1"
		deleting     = "Progressing\tPending deletion"
		deletionTime = `, "deletionTimestamp": "2026-11-21T12:00:00Z"`
	)
	const (
		current     = "Current\tResource is current"
		ready       = "Current\tResource is Ready"
		terminating = "Terminating\tResource scheduled for deletion"
	)
	stalled, reconciling := condition("Stalled", "True", "NotOwned"), condition("Reconciling", "True", "Progressing")
	for _, test := range []struct{ name, foo, kstatus, argoCD string }{
		// kstatus reports these as Current. Therefore the CRD has a default for status.
		{"no status", fooOf("", "", ""), current, pending},
		{"empty conditions", fooOf("", "", statusOf(2)), current, pending},
		{"conditions without Ready", fooOf("", "", statusOf(2, condition("Synced", "True", "Synced"))), current, pending},
		{"Ready without a generation", fooOf("", "", statusOf(0, available)), ready, unseen},

		{"Ready for an earlier generation", fooOf("", "", statusOf(1, available)), outdated, unseen},
		{"stalled with an earlier generation", fooOf("", "", statusOf(1, notOwned, stalled)), outdated, unseen},
		{"paused just now", fooOf("", `, "paused": true`, statusOf(1, available)), outdated, unseen},
		{"being deleted, Ready", fooOf(deletionTime, "", statusOf(2, available)), terminating, deleting},
		{"being deleted, stalled", fooOf(deletionTime, "", statusOf(2, notOwned, stalled)), terminating, deleting},
		{"being deleted, no status yet", fooOf(deletionTime, "", ""), terminating, deleting},

		{
			"not Ready and nothing more", fooOf("", "", statusOf(2, condition("Ready", "False", "Progressing"))),
			"InProgress\tThe message of Ready", "Progressing\tThe message of Ready",
		},
		{
			"Ready and still reconciling", fooOf("", "", statusOf(2, available, reconciling)),
			"InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling",
		},
		{
			"Ready and stalled", fooOf("", "", statusOf(2, available, stalled)),
			"Failed\tThe message of Stalled", "Degraded\tThe message of Stalled",
		},
		{
			"neither reconciling nor stalled", fooOf("", "", statusOf(2, available,
				condition("Reconciling", "False", "Available"), condition("Stalled", "False", "Available"))),
			ready, "Healthy\tThe message of Ready",
		},
		{ // kstatus uses the first of the two conditions.
			"reconciling and stalled", fooOf("", "", statusOf(2, reconciling, notOwned, stalled)),
			"InProgress\tThe message of Reconciling", "Degraded\tThe message of Stalled",
		},
		{"paused", fooOf("", `, "paused": true`, statusOf(2, available)), ready, "Suspended\tThe message of Ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect := func(name string, assess tool, want string) {
				t.Helper()
				word, message, err := assess(objectOf(t, test.foo))
				if got := word + "\t" + message; err != nil || got != want {
					t.Errorf("%s: %q, %v; want %q", name, got, err, want)
				}
			}
			expect("kstatus", kstatus, test.kstatus)
			expect("Argo CD", ours, test.argoCD)
			if !strings.Contains(test.foo, `"paused": true`) { // The kind of the starter of make mine cannot be paused.
				expect("the starter", ofStarter, forWidgets.Replace(test.argoCD))
			}
		})
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

// argoCD returns Argo CD with the health check of a file. The check runs as in Argo CD v3.6 (util/lua/lua.go, for a
// script in its ConfigMap without useOpenLibs): with a limit of a second, with Lua's basic functions and the library
// table, and without the libraries string and math. There are three differences: the check cannot use require, not even
// for os; it cannot read files; and an error in it is returned, where Argo CD reports Unknown.
func argoCD(file string) (tool, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	chunk, err := parse.Parse(bytes.NewReader(source), file)
	if err != nil {
		return nil, err
	}
	script, err := lua.Compile(chunk, file)
	if err != nil {
		return nil, err
	}
	return func(obj *unstructured.Unstructured) (word, message string, err error) {
		health, err := runHealth(script, obj)
		if err != nil {
			return "", "", err
		}
		return healthOf(health)
	}, nil
}

// runHealth runs a health check on obj.
func runHealth(script *lua.FunctionProto, obj *unstructured.Unstructured) (lua.LValue, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // As in Argo CD.
	defer cancel()
	state.SetContext(ctx)

	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	for _, name := range []string{"dofile", "loadfile", "require"} { // They read files.
		state.SetGlobal(name, lua.LNil)
	}

	// Through JSON, so that all numbers become Lua numbers: luajson would convert an int64 to nil.
	encoded, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	value, err := luajson.Decode(state, encoded)
	if err != nil {
		return nil, err
	}
	state.SetGlobal("obj", value)

	state.Push(state.NewFunctionFromProto(script))
	err = state.PCall(0, lua.MultRet, nil)
	var failure *lua.ApiError
	if errors.As(err, &failure) {
		failure.StackTrace = "" // It would include the Go code of the interpreter.
	}
	if err != nil {
		return nil, err
	}
	return state.Get(-1), nil
}

// healthOf decodes the result of a health check.
func healthOf(returned lua.LValue) (word, message string, err error) {
	table, ok := returned.(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the health check returned %s, not a table with status and message", returned.Type())
	}
	encoded, err := luajson.Encode(table)
	if err != nil {
		return "", "", fmt.Errorf("the result of the health check: %w", err)
	}
	var health struct{ Status, Message string }
	if err := json.Unmarshal(encoded, &health); err != nil {
		return "", "", fmt.Errorf("the result of the health check is not a status and a message: %w", err)
	}
	switch health.Status {
	case "Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown":
		return health.Status, health.Message, nil
	default: // This is the message of Argo CD.
		return "Unknown", "Lua returned an invalid health status", nil
	}
}
