package plan_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

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
	for _, verb := range []plan.Verb{
		plan.ReadFoo, plan.ReadDeployment, plan.CreateDeployment, plan.PatchDeployment, plan.DeleteDeployment,
	} {
		for _, err := range []error{forbidden, conflict, tooMany, serverFails, invalidBare} {
			replies = append(replies, []reply{fails(verb, err)})
		}
	}
	r := newRandom()
	someStates(t, func(t *testing.T, state plan.State) {
		check(t, play(t, state))
		for range 4 {
			state.Memory = someMemory(r, state)
			state.Memory.UID, state.Memory.Generation = state.Foo.UID, state.Foo.Generation
			for op, attempt := range state.Memory.Ledger {
				if op.Again && attempt.Report.Reason != "" { // Refusals are not repetitions.
					attempt.Report = overriddenReplicas
					state.Memory.Ledger[op] = attempt
				}
			}
			check(t, play(t, state, replies[r.Intn(len(replies))]...))
		}
	})
	foo := newFoo(withReplicas(3))
	for _, state := range []plan.State{
		{Foo: foo, Memory: overriddenMemory(foo), Deployment: newDeployment(foo, scaled(5))},
		{Foo: foo, Deployment: newDeployment(foo, noReplicaSet)},
		{Foo: newFoo(withReplicas(-1))},
		{Foo: foo, Deployment: earlier(named("api", "api-2"), "web-1"), OwnerChain: foos(named("api", "api-2"), foo)},
		{Foo: foo, FirstClaimant: named("api", "web-1", createdAt(-1))},
		{Foo: newFoo(func(foo *v1alpha1.Foo) {
			foo.Unread = []v1alpha1.UnreadField{{Path: "spec.replicas", Value: `"three"`, Want: "an integer"}}
		})},
	} {
		check(t, play(t, state))
	}
	for _, chain := range [][]*v1alpha1.Foo{
		nil, foos(named("api", "web-1")), foos(named("api", "api-2")), foos(named("api", "api-2", deletedFoo)),
		foos(named("api", "api-2", withPaused)), foos(named("api", "api-2", isStalledNow)),
		foos(named("api", "api-2", isReadyNow)), slices.Repeat(foos(named("api", "api-2")), plan.MaxChain),
	} {
		dep := earlier(named("api", "web-1"), "web-1")
		check(t, play(t, plan.State{Foo: foo, Deployment: dep, OwnerChain: chain}))
	}
	check(t, play(t, plan.State{Foo: foo}, returns(plan.CreateDeployment, newDeployment(foo, scaled(5)))))
	for _, reason := range []string{
		"Available", "Creating", "DeploymentPaused", "FieldsOverridden", "Invalid", "NameCycle", "NameTaken", "NotOwned",
		"Paused", "ProgressDeadlineExceeded", "Progressing", "Refused", "Renaming", "ReplicaFailure",
		"WaitingForDeletion", "WaitingForName",
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
	if note := strings.TrimSuffix(event.Note, "..."); !strings.HasPrefix(message, note) {
		t.Errorf("the note of the event is %q, the message %q", event.Note, message)
	}
}
