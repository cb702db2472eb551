package reconcile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

var (
	namespaceKind = reconcile.KindOf[*corev1.Namespace](corev1.SchemeGroupVersion.WithKind("Namespace"))
	configMapKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
)

func stored(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "3", Generation: 1}
}

// A group is a Namespace for which ConfigMaps are kept: one that may be nil, and a list. want is that of the one.
type group struct {
	Namespace *corev1.Namespace
	One       *corev1.ConfigMap
	All       []*corev1.ConfigMap

	observed  int64
	want      *corev1.ConfigMap
	wants     []*corev1.ConfigMap
	ownedPath string
}

var groups = reconcile.New(reconcile.Plan[group]{
	Object:             func(in *group) reconcile.Ref { return reconcile.RefTo(namespaceKind, &in.Namespace) },
	ObservedGeneration: func(in *group) int64 { return in.observed },
	Rules: []reconcile.Rule[group]{
		{Name: "keep one", Ask: func(in *group) reconcile.Answer {
			return reconcile.Keep(configMapKind, &in.One, in.want, in.ownedPath)
		}},
		{Name: "keep all", Ask: func(in *group) reconcile.Answer {
			return reconcile.KeepAll(configMapKind, &in.All, in.wants, in.ownedPath)
		}},
	},
	Status: func(in *group, s *reconcile.Sync) *reconcile.Step {
		problem := s.First()
		if problem == nil {
			return nil
		}
		is := state.Conditions(nil, problem.Report(), 1, s.Now())
		return reconcile.StatusStep(namespaceKind, &in.Namespace, in.Namespace, nil, is)
	},
})

// A cluster has the objects that the syncs of a group read and write. Its caches are never late.
type cluster struct {
	namespace *corev1.Namespace
	observed  int64
	stored    map[string]*corev1.ConfigMap // By namespace and name.
	// wantsOne and wants are the names of the ConfigMaps.
	wantsOne bool
	wants    []string
	text     string // Of the ConfigMap that wantsOne wants, unless empty.
	owned    string
	live     func(*corev1.Namespace)
	admit    func(*corev1.ConfigMap)
	refuse   reconcile.Verb
	refusal  error // Nil is refused.
	memory   reconcile.Memory
	now      time.Time
	// Of the last sync.
	requests []string
	status   string
	notes    []string
	answers  []string
}

func newCluster(edits ...func(*cluster)) *cluster {
	c := &cluster{
		namespace: &corev1.Namespace{ObjectMeta: stored("team")}, observed: 1, stored: map[string]*corev1.ConfigMap{},
		owned: "data", now: time.Unix(1e9, 0),
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// child returns the ConfigMap that is wanted. A name may have a namespace before it.
func (c *cluster) child(name string) *corev1.ConfigMap {
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "a", namespace
	}
	owner := *metav1.NewControllerRef(c.namespace, namespaceKind.GroupVersionKind)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
		Data:       map[string]string{"text": "Hello"},
	}
}

// store stores ConfigMaps as they are wanted, with what others have set.
func store(names ...string) func(*cluster) {
	return func(c *cluster) {
		for _, name := range names {
			child := c.child(name)
			child.UID, child.ResourceVersion, child.Labels = types.UID("uid-"+name), "7", map[string]string{"team": "blue"}
			c.stored[child.Namespace+"/"+child.Name] = child
		}
	}
}

func edit(name string, edit func(*corev1.ConfigMap)) func(*cluster) {
	return func(c *cluster) { edit(c.stored[name]) }
}

func deleting(child *corev1.ConfigMap) { child.DeletionTimestamp = new(metav1.Unix(1e9, 0)) }
func nobodys(child *corev1.ConfigMap)  { child.OwnerReferences = nil }

func wants(names ...string) func(*cluster) { return func(c *cluster) { c.wants = names } }

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

// numbered returns n names, in order.
func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("c-%03d", i))
	}
	return names
}

func (c *cluster) observe() *group {
	in := &group{Namespace: c.namespace, observed: c.observed, ownedPath: c.owned, One: c.stored["a/one"]}
	if c.wantsOne {
		in.want = c.child("one")
		if c.text != "" {
			in.want.Data["text"] = c.text
		}
	}
	for _, name := range c.wants {
		want := c.child(name)
		if want.Namespace == c.namespace.Namespace {
			want.Namespace = "" // That of the object.
		}
		in.wants = append(in.wants, want)
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(c.stored))) {
		if child := c.stored[name]; child.Name != "one" {
			in.All = append(in.All, child)
		}
	}
	return in
}

func (c *cluster) sync() reconcile.Outcome {
	c.requests, c.status, c.notes, c.answers = nil, "", nil, nil
	sync := groups.Sync(c.observe())
	sync.Begin(c.memory, c.now, 0)
	for _, e := range sync.Explain() {
		c.answers = append(c.answers, e.Answer)
	}
	for step := sync.Next(); step != nil; step = sync.Next() {
		if step.Verb == reconcile.UpdateStatus {
			c.status = step.Fields[0].Want
		} else {
			c.requests = append(c.requests, strings.ReplaceAll(step.Request()+" "+sync.NameOf(step.Op), "ConfigMap a/", ""))
		}
		if event := sync.Record(step, step.Answered(c.answer(step)), c.now); event != nil &&
			step.Verb != reconcile.UpdateStatus {
			c.notes = append(c.notes, event.Type+" "+event.Reason+" "+event.Action+" "+event.Note)
		}
	}
	outcome, memory := sync.End()
	c.memory, c.now = memory, c.now.Add(outcome.After)
	return outcome
}

func (c *cluster) answer(step *reconcile.Step) (metav1.Object, error) {
	name := step.Namespace + "/" + step.Name
	have := c.stored[name]
	switch {
	case step.Verb == c.refuse:
		if c.refusal != nil {
			return nil, c.refusal
		}
		return nil, refused
	case step.Kind == "Namespace":
		live := c.namespace.DeepCopy()
		if c.live != nil {
			c.live(live)
		}
		return live, nil
	case step.IsRead():
		return have, nil
	case step.Verb == reconcile.Create && have != nil:
		return nil, apierrors.NewAlreadyExists(corev1.Resource("configmaps"), step.Name)
	case step.Verb == reconcile.Create:
		have = step.Body.(*corev1.ConfigMap).DeepCopy()
		have.UID, have.Namespace = types.UID("uid-"+name), step.Namespace
	case have == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), step.Name)
	case step.UID != string(have.UID) || step.ResourceVersion != have.ResourceVersion:
		return nil, apierrors.NewConflict(corev1.Resource("configmaps"), step.Name, errors.New("another version"))
	case step.Verb == reconcile.Delete:
		delete(c.stored, name)
		return nil, nil
	default:
		before, _ := json.Marshal(have) // It can be encoded.
		after, err := strategicpatch.StrategicMergePatch(before, step.Patch, have)
		if have = new(corev1.ConfigMap); err == nil {
			err = json.Unmarshal(after, have)
		}
		if err != nil {
			return nil, err
		}
	}
	have.ResourceVersion += "1"
	if c.admit != nil {
		c.admit(have)
	}
	c.stored[name] = have
	return have, nil
}

const readTeam = "get Namespace team"

func (c *cluster) check(t *testing.T, requests, notes []string, status string) {
	t.Helper()
	if diff := cmp.Diff(requests, c.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(notes, c.notes); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if c.status != status {
		t.Errorf("status %q, want %q", c.status, status)
	}
}

// again checks that another sync sends no write.
func (c *cluster) again(t *testing.T) {
	t.Helper()
	if outcome := c.sync(); c.requests != nil || outcome.Kind == "retry" {
		t.Errorf("the next sync sends %q, and ends with %+v", c.requests, outcome)
	}
}

// A keepCase is a cluster with edits, what the first sync of it does, and the answer of the rule.
type keepCase struct {
	name     string
	edits    []func(*cluster)
	requests []string
	events   []string
	status   string
	answer   string
}

// What has the name of the child may be of somebody else, or of an earlier object of the same name.
func TestWhatKeepDoesWithWhatIsThere(t *testing.T) {
	deleted := []string{`Normal Deleted Delete ConfigMap "one" Deleted ConfigMap "one", which is not wanted any more`}
	ref := func(change func(*metav1.OwnerReference)) func(*cluster) {
		return edit("a/one", func(child *corev1.ConfigMap) { change(&child.OwnerReferences[0]) })
	}
	const (
		waits    = `ConfigMap "one" is being deleted, and is created again after that`
		waiting  = "Reconciling, Ready=False Waiting: " + waits
		taken    = `ConfigMap "one" exists and is controlled by `
		notOwned = "Stalled, Ready=False NotOwned: " + taken
		advice   = ". Delete it, or give the Namespace another name"
	)
	another := func(ref *metav1.OwnerReference) { ref.UID, ref.Name = "other", "other" }
	wanted := withOne(1, func(*corev1.ConfigMap) {})
	leftAlone := `does not apply: ConfigMap "one" is not wanted, is not of this Namespace, and is left alone`
	for _, test := range []keepCase{
		{name: "wanted", edits: []func(*cluster){wanted}, answer: `does not apply: ConfigMap "one" is as it must be`},
		{
			name: "wanted and an orphan", status: waiting, answer: "applies: " + waits,
			edits: []func(*cluster){wanted, ref(func(ref *metav1.OwnerReference) { ref.UID = "earlier" })},
		},
		{
			name: "wanted and nobody's", status: notOwned + "nobody" + advice, answer: "applies: " + taken + "nobody",
			edits: []func(*cluster){wanted, edit("a/one", nobodys)},
		},
		{
			name: "wanted and somebody else's", edits: []func(*cluster){wanted, ref(another)},
			status: notOwned + `Namespace "other"` + advice, answer: "applies: " + taken + `Namespace "other"`,
		},
		{
			name: "wanted and of another kind", status: notOwned + `Team "team"` + advice,
			answer: "applies: " + taken + `Team "team"`,
			edits:  []func(*cluster){wanted, ref(func(ref *metav1.OwnerReference) { ref.UID, ref.Kind = "other", "Team" })},
		},
		{name: "none", answer: "does not apply: no ConfigMap is wanted, and there is none"},
		{
			name: "its own", edits: []func(*cluster){store("one")}, requests: []string{readTeam, "delete one"}, events: deleted,
			answer: `sends get Namespace team first, and then delete ConfigMap a/one: ConfigMap "one" is not wanted`,
		},
		{
			name:     "the object has changed a moment ago",
			edits:    []func(*cluster){store("one"), func(c *cluster) { c.live = func(n *corev1.Namespace) { n.Generation++ } }},
			requests: []string{readTeam},
			answer:   `sends get Namespace team first, and then delete ConfigMap a/one: ConfigMap "one" is not wanted`,
		},
		{
			name: "somebody else's", answer: leftAlone, edits: []func(*cluster){store("one"), ref(another)},
		},
		{
			name: "being deleted", answer: `does not apply: ConfigMap "one" is not wanted, and is being deleted`,
			edits: []func(*cluster){store("one"), edit("a/one", deleting)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(test.edits...)
			c.sync()
			if c.check(t, test.requests, test.events, test.status); c.answers[0] != test.answer {
				t.Errorf("the answer is %q, want %q", c.answers[0], test.answer)
			}
			if c.live == nil {
				c.again(t)
			}
		})
	}
}

func TestKeepAll(t *testing.T) {
	long := strings.Repeat("v", 120)
	for _, test := range []keepCase{
		{
			name:   "what must be there, with names that are the same without the slash",
			edits:  []func(*cluster){store("by", "ab/y"), wants("by", "ab/y")},
			answer: "does not apply: each ConfigMap is as it must be, number: 2",
		},
		{
			name: "wants without a namespace",
			edits: []func(*cluster){
				store("x"), wants("x", "y"), func(c *cluster) { c.namespace.Namespace = "a" },
			},
			requests: []string{readTeam, "create ConfigMap y"},
			answer:   `sends get Namespace team first, and then create ConfigMap y: ConfigMap "y" does not exist`,
		},
		{
			name: "one is edited, one new, and others are not wanted",
			edits: []func(*cluster){
				store("x", "y", "v", "w"), wants("y", "x", "z"),
				edit("a/y", func(child *corev1.ConfigMap) { child.Data["more"] = "" }),
			},
			requests: []string{readTeam, "patch y", readTeam, "create z", readTeam, "delete v", readTeam, "delete w"},
			events: []string{
				`Normal Corrected Correct ConfigMap "y" Corrected ConfigMap "y": data.more`,
				`Normal Deleted Delete ConfigMap "v" Deleted ConfigMap "v", which is not wanted any more`,
				`Normal Deleted Delete ConfigMap "w" Deleted ConfigMap "w", which is not wanted any more`,
			},
			answer: `sends get Namespace team first, and then patch ConfigMap a/y: ConfigMap "y" differs: data.more`,
		},
		{
			name: "a name that does not fit into the action of an event", edits: []func(*cluster){store(long)},
			requests: []string{readTeam, "delete " + long},
			events: []string{
				`Normal Deleted Delete ConfigMap "` + long[:107] + `... Deleted ConfigMap "` + long +
					`", which is not wanted any more`,
			},
			answer: `sends get Namespace team first, and then delete ConfigMap a/` + long + `: ConfigMap "` + long +
				`" is not wanted`,
		},
		{
			name: "one is somebody else's, one is being deleted",
			edits: []func(*cluster){
				store("v", "w", "x"), wants("v", "w", "y"),
				edit("a/v", deleting), edit("a/w", nobodys), edit("a/x", nobodys),
			},
			requests: []string{readTeam, "create y"},
			status: `Stalled, Ready=False NotOwned: ConfigMap "w" exists and is controlled by nobody. ` +
				"Delete it, or give the Namespace another name",
			answer: `sends get Namespace team first, and then create ConfigMap a/y: ConfigMap "y" does not exist`,
		},
		{
			name:   "two are being deleted",
			edits:  []func(*cluster){store("x", "y"), wants("x", "y"), edit("a/x", deleting), edit("a/y", deleting)},
			status: `Reconciling, Ready=False Waiting: ConfigMap "x" is being deleted, and is created again after that`,
			answer: `applies: ConfigMap "x" is being deleted, and is created again after that; ` +
				`ConfigMap "y" is being deleted, and is created again after that`,
		},
		{
			name: "one is wanted twice", edits: []func(*cluster){store("x"), wants("x", "x")},
			status: `Stalled, Ready=False Refused: ConfigMap "x" is wanted twice`,
			answer: `applies: ConfigMap "x" is wanted twice`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(test.edits...)
			before := maps.Clone(c.stored)
			c.sync()
			if c.check(t, test.requests, test.events, test.status); c.answers[1] != test.answer {
				t.Errorf("the answer is %q, want %q", c.answers[1], test.answer)
			}
			for name, child := range c.stored {
				if before[name] != nil && child.Labels["team"] != "blue" {
					t.Errorf("%s has lost what others have set: %v", name, child)
				}
			}
			c.again(t)
		})
	}
}

// The bound of a sync is for rules that are never content.
func TestKeepAllOfManyChildrenNeedsOneSync(t *testing.T) {
	names := numbered(100)
	c := newCluster(wants(names...))
	for _, wants := range [][]string{names, nil} {
		c.wants = wants
		if outcome := c.sync(); outcome.Kind != "done" || len(c.requests) != 200 || len(c.stored) != len(wants) {
			t.Errorf("%d requests, %d children, then %+v", len(c.requests), len(c.stored), outcome)
		}
	}
	c.wants, c.refuse = names, reconcile.Create
	if outcome := c.sync(); strings.Contains(fmt.Sprint(outcome.Err), "never content") || len(c.requests) != 200 {
		t.Errorf("all are refused: %d requests, then %v", len(c.requests), outcome.Err)
	}
}

// A mistake in a path is found by the first sync that wants a child.
func TestAnOwnedPathThatTheKindDoesNotHave(t *testing.T) {
	const message = `the path "spec.data": v1.ConfigMap has no ".spec.data"`
	for name, edit := range map[string]func(*cluster){
		"none exist": func(*cluster) {}, "all exist": store("one", "x"),
	} {
		c := newCluster(wants("x"), edit)
		c.wantsOne = true
		c.owned = "spec.data"
		c.sync()
		for _, answer := range c.answers[:2] {
			if !strings.HasPrefix(answer, "applies: ") || !strings.HasSuffix(answer, message) {
				t.Errorf("%s: the answer is %q, want one that ends with %q", name, answer, message)
			}
		}
		first := strings.TrimPrefix(c.answers[0], "applies: ")
		if c.status != "Stalled, Ready=False Refused: "+first || c.requests != nil {
			t.Errorf("%s: status %q, requests %q", name, c.status, c.requests)
		}
	}
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

// In a namespace that nobody has created, or that is being deleted, an object of another one cannot have its children.
// That is reported: the object stays.
func TestTheNamespaceOfTheChildrenIsMissing(t *testing.T) {
	c := newCluster(withOne(1, empty))
	delete(c.stored, "a/one")
	c.refuse, c.refusal = reconcile.Create, terminating()
	if c.sync(); !strings.HasSuffix(c.status, "Create the namespace again when it is gone. "+reconcile.TriesAgain) {
		t.Errorf("it is being deleted: status %q", c.status)
	}
	c.refusal = apierrors.NewNotFound(corev1.Resource("namespaces"), "a")
	for range 4 {
		c.sync()
	}
	if !strings.HasSuffix(c.status, `namespaces "a" not found. Create what is missing. `+reconcile.TriesAgain) {
		t.Errorf("it does not exist: status %q", c.status)
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
	c := newCluster(func(c *cluster) { c.wantsOne = true })
	c.admit = func(child *corev1.ConfigMap) { child.Data["text"] = "No" }
	outcome := c.sync()
	const want = `Reconciling, Ready=False Overridden: ConfigMap "one": a webhook or a policy of this cluster changes ` +
		"data.text. Set what it accepts"
	if c.status != want || c.notes != nil || outcome.After < time.Second {
		t.Errorf("the status is %q, the events are %q, and the key comes back after %v", c.status, c.notes, outcome.After)
	}
}
