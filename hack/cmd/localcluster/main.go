// Localcluster runs a real Kubernetes control plane on this machine, without containers and
// without downloads beyond Go modules.
//
// One binary contains etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, linked
// from their own packages. It also contains KWOK, which simulates the nodes: it reports them as Ready and
// every pod bound to them as running. "localcluster up" starts the same binary once more for each
// component, and supervises these children until it is stopped:
//
//	up (supervise.go) --> component etcd           (arguments: components.go)
//	                  --> component kube-apiserver (main functions: components.go, child)
//	                  --> ...
//
// All state is in the directory given with --dir, and all ports are on 127.0.0.1 (with --ipv6, that of
// the API server is on [::1]), so that clusters in different directories are independent. No child
// outlives "up", even if "up" is killed: see the parent pipe in supervise.go.
//
// The cluster is for development and tests. Its API is the real one, but containers run only on real nodes: with
// --node-programs, "up" runs in namespaces of its own (isolate_linux.go) and also starts a containerd and a kubelet for
// each node (nodes.go). Data that is not on the disk yet is lost when the machine stops.
package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version/verflag"

	"example.com/foo-controller/hack/cmd/localcluster/child"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == isolateCommand {
		exit(runIsolated(os.Args[2:]))
	}
	// Handled before cobra parses the flags, because the flags of a component are its own.
	if len(os.Args) > 2 && os.Args[1] == child.Command {
		os.Exit(runComponent(os.Args[2], os.Args[3:]))
	}
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		os.Exit(1)
	}
}

// exit ends the process.
func exit(code int, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "localcluster",
		Short: "A real Kubernetes control plane on this machine, in one binary",
		Long: `A real Kubernetes control plane on this machine, in one binary: etcd, kube-apiserver,
kube-controller-manager, kube-scheduler, kubectl, and KWOK, which simulates the nodes.

No downloads, and without --node-programs no containers: every pod is reported as running, except pods
with an image tagged never-ready (such as nginx:never-ready), which wait for it forever.`,
		Example: `  localcluster up --dir /tmp/one                   # in the foreground; Ctrl-C stops it
  localcluster kubectl --dir /tmp/one -- get pods -A
  localcluster kill kube-apiserver --dir /tmp/one  # an outage
  localcluster start kube-apiserver --dir /tmp/one # and its end`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// The linked components have added a flag --version to every command. This makes it work.
		PersistentPreRun:  func(*cobra.Command, []string) { verflag.PrintAndExitIfRequested() },
		SilenceUsage:      true, // An error is one line, not a page.
		SilenceErrors:     true, // main prints it.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newUpCommand(), newKubectlCommand(), newKillCommand(), newStartCommand(), newLoadCommand())
	return root
}

func newUpCommand() *cobra.Command {
	var opts upOptions
	cmd := &cobra.Command{
		Use:   "up --dir D",
		Short: "Start a cluster and run it until it is stopped",
		Long: `Start a cluster and run it until it is stopped.

Prints "ready" on a line of its own when the cluster can be used: D/kubeconfig is written, the API
server answers, and (with --components=all) new Pods can run. A directory with the cluster of an
earlier run is started again with its data; ports change.

Ctrl-C or SIGTERM stops everything, exit code 0; a second one does not wait. If a component dies,
up prints its name and the end of its log, stops the others and exits with code 1.

Everything is in D: kubeconfig, audit.log, logs/<component>.log, the data and the keys.`,
		Example: `  localcluster up --dir /tmp/one
  KUBECONFIG=/tmp/one/kubeconfig kubectl get nodes`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if opts.programs != "" && !isolated() {
				removeCgroups(cgroupOf(opts.dir)) // Those of a run that was killed.
				code, err := isolate(opts.dir, opts.programs)
				removeCgroups(cgroupOf(opts.dir))
				exit(code, err)
			}
			return up(opts)
		},
	}
	addDirFlag(cmd, &opts.dir)
	cmd.Flags().IntVar(&opts.count, "nodes", 1,
		"create `N` nodes; those of an earlier run remain (only with --components=all)")
	cmd.Flags().StringVar(&opts.programs, "node-programs", "",
		"make real nodes, which run containers, with the programs of make bin/node in this `directory`; "+
			"needs Linux and root")
	cmd.Flags().IntVar(&opts.registryPort, "registry-port", 0,
		"let real nodes pull images from 127.0.0.1:`N`, where a registry of this machine listens")
	cmd.Flags().StringVar(&opts.kubernetes, "kubernetes", "",
		"run kube-apiserver, kube-controller-manager and kube-scheduler from this `file`, which hack/minors.sh has built; "+
			"each start reads it again, so a link to another version upgrades the component")
	cmd.Flags().StringVar(&opts.set, "components", componentsAll,
		"`set` to run: api (etcd and kube-apiserver, without any controller) or all")
	cmd.Flags().BoolVar(&opts.audit, "audit", false,
		"write every request that was answered to D/audit.log, one JSON object per line")
	cmd.Flags().StringSliceVar(&opts.admissionPlugins, "admission-plugins", nil,
		"enable these admission plugins of the API server, `names` separated by commas, besides its defaults")
	cmd.Flags().BoolVar(&opts.ipv6, "ipv6", false,
		"let the API server listen on [::1] only, and give Services IPv6 addresses only")
	cmd.Flags().BoolVar(&opts.stopWithStdin, "stop-with-stdin", false,
		"stop when standard input ends, so that the cluster ends with the script or test that started it")
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
	// The first argument that is not a flag and everything after it belong to kubectl, also without "--".
	cmd.Flags().SetInterspersed(false)
	addDirFlag(cmd, &dir)
	return cmd
}

func newKillCommand() *cobra.Command {
	return newControlCommand("kill", "Kill a component with SIGKILL, to test an outage",
		"The cluster continues without the component until it is started again.")
}

func newStartCommand() *cobra.Command {
	return newControlCommand("start", "Start a component that was killed",
		"It has the same port and data as before. Returns when all running components are healthy.\n"+
			"After a long outage of the API server its clients, also the controllers, may need another minute:\n"+
			"they retry less and less often.")
}

func newLoadCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "load LAYOUT NAME --dir D",
		Short: "Give an image a name on all real nodes",
		Long: "Give an image a name on all real nodes. LAYOUT is the directory of an OCI layout, as make image writes it,\n" +
			"or the word pause: an image that starts and waits, in place of one that the nodes cannot pull.",
		Example: "  localcluster load bin/image/layout docker.io/library/foo-controller:dev --dir /tmp/one\n" +
			"  localcluster load pause docker.io/library/nginx:1.29 --dir /tmp/one",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			layout := args[0]
			if layout != pauseLayout {
				var err error
				if layout, err = filepath.Abs(layout); err != nil {
					return err
				}
			}
			query := url.Values{"layout": {layout}, "name": {args[1]}}
			return ask(dir, "load "+args[1], "load?"+query.Encode())
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}

func newControlCommand(verb, short, long string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   verb + " COMPONENT --dir D",
		Short: short,
		Long: fmt.Sprintf("%s.\n\n%s\nCOMPONENT is one of: %s.\n"+
			"With real nodes, also node-0, node-1 and so on: such a node with all of its containers.", short, long,
			strings.Join(componentNames(allComponents), ", ")),
		Example: fmt.Sprintf("  localcluster %s kube-apiserver --dir /tmp/one", verb),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && (isComponent(allComponents, args[0]) || strings.HasPrefix(args[0], nodePrefix)) {
				return nil
			}
			choose := "choose one of " + strings.Join(componentNames(allComponents), ", ")
			if len(args) != 1 {
				return fmt.Errorf("%s takes one component: %s", verb, choose)
			}
			return fmt.Errorf("unknown component %q: %s", args[0], choose)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return ask(dir, verb+" "+args[0], verb+"/"+args[0])
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}

func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "`directory` of the cluster (required)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *dir == "" {
			return fmt.Errorf("give the directory of the cluster with --dir D")
		}
		abs, err := filepath.Abs(*dir)
		*dir = abs
		return err
	}
}
