package footest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// plantedFaults are faults around the controller that a scenario must notice.
var plantedFaults = []struct {
	name      string
	onRequest func(*env, *request)
	differs   bool   // The output differs from the wanted one.
	problem   string // Part of the problem that is reported, "" for none.
}{
	{name: "none", onRequest: func(*env, *request) {}},
	{
		name:      "another write than expected",
		onRequest: func(_ *env, r *request) { r.line += " more" },
		differs:   true,
	},
	{
		name:      "a status that is acknowledged and not stored, so that it is written again and again",
		onRequest: loseStatus,
		differs:   true,
		problem:   "one more sync of every Foo sends",
	},
	{
		name:      "a cached object that changes during a sync",
		onRequest: changeCachedFoo,
		problem:   "the sync of web changed a cached object",
	},
	{
		name:      "a panic",
		onRequest: func(*env, *request) { panic("planted") },
		differs:   true,
		problem:   "panicked",
	},
	{
		name:      "a request that lacks something",
		onRequest: func(_ *env, r *request) { r.flaw = errors.New("a flaw") },
		differs:   true,
		problem:   "a flaw",
	},
}

// loseStatus acknowledges a write of a status without storing it.
func loseStatus(_ *env, r *request) {
	if r.verb != "status" {
		return
	}
	r.do = func() (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(r.body))}, nil
	}
}

func changeCachedFoo(e *env, _ *request) {
	foo := e.controllers[0].caches[foosResource].store.List()[0].(*v1alpha1.Foo)
	foo.Labels = map[string]string{"changed": "yes"}
}

// RunScenariosWithFaults plays a small scenario once for each planted fault. It fails if the player does not notice
// one.
func RunScenariosWithFaults(t *testing.T, newSubject NewSubject) {
	const text = "foo web deployment=web-1\n----\n" +
		"create deployment web-1 replicas=1 image=nginx:latest\n" +
		"status web Ready=False Reconciling Creating: Created Deployment \"web-1\". " +
		"Waiting for the Deployment controller to create its pods\n"
	for _, test := range plantedFaults {
		t.Run(test.name, func(t *testing.T) {
			got, problems := playInBubble(t, text, player{newSubject: newSubject, onRequest: test.onRequest})
			if differs := got != text; differs != test.differs {
				t.Errorf("the output differs: %t, want %t\n%s", differs, test.differs, got)
			}
			all := strings.Join(problems, "\n")
			if (test.problem == "") != (all == "") || !strings.Contains(all, test.problem) {
				t.Errorf("problems are %q, want %q", all, test.problem)
			}
		})
	}
}
