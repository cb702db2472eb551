package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This test kills the controller at each request of a rename, and checks that another controller completes the rename.
// The request is lost. A write is tested a second time, in which it is executed and only its response is lost. The
// methods of the requests up to this one identify it. Other requests may come between them, because the number of
// status writes depends on how fast the replicas become available.
func TestARenameCompletesWhereverTheControllerIsKilled(t *testing.T) {
	run := parts(t, fullCluster)
	for _, moment := range []string{
		"GET",         // The live read of the Foo before the new Deployment is created.
		"POST",        // The new Deployment.
		"POST status", // The first status, and then another.
		"POST status status",
		"POST GET",           // The live read of the Foo before the old Deployment is deleted.
		"POST GET GET",       // The live read of the new Deployment.
		"POST DELETE",        // The old Deployment.
		"POST DELETE status", // The last status.
	} {
		for _, lost := range []bool{true, false} {
			if !lost && strings.HasSuffix(moment, http.MethodGet) {
				continue // A read that is executed has no other effect than one that is lost.
			}
			run(fmt.Sprintf("%s lost=%t", moment, lost), func(t *testing.T, e *env) {
				e.renameAndKill(t, "web", strings.Fields(moment), lost)
			})
		}
	}
}

// renameAndKill renames a Foo, kills the controller at the last of the requests with these methods, and checks that
// another controller completes the rename.
func (e *env) renameAndKill(t *testing.T, name string, methods []string, lost bool) {
	proxy := newProxy(t, e.cluster)
	controller := e.start(t, proxy)
	e.createReady(t, name, v1alpha1.FooSpec{DeploymentName: name + "-old", Replicas: new(int32(2))})
	e.settle(t)

	var mu sync.Mutex // Each request has a goroutine of its own.
	proxy.mu.Lock()
	proxy.before = func(r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/deployments") && !strings.Contains(r.URL.Path, "s/"+name) {
			return // The request is about an event or another Foo.
		}
		mu.Lock()
		defer mu.Unlock()
		if len(methods) == 0 || methodOf(r) != methods[0] || r.URL.Query().Get("watch") != "" {
			return
		}
		if methods = methods[1:]; len(methods) > 0 {
			return
		}
		controller.kill()
		if lost {
			panic(http.ErrAbortHandler)
		}
		*r = *r.WithContext(context.WithoutCancel(r.Context())) // It does not end with its client.
	}
	proxy.mu.Unlock()

	lowest := e.sampleAvailableOf(t, name+"-")
	e.rename(t, name, name+"-new")
	until(t, "the controller is killed", func(context.Context) (bool, error) { return controller.ended(), nil })
	e.controller(t)
	until(t, "the Foo is renamed", func(context.Context) (bool, error) {
		foo := e.foo(t, name)
		return foo.Status.ObservedGeneration == foo.Generation && isReady(foo) &&
			readyCondition(foo).Message == "2 of 2 replicas available" && !e.exists(t, name+"-old"), nil
	})
	if n := lowest(); n < 2 {
		t.Errorf("%d replicas were available at one time, want 2 at all times", n)
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.signalled, p.code = true, -1
	_ = p.cmd.Process.Kill() // It may have ended before.
}
