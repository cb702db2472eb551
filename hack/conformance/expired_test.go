package conformance

import (
	"slices"
	"testing"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// TestAnExpiredVersion starts watches at the first version of all. The cache of the real server for Foos begins later,
// because the CRD was created after the server had started. For built-in kinds that depends on the speed of the start.
// The test does not cover versions that etcd has compacted, because a real server compacts only every five minutes.
func TestAnExpiredVersion(t *testing.T) {
	t.Parallel()
	have := simulated()
	have.transport.(*apiserver.Server).Compact()
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
	different, err := playBoth(t.Context(), againstRealServer(t), have, sequence, newTally())
	if err != nil {
		t.Fatal(err)
	}
	if different != "" {
		t.Errorf("different answers:\n%s", different)
	}
}

// TestAVersionThatDoesNotExistYet reads and watches at a future version. The watches have a timeout.
func TestAVersionThatDoesNotExistYet(t *testing.T) {
	t.Parallel() // The real server waits three seconds each time.
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
	different, err := playBoth(t.Context(), againstRealServer(t), simulated(), sequence, newTally())
	if err != nil {
		t.Fatal(err)
	}
	if different != "" {
		t.Errorf("different answers:\n%s", different)
	}
}
