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

	"example.com/foo-controller/pkg/sim/apisim"
)

const (
	// heaps is the number of heaps of garbage to compare.
	heaps = 60
	// collected is the longest time that a collector may take. In practice it takes less than a tenth of it.
	collected = 60 * time.Second
)

var heapNames = []string{"a", "b", "c", "d", "e"}

// A heap is a sequence that creates objects that own one another and deletes some of them.
var heap = rapid.Custom(func(from *rapid.T) sequence {
	t := draw{T: from}
	var s sequence
	for i, name := range heapNames {
		object := edited{base: configMaps.object(name)}
		var owners []any
		for _, owner := range heapNames[:i] {
			if pick(t, "owned", false, true, false) {
				// With a reference that does not block, the result would be random if a finalizer holds the owner: the
				// dependent may be deleted or not, because the workers of a real collector race.
				owners = append(owners, map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": symbol{what: uidNow, name: owner},
					"blockOwnerDeletion": true,
				})
			}
		}
		if seldom(t, 8) {
			owners = append(owners, absentOwner)
		}
		if owners != nil {
			object.edits = append(object.edits, edit{"metadata.ownerReferences", owners})
		}
		if seldom(t, 6) {
			object.edits = append(object.edits, edit{"metadata.finalizers", []any{"example.com/hold"}})
		}
		s = append(s, creation(configMaps, object))
	}
	for range pick(t, "deletions", 1, 2, 3) {
		op := operation{verb: "delete", method: "DELETE", kind: configMaps, name: pick(t, "name", heapNames...)}
		policy := pick(t, "policy", "Background", "Foreground", "Orphan", "")
		if policy != "" {
			op.query = []parameter{{"propagationPolicy", policy}}
		}
		s = append(s, op)
	}
	return s
})

var absentOwner = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": noUID}

// TestGarbageCollectorsLeaveTheSameObjects creates heaps of garbage on both servers, and compares the objects that the
// garbage collectors leave after each deletion. The order and the times of their deletions may differ.
func TestGarbageCollectorsLeaveTheSameObjects(t *testing.T) {
	t.Parallel()
	want, have := fullCluster.get(t), simulated()
	go apisim.RunGarbageCollector(t.Context(), have.transport.(*apisim.Server), time.Millisecond)
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
		p := &player{server: s, namespace: newNamespace()}
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
		return fmt.Errorf("%w: the real server has\n%sapisim has\n%s", err, states[0], states[1])
	}
	return nil
}

// waitForCollection creates garbage and waits until it is deleted.
func (p *player) waitForCollection(ctx context.Context) error {
	object := edited{base: configMaps.object("canary"), edits: []edit{{"metadata.ownerReferences", []any{absentOwner}}}}
	if err := p.perform(ctx, creation(configMaps, object)); err != nil {
		return err
	}
	err := until(ctx, func() (bool, error) {
		answer, err := p.send(ctx, "GET", configMaps.path(p.namespace)+"/canary", "", nil)
		return answer.code == http.StatusNotFound, err
	})
	if err != nil {
		return fmt.Errorf("see garbage collected: %w", err)
	}
	return nil
}

// remaining describes the existing objects, with their owners and finalizers.
func (p *player) remaining(ctx context.Context) (string, error) {
	answer, err := p.send(ctx, "GET", configMaps.path(p.namespace)+"?labelSelector=app%3Dx", "", nil)
	if err != nil {
		return "", err
	}
	items, ok := valueAt(answer.body, "items").([]any)
	if !ok {
		return "", fmt.Errorf("list: %v", answer.body)
	}
	var b strings.Builder
	for _, item := range items {
		var owners []string
		references, _ := valueAt(item, "metadata", "ownerReferences").([]any)
		for _, reference := range references {
			owners = append(owners, text(reference, "name"))
		}
		deleting := text(item, "metadata", "deletionTimestamp") != ""
		fmt.Fprintf(&b, "\t%s owners %v finalizers %v deleting %v\n", text(item, "metadata", "name"), owners,
			valueAt(item, "metadata", "finalizers"), deleting)
	}
	return b.String(), nil
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
