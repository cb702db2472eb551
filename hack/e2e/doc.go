// Package e2e tests the controller from end to end: the binary as a process, on real control planes. It has only tests.
//
//	make test-e2e                the tests for each change
//	make test-core               those that take long, or change a control plane of their own: *_core_test.go
//	make test-artifacts          those of artifacts/: *_artifacts_test.go
//	make test-node               those of the controller in pods, on real nodes: *_node_test.go; needs root
//	go test -run TestRename .    one test, after make build bin/play; with -race, after make bin/foo-controller-race, too
//	go test -short .             the few tests that need no binaries
//
// TestNodes runs the image of the controller in pods, on two real nodes. It also needs bin/node and bin/image-native.
//
// The first test that needs a control plane starts it, see shared. Tests that share one run at the same time, each in
// namespaces of its own. The controllers that they start serve only these, except on servedCluster, where one
// controller serves all tests. A proxy between a controller and its API server can delay or lose requests.
//
// TestThePageShowsWhatTheControllerDoes opens the page of /debug/syncs in Chromium, and is skipped where that is
// missing. With -screenshots=DIR it also writes pictures. docs/try.md has two of them.
//
// This is a module of its own because its tests need kstatus and a Lua interpreter, to read a Foo as other tools do,
// and a client for Chromium. The controller does not depend on these.
package e2e
