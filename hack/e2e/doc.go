// Package e2e tests the controller from end to end: the binary as a process, on real control planes. It has only tests.
//
//	make test                              builds the binaries and runs these and all other tests
//	go test -run TestRename .              one test, after bin/localcluster and bin/foo-controller-race are built
//	go test -short .                       the few tests that need neither
//
// TestPods runs the image of the controller in real pods, on a node of its own: the package podrunner. It also needs
// bin/podrunner and bin/image-native.
//
// The first test that needs a control plane starts it, see shared. Each test uses its own namespaces and its own
// controller. A proxy between a controller and its API server can delay or lose requests.
//
// This is a module of its own because its tests need kstatus and a Lua interpreter, to read a Foo as other tools do.
// The controller does not depend on these.
package e2e
