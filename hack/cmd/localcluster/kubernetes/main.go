// Kubernetes is the control plane of another version of Kubernetes, for localcluster up --kubernetes: its own programs
// in one binary. up starts it for each of them, as it starts itself: "kubernetes component NAME ARGS...".
package main

import (
	"fmt"
	"os"

	"example.com/foo-controller/hack/cmd/localcluster/child"
)

func main() {
	if len(os.Args) < 3 || os.Args[1] != child.Command {
		fmt.Fprintln(os.Stderr, "This is for: localcluster up --kubernetes")
		os.Exit(1)
	}
	child.ExitWithParent()
	os.Args = os.Args[2:] // Its first element becomes the user agent.
	os.Exit(child.Run(os.Args[0]))
}
