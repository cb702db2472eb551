package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/pkg/sim/apiserver"
)

func TestArgumentsMustBeUsed(t *testing.T) {
	args := parseArguments(` web-1 forbidden "not today" label.a/b=c replicas=3 once`)
	want := Arguments{
		words:  []string{"web-1", "forbidden", "not today", "once"},
		values: map[string]string{"label.a/b": "c", "replicas": "3"},
		used:   map[string]bool{},
	}
	if diff := cmp.Diff(want, args, cmp.AllowUnexported(Arguments{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	args.Value("label.a/b")
	if n := args.Number("replicas", 7); n != 3 {
		t.Errorf("replicas = %d, want 3", n)
	}
	for i := range 3 {
		args.Word(i)
	}
	if err := args.unused(); err == nil || !strings.Contains(err.Error(), `"once"`) {
		t.Errorf("error %v, want one about the unused argument", err)
	}
	if !args.Has("once") || args.unused() != nil {
		t.Errorf("error %v although all arguments were used", args.unused())
	}
}

func TestASimulationCanBeRead(t *testing.T) {
	const write, shown = "12.500s user: update foos/status default/web: ", "00:00:12.500 user: update foos/status default/web: "
	for line, want := range map[string]string{
		write + "200, version 7":                         "", // It has a line in words.
		write + "409 Conflict: object was modified":      shown + "409 Conflict: object was modified\n",
		write + "no answer: EOF (the server: 200)":       shown + "no answer: EOF (the server: 200)\n",
		"1.000s user: foos: sent BOOKMARK, version 7":    "",
		"1.000s user: create foos -n default (web): 201": "00:00:01.000 user: create foos -n default (web): 201\n",
	} {
		if got := readable(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	status := &apiserver.Request{
		Resource: apiserver.Deployments().Resource, Subresource: "status",
		Body: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"status":{"availableReplicas":1}}`),
	}
	if got, want := (&Kind{Served: []apiserver.Kind{apiserver.Deployments()}}).wordsFor(status), "status deployment web 1 of ? replicas available"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
