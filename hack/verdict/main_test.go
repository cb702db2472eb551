package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root         = "../.."
	healthScript = root + "/artifacts/argocd/health.lua"
)

// fooOf returns a Foo of generation 2 as JSON. more and spec are the fields that its metadata and its spec
// have besides the usual, status is its whole status; "" is none.
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

// statusOf returns a status that speaks of a generation; 0 is none, as the API server's default has it.
func statusOf(generation int, conditions ...string) string {
	observed := ""
	if generation != 0 {
		observed = fmt.Sprintf(`"observedGeneration": %d, `, generation)
	}
	return fmt.Sprintf(`{%s"replicas": 3, "availableReplicas": 2, "conditions": [%s]}`, observed, strings.Join(conditions, ", "))
}

// condition returns a condition of generation 2 whose message is "The message of " and its type.
func condition(kind, value, reason string) string {
	return fmt.Sprintf(`{"type": %q, "status": %q, "reason": %q, "message": "The message of %s", "observedGeneration": 2, "lastTransitionTime": "2026-11-21T12:00:00Z"}`,
		kind, value, reason, kind)
}

// What the controller reports, as pkg/plan writes it.
var reported = []struct {
	reason string
	// conditions is the value of Ready and the type of the condition that goes with it.
	conditions      string
	kstatus, argocd string
}{
	{"Pending", "Unknown", "InProgress\tThe message of Ready", "Progressing\tThe message of Ready"},
	{"Creating", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"Progressing", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"Available", "True", "Current\tResource is Ready", "Healthy\tThe message of Ready"},
	{"Paused", "True", "Current\tResource is Ready", "Suspended\tThe message of Ready"},
	// kstatus has no word for an object that is left alone on purpose: what waits by it waits in vain.
	{"Paused", "False", "InProgress\tThe message of Ready", "Suspended\tThe message of Ready"},
	{"WaitingForDeletion", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"WaitingForName", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"WaitingForName", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"NameTaken", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"NameCycle", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"NotOwned", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"FieldsOverridden", "True", "Current\tResource is Ready", "Healthy\tThe message of Ready"},
	{"FieldsOverridden", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"FieldsOverridden", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"Invalid", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"Refused", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"ProgressDeadlineExceeded", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"ReplicaFailure", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	{"ReplicaFailure", "False Reconciling", "InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
	{"DeploymentPaused", "False Stalled", "Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
}

// reportedFoo returns a Foo that the controller says this of.
func reportedFoo(reason, conditions string) string {
	ready, more, _ := strings.Cut(conditions, " ")
	list := []string{condition("Ready", ready, reason)}
	if more != "" {
		list = append(list, condition(more, "True", reason))
	}
	spec, generation := "", 2
	switch reason {
	case "Paused":
		spec = `, "paused": true`
	case "Pending":
		generation = 0
	}
	return fooOf("", spec, statusOf(generation, list...))
}

func TestReportedStates(t *testing.T) {
	for _, tc := range reported {
		t.Run(tc.reason+" "+tc.conditions, func(t *testing.T) {
			expectVerdicts(t, reportedFoo(tc.reason, tc.conditions), tc.kstatus, tc.argocd)
		})
	}
}

// A reason that is added, or comes with other conditions than it did, has to be judged here.
func TestReportedStatesAreThoseOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n## Conditions\n"))
	text, _, _ = bytes.Cut(text, []byte("\n## "))
	words := regexp.MustCompile(`\b(True|False|Unknown|Reconciling|Stalled)\b`)

	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllSubmatch(text, -1) {
		reason, column := string(row[1]), string(row[2])
		documented[reason] = true
		var here string
		for _, tc := range reported {
			if tc.reason == reason {
				here += tc.conditions + " "
			}
		}
		if here == "" {
			t.Errorf("%s is in docs/operations.md and not in this test", reason)
			continue
		}
		if column == "as observed" {
			continue
		}
		if here, there := setOf(words.FindAllString(here, -1)), setOf(words.FindAllString(column, -1)); !slices.Equal(here, there) {
			t.Errorf("%s has the conditions %q here and %q in docs/operations.md", reason, here, there)
		}
	}
	for _, tc := range reported {
		if !documented[tc.reason] {
			t.Errorf("%s is in this test and not in docs/operations.md", tc.reason)
		}
	}
}

func setOf(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// What the controller does not report itself, but others may meet.
func TestOtherStates(t *testing.T) {
	available := condition("Ready", "True", "Available")
	notOwned := []string{condition("Ready", "False", "NotOwned"), condition("Stalled", "True", "NotOwned")}
	for _, tc := range []struct {
		name            string
		foo             string
		kstatus, argocd string
	}{
		// Only the API server's default for status keeps kstatus from this.
		{"no status", fooOf("", "", ""),
			"Current\tResource is current", "Progressing\tWaiting for controller"},
		{"no conditions", fooOf("", "", `{"observedGeneration": 2}`),
			"Current\tResource is current", "Progressing\tWaiting for controller"},
		{"empty conditions", fooOf("", "", `{"observedGeneration": 2, "conditions": []}`),
			"Current\tResource is current", "Progressing\tWaiting for controller"},
		{"conditions without Ready", fooOf("", "", statusOf(2, condition("Synced", "True", "Synced"))),
			"Current\tResource is current", "Progressing\tWaiting for controller"},

		{"Ready for an earlier generation", fooOf("", "", statusOf(1, available)),
			"InProgress\tFoo generation is 2, but latest observed generation is 1", "Progressing\tWaiting for the controller to see the newest spec"},
		{"stalled with an earlier generation", fooOf("", "", statusOf(1, notOwned...)),
			"InProgress\tFoo generation is 2, but latest observed generation is 1", "Progressing\tWaiting for the controller to see the newest spec"},
		{"paused just now", fooOf("", `, "paused": true`, statusOf(1, available)),
			"InProgress\tFoo generation is 2, but latest observed generation is 1", "Progressing\tWaiting for the controller to see the newest spec"},
		// kstatus does not miss an observedGeneration that is not there.
		{"Ready for no generation", fooOf("", "", statusOf(0, available)),
			"Current\tResource is Ready", "Progressing\tWaiting for the controller to see the newest spec"},

		{"being deleted, Ready", fooOf(`, "deletionTimestamp": "2026-11-21T12:00:00Z"`, "", statusOf(2, available)),
			"Terminating\tResource scheduled for deletion", "Progressing\tPending deletion"},
		{"being deleted, stalled", fooOf(`, "deletionTimestamp": "2026-11-21T12:00:00Z"`, "", statusOf(2, notOwned...)),
			"Terminating\tResource scheduled for deletion", "Progressing\tPending deletion"},
		{"being deleted, never looked at", fooOf(`, "deletionTimestamp": "2026-11-21T12:00:00Z"`, "", ""),
			"Terminating\tResource scheduled for deletion", "Progressing\tPending deletion"},

		{"not Ready and nothing more", fooOf("", "", statusOf(2, condition("Ready", "False", "Progressing"))),
			"InProgress\tThe message of Ready", "Progressing\tThe message of Ready"},
		{"Ready and still reconciling", fooOf("", "", statusOf(2, available, condition("Reconciling", "True", "Progressing"))),
			"InProgress\tThe message of Reconciling", "Progressing\tThe message of Reconciling"},
		{"Ready and stalled", fooOf("", "", statusOf(2, available, condition("Stalled", "True", "NotOwned"))),
			"Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
		{"neither reconciling nor stalled, and saying so", fooOf("", "", statusOf(2, available, condition("Reconciling", "False", "Available"), condition("Stalled", "False", "Available"))),
			"Current\tResource is Ready", "Healthy\tThe message of Ready"},
		// To kstatus the first of the two counts.
		{"stalled and reconciling", fooOf("", "", statusOf(2, append(notOwned, condition("Reconciling", "True", "Progressing"))...)),
			"Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
		{"reconciling and stalled", fooOf("", "", statusOf(2, append([]string{condition("Reconciling", "True", "Progressing")}, notOwned...)...)),
			"InProgress\tThe message of Reconciling", "Degraded\tThe message of Stalled"},

		{"not paused, and saying so", fooOf("", `, "paused": false`, statusOf(2, available)),
			"Current\tResource is Ready", "Healthy\tThe message of Ready"},
		{"no spec", `{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "web", "generation": 2}, "status": ` + statusOf(2, notOwned...) + `}`,
			"Failed\tThe message of Stalled", "Degraded\tThe message of Stalled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expectVerdicts(t, tc.foo, tc.kstatus, tc.argocd)
		})
	}
}

func expectVerdicts(t *testing.T, foo, kstatus, argocd string) {
	t.Helper()
	for _, of := range []struct {
		args []string
		want string
	}{
		{[]string{"kstatus"}, kstatus},
		{[]string{"argocd", healthScript}, argocd},
	} {
		have, err := output(of.args, foo)
		if err != nil {
			t.Errorf("%s: %v", of.args[0], err)
		}
		if have != of.want+"\n" {
			t.Errorf("%s: %q, want %q", of.args[0], have, of.want+"\n")
		}
	}
}

func output(args []string, in string) (string, error) {
	var out strings.Builder
	err := run(args, strings.NewReader(in), &out)
	return out.String(), err
}

func TestMakesOneLineOfEachObject(t *testing.T) {
	first := reportedFoo("Available", "True")
	second := strings.ReplaceAll(reportedFoo("NotOwned", "False Stalled"), "The message", `The\nlonger\r\nmessage`)
	const want = "Current\tResource is Ready\nFailed\tThe longer message of Stalled\n"
	for name, in := range map[string]string{
		"one after the other": first + second,
		"on lines":            first + "\n\n" + second + "\n",
		"in a List":           `{"apiVersion": "v1", "kind": "List", "items": [` + first + "," + second + "]}",
		"and an empty List":   first + `{"apiVersion": "v1", "kind": "List", "items": []}` + second,
	} {
		t.Run(name, func(t *testing.T) {
			if have, err := output([]string{"kstatus"}, in); err != nil || have != want {
				t.Errorf("%q, %v; want %q", have, err, want)
			}
		})
	}
}

// A test that keeps the command running has its answer before it asks the next question.
func TestAnswersAtOnce(t *testing.T) {
	questions, ask := io.Pipe()
	tell, answers := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run([]string{"kstatus"}, questions, answers) }()
	for range 2 {
		if _, err := io.WriteString(ask, reportedFoo("NotOwned", "False Stalled")); err != nil {
			t.Fatal(err)
		}
		const want = "Failed\tThe message of Stalled\n"
		have := make([]byte, len(want))
		if _, err := io.ReadFull(tell, have); err != nil || string(have) != want {
			t.Fatalf("%q, %v; want %q", have, err, want)
		}
	}
	ask.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// With this in its environment the test's binary is the command.
const asCommand = "VERDICT_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestExitsWithOneLineAndOne(t *testing.T) {
	script := filepath.Join(t.TempDir(), "health.lua")
	if err := os.WriteFile(script, []byte("error('one\\ntwo')"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "argocd", script)
	command.Env = append(os.Environ(), asCommand+"=yes")
	command.Stdin = strings.NewReader(reportedFoo("NotOwned", "False Stalled"))
	var out, errs strings.Builder
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	if command.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	if want := "verdict: Foo web: " + script + ":1: one two\n"; out.String() != "" || errs.String() != want {
		t.Errorf("output %q and %q, want none and %q", out.String(), errs.String(), want)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"argocd", "-help"}} {
		if have, err := output(args, ""); err != nil || have != usage {
			t.Errorf("%q: %q, %v; want the usage", args, have, err)
		}
	}
}

func TestErrors(t *testing.T) {
	available := reportedFoo("Available", "True")
	for _, tc := range []struct {
		name string
		args []string
		in   string
		// out is what is written before the error.
		out  string
		want string
	}{
		{"no arguments", nil, available, "", `say "verdict kstatus" or "verdict argocd HEALTH.lua"`},
		{"another tool", []string{"helm"}, available, "", `say "verdict kstatus"`},
		{"too many arguments", []string{"kstatus", "foo.json"}, available, "", `say "verdict kstatus"`},
		{"argocd without a health check", []string{"argocd"}, available, "", `say "verdict kstatus"`},
		{"a health check that is not there", []string{"argocd", "no.lua"}, available, "", "open no.lua: "},

		{"nothing", []string{"kstatus"}, " \n", "", "no object on standard input"},
		{"bad JSON", []string{"kstatus"}, `{"kind": Foo}`, "", "object 1 on standard input: invalid character 'F'"},
		{"JSON that ends early", []string{"kstatus"}, available[:20], "", "object 1 on standard input: unexpected EOF"},
		{"an object without a kind", []string{"kstatus"}, `{"metadata": {}}`, "", "object 1 on standard input: Object 'Kind' is missing"},
		{"no object", []string{"kstatus"}, `[1]`, "", "object 1 on standard input: "},
		{"bad JSON behind a good object", []string{"kstatus"}, available + "}", "Current\tResource is Ready\n", "object 2 on standard input: invalid character '}'"},
		{"a field of another type", []string{"kstatus"}, `{"kind": "Foo", "metadata": {"name": "web", "generation": "two"}}`, "", "Foo web: looking up metadata.generation"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expectError(t, tc.args, tc.in, tc.out, tc.want)
		})
	}
}

func expectError(t *testing.T, args []string, in, out, want string) {
	t.Helper()
	have, err := output(args, in)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if have != out {
		t.Errorf("output %q, want %q", have, out)
	}
}

func TestScripts(t *testing.T) {
	in := `{"kind": "Foo", "metadata": {"name": "web", "labels": {}}, "spec": {"whole": 3, "half": 0.5, "list": ["a", "b"], "none": null, "yes": true}}`
	for _, tc := range []struct {
		name   string
		script string
		// want is either the verdict or a part of the error.
		want, wantErr string
	}{
		{"a whole number is a number", `return {status = "Healthy", message = type(obj.spec.whole) .. " " .. obj.spec.whole + 1}`, "Healthy\tnumber 4", ""},
		{"a fraction is a number", `return {status = "Healthy", message = tostring(obj.spec.half)}`, "Healthy\t0.5", ""},
		{"a list begins at 1", `return {status = "Healthy", message = #obj.spec.list .. obj.spec.list[1] .. table.concat(obj.spec.list)}`, "Healthy\t2aab", ""},
		{"null is nil", `return {status = "Healthy", message = tostring(obj.spec.none)}`, "Healthy\tnil", ""},
		{"true is true", `return {status = "Healthy", message = tostring(obj.spec.yes == true)}`, "Healthy\ttrue", ""},
		{"a message may be missing", `return {status = "Missing"}`, "Missing\t", ""},
		{"what a script leaves behind is gone at the next object", `seen = (seen or 0) + 1; return {status = "Healthy", message = "" .. seen}`, "Healthy\t1\nHealthy\t1", ""},
		{"print does not disturb", `print("what", 1); return {status = "Healthy"}`, "Healthy\t", ""},

		{"a status that Argo CD does not know", `return {status = "Fine"}`, "Unknown\tLua returned an invalid health status", ""},
		{"a table without a status", `return {message = "none"}`, "Unknown\tLua returned an invalid health status", ""},
		{"nothing", `local x = 1`, "", "Foo web: the health check returned nil, not a table"},
		{"a text", `return "Healthy"`, "", "the health check returned string, not a table"},
		{"an empty table", `return {}`, "", "not a status and a message"},
		{"a status that is no text", `return {status = 1}`, "", "not a status and a message"},
		{"a table that is no JSON", `return {status = "Healthy", [1] = 1}`, "", "cannot encode mixed or invalid key types"},

		{"an error of syntax", `return {status = `, "", "health.lua"},
		{"an error while it runs", "\nreturn {status = obj.status.phase}", "", "Foo web: health.lua:2: attempt to index a non-table object(nil)"},
		{"an error that it raises", `error("on purpose")`, "", "on purpose"},
		{"a script that does not end", `while true do end`, "", "context deadline exceeded"},
		{"os is not there", `os.execute("touch touched")`, "", "attempt to index a non-table object(nil) with key 'execute'"},
		{"nor by require", `require("os").execute("touch touched")`, "", "attempt to call a non-function object"},
		{"nor is io", `io.open("touched", "w")`, "", "attempt to index a non-table object(nil) with key 'open'"},
		{"files cannot be run", `dofile("health.lua")`, "", "attempt to call a non-function object"},
		{"nor loaded", `loadfile("health.lua")`, "", "attempt to call a non-function object"},
		// Argo CD does not open them by default, so a health check that wants them would fail there.
		{"string is not there", `return {status = string.upper("x")}`, "", "attempt to index a non-table object(nil) with key 'upper'"},
		{"nor is math", `return {status = math.max(1, 2)}`, "", "attempt to index a non-table object(nil) with key 'max'"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("health.lua", []byte(tc.script), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"argocd", "health.lua"}
			if tc.wantErr != "" {
				expectError(t, args, in, "", tc.wantErr)
			} else {
				objects := strings.Repeat(in, 1+strings.Count(tc.want, "\n"))
				if have, err := output(args, objects); err != nil || have != tc.want+"\n" {
					t.Errorf("%q, %v; want %q", have, err, tc.want+"\n")
				}
			}
			if files, err := filepath.Glob("*"); err != nil || len(files) != 1 {
				t.Errorf("the script has left %q, %v", files, err)
			}
		})
	}
}
