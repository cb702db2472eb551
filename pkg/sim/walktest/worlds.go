package walktest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// This file has the worlds: the product of what the object is, what each child is, and which writes of earlier syncs
// the caches lack. What backs off is added when it is known what a sync sends.

// An option is one choice of a list.
type option struct {
	name string
	set  func(*World)
	fits func(*World) bool // Whether it makes a difference. Nil: always.
}

func deepCopy(obj metav1.Object) metav1.Object {
	return obj.(runtime.Object).DeepCopyObject().(metav1.Object)
}

// field returns a field of the struct of obj, nil if it has none of that name.
func field(obj metav1.Object, name string) any {
	if f := reflect.ValueOf(obj).Elem().FieldByName(name); f.IsValid() {
		return f.Interface()
	}
	return nil
}

// stored returns a copy of obj as it is stored.
func (p *player[In, W]) stored(obj metav1.Object, version int) metav1.Object {
	obj = deepCopy(obj)
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())))
	}
	if obj.GetResourceVersion() == "" {
		obj.SetResourceVersion(fmt.Sprint(10 + version))
	}
	if obj.GetGeneration() == 0 {
		obj.SetGeneration(3)
	}
	return obj
}

// keyFor is the key of obj. An object without a namespace has the one of the object of the walk.
func keyFor(kind string, obj metav1.Object, namespace string) Key {
	return Key{kind, cmp.Or(obj.GetNamespace(), namespace), obj.GetName()}
}

func (p *player[In, W]) childKey(child *Child[W]) Key {
	return keyFor(child.Kind, child.Want(p.owner), p.owner.GetNamespace())
}

// child returns the child of a key, one of that kind if the key is of none, and else an empty one.
func (p *player[In, W]) child(key Key) *Child[W] {
	found := &Child[W]{}
	for i := range p.Children {
		switch child := &p.Children[i]; {
		case p.childKey(child) == key:
			return child
		case child.Kind == key.Kind:
			found = child
		}
	}
	return found
}

// wanted returns a child of owner as it is stored, nil if owner wants none.
func (p *player[In, W]) wanted(child *Child[W], owner W) metav1.Object {
	obj := child.Want(owner)
	if obj == nil {
		return nil
	}
	obj = p.stored(obj, 10)
	obj.SetNamespace(cmp.Or(obj.GetNamespace(), owner.GetNamespace()))
	obj.SetGeneration(1)
	return obj
}

// worldsOf calls visit with every world, always in the same order.
func (p *player[In, W]) worldsOf(visit func(World)) {
	lists := [][]option{p.objects()}
	for i := range p.Children {
		lists = append(lists, p.childOptions(&p.Children[i]))
	}
	lists = append(lists, p.ownWrites())
	var choose func(w World, lists [][]option)
	choose = func(w World, lists [][]option) {
		if len(lists) == 0 {
			visit(w)
			return
		}
		for _, o := range lists[0] {
			if o.fits != nil && !o.fits(&w) {
				continue
			}
			next := w
			next.Options = append(slices.Clip(w.Options), o.name)
			o.set(&next)
			choose(next, lists[1:])
		}
	}
	choose(World{}, lists)
}

// objects: the object in the cache, and what the API server has instead.
func (p *player[In, W]) objects() (options []option) {
	add := func(name string, cached, live metav1.Object, due bool) {
		options = append(options, option{name: name, set: func(w *World) {
			w.Cached, w.Live, w.EventDue = Objects{p.key: cached}, Objects{}, due
			if live != nil {
				w.Live = Objects{p.key: live}
			}
		}})
	}
	var last metav1.Object = p.owner
	add("a new "+p.Kind.Kind, last, last, false)
	for _, edit := range p.Objects {
		obj := deepCopy(p.owner)
		edit.Do(obj.(W))
		if !p.isForSync(obj) {
			continue
		}
		last = obj
		add(fmt.Sprintf("a %s that is %s", p.Kind.Kind, edit.Name), last, last, false)
	}
	for _, live := range p.lives() {
		add(fmt.Sprintf("a %s that %s, which the cache lacks", p.Kind.Kind, live.name), last, live.do(deepCopy(last)), true)
	}
	return options
}

// isForSync reports whether there is a sync of obj. Nobody syncs one that is being deleted, unless the plan is for that.
func (p *player[In, W]) isForSync(obj metav1.Object) bool {
	return obj != nil && (p.Deletion || obj.GetDeletionTimestamp() == nil)
}

// A live is what may have happened to the object before a request comes. It returns nil for one that is gone.
type live struct {
	name string
	do   func(metav1.Object) metav1.Object
}

// lives are what may have happened to the object. The first is gone; then come the changes of the spec.
func (p *player[In, W]) lives() []live {
	lives := []live{{"was deleted", func(metav1.Object) metav1.Object { return nil }}}
	for _, edit := range p.Changes {
		lives = append(lives, live{"became " + edit.Name, func(obj metav1.Object) metav1.Object {
			edit.Do(obj.(W))
			obj.SetGeneration(obj.GetGeneration() + 7)
			return obj
		}})
	}
	lives = append(lives,
		live{"was created again", func(obj metav1.Object) metav1.Object {
			again := p.stored(p.Object, 0)
			again.SetUID("another-uid")
			again.SetGeneration(obj.GetGeneration())
			return again
		}},
		// Objects that have no generation keep it.
		live{"began to be deleted", func(obj metav1.Object) metav1.Object {
			obj.SetDeletionTimestamp(&metav1.Time{Time: start})
			return obj
		}},
		live{"was restored from a backup", func(obj metav1.Object) metav1.Object {
			obj.SetGeneration(obj.GetGeneration() - 1)
			return obj
		}})
	for i := range lives {
		do := lives[i].do
		lives[i].do = func(obj metav1.Object) metav1.Object {
			if obj = do(obj); obj != nil {
				obj.SetResourceVersion("50")
			}
			return obj
		}
	}
	return lives
}

// controls reports whether owner is the controller of obj.
func controls(owner, obj metav1.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == owner.GetUID() && ref.Controller != nil && *ref.Controller
	})
}

// isOurs reports whether obj exists, is a child of owner, and is not being deleted.
func isOurs(owner, obj metav1.Object) bool {
	return obj != nil && controls(owner, obj) && obj.GetDeletionTimestamp() == nil
}

// reowned changes the first owner reference.
func reowned(change func(*metav1.OwnerReference)) func(metav1.Object) {
	return func(obj metav1.Object) {
		refs := slices.Clone(obj.GetOwnerReferences())
		change(&refs[0])
		obj.SetOwnerReferences(refs)
	}
}

const strangerUID, orphanUID = "stranger-uid", "earlier-uid"

// strangers are what may have happened to any child, so that it must be left alone.
var strangers = []Edit[metav1.Object]{
	{Name: "without an owner", Do: func(obj metav1.Object) { obj.SetOwnerReferences(nil) }},
	{Name: "with another kind of owner", Do: reowned(func(ref *metav1.OwnerReference) {
		ref.APIVersion, ref.UID = "stranger.io/v1", strangerUID
	})},
	{Name: "left by an earlier owner of the name", Do: reowned(func(ref *metav1.OwnerReference) { ref.UID = orphanUID })},
	{Name: "being deleted", Do: func(obj metav1.Object) { obj.SetDeletionTimestamp(&metav1.Time{Time: start}) }},
	{Name: "owned, but without a controller", Do: reowned(func(ref *metav1.OwnerReference) { ref.Controller = nil })},
}

// childOptions: what has the name of the child.
func (p *player[In, W]) childOptions(child *Child[W]) []option {
	key := p.childKey(child)
	name := key.Kind
	if key.Namespace != p.key.Namespace {
		name = fmt.Sprintf("%s in %s", key.Kind, key.Namespace)
	}
	options := []option{{name: "no " + name, set: func(*World) {}}}
	add := func(is string, set func(w *World, obj metav1.Object), edits ...func(metav1.Object)) {
		options = append(options, option{name: fmt.Sprintf("a %s %s", name, is), set: func(w *World) {
			obj := p.wanted(child, p.owner)
			for _, edit := range edits {
				edit(obj)
			}
			w.Cached, w.Live = w.Cached.with(key, obj), w.Live.with(key, obj)
			if set != nil {
				set(w, obj)
			}
		}})
	}
	lacks := func(live metav1.Object) func(*World, metav1.Object) {
		return func(w *World, _ metav1.Object) { w.Live, w.EventDue = w.Live.with(key, live), true }
	}
	add("as wanted", nil)
	add("as wanted, and is gone, which the cache lacks", lacks(nil))
	first := Edit[metav1.Object]{Name: "as wanted", Do: func(metav1.Object) {}}
	if len(child.Edits) > 0 {
		first = child.Edits[0]
	}
	for _, edit := range child.Edits {
		add(edit.Name, func(w *World, _ metav1.Object) { w.Stuck = w.Stuck || edit.Stuck }, edit.Do)
	}
	for _, edit := range append(strangers[:len(strangers):len(strangers)], Edit[metav1.Object]{
		Name: "without resourceVersion", Do: func(obj metav1.Object) { obj.SetResourceVersion("") },
	}, Edit[metav1.Object]{Name: "without uid", Do: func(obj metav1.Object) { obj.SetUID("") }}) {
		add(first.Name+", "+edit.Name, nil, first.Do, edit.Do)
	}
	if child.Admit != nil {
		add("that a webhook changes", func(w *World, _ metav1.Object) { w.Admits = true }, child.Admit)
	}
	// Another one of the object, such as a copy.
	add("as wanted, and a second one", func(w *World, obj metav1.Object) {
		more := deepCopy(obj)
		more.SetName(key.Name + "-2")
		more.SetUID(more.GetUID() + "-2")
		moreKey := keyFor(key.Kind, more, "")
		w.Cached, w.Live = w.Cached.with(moreKey, more), w.Live.with(moreKey, more)
	})
	return options
}

// ownWrites: writes of earlier syncs. The caches lack them longer than the controller waits.
func (p *player[In, W]) ownWrites() []option {
	options := []option{
		{name: "all own writes in the caches", set: func(*World) {}},
		{name: "an own write of which the outcome is unknown", set: func(w *World) { w.Memory.Wrote = true }},
	}
	for i := range p.Children {
		child := &p.Children[i]
		key := p.childKey(child)
		options = append(options, option{
			name: fmt.Sprintf("an own write of %s %s/%s that the cache lacks", key.Kind, key.Namespace, key.Name),
			fits: func(w *World) bool {
				return w.Cached[key] == nil || controls(w.Cached[p.key], w.Cached[key])
			},
			set: func(w *World) {
				obj := p.wanted(child, p.owner)
				obj.SetResourceVersion("30")
				w.Memory.Wrote, w.Held = true, true
				w.Live = w.Live.with(key, obj)
			},
		})
	}
	return options
}

// A backoff is a ledger.
type backoff struct {
	name   string
	ledger map[reconcile.Op]reconcile.Entry
	// delaysNothing means that the sync is as if nothing backed off. Then only good answers are played.
	delaysNothing bool
	// stale changes a memory into one of another object of the name, or of an earlier spec.
	stale func(*reconcile.Memory)
}

// report is the text of all failures in a ledger.
const report = "the quota is used up"

// backoffs are the ledgers of operations that back off, or did until now. wanted are those that are sent in w.
func (p *player[In, W]) backoffs(w *World, wanted, may []reconcile.Op) []backoff {
	all := []backoff{{name: "nothing that backs off"}}
	every, unwanted := map[reconcile.Op]reconcile.Entry{}, map[reconcile.Op]reconcile.Entry{}
	problem := &reconcile.Problem{Reason: reconcile.Refused, Message: report, Failed: true}
	later := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	failed := func(attempt reconcile.Attempt) reconcile.Entry { return reconcile.Entry{Failed: attempt} }
	for i, op := range may {
		add := func(when string, e reconcile.Entry) {
			name := fmt.Sprintf("a backoff of %s %s", text(op), when)
			all = append(all, backoff{name: name, ledger: map[reconcile.Op]reconcile.Entry{op: e}})
		}
		add("after a failure", failed(reconcile.Attempt{Count: 4, Until: later(10), Report: problem}))
		every[op] = failed(reconcile.Attempt{Count: 4, Until: later(20 - i), Report: problem})
		if op.Verb == reconcile.Update {
			continue
		}
		add("that has just ended", failed(reconcile.Attempt{Count: 20, Until: start, Report: problem}))
		add("after a conflict", failed(
			reconcile.Attempt{Count: 2, Until: start.Add(10 * time.Millisecond), Expected: true, Report: problem}))
		if op.Verb == reconcile.Delete {
			continue
		}
		undone := &reconcile.Problem{Reason: reconcile.Overridden, Message: report}
		add("because somebody undoes it", reconcile.Entry{
			Repeated: reconcile.Attempt{Count: 4, Until: later(10), Report: undone}})
		add("that has just ended, because somebody undoes it", reconcile.Entry{
			Repeated: reconcile.Attempt{Count: 20, Until: start, Report: undone}})
	}
	if len(may) > 1 {
		all = append(all, backoff{name: "a backoff of everything", ledger: every})
	}
	for i := range p.Children {
		key := p.childKey(&p.Children[i])
		for _, op := range []reconcile.Op{key.op(reconcile.Create), key.op(reconcile.Patch)} {
			// A live read may show that it is not wanted.
			if !slices.Contains(wanted, op) && !w.EventDue && !w.Held {
				unwanted[op] = failed(reconcile.Attempt{Count: 4, Until: later(10), Report: problem})
			}
		}
	}
	if len(may) > 0 {
		all = append(all, backoff{"a backoff of everything of an earlier object", every, true, func(m *reconcile.Memory) {
			m.UID, m.Wrote = orphanUID, true
		}}, backoff{"a backoff of everything of an earlier spec", every, true, func(m *reconcile.Memory) { m.Generation-- }})
	}
	return append(all, backoff{"a backoff of what is not wanted", unwanted, true, func(*reconcile.Memory) {}})
}
