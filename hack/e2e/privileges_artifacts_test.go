package e2e

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// newEnforcingEnv returns an env on a cluster of its own, whose API server enforces the permissions that owner
// references need. Most clusters do not.
func newEnforcingEnv(t *testing.T) *env {
	t.Helper()
	waitForRoom(t)
	c, err := startCluster("api", "--admission-plugins=OwnerReferencesPermissionEnforcement")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c.env(t)
}

// waitForKinds waits until the API server finds the kind Foo for these permissions. It searches every ten seconds.
func (e *env) waitForKinds(t *testing.T) {
	t.Helper()
	controller := e.as(t, controllerUser)
	until(t, "the API server knows the kind of the owners", func(context.Context) (bool, error) {
		return controller.create(owned) == nil, nil
	})
}

// grants returns what the controller's ServiceAccount is allowed, and what every user is allowed.
func (c *cluster) grants(t *testing.T) (own, everybody grant) {
	t.Helper()
	ctx, all := t.Context(), metav1.ListOptions{}
	rbac := c.kube.RbacV1()
	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := rbac.RoleBindings("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range clusterBindings.Items {
		bindings.Items = append(bindings.Items, rbacv1.RoleBinding{RoleRef: b.RoleRef, Subjects: b.Subjects})
	}
	for _, b := range bindings.Items {
		into := &own
		if slices.ContainsFunc(b.Subjects, isEverybody) {
			into = &everybody
		} else if !slices.ContainsFunc(b.Subjects, isController) {
			continue
		}
		for _, rule := range c.rules(t, b.RoleRef, b.Namespace) {
			into.add(rule, b.Namespace)
		}
	}
	return own, everybody
}

func isController(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.ServiceAccountKind && serviceAccount(s.Namespace) == controllerUser && s.Name == controllerName
}

func isEverybody(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.GroupKind && (s.Name == "system:authenticated" || s.Name == "system:serviceaccounts")
}

// flagsOfADeployment returns the flags of artifacts/deploy, for a process outside of the cluster.
func (e *env) flagsOfADeployment(t *testing.T) []string {
	t.Helper()
	return append(patient.flags(), "--kubeconfig", e.kubeconfig(t, nil), "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=0.0.0.0:0")
}

// One controller does all that a controller ever does. It uses each permission that it has, and it is refused nothing.
// What everybody may do, such as discovery, is no permission of its own.
func TestThePermissionsAreThoseThatTheControllerUses(t *testing.T) {
	e := newEnforcingEnv(t)
	e.waitForKinds(t)
	e.readers(t)
	own, everybody := e.grants(t)
	for _, watchList := range []string{"true", "false"} {
		t.Run("WatchListClient="+watchList, func(t *testing.T) {
			began := time.Now()
			defer func() {
				for _, r := range e.requests(t, began) {
					if r.ResponseStatus.Code == http.StatusForbidden {
						t.Errorf("refused: %s %s", r.Verb, r.RequestURI)
					}
				}
			}()
			cmd := controllerCommand(e.flagsOfADeployment(t)...)
			cmd.Env = append(os.Environ(), "KUBE_FEATURE_WatchListClient="+watchList)
			p := startProcess(t, cmd)
			e.useAll(t, p)
			p.stop(t) // The audit log has a watch when it has ended.
			used := e.used(t, began, own, everybody)
			for _, p := range own.permissions {
				if !used[p] {
					t.Errorf("granted and never used: %s in %q", p, p.namespace)
				}
			}
			streams := slices.ContainsFunc(e.requests(t, began), func(r *apiRequest) bool {
				return strings.Contains(r.RequestURI, "sendInitialEvents=true")
			})
			if streams != (watchList == "true") {
				t.Errorf("watches that begin with all objects: %t: the variable has no effect", streams)
			}
			e.deleteFoo(t, "web", metav1.DeletePropagationBackground)
			e.kubectl(t, "", "delete", "deployment", "--all", "-n", e.namespace)
			e.kubectl(t, "", "delete", "lease", controllerName, "-n", "foo-system")
		})
		if t.Failed() {
			return // What the first controller has left is in the way of the second one.
		}
	}
}

// useAll makes a controller use all of its permissions.
func (e *env) useAll(t *testing.T, p *process) {
	t.Helper()
	e.createFoo(t, "web", fooSpec("web"))
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	e.corrects(t, "web")
	e.corrects(t, "web") // The second correction changes the event of the first one.
	until(t, "the event is counted", func(ctx context.Context) (bool, error) {
		list, err := e.kube.EventsV1().Events(e.namespace).List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, hasSeries), err
	})
	e.kubectl(t, "", "delete", "deployment", "web", "-n", e.namespace)
	until(t, "the Deployment is created again", func(context.Context) (bool, error) { return e.exists(t, "web"), nil })
	e.rename(t, "web", "next")
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	e.reportAvailable(t, "next", 1)
	until(t, "the Foo has moved", func(context.Context) (bool, error) { return e.hasDeployments(t, "next"), nil })
	if status := e.scrape(t, p); status != http.StatusOK {
		t.Errorf("the metrics are answered with %d", status)
	}
}

func hasSeries(event eventsv1.Event) bool { return event.Series != nil }

// permissionCases has all permissions. Two that follow one another do not need each other.
var permissionCases = []permissionCase{
	{permission: permission{verb: "list", group: sampleGroup, resource: "foos"}, atStart: onlyStart},
	{permission: permission{verb: "list", group: "apps", resource: "deployments"}, atStart: onlyStart},
	{permission: permission{verb: "watch", group: sampleGroup, resource: "foos"}, atStart: onlyStart},
	{permission: permission{verb: "watch", group: "apps", resource: "deployments"}, atStart: onlyStart},
	{permission: lease("get"), atStart: onlyStart},
	{
		permission: lease("create"),
		atStart: func(t *testing.T, e *env) {
			e.kubectl(t, "", "delete", "lease", controllerName, "-n", "foo-system")
		},
	},
	{permission: lease("update"), atStart: onlyStart},
	{
		permission: permission{verb: "update", group: sampleGroup, resource: "foos", subresource: "finalizers"},
		provoke:    createsAFoo, request: "create deployments.apps", // The API server checks it for the owner reference.
	},
	{
		permission: permission{verb: "patch", group: sampleGroup, resource: "foos", subresource: "status"},
		provoke:    createsAFoo,
	},
	{permission: permission{verb: "create", group: "apps", resource: "deployments"}, provoke: createsAFoo},
	{
		permission: permission{verb: "patch", group: "apps", resource: "deployments"},
		prepare:    hasAFoo,
		provoke: func(t *testing.T, e *env, _ *process, name string) {
			e.editFoo(t, name, `{"spec":{"replicas":2}}`)
		},
	},
	{
		permission: permission{verb: "get", group: sampleGroup, resource: "foos"},
		prepare:    hasAFoo,
		provoke: func(t *testing.T, e *env, _ *process, name string) {
			e.kubectl(t, "", "delete", "deployment", name, "-n", e.namespace)
		},
	},
	{
		permission: permission{verb: "get", group: "apps", resource: "deployments"},
		prepare:    renamesAFoo, provoke: finishesARename,
	},
	{
		permission: permission{verb: "delete", group: "apps", resource: "deployments"},
		prepare:    renamesAFoo, provoke: finishesARename,
	},
	{
		permission: permission{verb: "create", group: "events.k8s.io", resource: "events"},
		prepare: func(t *testing.T, e *env, name string) {
			e.createDeployment(t, name, func(*appsv1.Deployment) {}) // A Foo of this name has a warning.
		},
		provoke: createsAFoo, once: true,
	},
	{
		permission: permission{verb: "patch", group: "events.k8s.io", resource: "events"},
		prepare:    hasAFoo,
		provoke: func(t *testing.T, e *env, _ *process, name string) {
			e.corrects(t, name)
			e.corrects(t, name) // The second correction changes the event of the first one.
		},
		once: true,
	},
	{
		permission: permission{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"},
		provoke:    isScraped, once: true,
	},
	{
		permission: permission{verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews"},
		provoke:    isScraped, once: true,
	},
}

func onlyStart(*testing.T, *env) {}

func hasAFoo(t *testing.T, e *env, name string) {
	t.Helper()
	e.createFoo(t, name, fooSpec(name))
	e.waitForReason(t, name, v1alpha1.ReasonCreating)
}

func createsAFoo(t *testing.T, e *env, _ *process, name string) {
	t.Helper()
	e.createFoo(t, name, fooSpec(name))
}

func renamesAFoo(t *testing.T, e *env, name string) {
	t.Helper()
	hasAFoo(t, e, name)
	e.rename(t, name, name+"-next")
	e.waitForReason(t, name, v1alpha1.ReasonCreating)
}

func finishesARename(t *testing.T, e *env, _ *process, name string) {
	t.Helper()
	e.reportAvailable(t, name+"-next", 1)
}

// corrects waits until the controller has corrected a change of a Deployment.
func (e *env) corrects(t *testing.T, name string) {
	t.Helper()
	e.editDeployment(t, name, `{"spec":{"replicas":9}}`)
	until(t, "the Deployment is corrected", func(context.Context) (bool, error) {
		return *e.deployment(t, name).Spec.Replicas == 1, nil
	})
}

func isScraped(t *testing.T, e *env, p *process, _ string) {
	t.Helper()
	e.scrape(t, p)
}

// For each verb of each rule: without it, the API server refuses the request that needs it, and no other one. /readyz
// reports the permission with a command that shows the same. When the verb is there again, the controller sends the
// request again and does not report it any more, without a restart.
//
// While there is a problem, the controller checks its permissions every eight seconds, and otherwise at most once a
// minute. So the next verb is removed at the moment when one comes back, except for those that are needed at the start:
// there, a new process takes the place of the one that has continued.
func TestWithoutAPermissionOnlyItsRequestIsRefused(t *testing.T) {
	e := newEnforcingEnv(t)
	e.waitForKinds(t)
	e.readers(t)
	own, _ := e.grants(t)
	for _, p := range own.permissions {
		if p != olderStatus &&
			!slices.ContainsFunc(permissionCases, func(pc permissionCase) bool { return pc.permission == p }) {
			t.Errorf("this test cannot make the controller need %q in %q", p, p.namespace)
		}
	}
	r := &removal{env: e, roles: e.roles(t), flags: e.flagsOfADeployment(t)}
	r.start(t)
	for _, pc := range permissionCases {
		if pc.prepare != nil {
			pc.prepare(t, e, pc.name("first"))
			pc.prepare(t, e, pc.name("second"))
		}
	}
	for i := range permissionCases {
		r.next(t, &permissionCases[i])
	}
	r.next(t, nil)
	until(t, "/readyz reports nothing", func(context.Context) (bool, error) { return r.problems(t) == "", nil })
}
