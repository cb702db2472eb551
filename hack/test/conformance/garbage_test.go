package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/foo-controller/pkg/sim/apiserver"
)

const (
	// heaps is the number of heaps of garbage to compare.
	heaps = 60
	// collected is the longest time that a collector may take. In practice it takes less than a tenth of it.
	collected = 60 * time.Second
)

var heapNames = []string{"a", "b", "c", "d", "e"}

// A heap is a sequence that creates objects that own one another and deletes some of them. An object may be of a kind
// without namespaces, and may name its owner in a version that is not served.
var heap = rapid.Custom(func(from *rapid.T) sequence {
	t := draw{T: from}
	var s sequence
	made, garbage := map[string]*kind{}, map[string]bool{}
	for i, name := range heapNames {
		made[name] = pick(t, "kind", heapKinds...)
		object := edited{base: made[name].object(name)}
		var owners []any
		for _, owner := range heapNames[:i] {
			if !pick(t, "owned", false, true, false) {
				continue
			}
			if garbage[owner] && made[name].clusterScoped && !made[owner].clusterScoped {
				continue // A real collector keeps the object or deletes it, depending on what it has seen when.
			}
			garbage[name] = garbage[name] || garbage[owner]
			owners = append(owners, reference(t, made[owner], owner))
		}
		if seldom(t, 8) {
			garbage[name] = true
			owners = append(owners, pick(t, "absent", absentOwner, unservedOwner))
		}
		if owners != nil {
			object.edits = append(object.edits, edit{"metadata.ownerReferences", owners})
		}
		if seldom(t, 6) {
			object.edits = append(object.edits, edit{"metadata.finalizers", []any{"example.com/hold"}})
		}
		s = append(s, creation(made[name], object))
	}
	for range pick(t, "deletions", 1, 2, 3) {
		name := pick(t, "name", heapNames...)
		op := operation{verb: "delete", method: "DELETE", kind: made[name], name: name}
		policy := pick(t, "policy", "Background", "Foreground", "Orphan", "")
		if policy != "" {
			op.query = []parameter{{"propagationPolicy", policy}}
		}
		s = append(s, op)
	}
	return s
})

// reference returns a reference to an owner. With a reference that does not block, the result would be random if a
// finalizer holds the owner: the dependent may be deleted or not, because the workers of a real collector race.
func reference(t draw, k *kind, owner string) map[string]any {
	version := k.apiVersion()
	if seldom(t, 10) {
		version = strings.TrimPrefix(k.group+"/v9", "/")
	}
	return map[string]any{
		"apiVersion": version, "kind": k.kind, "name": symbol{what: ownName, name: owner, kind: k},
		"uid": symbol{what: uidNow, name: owner, kind: k}, "blockOwnerDeletion": true,
	}
}

var (
	absentOwner   = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": noUID}
	unservedOwner = map[string]any{"apiVersion": "v1", "kind": "Nothing", "name": "absent", "uid": noUID}
)

// TestGarbageCollectorsLeaveTheSameObjects creates heaps of garbage on both servers, and compares the objects that the
// garbage collectors leave after each deletion. The order and the times of their deletions may differ.
func TestGarbageCollectorsLeaveTheSameObjects(t *testing.T) {
	t.Parallel()
	want, have := fullCluster.get(t), simulated()
	go apiserver.RunGarbageCollector(t.Context(), have.transport.(*apiserver.Server), time.Millisecond)
	var wg sync.WaitGroup
	limit := make(chan struct{}, shards)
	for i := range heaps {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			sequence := heap.Example(i)
			if err := compareHeaps(t.Context(), want, have, sequence); err != nil {
				t.Errorf("heap %d: %v%v", i, err, sequence)
			}
		})
	}
	wg.Wait()
}

func compareHeaps(ctx context.Context, want, have server, sequence sequence) error {
	var players []*player
	for _, s := range []server{want, have} {
		p := &player{server: s, namespace: newNamespace(), shared: true}
		if err := p.begin(ctx); err != nil {
			return err
		}
		players = append(players, p)
	}
	for i, op := range sequence {
		for _, p := range players {
			if err := p.perform(ctx, op); err != nil {
				return err
			}
		}
		// A deletion before the collectors have finished would race with them.
		if op.verb == "delete" || i == len(heapNames)-1 {
			if err := settle(ctx, players); err != nil {
				return fmt.Errorf("after operation %d: %w", i+1, err)
			}
		}
	}
	return nil
}

// settle waits until the collectors have finished and the servers have the same objects.
func settle(ctx context.Context, players []*player) error {
	ctx, cancel := context.WithTimeout(ctx, collected)
	defer cancel()
	// The servers may have the same objects before the collectors begin. So each collector must also collect an object
	// that is created later.
	for _, p := range players {
		if err := p.waitForCollection(ctx); err != nil {
			return err
		}
	}
	var states [2]string
	err := until(ctx, func() (bool, error) {
		for i, p := range players {
			state, err := p.remaining(ctx)
			if err != nil {
				return false, err
			}
			states[i] = state
		}
		return states[0] == states[1], nil
	})
	if err != nil {
		return fmt.Errorf("%w: the real server has\n%sthe simulated one has\n%s", err, states[0], states[1])
	}
	return nil
}

// heapKinds are the kinds of the objects in heaps.
var heapKinds = []*kind{configMaps, widgets, gadgets}

// waitForCollection creates garbage of each kind, and waits until it is deleted.
func (p *player) waitForCollection(ctx context.Context) error {
	for _, k := range heapKinds {
		const canary = "canary"
		object := edited{base: k.object(canary), edits: []edit{{"metadata.ownerReferences", []any{absentOwner}}}}
		if k.clusterScoped {
			// An owner with a namespace would not count.
			absent := map[string]any{"apiVersion": k.apiVersion(), "kind": k.kind, "name": "absent", "uid": noUID}
			object.edits[0].value = []any{absent}
		}
		if err := p.perform(ctx, creation(k, object)); err != nil {
			return err
		}
		path := k.path(p.namespace) + "/" + p.memory.ownName(k, canary)
		err := until(ctx, func() (bool, error) {
			answer, err := p.send(ctx, "GET", path, "", nil)
			return answer.code == http.StatusNotFound, err
		})
		if err != nil {
			return fmt.Errorf("see garbage of %s collected: %w", k, err)
		}
	}
	return nil
}

// remaining describes the existing objects, with their owners and finalizers.
func (p *player) remaining(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, k := range heapKinds {
		answer, err := p.send(ctx, "GET", k.path(p.namespace)+"?labelSelector=app%3Dx", "", nil)
		if err != nil {
			return "", err
		}
		items, ok := valueAt(answer.body, "items").([]any)
		if !ok {
			return "", fmt.Errorf("list: %v", answer.body)
		}
		for _, item := range items {
			p.describe(&b, k, item)
		}
	}
	return b.String(), nil
}

// describe describes an object, unless it is that of another player.
func (p *player) describe(b *strings.Builder, k *kind, item any) {
	name := text(item, "metadata", "name")
	if k.clusterScoped {
		own, is := strings.CutPrefix(name, p.namespace+"-")
		if !is {
			return
		}
		name = own
	}
	var owners []string
	references, _ := valueAt(item, "metadata", "ownerReferences").([]any)
	for _, reference := range references {
		owner := strings.TrimPrefix(text(reference, "name"), p.namespace+"-")
		owners = append(owners, text(reference, "apiVersion")+" "+owner)
	}
	deleting := text(item, "metadata", "deletionTimestamp") != ""
	fmt.Fprintf(b, "\t%s %s owners %q finalizers %v deleting %v\n", k, name, owners,
		valueAt(item, "metadata", "finalizers"), deleting)
}

// until calls done until it returns true or ctx ends.
func until(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		yes, err := done()
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
