//go:build linux

// Podrunner is a node of a local control plane that really runs its pods, without a container runtime and without
// downloads. KWOK, which simulates the other nodes, reports each pod as Ready, whatever is in it. This node starts the
// entrypoint of the image, and reports what its probes answer.
//
//	podrunner check                                              reports whether this machine permits what it needs
//	podrunner --kubeconfig F --layout bin/image/layout --dir D   runs the node until it gets SIGTERM or Ctrl-C
//
// It needs Linux and user namespaces, and no permissions of root:
//
//	node.go       the Node, its Lease, and the pods that are bound to it
//	pod.go        one pod from its start to its end; status.go and probe.go decide its status
//	image.go      images, from an OCI layout that hack/image has written
//	fields.go     the fields of a pod that the runner knows
//	spec.go       command, environment, user and capabilities; volumes.go has the token of the ServiceAccount
//	sandbox.go    the process with the namespaces of a pod; sandbox_client.go and channel.go connect the runner to it
//	container.go  the last process before the entrypoint
//	logs.go       kubectl logs
//
// Each pod has a network namespace of its own, so two replicas can use the same ports. Only a loopback interface is in
// it, with the address of the pod, because an interface to the outside needs permissions of root. The sandbox passes
// open sockets to the runner. So probes connect to the address of the pod, the API server is at 127.0.0.1:443 of the
// pod, and the ports of the pod 10.245.N.M are at 127.0.N.M of the machine.
//
// Not enforced are resource limits, seccomp profiles and network policies. There is no DNS, there are no variables with
// the addresses of Services, and there is no file for a termination message. A pod with a field that the runner does
// not know is not started, and its status shows why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "podrunner:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	unix.Umask(0o022) // The modes of what pods get do not depend on who has started the runner.
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case sandboxCommand:
		return runSandbox()
	case containerCommand:
		return runContainer(args[1], args[2])
	case checkEntrypointCommand:
		return checkEntrypoint()
	case checkCommand:
		return check(context.Background())
	}
	opts := options{}
	flags := flag.NewFlagSet("podrunner", flag.ContinueOnError)
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "`file` with the connection to the API server")
	flags.StringVar(&opts.layout, "layout", "bin/image/layout", "OCI image layout with the images, a `directory`")
	flags.StringVar(&opts.dir, "dir", "", "`directory` for images, volumes and logs")
	stopWithStdin := flags.Bool("stop-with-stdin", false, "stop also when the standard input ends, for scripts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || opts.kubeconfig == "" || opts.dir == "" {
		return errors.New("give --kubeconfig, --dir, and no arguments; --help lists the flags")
	}
	var err error
	if opts.dir, err = filepath.Abs(opts.dir); err != nil {
		return err
	}
	r, err := newRunner(opts)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *stopWithStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // An error is an end too.
			stop()
		}()
	}
	context.AfterFunc(ctx, stop) // A second signal ends the runner at once, and with it all pods.
	return r.run(ctx)
}
