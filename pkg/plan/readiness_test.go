package plan_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
)

const (
	// The conditions of a report, in short.
	available3   = "True Available: 3 of 3 replicas available"
	reconciling  = "False Reconciling "
	stalled      = "False Stalled "
	beingDeleted = reconciling + `WaitingForDeletion: Deployment "web-1" is being deleted. It is created again ` +
		"afterwards" + stillExists1
	pausedPrefix = "Paused: No Deployment is created, changed or deleted for this Foo while spec.paused is true. " +
		`Deployment "web-1" `
	unpause       = `. To resume: kubectl -n default patch foo web --type=merge -p '{"spec":{"paused":false}}'`
	notOwnedWeb1  = stalled + "NotOwned: "
	creatingWeb1  = `Created Deployment "web-1". Waiting for the Deployment controller to create its pods`
	waitsForSight = reconciling + "Progressing: Waiting for the Deployment controller to apply the last change "
	cannotCreate  = reconciling + `Refused: Cannot create Deployment "web-1": `
	failedCreate  = reconciling + `RequestFailed: Cannot create Deployment "web-1": `
	cannotPatch   = reconciling + `Refused: Cannot patch Deployment "web-1" (3 of 5 replicas available): `
	pausedByHand  = stalled + `DeploymentPaused: spec.paused of Deployment "web-1" is true, so changes are not ` +
		"rolled out "
	resume = ". To resume: kubectl -n default rollout resume deployment web-1"
	cure   = ". Change the quota or the policy that refuses it, or ask an administrator of the cluster to do it. For Pod " +
		"Security, see artifacts/examples/restricted and docs/policies.md"
	// podsForbidden is the cause in the condition of a Deployment that cannot create pods.
	podsForbidden = ": pods is forbidden"
	noSet         = stalled + `ReplicaFailure: Deployment "web-1" cannot create its ReplicaSet `
	noPods        = stalled + `ReplicaFailure: Deployment "web-1" cannot create pods `
	tooLate       = stalled + `ProgressDeadlineExceeded: Deployment "web-1" has exceeded its progress deadline: `
	ifItLasts     = ". If this lasts: " + describePods
	seePods       = ". To see why its pods do not become available: " + describePods
	describePods  = "kubectl -n default describe pods --show-events " +
		"-l 'app=nginx,controller=web,samplecontroller.k8s.io/deployment=web-1'"
	negativeReplicas = "spec.replicas is -1. Set 0 or more, or remove it" + editWeb
	editWeb          = ". To change it: kubectl -n default edit foo web"
)

func TestStatus(t *testing.T) {
	foo, unset := newFoo(withReplicas(3)), newFoo()
	paused := newFoo(withReplicas(3), withPaused)
	dep := func(with ...deploymentOption) *appsv1.Deployment { return newDeployment(foo, with...) }
	noController := notOwnedWeb1 + notOwned("web-1", "it has no controller")
	invalid := newFoo(withReplicas(-1))
	const negative = stalled + "Invalid: " + negativeReplicas

	for _, tc := range []struct {
		name    string
		foo     *v1alpha1.Foo
		dep     *appsv1.Deployment
		ledger  ledger
		replies []reply
		want    string
	}{
		{
			name: "no Deployment yet", foo: foo,
			want: reconciling + "Creating: " + creatingWeb1,
		},
		{
			name: "a Deployment that the Deployment controller has not seen", foo: foo,
			dep:  dep(observedAt(0, 1), rollout(0, 0, 0)),
			want: reconciling + "Creating: " + creatingWeb1,
		},
		{name: "a Deployment being deleted", foo: foo, dep: dep(deleted), want: beingDeleted},

		{
			name: "a change that the Deployment controller has not seen", foo: foo, dep: dep(observedAt(1, 2)),
			want: waitsForSight + "(3 of 3 replicas available)",
		},
		{
			name: "a ReplicaSet that cannot be made", foo: foo, dep: dep(observedAt(0, 1), rollout(0, 0, 0), noReplicaSet),
			want: noSet + "(0 of 3 replicas available)" + podsForbidden + cure,
		},
		{
			name: "no replica updated", foo: foo, dep: dep(rollout(3, 0, 3)),
			want: reconciling + "Progressing: 0 of 3 replicas updated" + ifItLasts,
		},
		{
			name: "one replica short of updated", foo: foo, dep: dep(rollout(3, 2, 3)),
			want: reconciling + "Progressing: 2 of 3 replicas updated" + ifItLasts,
		},
		{
			name: "one replica short of available", foo: foo, dep: dep(available(2)),
			want: reconciling + "Progressing: 2 of 3 replicas available" + ifItLasts,
		},
		{
			name: "an old replica still there", foo: foo, dep: dep(rollout(4, 3, 3)),
			want: reconciling + "Progressing: Waiting for 1 old replica to terminate",
		},
		{
			name: "too many replicas, and too few available", foo: foo, dep: dep(rollout(4, 3, 1)),
			want: reconciling + "Progressing: 1 of 3 replicas available" + ifItLasts,
		},
		{name: "all replicas available", foo: foo, dep: dep(), want: available3},
		{
			name: "replicas that have not ended after a scale down", foo: foo, dep: dep(rollout(5, 5, 5)),
			want: reconciling + "Progressing: Waiting for 2 old replicas to terminate",
		},
		{
			name: "no replicas wanted", foo: newFoo(withReplicas(0)), dep: newDeployment(newFoo(withReplicas(0))),
			want: "True Available: 0 of 0 replicas available",
		},
		{
			name: "absent replicas are one", foo: unset, dep: newDeployment(unset, withoutReplicas),
			want: "True Available: 1 of 1 replicas available",
		},
		{
			name: "the Deployment's number counts when the Foo has none", foo: unset,
			dep: newDeployment(unset, scaled(2), rollout(2, 2, 2)), want: "True Available: 2 of 2 replicas available",
		},

		{
			name: "paused by a user", foo: foo, dep: dep(pausedByUser, rollout(3, 1, 2)),
			want: pausedByHand + "(2 of 3 replicas available)" + resume,
		},
		{
			name: "pods that cannot be made", foo: foo, dep: dep(replicaFailure, rollout(1, 1, 1)),
			want: noPods + "(1 of 3 replicas available)" + podsForbidden + cure,
		},
		{
			name: "pods that do not come up in time", foo: foo, dep: dep(deadlineExceeded, available(1)),
			want: tooLate + "1 of 3 replicas available" + seePods,
		},
		{
			name: "a replica failure that is over", foo: foo, want: available3,
			dep: dep(withCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "FailedCreate")),
		},
		{
			name: "a rollout that stands still for another reason", foo: foo, want: available3,
			dep: dep(withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "DeploymentPaused")),
		},
		{
			name: "an outdated observation counts for nothing, whatever the conditions are", foo: foo,
			dep:  dep(observedAt(1, 2), pausedByUser, replicaFailure, deadlineExceeded),
			want: waitsForSight + "(3 of 3 replicas available)",
		},
		{
			name: "paused comes before a replica failure", foo: foo,
			dep:  dep(replicaFailure, deadlineExceeded, pausedByUser),
			want: pausedByHand + "(3 of 3 replicas available)" + resume,
		},
		{
			name: "a replica failure comes before the deadline", foo: foo, dep: dep(deadlineExceeded, replicaFailure),
			want: noPods + "(3 of 3 replicas available)" + podsForbidden + cure,
		},
		{
			name: "a missed deadline comes before missing replicas", foo: foo, dep: dep(deadlineExceeded, rollout(3, 2, 3)),
			want: tooLate + "2 of 3 replicas updated" + seePods,
		},

		{name: "an invalid Foo", foo: invalid, want: negative},
		{
			name: "a refused create", foo: foo, replies: []reply{fails(createDeployment, forbidden)},
			want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a refused patch comes before the Deployment's rollout", foo: foo, dep: dep(scaled(5), deadlineExceeded),
			replies: []reply{fails(patchDeployment, forbidden)}, want: cannotPatch + overQuota + lasts,
		},
		{name: "a Deployment that is not the Foo's", foo: foo, dep: dep(ownedBy()), want: noController},
		{
			name: "a refused read before a create", foo: newFoo(observed),
			replies: []reply{fails(readFoo, forbidden)}, want: cannotCreate + overQuota + lasts,
		},
		{
			name: "a create that the server is too busy for", foo: foo,
			replies: []reply{fails(createDeployment, apierrors.NewTooManyRequests("slow down", 1))},
			want:    failedCreate + "the API server has too many requests: slow down" + passes,
		},
		{
			name: "a failure with a reason of its own", foo: foo,
			ledger: ledger{op(createDeployment, "web-1"): refusedUntil(1, &reconcile.Problem{
				Reason: "NotOwned", Message: "x", Stalled: true,
			})},
			want: stalled + "NotOwned: x",
		},

		{name: "paused without a Deployment", foo: paused, want: "False " + pausedPrefix + "does not exist" + unpause},
		{
			name: "paused with a foreign Deployment", foo: paused, dep: dep(ownedBy()),
			want: "False " + pausedPrefix + "is not controlled by this Foo" + unpause,
		},
		{
			name: "paused while all is well", foo: paused, dep: dep(),
			want: "True " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused while the Deployment makes no progress", foo: paused, dep: dep(deadlineExceeded),
			want: "False " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused while the Deployment is being deleted", foo: paused, dep: dep(deleted),
			want: "False " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused comes before invalid", foo: newFoo(withReplicas(-1), withPaused), dep: dep(),
			want: "True " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
		{
			name: "paused comes before what failed", foo: paused, dep: dep(),
			ledger: ledger{op(patchDeployment, "web-1"): until(1)},
			want:   "True " + pausedPrefix + "has 3 of 3 replicas available" + unpause,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			memory := reconcile.Memory{UID: tc.foo.UID, Generation: tc.foo.Generation, Ledger: tc.ledger}
			c := play(t, world{Foo: tc.foo, Deployment: tc.dep, Memory: memory}, tc.replies...)
			if diff := cmp.Diff(tc.want, c.report()); diff != "" {
				t.Errorf("wrong report (-want +got):\n%s", diff)
			}
			checkWellFormed(t, tc.foo, c)
		})
	}
}

// checkWellFormed checks the parts of a status that are the same in every report.
func checkWellFormed(t *testing.T, foo *v1alpha1.Foo, c conversation) {
	t.Helper()
	status := c.status()
	if status == nil {
		t.Fatal("nothing is reported")
	}
	if status.ObservedGeneration != foo.Generation {
		t.Errorf("observedGeneration is %d, want %d", status.ObservedGeneration, foo.Generation)
	}
	ready, second := c.ready(), ""
	for _, condition := range status.Conditions {
		if condition.Type != "Ready" {
			second = condition.Type
		}
	}
	checkConditions(t, conditionsOf(foo, ready.Status, second, ready.Reason, ready.Message), status.Conditions)
}

// What the Deployment reports about its pods is repeated without their names: these are different in every try, and
// would cost a write each. What it reports about its progress has no cause.
func TestTheCauseOfAReplicaFailure(t *testing.T) {
	long := strings.Repeat("d", 60)
	const exceeded = "is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
	for _, tc := range []struct{ name, deployment, message, want string }{
		{name: "a quota", message: `pods "web-1-7c5ddbdf54-x2fkd" ` + exceeded, want: ": pods " + exceeded},
		{name: "a name that is invalid", message: `Pod "web-1-7c5ddbdf54-x2fkd" is invalid`, want: ": Pod is invalid"},
		{
			name:    "a webhook that names the pod",
			message: `admission webhook "a.example.com" denied the request: default/web-1-7c5ddbdf54-x2fkd has no owner.`,
			want:    `: admission webhook "a.example.com" denied the request: default/web-1-* has no owner`,
		},
		{
			name: "a pod's name that was cut", deployment: long, message: "denied: " + long[:58] + "x2fkd",
			want: ": denied: " + long + "-*",
		},
		{
			name: "a pod's name whose hash was cut", deployment: long[:50],
			message: "denied: " + long[:50] + "-7c5ddbdx2fkd", want: ": denied: " + long[:50] + "-*",
		},
		{
			name:    "other names stay",
			message: `web-1 and web-1-7c5ddbdf54 and web-1-7c5ddbdf54-abcde and web-2-7c5ddbdf54-x2fkd and x2fkd`,
			want:    `: web-1 and web-1-7c5ddbdf54 and web-1-7c5ddbdf54-abcde and web-2-7c5ddbdf54-x2fkd and x2fkd`,
		},
		{
			name:    "names that begin or end like a pod's stay",
			message: "7c5ddbdf54-x2fkd web-1--x2fkd web-1-x2fkd web-1-static-x2fkd " + strings.Repeat("e", 58) + "x2fkd",
			want:    ": 7c5ddbdf54-x2fkd web-1--x2fkd web-1-x2fkd web-1-static-x2fkd " + strings.Repeat("e", 58) + "x2fkd",
		},
		{
			name: "a long name that is not the pod's stays", deployment: long,
			message: "denied: " + strings.Repeat("e", 58) + "x2fkd", want: ": denied: " + strings.Repeat("e", 58) + "x2fkd",
		},
		{
			name: "a pod's name without a hash, which was cut", deployment: long[:57],
			message: "denied: " + long[:57] + "-x2fkd", want: ": denied: " + long[:57] + "-*",
		},
		{name: "no message"},
		{
			name: "a message that is too long", message: strings.Repeat("x", 5000),
			want: ": " + strings.Repeat("x", 1021),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := tc.deployment
			if name == "" {
				name = "web-1"
			}
			foo := newFoo(withDeploymentName(name), withReplicas(3))
			for condition, begins := range map[string]string{
				"FailedCreate":          "cannot create pods",
				"ReplicaSetCreateError": "cannot create its ReplicaSet",
			} {
				dep := newDeployment(foo, func(dep *appsv1.Deployment) {
					failing := appsv1.DeploymentCondition{Reason: condition, Message: tc.message}
					failing.Type, failing.Status = appsv1.DeploymentReplicaFailure, corev1.ConditionTrue
					if condition != "FailedCreate" {
						failing.Type, failing.Status = appsv1.DeploymentProgressing, corev1.ConditionFalse
					}
					dep.Status.Conditions = append(dep.Status.Conditions, failing)
				})
				report := fmt.Sprintf("Deployment %q %s (3 of 3 replicas available)", name, begins)
				want, second := report+tc.want+cure, report+". The condition Ready has the cause"
				if tc.want == "" {
					want = report + ". See its conditions: kubectl -n default get deployment " + name + " -o yaml"
					second = want
				}
				note := want
				if len(note) > 1024 {
					note = note[:1021] + "..."
				}
				c := play(t, world{Foo: foo, Deployment: dep})
				got := []string{c.message(), meta.FindStatusCondition(c.conditions(), "Stalled").Message, c.event().Note}
				if diff := cmp.Diff([]string{want, second, note}, got); diff != "" {
					t.Errorf("%s: wrong messages of Ready, Stalled and the event (-want +got):\n%s", condition, diff)
				}
			}
		})
	}
	foo := newFoo()
	c := play(t, world{Foo: foo, Deployment: newDeployment(foo, deadlineExceeded)})
	if strings.Contains(c.message(), "forbidden") {
		t.Errorf("the deadline has a cause: %q", c.message())
	}
}

var (
	// banned are phrases that made earlier messages hard to understand.
	banned = regexp.MustCompile(`(?i)\b(told|tells?|says?|on purpose|goes|gone|look at|going|mend|anew|whoever|` +
		`makes no progress|are wanted|meanwhile|left alone|something else)\b`)
	// command is a command that a message advises; it names the namespace unless what it is about has none.
	command = regexp.MustCompile(`kubectl [^.;]*`)
	// action is what a person can do.
	action  = regexp.MustCompile(`kubectl |(^|[.,] |\bor )(Set|Change|Delete|Remove|Stop|set|change|delete|remove) `)
	podName = regexp.MustCompile(`web-\d-[bcdfghjklmnpqrstvwxz2456789]+-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
)

// Every message that a Foo can have is read alone, by somebody who knows kubectl and not this project.
func TestMessages(t *testing.T) {
	reasons := map[string]bool{}
	check := func(t *testing.T, c conversation) {
		t.Helper()
		if c.status() == nil {
			return
		}
		reasons[c.reason()] = true
		checkMessage(t, c)
	}
	replies := [][]reply{nil}
	for _, verb := range []string{
		readFoo, readDeployment, createDeployment, patchDeployment, deleteDeployment,
	} {
		for _, err := range []error{forbidden, conflict, tooMany, serverFails, invalidBare} {
			replies = append(replies, []reply{fails(verb, err)})
		}
	}
	r := newRandom()
	someStates(t, func(t *testing.T, state world) {
		check(t, play(t, state))
		for range 4 {
			check(t, play(t, state, replies[r.Intn(len(replies))]...))
		}
	})
	foo := newFoo(withReplicas(3))
	for _, state := range []world{
		{Foo: foo, Memory: overriddenMemory(foo), Deployment: newDeployment(foo, scaled(5))},
		{Foo: foo, Deployment: newDeployment(foo, noReplicaSet)},
		{Foo: newFoo(withReplicas(-1))},
		{
			Foo: foo, Deployment: earlier(named("api", "api-2"), "web-1"), Owner: named("api", "api-2"),
			Previous: all(earlier(foo, "api-2")),
		},
		{
			Foo: renamed(unsetReplicas), Deployment: newDeployment(renamed(), scaled(1), rollout(1, 1, 1)),
			Previous: all(earlier(foo, "web-1"), earlier(foo, "web-2", available(0))),
		},
		{Foo: newFoo(func(foo *v1alpha1.Foo) {
			foo.Unread = []v1alpha1.UnreadField{{Path: "spec.replicas", Value: `"three"`, Want: "an integer"}}
		})},
	} {
		check(t, play(t, state))
	}
	for _, owner := range []*v1alpha1.Foo{
		nil, named("api", "web-1"), named("api", "api-2"), named("api", "api-2", deletedFoo),
	} {
		dep := earlier(named("api", "web-1"), "web-1")
		check(t, play(t, world{Foo: foo, Deployment: dep, Owner: owner}))
	}
	check(t, play(t, world{Foo: foo}, returns(createDeployment, newDeployment(foo, scaled(5)))))
	for _, reason := range []string{
		"Available", "Creating", "DeploymentPaused", "FieldsOverridden", "Invalid", "NameCycle", "NameTaken", "NotOwned",
		"Paused", "ProgressDeadlineExceeded", "Progressing", "Refused", "Renaming", "ReplicaFailure",
		"RequestFailed", "WaitingForDeletion", "WaitingForName",
	} {
		if !reasons[reason] {
			t.Errorf("no message with the reason %s was seen", reason)
		}
	}
}

// checkMessage checks what must be true of every message.
func checkMessage(t *testing.T, c conversation) {
	t.Helper()
	message := c.message()
	if phrase := banned.FindString(message); phrase != "" {
		t.Errorf("%q is in the message %q", phrase, message)
	}
	if name := podName.FindString(message); name != "" {
		t.Errorf("the pod %s is in the message %q", name, message)
	}
	for _, advised := range command.FindAllString(message, -1) {
		clusterScoped := strings.HasPrefix(advised, "kubectl get mutatingwebhookconfigurations")
		if !clusterScoped && !strings.HasPrefix(advised, "kubectl -n default ") {
			t.Errorf("%q has no namespace, in the message %q", advised, message)
		}
	}
	if strings.HasSuffix(message, ".") || strings.Contains(message, "..") || strings.Contains(message, ". .") ||
		strings.Contains(message, ": .") {
		t.Errorf("sentences do not join in the message %q", message)
	}
	for _, condition := range c.conditions() {
		stalled := condition.Type == "Stalled" && condition.Status == metav1.ConditionTrue
		if stalled && !action.MatchString(message) {
			t.Errorf("nothing to do is in the message %q", message)
		}
	}
	event := c.event()
	if event == nil || event.Type != corev1.EventTypeWarning {
		return
	}
	note := strings.TrimSuffix(event.Note, "...")
	if !strings.HasPrefix(message, note) {
		t.Errorf("the note of the event is %q, the message %q", event.Note, message)
	}
}
