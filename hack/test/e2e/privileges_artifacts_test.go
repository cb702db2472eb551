package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests that artifacts/deploy/rbac.yaml grants the controller what it uses, and nothing else.

const sampleGroup = v1alpha1.GroupName

// A permission is one verb of a rule. An empty namespace is the whole cluster, an empty name is every name.
type permission struct {
	verb, group, resource, subresource, namespace, name string
}

// String returns the permission as the controller reports it: update foos.samplecontroller.k8s.io/status.
func (p permission) String() string {
	text := strings.TrimSuffix(p.verb+" "+p.resource+"."+p.group+"/"+p.subresource, "/")
	return strings.TrimSpace(text + " " + p.name)
}

// needs returns the permission that the request needs, for its object and its namespace.
func (r *apiRequest) needs() permission {
	return permission{
		verb: r.Verb, group: r.ObjectRef.APIGroup, resource: r.ObjectRef.Resource, subresource: r.ObjectRef.Subresource,
		namespace: r.ObjectRef.Namespace, name: r.ObjectRef.Name,
	}
}

// kind returns the permission that the request needs for any object.
func (r *apiRequest) kind() string {
	p := r.needs()
	p.name = ""
	return p.String()
}

// A grant is what the roles of a subject allow.
type grant struct {
	permissions []permission
	// paths are those that are no resources, such as /version. One may end with *.
	paths []string
}

// rules returns the rules of a role.
func (c *cluster) rules(t *testing.T, ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	t.Helper()
	if ref.Kind == "ClusterRole" {
		role, err := c.kube.RbacV1().ClusterRoles().Get(t.Context(), ref.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return role.Rules
	}
	role, err := c.kube.RbacV1().Roles(namespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// add adds what a rule allows.
func (g *grant) add(rule rbacv1.PolicyRule, namespace string) {
	g.paths = append(g.paths, rule.NonResourceURLs...)
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					p := permission{verb: verb, group: group, namespace: namespace, name: name}
					p.resource, p.subresource, _ = strings.Cut(resource, "/")
					g.permissions = append(g.permissions, p)
				}
			}
		}
	}
}

// allowing returns the permissions that allow a request. There may be several.
func (g *grant) allowing(r *apiRequest) []permission {
	var found []permission
	for _, p := range g.permissions {
		needed := r.needs()
		if p.name == "" {
			needed.name = ""
		}
		if p.namespace == "" {
			needed.namespace = ""
		}
		if p == needed {
			found = append(found, p)
		}
	}
	return found
}

// allowsPath reports whether a request that is for no resource is allowed.
func (g *grant) allowsPath(r *apiRequest) bool {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return r.ObjectRef.Resource == "" && slices.ContainsFunc(g.paths, func(allowed string) bool {
		prefix, all := strings.CutSuffix(allowed, "*")
		return path == allowed || all && strings.HasPrefix(path, prefix)
	})
}

// may reports whether a user has a permission.
func (c *cluster) may(ctx context.Context, t *testing.T, user string, p permission) bool {
	t.Helper()
	review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: p.namespace, Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource,
				Name: p.name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// readers lets all ServiceAccounts of the namespace read the metrics.
func (e *env) readers(t *testing.T) {
	t.Helper()
	e.kubectl(t, "", "create", "clusterrolebinding", e.namespace, "--clusterrole=foo-controller-metrics-reader",
		"--group=system:serviceaccounts:"+e.namespace)
}

// newAccount creates a ServiceAccount in the namespace, and returns its name.
func (e *env) newAccount(t *testing.T) string {
	t.Helper()
	return e.kubectl(t, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"generateName":"reader-"}}`,
		"create", "-n", e.namespace, "-o", "jsonpath={.metadata.name}", "-f", "-")
}

// token returns a token of a ServiceAccount of the namespace.
func (e *env) token(t *testing.T, account string, flags ...string) string {
	t.Helper()
	args := append([]string{"create", "token", account, "-n", e.namespace}, flags...)
	return strings.TrimSpace(e.kubectl(t, "", args...))
}

// scrape reads the metrics as a ServiceAccount that is new, so that no answer about it is in a cache.
func (e *env) scrape(t *testing.T, p *process) (status int) {
	t.Helper()
	address := p.address(t, "metrics")
	port := address[strings.LastIndex(address, ":"):]
	status, _ = fetch(t, "https://127.0.0.1"+port+"/metrics", e.token(t, e.newAccount(t)))
	return status
}

// newEnforcingEnv returns an env on a cluster of its own, whose API server enforces the permissions that owner
// references need. Most clusters do not. It returns when the API server has found the kind Foo for these permissions,
// for which it searches every ten seconds.
func newEnforcingEnv(t *testing.T) *env {
	t.Helper()
	e := newDedicatedEnv(t, apiCluster, "--admission-plugins=OwnerReferencesPermissionEnforcement")
	controller := e.as(t, controllerUser)
	until(t, "the API server knows the kind of the owners", func(ctx context.Context) (bool, error) {
		return creates(owned)(ctx, controller) == nil, nil
	})
	return e
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

// One controller does all that a controller ever does. It uses each permission that it has, and it is refused nothing.
// What everybody may do, such as discovery, is no permission of its own.
func TestThePermissionsAreThoseThatTheControllerUses(t *testing.T) {
	e := newEnforcingEnv(t)
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
			cmd := controllerCommand(append(patient.flags(), "--kubeconfig", e.kubeconfig(t, nil),
				"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=0.0.0.0:0")...)
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

// used returns which of its own permissions the controller has used since it began. Each of its requests must be
// allowed by one of them, or by what everybody may do.
func (e *env) used(t *testing.T, began time.Time, own, everybody grant) map[permission]bool {
	t.Helper()
	used := map[permission]bool{}
	for _, r := range e.requests(t, began) {
		allowing := own.allowing(r)
		if len(allowing) == 0 && len(everybody.allowing(r)) == 0 && !everybody.allowsPath(r) {
			t.Errorf("allowed by no role of the controller: %s %s", r.Verb, r.RequestURI)
		}
		for _, p := range allowing {
			used[p] = true
		}
	}
	used[olderStatus] = true
	// No request is for foos/finalizers. An owner reference that blocks the deletion of the Foo needs it.
	owner := metav1.GetControllerOf(e.deployment(t, "next"))
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		used[permission{verb: "update", group: sampleGroup, resource: "foos", subresource: "finalizers"}] = true
	}
	return used
}

// olderStatus is for the copies of an older version, while they are replaced. This version patches the status.
var olderStatus = permission{verb: "update", group: sampleGroup, resource: "foos", subresource: "status"}

// A permissionCase is a permission, and how a test makes a controller need it that has been without it from its start.
type permissionCase struct {
	verb, group, resource string // As permission. Leases are those of the election.
	prepare               func(t *testing.T, e *env)
	// provoke makes the running controller send the request. Without it, the start does.
	provoke func(t *testing.T, e *env, p *process, name string)
	once    bool   // The controller does not repeat a request that was refused.
	request string // What is refused, "" if it is the request of the permission.
}

var permissionCases = []permissionCase{
	{verb: "list", group: sampleGroup, resource: "foos"},
	{verb: "list", group: "apps", resource: "deployments"},
	{verb: "watch", group: sampleGroup, resource: "foos"},
	{verb: "watch", group: "apps", resource: "deployments"},
	{verb: "get", group: "coordination.k8s.io", resource: "leases"},
	{verb: "create", group: "coordination.k8s.io", resource: "leases"},
	{verb: "update", group: "coordination.k8s.io", resource: "leases", prepare: hasALease},
	{ // The API server checks it for the owner reference.
		verb: "update", group: sampleGroup, resource: "foos/finalizers",
		provoke: createsAFoo, request: "create deployments.apps",
	},
	{verb: "patch", group: sampleGroup, resource: "foos/status", provoke: createsAFoo},
	{verb: "create", group: "apps", resource: "deployments", provoke: createsAFoo},
	{
		verb: "patch", group: "apps", resource: "deployments",
		provoke: func(t *testing.T, e *env, p *process, name string) {
			hasAFoo(t, e, p, name)
			e.editFoo(t, name, `{"spec":{"replicas":2}}`)
		},
	},
	{
		verb: "get", group: sampleGroup, resource: "foos",
		provoke: func(t *testing.T, e *env, p *process, name string) {
			hasAFoo(t, e, p, name)
			e.kubectl(t, "", "delete", "deployment", name, "-n", e.namespace)
		},
	},
	{verb: "get", group: "apps", resource: "deployments", provoke: renamesAFoo},
	{verb: "delete", group: "apps", resource: "deployments", provoke: renamesAFoo},
	{
		verb: "create", group: "events.k8s.io", resource: "events", once: true,
		provoke: func(t *testing.T, e *env, p *process, name string) {
			e.createDeployment(t, name, nothing) // A Foo of this name has a warning.
			createsAFoo(t, e, p, name)
		},
	},
	{
		verb: "patch", group: "events.k8s.io", resource: "events", once: true,
		provoke: func(t *testing.T, e *env, p *process, name string) {
			hasAFoo(t, e, p, name)
			e.corrects(t, name)
			e.corrects(t, name) // The second correction changes the event of the first one.
		},
	},
	{
		verb: "create", group: "authentication.k8s.io", resource: "tokenreviews", once: true,
		provoke: func(t *testing.T, e *env, p *process, _ string) { e.scrape(t, p) },
	},
	{
		verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews", once: true,
		provoke: func(t *testing.T, e *env, p *process, _ string) { e.scrape(t, p) },
	},
}

// hasALease creates the Lease, so that the controller changes it.
func hasALease(t *testing.T, e *env) {
	e.kubectl(t, fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s-%s"}}`,
		controllerName, e.namespace), "create", "-n", e.namespace, "-f", "-")
}

func createsAFoo(t *testing.T, e *env, _ *process, name string) {
	t.Helper()
	e.createFoo(t, name, fooSpec(name))
}

func hasAFoo(t *testing.T, e *env, p *process, name string) {
	t.Helper()
	createsAFoo(t, e, p, name)
	e.waitForReason(t, name, v1alpha1.ReasonCreating)
}

func renamesAFoo(t *testing.T, e *env, p *process, name string) {
	t.Helper()
	hasAFoo(t, e, p, name)
	e.rename(t, name, name+"-next")
	e.waitForReason(t, name, v1alpha1.ReasonCreating)
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

// For each verb of each rule: without it, the API server refuses the request that needs it, and no other one. /readyz
// reports the permission with a command that shows the same. When the verb is there again, the controller sends the
// request again and does not report it any more, without a restart.
func TestWithoutAPermissionOnlyItsRequestIsRefused(t *testing.T) {
	e := newEnforcingEnv(t)
	own, _ := e.grants(t)
	for _, p := range own.permissions {
		isCase := func(pc permissionCase) bool { return pc.needs(p) }
		if p != olderStatus && !slices.ContainsFunc(permissionCases, isCase) {
			t.Errorf("this test cannot make the controller need %q in %q", p, p.namespace)
		}
	}
	for _, pc := range permissionCases {
		t.Run(pc.kind(), func(t *testing.T) {
			t.Parallel()
			pc.test(t, e.cluster.env(t))
		})
	}
}

// kind is the permission as it is reported, for any object.
func (pc *permissionCase) kind() string {
	return strings.TrimSuffix(pc.verb+" "+strings.Replace(pc.resource+"/", "/", "."+pc.group+"/", 1), "/")
}

// in is the permission in a namespace.
func (pc *permissionCase) in(e *env) permission {
	resource, subresource, _ := strings.Cut(pc.resource, "/")
	p := permission{verb: pc.verb, group: pc.group, resource: resource, subresource: subresource, namespace: e.namespace}
	if resource == "leases" && pc.verb != "create" {
		p.name = controllerName + "-" + e.namespace
	}
	return p
}

// needs reports whether a permission is that of the case, for any object.
func (pc *permissionCase) needs(p permission) bool {
	p.name = ""
	return p.String() == pc.kind()
}

// test tests a case with a controller of its own, for one namespace.
func (pc *permissionCase) test(t *testing.T, e *env) {
	user := serviceAccount(e.namespace)
	grantAll := e.newController(t, pc)
	if pc.prepare != nil {
		pc.prepare(t, e)
	}
	began := time.Now()
	p := startController(t, append(patient.flags(), "--kubeconfig", e.kubeconfigOf(t, e.namespace, nil), "--namespace",
		e.namespace, "--leader-elect-namespace", e.namespace, "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=0.0.0.0:0")...)
	if pc.provoke != nil {
		pc.provoke(t, e, p, "first")
	}
	want := pc.kind()
	if pc.request != "" {
		want = pc.request
	}
	answered := func(isAnswer func(code int) bool) (kinds []string) {
		for _, r := range e.requestsOf(t, user, began) {
			if isAnswer(r.ResponseStatus.Code) && !slices.Contains(kinds, r.kind()) {
				kinds = append(kinds, r.kind())
			}
		}
		return kinds
	}
	isRefused := func(code int) bool { return code == http.StatusForbidden }
	until(t, want+" is refused", func(context.Context) (bool, error) { return len(answered(isRefused)) > 0, nil })

	url := "http://" + p.address(t, "health") + "/readyz"
	report := regexp.MustCompile(`permission="` + regexp.QuoteMeta(pc.in(e).String()) +
		`" fix="[^"]*" show="kubectl (auth can-i [^"]*)"`)
	var found []string
	until(t, "/readyz reports it", func(context.Context) (bool, error) {
		_, body := fetch(t, url, "")
		found = report.FindStringSubmatch(body)
		return found != nil, nil
	})
	if out, err := e.try("", strings.Fields(found[1])...); err == nil || !strings.HasSuffix(out, "no\n") {
		t.Errorf("the answer to kubectl %s is %q, want no", found[1], out)
	}
	if got := answered(isRefused); !slices.Equal(got, []string{want}) {
		t.Errorf("the API server refuses %q, want only %q", got, want)
	}

	grantAll()
	if pc.once {
		pc.provoke(t, e, p, "second")
	}
	if pc.verb != "watch" { // The audit log has it when it has ended.
		until(t, want+" is accepted", func(context.Context) (bool, error) {
			return slices.Contains(answered(func(code int) bool { return code < 300 }), want), nil
		})
	}
	p.waitForLog(t, `"Started"`)
	p.waitUntilReady(t)
}

// newController creates a ServiceAccount for a controller of the namespace, with the permissions of artifacts/deploy
// without that of the case. grantAll gives it that, too.
func (e *env) newController(t *testing.T, without *permissionCase) (grantAll func()) {
	t.Helper()
	name, user := controllerName+"-"+e.namespace, serviceAccount(e.namespace)
	all, part := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	all.Name, part.Name = name, name
	for _, role := range []rbacv1.RoleRef{
		{Kind: "ClusterRole", Name: controllerName}, {Kind: "ClusterRole", Name: "system:auth-delegator"},
		{Kind: "Role", Name: "foo-controller-lease"},
	} {
		for _, rule := range e.rules(t, role, systemNamespace) {
			for i := range rule.ResourceNames { // That of the Lease.
				rule.ResourceNames[i] = name
			}
			all.Rules = append(all.Rules, *rule.DeepCopy())
			if slices.Contains(rule.APIGroups, without.group) && slices.Contains(rule.Resources, without.resource) {
				rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == without.verb })
			}
			if len(rule.Verbs) > 0 {
				part.Rules = append(part.Rules, rule)
			}
		}
	}
	roles := e.kube.RbacV1().ClusterRoles()
	if _, err := roles.Create(t.Context(), part, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, "", "create", "serviceaccount", controllerName, "-n", e.namespace)
	e.kubectl(t, "", "create", "clusterrolebinding", name, "--clusterrole="+name,
		"--serviceaccount="+e.namespace+":"+controllerName)
	tokens := permission{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"}
	users := permission{verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews"}
	until(t, "the permissions are in force", func(ctx context.Context) (bool, error) {
		return e.may(ctx, t, user, tokens) || e.may(ctx, t, user, users), nil
	})
	return func() {
		t.Helper()
		if _, err := roles.Update(t.Context(), all, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "the permission is in force", func(ctx context.Context) (bool, error) {
			return e.may(ctx, t, user, without.in(e)), nil
		})
	}
}
