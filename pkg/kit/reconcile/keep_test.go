package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/kit/reconcile"
)

var (
	namespaceKind = reconcile.KindOf[*corev1.Namespace](corev1.SchemeGroupVersion.WithKind("Namespace"))
	configMapKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
)

func stored(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "3", Generation: 1}
}

// The uid of an owner can be known, and written into a reference, by who has no right in its namespace.
func TestAnOwnerOwnsNothingInAnotherNamespace(t *testing.T) {
	owned := newCluster().child("a/one")
	for namespace, want := range map[string]bool{"": true, "a": true, "b": false} {
		owner := &corev1.ConfigMap{ObjectMeta: stored("team")}
		owner.Namespace = namespace
		if got := reconcile.Owns(owner, owned); got != want {
			t.Errorf("an owner in %q owns an object in %q: %t", namespace, owned.Namespace, got)
		}
	}
}

var refused = apierrors.NewForbidden(corev1.Resource("configmaps"), "a", errors.New("no"))

// withOne stores the ConfigMap that Keep keeps, after an edit, and the generation that the status is about.
func withOne(observed int64, change func(*corev1.ConfigMap)) func(*cluster) {
	return func(c *cluster) {
		c.wantsOne, c.observed = true, observed
		store("one")(c)
		change(c.stored["a/one"])
	}
}

func empty(child *corev1.ConfigMap) { child.Data = nil }

const corrected = `Normal Corrected Correct ConfigMap "one" Corrected ConfigMap "one": data.text`

// The object may have changed, and no cache has it yet. Then a correction would undo what somebody has done after that,
// and an update what another copy of the controller has written for a newer spec.
func TestKeepReadsTheObjectBeforeAPatch(t *testing.T) {
	for _, test := range []struct {
		name     string
		observed int64
		live     func(*corev1.Namespace)
		requests []string
		events   []string
	}{
		{name: "an update", requests: []string{readTeam, "patch one"}},
		{
			name: "an update after a change", requests: []string{readTeam},
			live: func(live *corev1.Namespace) { live.Generation++ },
		},
		{name: "a correction", observed: 1, requests: []string{readTeam, "patch one"}, events: []string{corrected}},
		{
			name: "a correction after a change", observed: 1, requests: []string{readTeam},
			live: func(live *corev1.Namespace) { live.Generation++ },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(withOne(test.observed, empty))
			c.live = test.live
			c.sync()
			c.check(t, test.requests, test.events, "")
		})
	}
}

// The status is written while a patch backs off. An update then stays an update, and a correction a correction.
func TestAFailedPatchStaysWhatItWas(t *testing.T) {
	for name, test := range map[string]struct {
		observed int64
		events   []string
	}{
		"an update": {}, "a correction": {observed: 1, events: []string{corrected}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(withOne(test.observed, empty))
			c.refuse = reconcile.Patch
			c.sync()
			c.observed, c.refuse = 1, ""
			c.sync()
			c.check(t, []string{readTeam, "get one", "patch one"}, test.events, "")
		})
	}
}

// In a namespace that is being deleted, or that nobody has created, an object of another namespace, or of none, cannot
// have its children. That is reported: the object stays.
func TestTheNamespaceOfTheChildrenIsMissing(t *testing.T) {
	for _, test := range []struct {
		refusal error
		tries   int
		status  string
	}{
		{
			refusal: terminating(), tries: 1,
			status: `Refused: Cannot create ConfigMap a/one: refused by the API server: configmaps "child" is forbidden: ` +
				"it is being terminated. Create the namespace again when it is gone",
		},
		{
			refusal: apierrors.NewNotFound(corev1.Resource("namespaces"), "a"), tries: 4,
			status: `Refused: Cannot create ConfigMap a/one: refused by the API server: namespaces "a" not found. ` +
				"Create what is missing",
		},
	} {
		c := newCluster(withOne(1, empty))
		delete(c.stored, "a/one")
		c.refuse, c.refusal = reconcile.Create, test.refusal
		for range test.tries {
			c.sync()
		}
		if want := "Reconciling, Ready=False " + test.status + ". " + reconcile.TriesAgain; c.status != want {
			t.Errorf("status %q, want %q", c.status, want)
		}
	}
}

// What a person must end comes before what may pass.
func TestAProblemThatNoRetryEndsComesFirst(t *testing.T) {
	c := newCluster(withOne(1, empty), store("x"), wants("x"), edit("a/x", nobodys))
	c.refuse = reconcile.Patch
	c.sync()
	c.check(t, []string{readTeam, "patch one"}, nil, `Stalled, Ready=False NotOwned: ConfigMap "x" exists and is `+
		"controlled by nobody. Delete it, or give the Namespace another name")
}

// The first three writes that somebody else undoes are free. Each further one is reported, and comes later. Nobody must
// change the object to end that, so it is not Stalled.
func TestAFightIsReportedAndSlow(t *testing.T) {
	for _, test := range []struct {
		write, status string
		undo          func(*cluster)
	}{
		{
			write: "patch one", undo: func(c *cluster) { c.stored["a/one"].Data = nil },
			status: `Reconciling, Ready=False Overridden: Another client keeps changing ConfigMap "one": data.text. ` +
				"The controller corrects it at least once a minute. Stop that client, for example an autoscaler or a GitOps tool",
		},
		{
			write: "create one", undo: func(c *cluster) { delete(c.stored, "a/one") },
			status: `Reconciling, Ready=False Overridden: Another client keeps deleting ConfigMap "one". ` +
				"The controller creates it again at least once a minute. Stop that client",
		},
	} {
		t.Run(test.write, func(t *testing.T) {
			c := newCluster(withOne(1, empty))
			for i := range 6 {
				test.undo(c)
				outcome := c.sync()
				isReported, isSlow := c.status == test.status, outcome.After >= time.Second
				if want := i >= 3; isReported != want || isSlow != want || !slices.Contains(c.requests, test.write) {
					t.Errorf("write %d: requests %q, status %q, back after %v", i+1, c.requests, c.status, outcome.After)
				}
			}
		})
	}
}

// What is wanted may depend on more than the spec, such as a Secret. A change of that is no fight.
func TestWhatIsWantedAnewIsNoRepetition(t *testing.T) {
	c := newCluster(withOne(1, empty))
	for i := range 6 {
		c.text = fmt.Sprint("version ", i)
		if outcome := c.sync(); strings.Contains(c.status, "Overridden") || outcome.After > 0 {
			t.Errorf("write %d: status %q, back after %v", i+1, c.status, outcome.After)
		}
	}
}

func TestWhatAdmissionChangesIsReported(t *testing.T) {
	for name, edits := range map[string]func(*cluster){
		"on creation": func(c *cluster) { c.wantsOne = true }, "on correction": withOne(1, empty),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(edits)
			c.admit = func(child *corev1.ConfigMap) { child.Data["text"] = "No" }
			outcome := c.sync()
			const want = `Reconciling, Ready=False Overridden: ConfigMap "one": a webhook or a policy of this cluster changes ` +
				"data.text. Set what it accepts"
			if c.status != want || c.notes != nil || outcome.After < time.Second {
				t.Errorf("the status is %q, the events are %q, and the key comes back after %v", c.status, c.notes, outcome.After)
			}
		})
	}
}
