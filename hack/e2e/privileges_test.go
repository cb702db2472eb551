package e2e

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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

func lease(verb string) permission {
	p := permission{verb: verb, group: "coordination.k8s.io", resource: "leases", namespace: "foo-system"}
	if verb != "create" {
		p.name = controllerName
	}
	return p
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
