// Package conformance compares pkg/sim/apiserver with a real API server. It has only tests, which play random sequences
// of operations against both servers. All their answers must be the same.
//
//	go test -timeout 20m .                            5,000 operations, the same ones every time
//	go test -timeout 60m -ops 100000 -v .             the full test, with counts
//	CONFORMANCE_OPS=100000 go test -timeout 60m .     the same
//	go test -rapid.seed 7 .                           other sequences
//	go test -kubeconfig k .                           a running API server with our CRD and those of testdata/crds
//	go test -run TestSurvey -survey 500 -v .          for work on the simulated server: all differences, by frequency
//	CONFORMANCE_VALUES=100000 go test -run TestEverythingThatTheServerStoresCanBeRead -timeout 60m -v .
//
// The real server is the API server of bin/localcluster. -short skips all tests.
//
// An operation is a request in terms that are valid for any server: "the uid of the object", "an older resourceVersion
// of it", "the object as last seen, but with two replicas". A sequence is played twice, each time in a namespace of its
// own, by players that replace these terms by values from earlier answers of their server. Watches stay open until the
// end of a sequence. In addition to the random watches there is one for each kind from the beginning, so that the whole
// history is compared.
//
// The tests compare the code and the whole body of every answer, and all events. Before that, a normaliser replaces the
// values that must differ:
//
//   - resourceVersions by their position among the writes of the sequence, so that a write creates a new version on
//     both servers or on none, and in the same order
//   - uids and generated names by the order in which they were generated
//   - times by a constant
//   - the version of a list or a bookmark by the last write of the sequence before it, because the original version
//     also counts other writes
//
// It drops managed fields and periodic bookmarks, sorts the causes of an error, and cuts its message before the causes,
// which the message repeats. Of the headers it compares the content type and the warnings. A tenth as many operations
// are played in protobuf, as the typed clients of client-go use it, a tenth each for a rich schema and for Foos with
// their Go type, and a twentieth for a kind without namespaces.
//
// The kinds are built-in ones, Foos with the schema of their definition, and two kinds without a schema for the
// simulated server, which allow everything. Some operations accept other media types, such as objects that are reduced
// to their metadata, and some have the path of a kind without namespaces for one with namespaces, or the reverse. Other
// tests compare discovery whole, and what garbage collectors leave of random heaps of objects that own one another.
//
// One test compares the real server with itself, to prove that the normaliser replaces enough. Another plants faults in
// the simulated server, to prove that it does not replace too much. A table lists the accepted differences with
// reasons. A long run fails if one of them does not occur any more.
//
// The operations avoid requests with which the real server changes only the managed fields, and so creates a new
// version of an object: a scale with the current number of replicas, a status of a custom resource with another
// version, another time of deletion for an object that is being deleted, a duplicate owner reference, and alpha fields
// of a Lease.
//
// Another test is about the real server and our Go type. It stores values at and beyond the edges of every field of a
// Foo. What the server accepts, the Go type must be able to decode: otherwise a single Foo ends the list and the watch
// of all Foos.
//
// registered_test.go registers the kinds with apiserver.
package conformance
