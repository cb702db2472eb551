// Package child has the main functions of Kubernetes' own components, which `localcluster up` starts as children. It is
// also compiled with the modules of other versions of Kubernetes: see hack/minors.sh.
package child

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Command is the hidden command with which up starts a binary as a component: "BINARY component NAME ARGS...".
const Command = "component"

// The components that Run knows.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Run is the main function of a component. Its arguments are those of os.Args. It returns the exit code.
func Run(name string) int {
	switch name {
	case APIServer:
		return cli.Run(apiserver.NewAPIServerCommand())
	case ControllerManager:
		return cli.Run(controllermanager.NewControllerManagerCommand())
	case Scheduler:
		return cli.Run(scheduler.NewSchedulerCommand())
	}
	fmt.Fprintf(os.Stderr, "Error: unknown component %q\n", name)
	return 1
}

// parentPipeFD is the file descriptor of the parent pipe in a child: the first of exec.Cmd.ExtraFiles.
const parentPipeFD = 3

// ExitWithParent ends this process when the parent has ended, even by SIGKILL. The parent has the only write end of the
// parent pipe and never writes to it, so the read returns when the kernel closes it.
func ExitWithParent() {
	syscall.CloseOnExec(parentPipeFD)
	parentPipe := os.NewFile(parentPipeFD, "parent pipe")
	go func() {
		io.Copy(io.Discard, parentPipe)
		fmt.Fprintln(os.Stderr, "The parent process is gone. Exiting.")
		os.Exit(1)
	}()
}
