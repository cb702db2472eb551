package apiserver_test

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// act runs actors, calls do, lets a minute pass, and returns the trace.
func act(t *testing.T, s *apiserver.Server, do func(r *requester), actors ...func(ctx context.Context)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, actor := range actors {
		running.Go(func() { actor(ctx) })
	}
	do(&requester{t: t, server: s})
	time.Sleep(time.Minute)
	cancel()
	running.Wait()
	return s.Trace()
}

// dependent creates a ConfigMap. Its owners are existing objects, such as "deployments/web", with "!" if it blocks
// their deletion, or references.
func (r *requester) dependent(name string, owners ...string) {
	r.t.Helper()
	var refs []string
	for _, owner := range owners {
		path, blocks := strings.CutSuffix(owner, "!")
		if !strings.HasPrefix(owner, "{") {
			obj := r.stored(strings.Split(path, "/"))
			kind, m := obj.GetObjectKind().GroupVersionKind(), obj.(metav1.Object)
			owner = fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%t}`,
				kind.GroupVersion(), kind.Kind, m.GetName(), m.GetUID(), blocks)
		}
		refs = append(refs, owner)
	}
	r.do(fmt.Sprintf(`POST configmaps {"metadata":{"name":%q}}`, name))
	r.do(fmt.Sprintf(`MERGE configmaps/%s {"metadata":{"ownerReferences":[%s]}}`, name, strings.Join(refs, ",")))
}

// hack/test/conformance compares what the collector leaves of random heaps of objects with what that of a real cluster
// leaves.
func TestGarbageCollector(t *testing.T) {
	const (
		absent   = `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"x"}`
		unserved = `{"apiVersion":"batch/v1","kind":"CronJob","name":"web","uid":"y"}`
	)
	web := func(r *requester) string {
		return string(r.stored([]string{"deployments", "web"}).(metav1.Object).GetUID())
	}
	for _, test := range []struct {
		name string
		do   func(r *requester)
		want []string // What is left a minute later, with the numbers of owners and finalizers.
	}{
		{name: "in the background", do: func(r *requester) {
			r.dependent("a", "deployments/web")
			r.dependent("b", "configmaps/a")
			r.do(`DELETE deployments/web`)
		}},
		{name: "in the background, when the dependents are old", do: func(r *requester) {
			r.dependent("a", "deployments/web")
			r.dependent("b", "configmaps/a")
			time.Sleep(10 * time.Second)
			r.do(`DELETE deployments/web`)
		}},
		{name: "in the foreground, with one that does not block and one that a finalizer holds", do: func(r *requester) {
			r.dependent("a", "deployments/web")
			r.dependent("b", "deployments/web!")
			r.do(`MERGE configmaps/b {"metadata":{"finalizers":["x/y"]}}`)
			r.do(`DELETE deployments/web {"propagationPolicy":"Foreground"}`)
		}, want: []string{"b 1 1", "web 0 1"}},
		{name: "in the foreground, when the finalizer is gone", do: func(r *requester) {
			r.dependent("b", "deployments/web!")
			r.do(`MERGE configmaps/b {"metadata":{"finalizers":["x/y"]}}`)
			r.do(`DELETE deployments/web {"propagationPolicy":"Foreground"}`)
			time.Sleep(10 * time.Second)
			r.do(`MERGE configmaps/b {"metadata":{"finalizers":null}}`)
		}},
		{name: "orphans", do: func(r *requester) {
			r.dependent("a", "deployments/web")
			r.do(`DELETE deployments/web {"propagationPolicy":"Orphan"}`)
		}, want: []string{"a 0 0"}},
		{name: "an owner that never existed", do: func(r *requester) { r.dependent("a", absent) },
			want: []string{"web 0 0"}},
		{name: "an owner of a kind that is not registered", do: func(r *requester) { r.dependent("a", unserved) },
			want: []string{"a 1 0", "web 0 0"}},
		{name: "an owner in a version that is not registered", do: func(r *requester) {
			r.dependent("a", `{"apiVersion":"apps/v9","kind":"Deployment","name":"web","uid":"`+web(r)+`"}`)
			r.do(`DELETE deployments/web`)
		}, want: []string{"a 1 0"}},
		{name: "in the foreground, with a dependent that names a version that is not registered", do: func(r *requester) {
			r.dependent("a", `{"apiVersion":"apps/v9","kind":"Deployment","name":"web","blockOwnerDeletion":true,"uid":"`+
				web(r)+`"}`)
			r.do(`DELETE deployments/web {"propagationPolicy":"Foreground"}`)
			time.Sleep(10 * time.Second)
			r.do(`DELETE configmaps/a`)
		}},
		{name: "an owner that does not exist, and one of a kind that is not registered",
			do: func(r *requester) { r.dependent("a", absent, unserved) }, want: []string{"a 2 0", "web 0 0"}},
		{name: "a cluster-scoped object whose owner has a namespace", do: func(r *requester) {
			r.dependent("a")
			uid := r.stored([]string{"configmaps", "a"}).(metav1.Object).GetUID()
			r.do(`POST gadgets {$gadget,"metadata":{"name":"g","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap",` +
				`"name":"a","uid":"` + string(uid) + `"}]}}`)
			time.Sleep(10 * time.Second)
			r.do(`DELETE configmaps/a`)
		}, want: []string{"g 1 0", "web 0 0"}},
		{name: "a cycle in the foreground", do: func(r *requester) {
			r.dependent("a")
			r.dependent("b", "configmaps/a!")
			uid := r.stored([]string{"configmaps", "b"}).(metav1.Object).GetUID()
			r.do(`MERGE configmaps/a {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"b",` +
				`"blockOwnerDeletion":true,"uid":"` + string(uid) + `"}]}}`)
			r.do(`DELETE configmaps/a {"propagationPolicy":"Foreground"}`)
		}, want: []string{"web 0 0"}},
		{name: "one of two owners is deleted", do: func(r *requester) {
			r.dependent("a")
			r.dependent("b", "deployments/web", "configmaps/a")
			r.do(`DELETE configmaps/a`)
		}, want: []string{"b 1 0", "web 0 0"}},
		{name: "an owner whose deletion is compacted before the collector has seen it", do: func(r *requester) {
			r.dependent("a", "deployments/web")
			time.Sleep(10 * time.Second)
			r.do(`DELETE deployments/web`)
			r.server.Compact()
		}},
		// The collector must not read the objects again and again until time passes, which in a bubble would be never.
		{name: "a compaction drops changes that the collector has not seen, and there are newer ones",
			do: func(r *requester) {
				time.Sleep(10 * time.Second)
				r.do(aConfigMap)
				r.server.Compact()
				r.do(`POST configmaps {"metadata":{"name":"b"}}`)
				r.dependent("c", `{"apiVersion":"v1","kind":"ConfigMap","name":"d","uid":"x"}`)
			}, want: []string{"a 0 0", "b 0 0", "web 0 0"}},
		{name: "requests that fail are sent again", do: func(r *requester) {
			broken := 3
			r.server.Intercept(func(request *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if broken > 0 && request.User != "test" {
					broken--
					return nil, errReset
				}
				return next()
			})
			r.dependent("a", "deployments/web")
			r.do(`DELETE deployments/web`)
			time.Sleep(10 * time.Second)
			if synctest.Wait(); broken != 0 { // Wait, because the collector counts too.
				r.t.Errorf("%d faults have not happened", broken)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				trace := act(t, s, func(r *requester) {
					r.do(aDeployment)
					test.do(r)
				}, func(ctx context.Context) { apiserver.RunGarbageCollector(ctx, s, time.Second) })
				var left []string
				for _, gvr := range []schema.GroupVersionResource{configMaps, gadgets, deployments} {
					for _, obj := range s.Objects(gvr) {
						m := obj.(metav1.Object)
						left = append(left, fmt.Sprint(m.GetName(), " ", len(m.GetOwnerReferences()), " ", len(m.GetFinalizers())))
					}
				}
				if diff := cmp.Diff(test.want, left); diff != "" {
					t.Errorf("left (-want +got):\n%s\n%s", diff, trace)
				}
			})
		})
	}
}

// by returns the lines of one user in a trace.
func by(user, trace string) []string {
	var lines []string
	for line := range strings.Lines(trace) {
		if strings.Contains(line, " "+user+": ") {
			lines = append(lines, strings.TrimSpace(strings.Replace(line, user+": ", "", 1)))
		}
	}
	return lines
}

func TestNamespaceTermination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		trace := act(t, s, func(r *requester) {
			const inN = `/api/v1/namespaces/n/configmaps`
			r.do(`POST namespaces {"metadata":{"name":"n"}}`)
			r.do(`POST ` + inN + ` {"metadata":{"name":"a"}}`)
			r.do(`POST ` + inN + ` {"metadata":{"name":"held","finalizers":["x/y"]}}`)
			r.do(`DELETE namespaces/n`)
			time.Sleep(30 * time.Second)
			r.do(`MERGE ` + inN + `/held {"metadata":{"finalizers":null}}`)
		}, func(ctx context.Context) { apiserver.RunNamespaces(ctx, s, time.Second) })
		want := []string{
			"1.000s deletecollection configmaps -n n (n/a deleted; n/held metadata.deletionGracePeriodSeconds none -> 0, " +
				"metadata.deletionTimestamp none -> 2000-01-01T00:00:01Z): 200, version 8",
			"31.000s update namespaces/finalize n (deleted): 200, version 10",
		}
		if diff := cmp.Diff(want, by("namespace-controller", trace)); diff != "" {
			t.Errorf("what it did (-want +got):\n%s\n%s", diff, trace)
		}
	})
}

// statusLine describes the status of a Deployment in one line.
func statusLine(s *apiserver.Server) string {
	dep, ok := s.Object(deployments, "default", "web").(*appsv1.Deployment)
	if !ok {
		return "none"
	}
	if got := dep.Annotations["deployment.kubernetes.io/revision"]; dep.Status.UpdatedReplicas > 0 && got == "" {
		return "no revision"
	}
	words := fmt.Sprintf("observed %d of %d, %d replicas, %d updated, %d "+
		"available", dep.Status.ObservedGeneration, dep.Generation,
		dep.Status.Replicas, dep.Status.UpdatedReplicas, dep.Status.AvailableReplicas)
	for _, cond := range dep.Status.Conditions {
		words += fmt.Sprintf(" %s=%s/%s", cond.Type, cond.Status, cond.Reason)
	}
	return words
}

func TestDeployments(t *testing.T) {
	available := func(dep *appsv1.Deployment) time.Duration {
		if dep.Annotations["never"] != "" {
			return -1
		}
		return 10 * time.Second
	}
	failure := func(dep *appsv1.Deployment) string { return dep.Annotations["failure"] }
	type step struct {
		do    string
		after time.Duration
		want  string
	}
	const (
		no, yes = " Available=False/MinimumReplicasUnavailable", " Available=True/MinimumReplicasAvailable"
		moving  = " Progressing=True/ReplicaSetUpdated"
		done    = " Progressing=True/NewReplicaSetAvailable"
	)
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{name: "a rollout", steps: []step{
			{aDeployment, 0, "observed 0 of 1, 0 replicas, 0 updated, 0 available"},
			{"", 2 * time.Second, "observed 1 of 1, 2 replicas, 2 updated, 0 available" + no + moving},
			{"", 10 * time.Second, "observed 1 of 1, 2 replicas, 2 updated, 2 available" + yes + done},
			{`MERGE deployments/web {"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`, 2 * time.Second,
				"observed 2 of 2, 2 replicas, 2 updated, 2 available" + yes + done},
			{`MERGE deployments/web {"spec":{"replicas":1}}`, 2 * time.Second,
				"observed 3 of 3, 1 replicas, 1 updated, 1 available" + yes + done},
			{`MERGE deployments/web {"spec":{"replicas":5}}`, 2 * time.Second,
				"observed 4 of 4, 5 replicas, 5 updated, 1 available" + no + moving},
			{"", 20 * time.Second, "observed 4 of 4, 5 replicas, 5 updated, 5 available" + yes + done},
			{"DELETE deployments/web", 20 * time.Second, "none"},
		}},
		{name: "a rollout that exceeds its deadline", steps: []step{
			{`POST deployments {"metadata":{"name":"web","annotations":{"never":"yes"}},` +
				`"spec":{"progressDeadlineSeconds":60}}`, 59 * time.Second,
				"observed 1 of 1, 1 replicas, 1 updated, 0 available" + no + moving},
			{"", 3 * time.Second, "observed 1 of 1, 1 replicas, 1 updated, 0 available" + no + " " +
				"Progressing=False/ProgressDeadlineExceeded"},
			{`MERGE deployments/web {"metadata":{"annotations":null}}`, 2 * time.Second,
				"observed 2 of 2, 1 replicas, 1 updated, 1 available" + yes + done},
		}},
		{name: "a pause", steps: []step{
			{`POST deployments {"metadata":{"name":"web"},"spec":{"paused":true}}`, 2 * time.Second,
				"observed 1 of 1, 0 replicas, 0 updated, 0 available" + yes + " Progressing=Unknown/DeploymentPaused"},
			{`MERGE deployments/web {"spec":{"paused":false}}`, 20 * time.Second,
				"observed 2 of 2, 1 replicas, 1 updated, 1 available" + yes + done},
		}},
		{name: "pods that a quota refuses", steps: []step{
			{`POST deployments {"metadata":{"name":"web","annotations":{"failure":"exceeded quota"}}}`,
				20 * time.Second,
				"observed 1 of 1, 0 replicas, 0 updated, 0 available ReplicaFailure=True/FailedCreate" + no + moving},
			{`MERGE deployments/web {"metadata":{"annotations":null}}`, 20 * time.Second,
				"observed 2 of 2, 1 replicas, 1 updated, 1 available" + yes + done},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				trace := act(t, s, func(r *requester) {
					for _, step := range test.steps {
						if step.do != "" {
							r.do(step.do)
						}
						time.Sleep(step.after)
						if diff := cmp.Diff(step.want, statusLine(s)); diff != "" {
							t.Errorf("%s, %s later (-want +got):\n%s", step.do, step.after, diff)
						}
					}
				}, func(ctx context.Context) {
					apiserver.RunDeployments(ctx, s,
						apiserver.Rollouts{Lag: time.Second, Available: available, Failure: failure})
				})
				if t.Failed() {
					t.Log("\n" + trace)
				}
			})
		})
	}
}

// A rollout starts only when its status is written. Here the first status write for a new pod template, whose pods are
// refused, is lost.
func TestARolloutWhoseStatusWriteIsLostStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		var lose atomic.Bool
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if r.Subresource == "status" && lose.CompareAndSwap(true, false) {
				return nil, errReset
			}
			return next()
		})
		act(t, s, func(r *requester) {
			r.do(aDeployment)
			time.Sleep(20 * time.Second)
			lose.Store(true)
			r.do(`MERGE deployments/web {"metadata":{"annotations":{"failure":"full"}},` +
				`"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}`)
		}, func(ctx context.Context) {
			failure := func(dep *appsv1.Deployment) string { return dep.Annotations["failure"] }
			apiserver.RunDeployments(ctx, s, apiserver.Rollouts{Failure: failure})
		})
		want := "observed 2 of 2, 2 replicas, 0 updated, 2 available"
		if got := statusLine(s); lose.Load() || !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s\n%s", got, want, s.Trace())
		}
	})
}

func TestDeploymentsContinueTheRolloutOfAnotherController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		how := apiserver.Rollouts{Available: func(*appsv1.Deployment) time.Duration { return 90 * time.Second }}
		run := func(ctx context.Context) { apiserver.RunDeployments(ctx, s, how) }
		act(t, s, func(r *requester) { r.do(aDeployment) }, run)
		act(t, s, func(*requester) {}, run)
		trace := act(t, s, func(*requester) { time.Sleep(time.Minute) }, run)
		if got := len(by("deployment-controller", trace)); got != 2 {
			t.Errorf("%d writes, want 2\n%s", got, trace)
		}
		dep := s.Object(deployments, "default", "web").(*appsv1.Deployment)
		got := dep.Annotations["deployment.kubernetes.io/revision"]
		if got != "1" || dep.Status.AvailableReplicas != 2 {
			t.Errorf("revision %s, %s", got, statusLine(s))
		}
	})
}

// With GOMAXPROCS=1 the same seed produces the same trace: nothing in the server depends on the order of a map.
func TestARunIsRepeatedExactly(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var traces []string
	for range 3 {
		synctest.Test(t, func(t *testing.T) { traces = append(traces, randomRun(t, 1)) })
	}
	if len(traces[0]) < 10_000 {
		t.Errorf("not much happened:\n%s", traces[0])
	}
	for _, trace := range traces[1:] {
		if diff := cmp.Diff(traces[0], trace); diff != "" {
			t.Fatalf("another run (-first +this):\n%s", diff)
		}
	}
}

// randomRun lets a user edit Deployments and their dependents while all actors run. It returns the trace.
func randomRun(t *testing.T, seed int64) string {
	s := apiserver.New(kinds()...)
	client := clientOf(s, "alice")
	name := func(random *rand.Rand) string { return fmt.Sprint("n", random.Intn(5)) }
	edits := []func(context.Context, *rest.Config, *rand.Rand) error{
		func(_ context.Context, _ *rest.Config, random *rand.Rand) error {
			(&requester{t: t, server: s}).do(strings.ReplaceAll(aDeployment, `"web"`, strconv.Quote(name(random))))
			return nil
		},
		func(ctx context.Context, _ *rest.Config, random *rand.Rand) error {
			dep, err := client.AppsV1().Deployments("default").Get(ctx, name(random), metav1.GetOptions{})
			if err != nil {
				return err
			}
			owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: dep.Name, UID: dep.UID}
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "cm-"}}
			cm.OwnerReferences = []metav1.OwnerReference{owner}
			_, err = client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, _ *rest.Config, random *rand.Rand) error {
			policy := []metav1.DeletionPropagation{"Background", "Foreground", "Orphan"}[random.Intn(3)]
			options := metav1.DeleteOptions{PropagationPolicy: &policy}
			return client.AppsV1().Deployments("default").Delete(ctx, name(random), options)
		},
	}
	return act(t, s, func(*requester) {},
		func(ctx context.Context) { apiserver.RunGarbageCollector(ctx, s, 10*time.Millisecond) },
		func(ctx context.Context) { apiserver.RunNamespaces(ctx, s, 10*time.Millisecond) },
		func(ctx context.Context) {
			apiserver.RunDeployments(ctx, s, apiserver.Rollouts{Lag: 10 * time.Millisecond})
		},
		func(ctx context.Context) {
			random := rand.New(rand.NewSource(seed))
			apiserver.RunUser(ctx, s,
				apiserver.User{Name: "alice", Rand: random, Pause: 300 * time.Millisecond, Edits: edits})
		})
}

func TestActorsOfUnregisteredKindsReturn(t *testing.T) {
	s := apiserver.New()
	apiserver.RunNamespaces(t.Context(), s, 0)
	apiserver.RunDeployments(t.Context(), s, apiserver.Rollouts{})
}
