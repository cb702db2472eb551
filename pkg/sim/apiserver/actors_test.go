package apiserver_test

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/types"
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
	do(&requester{t, s})
	time.Sleep(time.Minute)
	cancel()
	running.Wait()
	return s.Trace()
}

// owned returns a request for a ConfigMap with these owner references.
func owned(name, refs string) string {
	return fmt.Sprintf(`POST configmaps {"metadata":{"name":%q,"ownerReferences":[%s]}}`, name, refs)
}

// ref returns a reference to an owner, with additional fields.
func ref(apiVersion, kind string, owner metav1.Object, more string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q%s}`,
		apiVersion, kind, owner.GetName(), owner.GetUID(), more)
}

// ownedBy returns a request for a ConfigMap that an existing object owns.
func ownedBy(r *requester, name, resource, kind, owner, more string) string {
	r.t.Helper()
	m := r.stored([]string{resource, owner}).(metav1.Object)
	return owned(name, ref(resources[resource].GroupVersion().String(), kind, m, more))
}

func TestGarbageCollector(t *testing.T) {
	const blocks = `,"blockOwnerDeletion":true`
	for _, test := range []struct {
		name string
		do   func(r *requester)
		want []string // What the collector did.
		left int      // How many ConfigMaps, Deployments and Gadgets are left.
	}{
		{
			name: "in the background",
			do: func(r *requester) {
				r.do(aDeployment)
				r.do(ownedBy(r, "a", "deployments", "Deployment", "web", ""))
				r.do(ownedBy(r, "b", "configmaps", "ConfigMap", "a", ""))
				r.do(`DELETE deployments/web`)
			},
			want: []string{
				"1.000s delete configmaps default/a (deleted): 200, version 7",
				"1.000s delete configmaps default/b (deleted): 200, version 8",
			},
		},
		{
			name: "in the background, when the dependents are old",
			do: func(r *requester) {
				r.do(aDeployment)
				r.do(ownedBy(r, "a", "deployments", "Deployment", "web", ""))
				r.do(ownedBy(r, "b", "configmaps", "ConfigMap", "a", ""))
				time.Sleep(10 * time.Second)
				r.do(`DELETE deployments/web`)
			},
			want: []string{
				"11.000s delete configmaps default/a (deleted): 200, version 7",
				"12.000s delete configmaps default/b (deleted): 200, version 8",
			},
		},
		{
			name: "in the foreground",
			do: func(r *requester) {
				r.do(aDeployment)
				r.do(ownedBy(r, "a", "deployments", "Deployment", "web", blocks))
				r.do(`DELETE deployments/web {"propagationPolicy":"Foreground"}`)
			},
			want: []string{
				"1.000s delete configmaps default/a (deleted): 200, version 6",
				"2.000s patch deployments default/web (deleted): 200, version 7",
			},
		},
		{
			name: "in the foreground, with one that does not block and one that a finalizer holds",
			do: func(r *requester) {
				r.do(aDeployment)
				r.do(ownedBy(r, "a", "deployments", "Deployment", "web", ""))
				b := ownedBy(r, "b", "deployments", "Deployment", "web", blocks)
				r.do(strings.Replace(b, `"name":"b"`, `"name":"b","finalizers":["x/y"]`, 1))
				r.do(`DELETE deployments/web {"propagationPolicy":"Foreground"}`)
				time.Sleep(10 * time.Second)
				r.do(`MERGE configmaps/b {"metadata":{"finalizers":null}}`)
			},
			want: []string{
				"1.000s delete configmaps default/a (deleted): 200, version 7",
				"1.000s delete configmaps default/b (metadata.deletionGracePeriodSeconds none -> 0, " +
					"metadata.deletionTimestamp none -> " +
					"2000-01-01T00:00:01Z): 200, version 8",
				"11.000s patch deployments default/web (deleted): 200, version 10",
			},
		},
		{
			name: "orphans",
			do: func(r *requester) {
				r.do(aDeployment)
				r.do(ownedBy(r, "a", "deployments", "Deployment", "web", ""))
				r.do(`DELETE deployments/web {"propagationPolicy":"Orphan"}`)
			},
			want: []string{
				"1.000s patch configmaps default/a (metadata.ownerReferences[370cabd5-0000-4000-8000-000000000002].apiVersion " +
					"apps/v1 -> none, " +
					"metadata.ownerReferences[370cabd5-0000-4000-8000-000000000002].kind Deployment -> none, " +
					"metadata.ownerReferences[370cabd5-0000-4000-8000-000000000002].name web -> none, " +
					"metadata.ownerReferences[370cabd5-0000-4000-8000-000000000002].uid 370cabd5-0000-4000-8000-000000000002 -> " +
					"none): 200, version 6",
				"1.000s patch deployments default/web (deleted): 200, version 7",
			},
			left: 1,
		},
		{
			name: "an owner that never existed",
			do: func(r *requester) {
				r.do(owned("a", `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"x"}`))
			},
			want: []string{"1.000s delete configmaps default/a (deleted): 200, version 4"},
		},
		{
			name: "an owner of a kind that is not registered",
			do: func(r *requester) {
				r.do(owned("a", `{"apiVersion":"batch/v1","kind":"CronJob","name":"web","uid":"x"}`))
			},
			left: 1,
		},
		{
			name: "an owner in a version that is not registered",
			do: func(r *requester) {
				r.do(aDeployment)
				web := r.stored([]string{"deployments", "web"}).(metav1.Object)
				r.do(owned("a", ref("apps/v9", "Deployment", web, "")))
				r.do(`DELETE deployments/web`)
			},
			left: 1,
		},
		{
			name: "in the foreground, with a dependent that names a version that is not registered",
			do: func(r *requester) {
				r.do(aDeployment)
				web := r.stored([]string{"deployments", "web"}).(metav1.Object)
				r.do(owned("a", ref("apps/v9", "Deployment", web, blocks)))
				r.do(`DELETE deployments/web {"propagationPolicy":"Foreground"}`)
				time.Sleep(10 * time.Second)
				r.do(`DELETE configmaps/a`)
			},
			want: []string{"11.000s patch deployments default/web (deleted): 200, version 7"},
		},
		{
			name: "an owner that does not exist, and one of a kind that is not registered",
			do: func(r *requester) {
				r.do(owned("a", `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"x"},`+
					`{"apiVersion":"batch/v1","kind":"CronJob","name":"web","uid":"y"}`))
			},
			left: 1,
		},
		{
			name: "a cluster-scoped object whose owner has a namespace",
			do: func(r *requester) {
				r.do(aConfigMap)
				a := r.stored([]string{"configmaps", "a"}).(metav1.Object)
				r.do(`POST gadgets {$gadget,"metadata":{"name":"g","ownerReferences":[` + ref("v1", "ConfigMap", a, "") +
					`]}}`)
				time.Sleep(10 * time.Second)
				r.do(`DELETE configmaps/a`)
			},
			left: 1,
		},
		{
			name: "a cycle in the foreground",
			do: func(r *requester) {
				r.do(aConfigMap)
				r.do(ownedBy(r, "b", "configmaps", "ConfigMap", "a", blocks))
				b := r.stored([]string{"configmaps", "b"}).(metav1.Object)
				r.do(`MERGE configmaps/a {"metadata":{"ownerReferences":[` + ref("v1", "ConfigMap", b, blocks) + `]}}`)
				r.do(`DELETE configmaps/a {"propagationPolicy":"Foreground"}`)
			},
			want: []string{
				"1.000s patch configmaps default/b (metadata.ownerReferences[370cabd5-0000-4000-8000-000000000002]." +
					"blockOwnerDeletion true -> false): 200, version 7",
				"1.000s delete configmaps default/b (metadata.deletionGracePeriodSeconds none -> 0, " +
					"metadata.deletionTimestamp none -> 2000-01-01T00:00:01Z, metadata.finalizers[0] none -> " +
					"foregroundDeletion): 200, version 8",
				"2.000s patch configmaps default/a (deleted): 200, version 9",
				"2.000s patch configmaps default/b (deleted): 200, version 10",
			},
		},
		{
			name: "one of two owners is deleted",
			do: func(r *requester) {
				r.do(aDeployment)
				r.do(`POST configmaps {"metadata":{"name":"a"}}`)
				web := r.stored([]string{"deployments", "web"}).(metav1.Object)
				a := r.stored([]string{"configmaps", "a"}).(metav1.Object)
				r.do(owned("b", ref("apps/v1", "Deployment", web, "")+","+ref("v1", "ConfigMap", a, "")))
				r.do(`DELETE configmaps/a`)
			},
			want: []string{
				"1.000s patch configmaps default/b (metadata.ownerReferences[360caa42-0000-4000-8000-000000000003].apiVersion " +
					"v1 -> none, " +
					"metadata.ownerReferences[360caa42-0000-4000-8000-000000000003].kind ConfigMap -> none, " +
					"metadata.ownerReferences[360caa42-0000-4000-8000-000000000003].name a -> none, " +
					"metadata.ownerReferences[360caa42-0000-4000-8000-000000000003].uid 360caa42-0000-4000-8000-000000000003 -> " +
					"none): 200, version 7",
			},
			left: 2,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				trace := act(t, s, test.do,
					func(ctx context.Context) { apiserver.RunGarbageCollector(ctx, s, time.Second) })
				if diff := cmp.Diff(test.want, by("garbage-collector", trace)); diff != "" {
					t.Errorf("what it did (-want +got):\n%s\n%s", diff, trace)
				}
				left := len(s.Objects(configMaps)) + len(s.Objects(deployments)) + len(s.Objects(gadgets))
				if left != test.left {
					t.Errorf("%d left, want %d\n%s", left, test.left, trace)
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

func TestActorsRetryFailedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		broken := 3
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if broken > 0 && r.User != "test" {
				broken--
				return nil, errReset
			}
			return next()
		})
		act(t, s, func(r *requester) {
			r.do(aDeployment)
			r.do(ownedBy(r, "a", "deployments", "Deployment", "web", ""))
			r.do(`DELETE deployments/web`)
		}, func(ctx context.Context) { apiserver.RunGarbageCollector(ctx, s, 0) })
		if n := len(s.Objects(configMaps)); n != 0 || broken != 0 {
			t.Errorf("%d ConfigMaps left, %d faults\n%s", n, broken, s.Trace())
		}
	})
}

// An owner may be deleted, and its deletion compacted, before the collector has seen it. Its dependents are garbage.
func TestGarbageIsCollectedAfterACompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		act(t, s, func(r *requester) {
			r.do(aDeployment)
			r.do(ownedBy(r, "a", "deployments", "Deployment", "web", ""))
			time.Sleep(10 * time.Second)
			r.do(`DELETE deployments/web`)
			s.Compact()
		}, func(ctx context.Context) { apiserver.RunGarbageCollector(ctx, s, time.Second) })
		if n := len(s.Objects(configMaps)); n != 0 {
			t.Errorf("%d ConfigMaps left\n%s", n, s.Trace())
		}
	})
}

// A compaction may drop changes that the collector, because of its lag, has not seen yet, while there are newer ones.
// It must not look at the objects again and again until time passes, which in a bubble would be never.
func TestACompactionDoesNotKeepTheCollectorBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		act(t, s, func(r *requester) {
			time.Sleep(10 * time.Second)
			r.do(aConfigMap)
			s.Compact()
			r.do(`POST configmaps {"metadata":{"name":"b"}}`)
			r.do(owned("c", `{"apiVersion":"v1","kind":"ConfigMap","name":"d","uid":"x"}`))
		}, func(ctx context.Context) { apiserver.RunGarbageCollector(ctx, s, time.Second) })
		if n := len(s.Objects(configMaps)); n != 2 {
			t.Errorf("%d ConfigMaps left\n%s", n, s.Trace())
		}
	})
}

func TestNamespaceTermination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		api := clientOf(s, "alice").CoreV1()
		trace := act(t, s, func(r *requester) {
			ctx := t.Context()
			namespace := &corev1.Namespace{ObjectMeta: objectMeta("n")}
			if _, err := api.Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"x/y"}}}
			for _, cm := range []*corev1.ConfigMap{{ObjectMeta: objectMeta("a")}, held} {
				if _, err := api.ConfigMaps("n").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := api.Namespaces().Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			late := &corev1.ConfigMap{ObjectMeta: objectMeta("b")}
			_, err := api.ConfigMaps("n").Create(ctx, late, metav1.CreateOptions{})
			want := `configmaps "b" is forbidden: unable to create new content in namespace n because it is being ` +
				`terminated`
			if err == nil || err.Error() != want {
				t.Errorf("a new object: %v", err)
			}
			_, err = api.ConfigMaps("m").Create(ctx, late, metav1.CreateOptions{})
			if want := `namespaces "m" not found`; err == nil || err.Error() != want {
				t.Errorf("in no namespace: %v", err)
			}
			time.Sleep(30 * time.Second)
			patch := []byte(`{"metadata":{"finalizers":null}}`)
			_, err = api.ConfigMaps("n").Patch(ctx, "held", types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
			}
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

func TestUser(t *testing.T) {
	runs := [2]string{}
	for i := range runs {
		synctest.Test(t, func(t *testing.T) {
			s := apiserver.New(kinds()...)
			api := clientOf(s, "alice").CoreV1().ConfigMaps("default")
			edits := []func(context.Context, *rest.Config, *rand.Rand) error{
				func(ctx context.Context, _ *rest.Config, random *rand.Rand) error {
					cm := &corev1.ConfigMap{ObjectMeta: objectMeta(fmt.Sprint("n", random.Intn(3)))}
					_, err := api.Create(ctx, cm, metav1.CreateOptions{})
					return err
				},
				func(context.Context, *rest.Config, *rand.Rand) error { return errors.New("on second thought, no") },
			}
			runs[i] = act(t, s, func(*requester) {}, func(ctx context.Context) {
				apiserver.RunUser(ctx, s, apiserver.User{
					Name: "alice", Rand: rand.New(rand.NewSource(1)), Pause: 5 * time.Second, Edits: edits,
				})
			})
		})
	}
	if runs[0] != runs[1] || !strings.Contains(runs[0], "alice: on second thought, "+
		"no") || !strings.Contains(runs[0], "alice: create") {
		t.Errorf("two runs from one seed:\n%s\n%s", runs[0], runs[1])
	}
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
			(&requester{t, s}).do(strings.ReplaceAll(aDeployment, `"web"`, strconv.Quote(name(random))))
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
