// Package e2e tests the controller from end to end: the binary as a process, on real control planes. It is only tests.
//
//	make test                              builds what they need and runs them, with all other tests
//	go test -run TestRename .              one of them, when bin/localcluster and bin/foo-controller-race are built
//	go test -short .                       the few that need neither
//
// A control plane is started by the first test that needs it, see shared. Tests on it use namespaces of their own, and
// a controller for each test. What stands between a controller and its API server, to hold requests back or to lose
// them, is a proxy.
//
// This is a module of its own because kstatus and a Lua interpreter, by which these tests see a Foo as other tools do,
// are no dependencies of the controller.
package e2e
