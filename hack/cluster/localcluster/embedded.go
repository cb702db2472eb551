package main

import (
	"context"
	"flag"
	"fmt"
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
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"

	"example.com/foo-controller/hack/cluster/localcluster/child"
)

// runComponent is the main function of a child process. It returns the exit code.
func runComponent(name string, args []string) int {
	child.ExitWithParent()
	if filepath.IsAbs(args[0]) { // A program of a node.
		return exitCode(syscall.Exec(args[0], args, os.Environ()))
	}
	// Components parse os.Args. Its first element becomes their user agent.
	os.Args = append([]string{name}, args...)
	switch name {
	case etcd:
		return exitCode(runEtcd(args))
	case kwok:
		return exitCode(runKwok())
	}
	return child.Run(name)
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "Error: %v\n", err)
	return 1
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
	// A member without peers. It needs a peer URL as its identity, but does not listen on it.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// Do not wait for the disk. A killed etcd loses nothing. After a power failure the cluster may be lost,
	// but it is temporary anyway.
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "warn"
	// With zero, etcd would warn about every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration

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

// runKwok does the same as kwok's own main. The configuration is passed in the context, and --config is a
// flag of the config package instead of the command.
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
	cmd.Version = "" // Otherwise cobra adds a second --version to that of component-base.
	return cmd.ExecuteContext(ctx)
}

// runKubectl runs kubectl for the cluster in dir, as kubectl's own main does. It returns only on success.
func runKubectl(dir string, args []string) error {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if _, err := os.Stat(kubeconfig); err != nil {
		return fmt.Errorf("there is no cluster in %s: no kubeconfig (start one with: bin/localcluster up --dir %s; "+
			"make run, make cluster and make tutorial print the line for theirs)", dir, quoted(dir))
	}
	os.Setenv("KUBECONFIG", kubeconfig)
	// kubectl caches the kinds of the server at an address for hours. Another cluster may have had that
	// port.
	os.Setenv("KUBECACHEDIR", filepath.Join(dir, "kubectl-cache"))
	os.Args = append([]string{"kubectl"}, args...)
	cmd := kubectlcmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(cmd); err != nil {
		kubectlutil.CheckErr(err) // Prints as kubectl does, and exits with kubectl's code.
	}
	return nil
}
