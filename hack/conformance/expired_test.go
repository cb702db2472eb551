package conformance

import (
	"slices"
	"testing"

	"example.com/foo-controller/pkg/apisim"
)

// TestAVersionThatIsForgotten begins watches at the first version there ever was. The real server's cache of Foos
// begins later, since it did not know them when it started; with built-in kinds it depends on how fast it did. What
// etcd has compacted away cannot be had here: a real server does that once in five minutes.
func TestAVersionThatIsForgotten(t *testing.T) {
	t.Parallel()
	have := simulated()
	have.transport.(*apisim.Server).Compact()
	var sequence []operation
	for _, k := range []*kind{foos} {
		from := func(more ...parameter) operation {
			query := append([]parameter{{"watch", "true"}, {"resourceVersion", noVersion}}, more...)
			return operation{verb: "watch", method: "GET", kind: k, query: query}
		}
		sequence = append(sequence,
			creation(k, edited{base: k.object("a")}),
			from(),
			from(parameter{"labelSelector", "app=x"}),
			from(parameter{"fieldSelector", "metadata.name=a"}),
			from(parameter{"allowWatchBookmarks", "true"}),
			from(parameter{"sendInitialEvents", "true"}, parameter{"resourceVersionMatch", "NotOlderThan"},
				parameter{"allowWatchBookmarks", "true"}))
	}
	different, err := playBoth(t.Context(), real(t), have, sequence, newTally())
	if err != nil {
		t.Fatal(err)
	}
	if different != "" {
		t.Errorf("not the same:\n%s", different)
	}
}

// TestAVersionFromTheFuture asks for what has not come to pass yet. Watches are told to end by themselves.
func TestAVersionFromTheFuture(t *testing.T) {
	t.Parallel() // The real server waits for three seconds each time.
	var sequence []operation
	for _, k := range []*kind{deployments, foos} {
		later := parameter{"resourceVersion", tooLarge}
		watch := []parameter{{"watch", "true"}, later, {"timeoutSeconds", "1"}}
		initial := []parameter{{"sendInitialEvents", "true"}, {"allowWatchBookmarks", "true"}}
		get := func(query ...parameter) operation {
			return operation{verb: "list", method: "GET", kind: k, query: append([]parameter{later}, query...)}
		}
		sequence = append(sequence,
			creation(k, edited{base: k.object("a")}),
			operation{verb: "watch", method: "GET", kind: k, query: watch},
			operation{verb: "watch", method: "GET", kind: k, query: append(slices.Clone(watch),
				append(initial, parameter{"resourceVersionMatch", "NotOlderThan"})...)},
			operation{verb: "get", method: "GET", kind: k, name: "a", query: []parameter{later}},
			get(),
			get(parameter{"resourceVersionMatch", "NotOlderThan"}),
			get(parameter{"resourceVersionMatch", "Exact"}),
			get(parameter{"limit", "1"}))
	}
	different, err := playBoth(t.Context(), real(t), simulated(), sequence, newTally())
	if err != nil {
		t.Fatal(err)
	}
	if different != "" {
		t.Errorf("not the same:\n%s", different)
	}
}
