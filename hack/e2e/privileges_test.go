package e2e

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests that artifacts/deploy/rbac.yaml grants the controller what it uses, and nothing else.

// A permission is one verb of a rule. An empty namespace is the whole cluster, an empty name is every name.
type permission struct {
	verb, group, resource, subresource, namespace, name string
}

// String returns the permission as the controller reports it: update foos.samplecontroller.k8s.io/status.
func (p permission) String() string {
	text := strings.TrimSuffix(p.verb+" "+p.resource+"."+p.group+"/"+p.subresource, "/")
	return strings.TrimSpace(text + " " + p.name)
}

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

// flagsOfADeployment returns the flags of artifacts/deploy, for a process outside of the cluster.
func (e *env) flagsOfADeployment(t *testing.T) []string {
	t.Helper()
	return append(patient.flags(), "--kubeconfig", e.kubeconfig(t, nil), "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=0.0.0.0:0")
}

// readers lets all ServiceAccounts of the namespace read the metrics.
func (e *env) readers(t *testing.T) {
	t.Helper()
	if _, err := e.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "foo-controller-metrics-reader"},
		Subjects: []rbacv1.Subject{{
			APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + e.namespace,
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// scrape reads the metrics as a ServiceAccount that is new, so that no answer about it is in a cache.
func (e *env) scrape(t *testing.T, p *process) (status int) {
	t.Helper()
	accounts := e.kube.CoreV1().ServiceAccounts(e.namespace)
	reader, err := accounts.Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "reader-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), reader.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := p.address(t, "metrics")
	port := address[strings.LastIndex(address, ":"):]
	status, _ = fetch(t, "https://127.0.0.1"+port+"/metrics", token.Status.Token)
	return status
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

// A permissionCase is a permission, and how a test makes the controller need it.
type permissionCase struct {
	permission permission
	// atStart is called before the controller starts. It is for permissions that the controller needs then.
	atStart func(t *testing.T, e *env)
	// prepare is called while no permission is missing. The name is one that no other case has.
	prepare func(t *testing.T, e *env, name string)
	// provoke makes the running controller send the request.
	provoke func(t *testing.T, e *env, p *process, name string)
	// once means that the controller does not repeat a request that was refused.
	once bool
	// request is the request that is refused. "" means that it is that of the permission.
	request string
}

const sampleGroup = v1alpha1.GroupName

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

func lease(verb string) permission {
	p := permission{verb: verb, group: "coordination.k8s.io", resource: "leases", namespace: "foo-system"}
	if verb != "create" {
		p.name = controllerName
	}
	return p
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

// name returns the name of the objects of the case, for the first and the second time that it is provoked.
func (pc *permissionCase) name(time string) string {
	return strings.NewReplacer(" ", "-", "/", "-", ".", "-").Replace(pc.permission.String()) + "-" + time
}

// refused returns the kind of the request that is refused without the permission.
func (pc *permissionCase) refused() string {
	p := pc.permission
	p.name = ""
	return cmp.Or(pc.request, p.String())
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

// A removal removes permissions of a controller, one after another.
type removal struct {
	*env
	flags   []string
	roles   []role
	process *process
	missing *permissionCase
	since   time.Time // When the permission was removed.
}

// A role is one of those that the controller has.
type role struct {
	rules []rbacv1.PolicyRule // As they were.
	set   func(context.Context, []rbacv1.PolicyRule) error
}

// roles returns the roles of the controller.
func (e *env) roles(t *testing.T) []role {
	t.Helper()
	var roles []role
	clusterRoles := e.kube.RbacV1().ClusterRoles()
	for _, name := range []string{controllerName, "system:auth-delegator"} {
		stored, err := clusterRoles.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role{rules: stored.Rules, set: func(ctx context.Context, rules []rbacv1.PolicyRule) error {
			_, err := clusterRoles.Update(ctx, &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.UpdateOptions{})
			return err
		}})
	}
	const ofLease = "foo-controller-lease"
	namespaced := e.kube.RbacV1().Roles("foo-system")
	stored, err := namespaced.Get(t.Context(), ofLease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return append(roles, role{rules: stored.Rules, set: func(ctx context.Context, rules []rbacv1.PolicyRule) error {
		_, err := namespaced.Update(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: ofLease}, Rules: rules}, metav1.UpdateOptions{})
		return err
	}})
}

// grantAllBut gives the controller all permissions but that of a case, and waits until that is in force. The permission
// is removed before another one is given back, so that there is always one missing.
func (r *removal) grantAllBut(t *testing.T, pc *permissionCase) {
	t.Helper()
	removed := permission{}
	if pc != nil {
		removed = pc.permission
	}
	for _, first := range []bool{true, false} {
		for _, role := range r.roles {
			rules, changed := without(role.rules, removed)
			if changed != first {
				continue
			}
			if err := role.set(t.Context(), rules); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "the permissions are in force", func(ctx context.Context) (bool, error) {
		return (pc == nil || !r.may(ctx, t, controllerUser, removed)) &&
			(r.missing == nil || r.may(ctx, t, controllerUser, r.missing.permission)), nil
	})
}

// without returns rules without a permission, and whether they had it.
func without(rules []rbacv1.PolicyRule, p permission) (rest []rbacv1.PolicyRule, changed bool) {
	resource := strings.TrimSuffix(p.resource+"/"+p.subresource, "/")
	for _, rule := range rules {
		rule := *rule.DeepCopy()
		if slices.Contains(rule.APIGroups, p.group) && slices.Contains(rule.Resources, resource) &&
			(p.name != "") == (len(rule.ResourceNames) > 0) {
			verbs := len(rule.Verbs)
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == p.verb })
			changed = changed || len(rule.Verbs) < verbs
		}
		if len(rule.Verbs) > 0 {
			rest = append(rest, rule)
		}
	}
	return rest, changed
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

func (r *removal) start(t *testing.T) {
	t.Helper()
	r.process = startController(t, r.flags...)
}

// next removes the permission of a case, and gives back what is missing now. Nil gives back only.
func (r *removal) next(t *testing.T, pc *permissionCase) {
	t.Helper()
	before := r.missing
	if restart := pc == nil || pc.atStart != nil; restart && before != nil {
		r.grantAllBut(t, nil)
		r.isRepaired(t, before)
		before = nil
	}
	if pc == nil {
		return
	}
	if pc.atStart != nil {
		r.process.stop(t)
		pc.atStart(t, r.env)
	}
	r.grantAllBut(t, pc)
	r.missing, r.since = pc, time.Now()
	if pc.atStart != nil {
		r.start(t)
	} else {
		pc.provoke(t, r.env, r.process, pc.name("first"))
	}
	until(t, pc.permission.String()+" is refused", func(context.Context) (bool, error) { return r.refusals(t) != "", nil })
	if before != nil {
		r.isRepaired(t, before)
	}
	r.isReported(t, pc, before)
	if got := r.refusals(t); got != pc.refused() {
		t.Errorf("without %q, the API server refuses %q, want only %q", pc.permission, got, pc.refused())
	}
}

// isRepaired waits until the request of a case is accepted.
func (r *removal) isRepaired(t *testing.T, pc *permissionCase) {
	t.Helper()
	if pc.permission.verb == "watch" { // The audit log has it when it has ended.
		r.process.waitForLog(t, `"Started"`)
		return
	}
	if pc.once {
		pc.provoke(t, r.env, r.process, pc.name("second"))
	}
	until(t, pc.refused()+" is accepted", func(context.Context) (bool, error) {
		return slices.ContainsFunc(r.requests(t, r.since), func(request *apiRequest) bool {
			return request.kind() == pc.refused() && request.ResponseStatus.Code < 300
		}), nil
	})
}

// isReported waits until /readyz reports the permission of a case, and not that of the case before. The command that it
// shows must answer the same.
func (r *removal) isReported(t *testing.T, pc, before *permissionCase) {
	t.Helper()
	report := regexp.MustCompile(`permission="` + regexp.QuoteMeta(pc.permission.String()) +
		`" fix="[^"]*" show="kubectl (auth can-i [^"]*)"`)
	var found []string
	until(t, "/readyz reports "+pc.permission.String(), func(context.Context) (bool, error) {
		problems := r.problems(t)
		found = report.FindStringSubmatch(problems)
		return found != nil && (before == nil || !strings.Contains(problems, `"`+before.permission.String()+`"`)), nil
	})
	out, err := r.try("", strings.Fields(found[1])...)
	if err == nil || !strings.HasSuffix(out, "no\n") {
		t.Errorf("the answer to kubectl %s is %q, want no", found[1], out)
	}
}

// problems returns what /readyz reports, "" if the controller is ready.
func (r *removal) problems(t *testing.T) string {
	t.Helper()
	status, body := fetch(t, "http://"+r.process.address(t, "health")+"/readyz", "")
	if status == http.StatusOK {
		return ""
	}
	return body
}

// refusals returns the kinds of the requests of the controller that were refused since a permission is missing.
func (r *removal) refusals(t *testing.T) string {
	t.Helper()
	var kinds []string
	for _, request := range r.requests(t, r.since) {
		if request.ResponseStatus.Code == http.StatusForbidden {
			kinds = append(kinds, request.kind())
		}
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), ", ")
}

// A permission to create cannot be limited to a name, so that for Leases is only for one namespace. There, the
// controller reads and changes only its own Lease.
func TestLeasesAreWrittenOnlyInTheNamespaceOfTheController(t *testing.T) {
	e := newEnv(t, apiCluster)
	client := e.withTokenOf(t, "foo-system")
	for _, namespace := range []string{"foo-system", "default", "kube-system", e.namespace} {
		leases, own := client.CoordinationV1().Leases(namespace), namespace == "foo-system"
		for _, name := range []string{controllerName, "of-another"} {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{DryRun: dryRun})
			if apierrors.IsForbidden(err) == own {
				t.Errorf("creating the Lease %s/%s: %v", namespace, name, err)
			}
			allowed := own && name == controllerName
			if _, err := leases.Get(t.Context(), name, metav1.GetOptions{}); apierrors.IsForbidden(err) == allowed {
				t.Errorf("reading the Lease %s/%s: %v", namespace, name, err)
			}
			_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{DryRun: dryRun})
			if apierrors.IsForbidden(err) == allowed {
				t.Errorf("changing the Lease %s/%s: %v", namespace, name, err)
			}
			err = leases.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dryRun})
			if !apierrors.IsForbidden(err) {
				t.Errorf("deleting the Lease %s/%s: %v", namespace, name, err)
			}
		}
	}
}

// withTokenOf returns a client with the token of the controller's ServiceAccount in a namespace.
func (e *env) withTokenOf(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfigOf(t, namespace, nil))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
