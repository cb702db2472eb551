// Package conformance holds pkg/apisim against a real API server. It is only tests: random sequences of operations
// are played against both, and everything that the two answer has to be the same.
//
//	go test -timeout 20m .                            5,000 operations, the same ones every time
//	go test -timeout 60m -ops 100000 -v .             the full proof, with figures
//	CONFORMANCE_OPS=100000 go test -timeout 60m .     the same
//	go test -rapid.seed 7 .                           other sequences
//	go test -kubeconfig k .                           an API server that runs already, and knows Foos
//	go test -run TestSurvey -survey 500 -v .          for work on apisim: what differs, by how often
//
// The real one is the API server of bin/localcluster; -short skips all tests.
//
// An operation is a request in terms that mean the same to any server: "the uid of it", "an older resourceVersion of
// it", "the object as last seen, but with two replicas". A sequence is played twice, each time in a namespace of its
// own, by players that put in what their server answered before. Watches stay open to the end of a sequence, and
// besides those drawn there is one of each kind from the beginning: so the whole history is compared.
//
// What is compared is the code and the whole body of every answer, and all events. Before that, a normaliser
// replaces what must differ: resourceVersions by their place among the writes of the sequence (so a write makes a
// new version on both servers or on none, and in the same order), uids and generated names by the order in which
// they were given, times by there being one; managed fields are dropped; several causes of a refusal are put in
// order, and its message, which repeats them, ends before them. A list's or bookmark's version counts writes by others
// as well, so it is replaced by the last write of the sequence before it. Bookmarks that the server sends at its
// leisure are left out. Not compared are warnings and other headers but the content type. A tenth as many
// operations are played in protobuf, as the typed clients of client-go speak it.
//
// That the normaliser leaves no noise is tested by playing against the real server twice, and that it leaves enough
// by planting faults in apisim. What is different and accepted is in a table, with reasons; a long run fails on rows
// that nothing needs any longer. Four things that the real server keeps among the managed fields are avoided by
// the operations, because there they make a new version of an object in which nothing else is new: a scale that has
// the same number of replicas already, a status of a custom resource that says to be of another version, another
// time of deletion for an object that has one, and an owner reference that is there twice.
//
// apisim has to be told about kinds. The registered_*_test.go files have the defaults and rules of the real ones, as
// far as the operations touch them. Foos are registered with their Go type.
package conformance
