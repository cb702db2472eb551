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
func stored(obj metav1.Object, version string) metav1.Object {
	obj = deepCopy(obj)
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())))
	}
	obj.SetResourceVersion(cmp.Or(obj.GetResourceVersion(), version))
	obj.SetGeneration(cmp.Or(obj.GetGeneration(), 3))
	return obj
}

// childKey: a child without a namespace has the one of the object.
func (p *player[In, W]) childKey(child *Child[W]) Key {
	want := child.Want(p.owner)
	return Key{child.Kind, cmp.Or(want.GetNamespace(), p.key.Namespace), want.GetName()}
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

// wanted returns a child of the object as it is stored.
func (p *player[In, W]) wanted(child *Child[W]) metav1.Object {
	obj := stored(child.Want(p.owner), "20")
	obj.SetNamespace(p.childKey(child).Namespace)
	obj.SetGeneration(1)
	return obj
}

// worldsOf calls visit with every world, always in the same order.
func (p *player[In, W]) worldsOf(visit func(World)) {
	lists := [][]Option{p.objects()}
	for i := range p.Children {
		lists = append(lists, p.childOptions(&p.Children[i]))
	}
	Combine(append(lists, p.ownWrites()), visit)
}

// objects: the object in the cache, and what the API server has instead.
func (p *player[In, W]) objects() (options []Option) {
	add := func(is string, cached, live metav1.Object, due bool) {
		options = append(options, Option{Name: "a " + p.Kind.Kind + " that " + is, Set: func(w *World) {
			w.Cached, w.Live, w.EventDue = Objects{p.key: cached}, Objects{}.with(p.key, live), due
		}})
	}
	var last metav1.Object = p.owner
	add("is new", last, last, false)
	for _, edit := range p.Objects {
		last = deepCopy(p.owner)
		edit.Do(last.(W))
		add("is "+edit.Name, last, last, false)
	}
	for _, live := range p.lives() {
		add(live.name+", which the cache lacks", last, live.do(deepCopy(last)), true)
	}
	return options
}

// isForSync reports whether there is a sync of obj. One that is being deleted has none, unless the plan is for that.
func (p *player[In, W]) isForSync(obj metav1.Object) bool {
	return obj != nil && (p.Deletion || obj.GetDeletionTimestamp() == nil)
}

// A live is what may have happened to the object before a request comes. do changes a copy; it returns nil for one that
// is gone.
type live struct {
	name string
	do   func(metav1.Object) metav1.Object
}

// lives are what may have happened to the object. The first is gone; then come the changes of the spec.
func (p *player[In, W]) lives() []live {
	lives := []live{{"was deleted", func(metav1.Object) metav1.Object { return nil }}}
	add := func(name string, do func(obj metav1.Object)) {
		lives = append(lives, live{name, func(obj metav1.Object) metav1.Object {
			do(obj)
			obj.SetResourceVersion("50")
			return obj
		}})
	}
	for _, edit := range p.Changes {
		add("became "+edit.Name, func(obj metav1.Object) {
			before := field(deepCopy(obj), "Spec")
			if edit.Do(obj.(W)); !reflect.DeepEqual(before, field(obj, "Spec")) {
				obj.SetGeneration(obj.GetGeneration() + 7)
			}
		})
	}
	// Objects that have no generation keep it.
	add("began to be deleted", func(obj metav1.Object) { obj.SetDeletionTimestamp(&metav1.Time{Time: start}) })
	add("was restored from a backup", func(obj metav1.Object) { obj.SetGeneration(obj.GetGeneration() - 1) })
	add("was created again", func(obj metav1.Object) {
		generation := obj.GetGeneration()
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(deepCopy(p.owner)).Elem())
		obj.SetUID("another-uid")
		obj.SetGeneration(generation)
	})
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

// reowned changes owner references.
func reowned(change func(*metav1.OwnerReference)) func(metav1.Object) {
	return func(obj metav1.Object) {
		refs := slices.Clone(obj.GetOwnerReferences())
		for i := range refs {
			change(&refs[i])
		}
		obj.SetOwnerReferences(refs)
	}
}

const earlierUID = "earlier-uid"

var asWanted = Edit[metav1.Object]{Name: "as wanted", Do: func(metav1.Object) {}}

// strangers are what may have happened to any child, so that it must be left alone.
var strangers = []Edit[metav1.Object]{
	{Name: "without an owner", Do: func(obj metav1.Object) { obj.SetOwnerReferences(nil) }},
	{Name: "with another kind of owner", Do: reowned(func(ref *metav1.OwnerReference) {
		ref.APIVersion, ref.UID = "stranger.io/v1", "stranger-uid"
	})},
	{Name: "left by an earlier owner of the name", Do: reowned(func(ref *metav1.OwnerReference) { ref.UID = earlierUID })},
	{Name: "being deleted", Do: func(obj metav1.Object) { obj.SetDeletionTimestamp(&metav1.Time{Time: start}) }},
	{Name: "without a controller", Do: reowned(func(ref *metav1.OwnerReference) { ref.Controller = nil })},
	{Name: "without resourceVersion", Do: func(obj metav1.Object) { obj.SetResourceVersion("") }},
	{Name: "without uid", Do: func(obj metav1.Object) { obj.SetUID("") }},
}

// childOptions: what has the name of the child.
func (p *player[In, W]) childOptions(child *Child[W]) []Option {
	key := p.childKey(child)
	options := []Option{{Name: "no " + key.String(), Set: func(*World) {}}}
	add := func(is string, set func(w *World), edits ...func(metav1.Object)) {
		options = append(options, Option{Name: key.String() + " " + is, Set: func(w *World) {
			obj := p.wanted(child)
			for _, edit := range edits {
				edit(obj)
			}
			w.Cached, w.Live = w.Cached.with(key, obj), w.Live.with(key, obj)
			set(w)
		}})
	}
	plain := func(*World) {}
	add("as wanted", plain)
	add("as wanted, but gone, which the cache lacks", func(w *World) { w.Live, w.EventDue = w.Live.with(key, nil), true })
	add("as wanted, and a second one", func(w *World) { // Such as a copy.
		more, moreKey := deepCopy(w.Cached[key]), Key{key.Kind, key.Namespace, key.Name + "-2"}
		more.SetName(moreKey.Name)
		more.SetUID(more.GetUID() + "-2")
		w.Cached, w.Live = w.Cached.with(moreKey, more), w.Live.with(moreKey, more)
	})
	for _, edit := range child.Edits {
		add(edit.Name, func(w *World) { w.Stuck = w.Stuck || edit.Stuck }, edit.Do)
	}
	first := append(child.Edits[:len(child.Edits):len(child.Edits)], asWanted)[0]
	for _, stranger := range strangers { // It also differs, if it can: that must not matter.
		add(first.Name+", "+stranger.Name, plain, first.Do, stranger.Do)
	}
	if child.Admit != nil {
		add("that a webhook changes", func(w *World) { w.Admits = true }, child.Admit)
	}
	return options
}

// ownWrites: writes of earlier syncs. The caches lack them longer than the controller waits.
func (p *player[In, W]) ownWrites() []Option {
	options := []Option{
		{Name: "all own writes in the caches", Set: func(*World) {}},
		{Name: "an own write that may have been done", Set: func(w *World) { w.Memory.Wrote = true }},
	}
	for i := range p.Children {
		key := p.childKey(&p.Children[i])
		options = append(options, Option{
			Name: "an own write of " + key.String() + " that the cache lacks",
			Fits: func(w *World) bool { return w.Cached[key] == nil || controls(w.Cached[p.key], w.Cached[key]) },
			Set: func(w *World) {
				obj := p.wanted(&p.Children[i])
				obj.SetResourceVersion("30")
				w.Memory.Wrote, w.Held, w.Live = true, true, w.Live.with(key, obj)
			},
		})
	}
	return options
}

// A backoff is a ledger.
type backoff struct {
	name   string
	ledger map[reconcile.Op]reconcile.Entry
	// stale, unless nil, changes the memory so that nothing backs off. Then only good answers are played.
	stale func(*reconcile.Memory)
}

// report is the text of all failures in a ledger.
const report = "the quota is used up"

// backoffs are the ledgers of operations that back off, or did until now. wanted are those that are sent in w; may are
// those that could be.
func (p *player[In, W]) backoffs(w *World, wanted, may []reconcile.Op) []backoff {
	all := []backoff{{name: "nothing that backs off"}}
	problem := &reconcile.Problem{Reason: reconcile.Refused, Message: report, Failed: true}
	undone := &reconcile.Problem{Reason: reconcile.Overridden, Message: report}
	failed := func(after time.Duration) reconcile.Entry {
		return reconcile.Entry{Failed: reconcile.Attempt{Count: 4, Until: start.Add(after), Report: problem}}
	}
	until, ended, conflict := failed(10*time.Second), failed(0), failed(10*time.Millisecond)
	ended.Failed.Count, conflict.Failed.Count, conflict.Failed.Expected = 20, 2, true
	every, unwanted := map[reconcile.Op]reconcile.Entry{}, map[reconcile.Op]reconcile.Entry{}
	for i, op := range may {
		add := func(when string, e reconcile.Entry) {
			all = append(all, backoff{"a backoff of " + text(op) + when, map[reconcile.Op]reconcile.Entry{op: e}, nil})
		}
		every[op] = failed(time.Duration(20-i) * time.Second)
		add(" after a failure", until)
		if op.Verb == reconcile.UpdateStatus {
			continue
		}
		add(" that has just ended", ended)
		add(" after a conflict", conflict)
		if op.Verb == reconcile.Delete {
			continue
		}
		for i, e := range []reconcile.Entry{until, ended} {
			e.Failed.Report = undone
			add([]string{"", " that has just ended"}[i]+", as somebody undoes it", reconcile.Entry{Repeated: e.Failed})
		}
	}
	for i := range p.Children {
		key := p.childKey(&p.Children[i])
		for _, op := range []reconcile.Op{key.op(reconcile.Create), key.op(reconcile.Patch)} {
			// A live read may show that it is not wanted.
			if !slices.Contains(wanted, op) && !w.EventDue && !w.Held {
				unwanted[op] = until
			}
		}
	}
	if len(may) > 1 {
		all = append(all, backoff{"a backoff of everything", every, nil})
	}
	return append(all, backoff{"a backoff of what is not wanted", unwanted, func(*reconcile.Memory) {}},
		backoff{"a backoff of everything of an earlier spec", every, func(m *reconcile.Memory) { m.Generation-- }},
		backoff{"a backoff of everything of an earlier object", every, func(m *reconcile.Memory) {
			m.UID, m.Wrote = earlierUID, true
		}})
}
