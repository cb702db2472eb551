// Command play is a Kubernetes API server with Foos, but without Kubernetes: the simulated API server over HTTP, on
// loopback, with the controllers of Kubernetes that a Foo needs. `make play` runs the unchanged foo-controller on it.
//
// It prints each change of a Foo, as `kubectl get foos --watch` does, and writes each request to standard error. It
// ends with its standard input, so that it does not outlive the script that starts it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/foo-controller/pkg/footest"
	"example.com/foo-controller/pkg/sim/apiserver"
)

const (
	definition = "artifacts/crd/samplecontroller.k8s.io_foos.yaml"
	foos       = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/default/foos"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "`file` to write, for the clients of the server")
	foo := flag.String("create", "", "`file` of a Foo to create, such as a pipe that is written later")
	untilReady := flag.Bool("until-ready", false, "end when a Foo is Ready")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *foo, *untilReady); err != nil {
		fmt.Fprintln(os.Stderr, "play:", err)
		os.Exit(1)
	}
}

// run returns when the input ends, or a Foo is Ready if that is wanted, or ctx ends.
func run(ctx context.Context, kubeconfig, foo string, untilReady bool) error {
	server, err := newServer()
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(server.Config("play"))
	if err != nil {
		return err
	}
	client := clients.CoreV1().RESTClient() // Requests have absolute paths.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := writeKubeconfig(kubeconfig, "http://"+listener.Addr().String()); err != nil {
		return err
	}
	go apiserver.RunDeployments(ctx, server, apiserver.Rollouts{Available: available})
	go apiserver.RunGarbageCollector(ctx, server, 100*time.Millisecond)
	go apiserver.RunNamespaces(ctx, server, 100*time.Millisecond)
	ended := make(chan error, 4)
	go func() { ended <- http.Serve(listener, server) }()
	go func() { ended <- watch(ctx, client, os.Stdout, untilReady) }()
	go func() {
		if err := create(ctx, client, foo); err != nil {
			ended <- err
		}
	}()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func newServer() (*apiserver.Server, error) {
	crd, err := os.ReadFile(definition)
	if err != nil {
		return nil, err
	}
	defined, err := apiserver.FromCRD(crd, "")
	if err != nil {
		return nil, err
	}
	kind := footest.FooKind()
	kind.Columns = defined.Columns
	server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps(), apiserver.Events(), apiserver.Leases(),
		apiserver.Deployments(), kind)
	server.TraceTo(os.Stderr)
	return server, nil
}

// available returns how long a replica takes to become available. With the tag never-ready, as in `make run`, it never
// does.
func available(dep *appsv1.Deployment) time.Duration {
	for _, c := range dep.Spec.Template.Spec.Containers {
		if strings.HasSuffix(c.Image, ":never-ready") {
			return -1
		}
	}
	return time.Second
}

// writeKubeconfig writes a kubeconfig for the server to a file.
func writeKubeconfig(file, url string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["simulated"] = &clientcmdapi.Cluster{Server: url}
	config.Contexts["simulated"] = &clientcmdapi.Context{Cluster: "simulated", Namespace: "default"}
	config.CurrentContext = "simulated"
	return clientcmd.WriteToFile(*config, file)
}

// create creates the Foo in a file.
func create(ctx context.Context, client rest.Interface, file string) error {
	foo, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return client.Post().AbsPath(foos).SetHeader("Content-Type", "application/yaml").Body(foo).Do(ctx).Error()
}

// watch prints a row for each change of a Foo, until ctx ends or, if wanted, a Foo is Ready.
func watch(ctx context.Context, client rest.Interface, out io.Writer, untilReady bool) error {
	// This is what kubectl asks for.
	get := client.Get().AbsPath(foos).Param("watch", "true").Param("timeoutSeconds", "1000000000")
	body, err := get.SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	rows := &printer{out: out}
	for events := json.NewDecoder(body); ; {
		var event struct{ Object metav1.Table }
		if err := events.Decode(&event); err != nil {
			return err
		}
		rows.print(&event.Object)
		if untilReady && rows.cell("Ready") == string(metav1.ConditionTrue) {
			return nil
		}
	}
}

// A printer prints tables as kubectl does.
type printer struct {
	out     io.Writer
	columns []metav1.TableColumnDefinition // Of the first table: the next ones come without.
	widths  []int                          // They only grow, so that most rows are aligned.
	last    []string                       // The last row.
}

// print prints the rows of a table, the first time under the names of the columns.
func (p *printer) print(table *metav1.Table) {
	var lines [][]string
	if p.columns == nil {
		p.columns, p.widths = table.ColumnDefinitions, make([]int, len(table.ColumnDefinitions))
		var names []string
		for _, column := range p.columns {
			names = append(names, strings.ToUpper(column.Name))
		}
		lines = append(lines, names)
	}
	for _, row := range table.Rows {
		p.last = nil
		for _, cell := range row.Cells {
			p.last = append(p.last, text(cell))
		}
		lines = append(lines, p.last)
	}
	const gap = 3
	for _, line := range lines {
		for i, text := range line {
			p.widths[i] = max(p.widths[i], len(text)+gap)
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, text := range line {
			fmt.Fprintf(&b, "%-*s", p.widths[i], text)
		}
		fmt.Fprintln(p.out, strings.TrimRight(b.String(), " "))
	}
}

func text(cell any) string {
	if cell == nil {
		return ""
	}
	return fmt.Sprint(cell)
}

// cell returns the cell of the last row in a column.
func (p *printer) cell(column string) string {
	i := slices.IndexFunc(p.columns, func(c metav1.TableColumnDefinition) bool { return c.Name == column })
	if i < 0 || i >= len(p.last) {
		return ""
	}
	return p.last[i]
}
