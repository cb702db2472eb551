package conformance

import (
	"slices"
	"strings"
	"testing"
)

// TestDiscovery compares discovery whole, in all media types, except for the kinds that the simulated server does not
// have, the hashes of storage versions, the addresses of the server, and the order of groups and resources.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	want, have := againstRealServer(t), simulated()
	paths := []string{"/api", "/apis", "/apis/nowhere", "/apis/apps/v9", "/api/v9"}
	for _, k := range append(slices.Clone(kinds), gadgets, gizmos, namespaceKind) {
		path := strings.TrimSuffix(k.misplacedPath(""), "/"+k.resource)
		paths = append(paths, path)
		if k.group != "" {
			paths = append(paths, strings.TrimSuffix(path, "/"+k.version))
		}
	}
	for _, path := range paths {
		for _, accept := range []string{plainJSON, "application/yaml", binary + inAnyCase} {
			var trees [2]map[string]any
			for i, s := range []server{want, have} {
				answer, err := (&player{server: s, accept: accept}).send(t.Context(), "GET", path, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				discoverable(answer.body)
				trees[i] = map[string]any{"code": float64(answer.code), "media": answer.media, "body": answer.body}
			}
			for _, l := range compare("", trees[0], trees[1]) {
				t.Errorf("%s as %s%s", path, accept, l)
			}
		}
	}
}

// discoverable removes what differs between servers, and sorts what has no order.
func discoverable(body any) {
	object, _ := body.(map[string]any)
	delete(object, "serverAddressByClientCIDRs")
	if groups, ok := object["groups"].([]any); ok {
		object["groups"] = known(groups, func(name string) bool {
			return slices.ContainsFunc(kinds, func(k *kind) bool { return k.group == name })
		})
	}
	if resources, ok := object["resources"].([]any); ok {
		all := append(slices.Clone(kinds), gadgets, gizmos, namespaceKind)
		object["resources"] = known(resources, func(name string) bool {
			name, _, _ = strings.Cut(name, "/")
			return slices.ContainsFunc(all, func(k *kind) bool { return k.resource == name })
		})
	}
}

// known returns the elements whose name is known, sorted by name. Subresources keep their order.
func known(all []any, is func(name string) bool) []any {
	kept := slices.DeleteFunc(all, func(one any) bool { return !is(text(one, "name")) })
	for _, one := range kept {
		delete(one.(map[string]any), "storageVersionHash")
	}
	slices.SortStableFunc(kept, func(a, b any) int {
		of, than := strings.Split(text(a, "name"), "/"), strings.Split(text(b, "name"), "/")
		return strings.Compare(of[0], than[0])
	})
	return kept
}
