// Localcluster runs a real Kubernetes control plane on this machine, without containers and
// without downloads beyond Go modules.
//
// One binary is everything: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// kubectl are linked in from their own packages, and so is KWOK, which plays the nodes: it reports
// them Ready and says of every pod bound to them that it runs. "localcluster up" starts this same
// binary once more for each component and looks after those children until it is told to stop:
//
//	up (supervise.go) --> component etcd           what each is started with: components.go
//	                  --> component kube-apiserver what each does then:       embedded.go
//	                  --> ...
//
// All state is in the directory given with --dir, all ports are on 127.0.0.1, so that clusters in
// different directories do not know of each other. Whatever happens to "up", no child outlives it:
// see the tether in supervise.go.
//
// The cluster is for development and tests. Its API is the real one; what is inside a pod never
// runs, and data that the machine has not yet written to disk is lost when the machine stops.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version/verflag"
)

func main() {
	// Looked at before cobra does: a component's flags are its own.
	if len(os.Args) > 2 && os.Args[1] == componentCommand {
		os.Exit(runComponent(os.Args[2], os.Args[3:]))
	}
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "localcluster",
		Short: "A real Kubernetes control plane on this machine, in one binary",
		Long: `A real Kubernetes control plane on this machine, in one binary: etcd, kube-apiserver,
kube-controller-manager, kube-scheduler, kubectl, and KWOK, which plays the nodes.

No containers, no downloads. What is inside a pod never runs; every pod is said to, except those
with an image tagged never-ready (such as nginx:never-ready), which wait for it for ever.`,
		Example: `  localcluster up --dir /tmp/one                   # in the foreground; Ctrl-C stops it
  localcluster kubectl --dir /tmp/one -- get pods -A
  localcluster kill kube-apiserver --dir /tmp/one  # an outage
  localcluster start kube-apiserver --dir /tmp/one # and its end`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// The linked-in components have put a --version on every command. Let it work.
		PersistentPreRun:  func(*cobra.Command, []string) { verflag.PrintAndExitIfRequested() },
		SilenceUsage:      true, // An error is one line, not a page.
		SilenceErrors:     true, // main prints it.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newUpCommand(), newKubectlCommand(), newKillCommand(), newStartCommand())
	return root
}

func newUpCommand() *cobra.Command {
	var opts upOptions
	cmd := &cobra.Command{
		Use:   "up --dir D",
		Short: "Start a cluster and look after it until told to stop",
		Long: `Start a cluster and look after it until told to stop.

Prints "ready" on a line of its own when the cluster can be used: D/kubeconfig is written, the API
server answers, and (with --components=all) a Pod created now gets to run. A directory that holds
a cluster of an earlier run is started again with its data; ports change.

Ctrl-C or SIGTERM stops everything, exit code 0; a second one does not wait. When a component dies
by itself, up says which and shows the end of its log, stops the rest and exits 1.

Everything is in D: kubeconfig, audit.log, logs/<component>.log, the data and the keys.`,
		Example: `  localcluster up --dir /tmp/one
  KUBECONFIG=/tmp/one/kubeconfig kubectl get nodes`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return up(opts) },
	}
	addDirFlag(cmd, &opts.dir)
	cmd.Flags().IntVar(&opts.nodes, "nodes", 1,
		"make `N` nodes; those of an earlier run stay (only with --components=all)")
	cmd.Flags().StringVar(&opts.components, "components", componentsAll,
		"`set` to run: api (etcd and kube-apiserver: nothing acts on what is stored) or all")
	cmd.Flags().BoolVar(&opts.audit, "audit", false,
		"write every request that has been answered to D/audit.log, one JSON object a line")
	cmd.Flags().BoolVar(&opts.stopWithStdin, "stop-with-stdin", false,
		"stop when standard input ends, so that a script or test that dies takes its cluster along")
	return cmd
}

func newKubectlCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "kubectl --dir D -- ARGS...",
		Short: "Run kubectl against a cluster",
		Example: `  localcluster kubectl --dir /tmp/one -- get pods -A
  localcluster kubectl --dir /tmp/one -- create deployment web --image=nginx --replicas=2`,
		RunE: func(_ *cobra.Command, args []string) error { return runKubectl(dir, args) },
	}
	// What follows the first word that is not a flag is kubectl's, with or without "--" before it.
	cmd.Flags().SetInterspersed(false)
	addDirFlag(cmd, &dir)
	return cmd
}

func newKillCommand() *cobra.Command {
	return newControlCommand("kill", "Kill a component (SIGKILL) to see what others make of it",
		"The cluster goes on without the component until it is started again.")
}

func newStartCommand() *cobra.Command {
	return newControlCommand("start", "Start a component that was killed",
		"It comes back with the same port and data. Returns when the components that run are all healthy.\n"+
			"After a long outage of the API server its clients (the controllers, too) may take a minute more:\n"+
			"they have come to ask less often.")
}

func newControlCommand(verb, short, long string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   verb + " COMPONENT --dir D",
		Short: short,
		Long: fmt.Sprintf("%s.\n\n%s\nCOMPONENT is one of: %s.", short, long,
			strings.Join(componentNames(allComponents), ", ")),
		Example: fmt.Sprintf("  localcluster %s kube-apiserver --dir /tmp/one", verb),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && isComponent(allComponents, args[0]) {
				return nil
			}
			choose := "choose one of " + strings.Join(componentNames(allComponents), ", ")
			if len(args) != 1 {
				return fmt.Errorf("%s takes one component: %s", verb, choose)
			}
			return fmt.Errorf("unknown component %q: %s", args[0], choose)
		},
		RunE: func(_ *cobra.Command, args []string) error { return askControl(dir, verb, args[0]) },
	}
	addDirFlag(cmd, &dir)
	return cmd
}

func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "`directory` of the cluster (required)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *dir == "" {
			return fmt.Errorf("say which cluster with --dir D")
		}
		abs, err := filepath.Abs(*dir)
		*dir = abs
		return err
	}
}
