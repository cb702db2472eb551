package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanagerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

// componentCommand is the hidden command with which up starts this binary as a component:
// "localcluster component NAME ARGS...".
const componentCommand = "component"

// runComponent is the whole life of a child process. It returns the exit code.
func runComponent(name string, args []string) int {
	exitWithParent()
	// Components parse os.Args, and introduce themselves to the API server by its first word.
	os.Args = append([]string{name}, args...)
	switch name {
	case etcd:
		return exitCode(runEtcd(args))
	case apiServer:
		return cli.Run(apiserverapp.NewAPIServerCommand())
	case controllerManager:
		return cli.Run(controllermanagerapp.NewControllerManagerCommand())
	case scheduler:
		return cli.Run(schedulerapp.NewSchedulerCommand())
	case kwok:
		return exitCode(runKwok())
	}
	return exitCode(fmt.Errorf("unknown component %q", name))
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "Error: %v\n", err)
	return 1
}

// exitWithParent ends this process when the parent is gone, however it went. The parent holds the
// only write end of the tether and never writes to it: the read returns when the kernel closes it.
func exitWithParent() {
	syscall.CloseOnExec(tetherFD)
	tether := os.NewFile(tetherFD, "tether")
	go func() {
		io.Copy(io.Discard, tether)
		fmt.Fprintln(os.Stderr, "The parent process is gone. Exiting.")
		os.Exit(1)
	}()
}

func runEtcd(args []string) error {
	flags := flag.NewFlagSet(etcd, flag.ContinueOnError)
	dir := flags.String("data-dir", "", "")
	port := flags.Int("port", 0, "")
	cert := flags.String("cert-file", "", "")
	key := flags.String("key-file", "", "")
	ca := flags.String("trusted-ca-file", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}

	cfg := embed.NewConfig()
	cfg.Dir = *dir
	client := url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", *port)}
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: *cert, KeyFile: *key, TrustedCAFile: *ca, ClientCertAuth: true}
	cfg.EnableGRPCGateway = false
	// A member without peers: it needs a peer URL to have an identity, and nobody listens there.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// Never wait for the disk. A killed etcd loses nothing by it, a machine without power may lose
	// the cluster, and this is a cluster to throw away.
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // Or it warns of every request.

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close()
	select {
	case err := <-server.Err():
		return err
	case <-server.Server.StopNotify():
		return fmt.Errorf("etcd stopped by itself")
	case <-ctx.Done():
		return nil
	}
}

// runKwok does what kwok's own main does: its configuration travels in the context, and --config
// is not a flag of the command but of its config package.
func runKwok() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ = kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	cmd := kwokcmd.NewCommand(ctx)
	cmd.PersistentFlags().AddFlagSet(flags)
	cmd.Version = "" // Or cobra adds a --version, which component-base already has put there.
	return cmd.ExecuteContext(ctx)
}

// runKubectl is kubectl as its own main runs it, for the cluster in dir. It returns only on success.
func runKubectl(dir string, args []string) error {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if _, err := os.Stat(kubeconfig); err != nil {
		return fmt.Errorf("there is no cluster in %s: no kubeconfig (start one with: localcluster up --dir %s)",
			dir, dir)
	}
	os.Setenv("KUBECONFIG", kubeconfig)
	// kubectl remembers for hours which kinds the server at an address has. Another cluster may
	// have had that port.
	os.Setenv("KUBECACHEDIR", filepath.Join(dir, "kubectl-cache"))
	os.Args = append([]string{"kubectl"}, args...)
	cmd := kubectlcmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(cmd); err != nil {
		kubectlutil.CheckErr(err) // Prints as kubectl does, and exits with kubectl's code.
	}
	return nil
}
