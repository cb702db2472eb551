package e2e

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/conversion"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/webhook"
)

// gadgetCRD has two versions, of which the old one is stored. The API server asks at an address for conversions.
const gadgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.hooks.example.com}
spec:
  group: hooks.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {url: "https://%s/convert"}
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {text: {type: string}}}}}}}
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {label: {type: object, properties: {text: {type: string}, font: {type: string}}}}}}}}}
`

type (
	oldGadget struct {
		Spec struct {
			Text string `json:"text,omitempty"`
		} `json:"spec"`
	}
	newGadget struct {
		Spec struct {
			Label struct {
				Text string `json:"text,omitempty"`
				Font string `json:"font,omitempty"`
			} `json:"label"`
		} `json:"spec"`
	}
)

var gadgetConversion = conversion.New(
	schema.GroupVersionKind{Group: "hooks.example.com", Version: "v1", Kind: "Gadget"},
	conversion.VersionOf("v1alpha1",
		func(old *oldGadget) (*newGadget, error) {
			gadget := &newGadget{}
			gadget.Spec.Label.Text = old.Spec.Text
			return gadget, nil
		},
		func(gadget *newGadget) (*oldGadget, error) {
			old := &oldGadget{}
			old.Spec.Text = gadget.Spec.Label.Text
			return old, nil
		}))

// A service forwards connections to copies of a controller in turn, as that of a cluster does.
type service struct {
	net.Listener
	mu     sync.Mutex
	copies []string
	turn   int
}

func newService(t *testing.T) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{Listener: listener}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go s.forward(client)
		}
	}()
	return s
}

func (s *service) forward(client net.Conn) {
	defer client.Close()
	s.mu.Lock()
	if len(s.copies) == 0 {
		s.mu.Unlock()
		return
	}
	s.turn++
	address := s.copies[s.turn%len(s.copies)]
	s.mu.Unlock()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client); server.Close() }()
	_, _ = io.Copy(client, server)
}

// set replaces the copies that are ready.
func (s *service) set(copies ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies = copies
}

// started counts the copies.
var started atomic.Int64

// A hooked is a copy of a controller with the webhook.
type hooked struct {
	address string
	check   func() error
	stop    func()
}

// hookOptions parses the flags once, because they also set up the log.
func hookOptions(kubeconfig string) (*kit.Options, error) {
	parsing.Do(func() {
		program := kit.Program{Name: "gadget-controller", Kind: "Gadget", Kinds: "Gadgets"}
		parsed, errParse = kit.Parse(program, []string{"--kubeconfig=" + kubeconfig}, io.Discard)
	})
	return parsed, errParse
}

var (
	parsing  sync.Once
	parsed   *kit.Options
	errParse error
)

func (c *cluster) startHooks(t *testing.T, namespace string) *hooked {
	t.Helper()
	// An address that no other process uses.
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d:9443", 1+pid>>8&63, pid&255, 1+started.Add(1))
	hooks := &webhook.Webhooks{
		Handlers: map[string]http.Handler{"/convert": webhook.Convert(gadgetConversion)},
		Service:  "hooks", Secret: "hooks", Definitions: []string{"gadgets.hooks.example.com"},
	}
	options, err := hookOptions(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	fs := flag.NewFlagSet("hooks", flag.ContinueOnError)
	hooks.AddFlags(fs)
	if err := fs.Parse([]string{"--webhook-bind-address=" + address, "--webhook-namespace=" + namespace}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	process, err := kit.NewProcess(ctx, options, preflight.Hints{})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := hooks.Start(ctx, process)
	if err != nil {
		t.Fatal(err)
	}
	return &hooked{address, hooks.Needs().Ready[0].Do, func() { cancel(); stop() }}
}

// While authorities and certificates are replaced, pods roll and the Secret is deleted, no request fails.
func TestWebhooksRotateUnderLoad(t *testing.T) {
	c := newDedicatedEnv(t, apiCluster).cluster // Its API server is restarted.
	namespace, service := c.namespace(t), newService(t)
	c.kubectl(t, fmt.Sprintf(gadgetCRD, service.Addr()), "apply", "-f", "-")
	t.Cleanup(func() { c.kubectl(t, "", "delete", "crd", "gadgets.hooks.example.com") })
	secrets := c.kube.CoreV1().Secrets(namespace)
	create := func() {
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	create()
	copies := []*hooked{c.startHooks(t, namespace), c.startHooks(t, namespace)}
	defer func() {
		for _, copy := range copies {
			copy.stop()
		}
	}()
	service.set(copies[0].address, copies[1].address)
	until(t, "the webhook answers", func(ctx context.Context) (bool, error) { return copies[0].check() == nil, nil })
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	newer := client.Resource(schema.GroupVersionResource{Group: "hooks.example.com", Version: "v1", Resource: "gadgets"}).
		Namespace(namespace)
	write := func(ctx context.Context, n int) error {
		patch := fmt.Appendf(nil, `{"apiVersion":"hooks.example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"label":{"font":"f%d"}}}`, n)
		_, err := newer.Patch(ctx, "a", types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: "e2e", Force: new(true)})
		return err
	}
	var last error
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()
	until(t, "the API server trusts it", func(ctx context.Context) (bool, error) {
		last = write(ctx, 0)
		return last == nil, nil
	})

	// 50 requests a second, each of which needs a conversion.
	var requests, failed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for ticker := time.Tick(20 * time.Millisecond); ctx.Err() == nil; <-ticker {
			load.Go(func() {
				n := requests.Add(1)
				if err := write(ctx, int(n%3)); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					failed.Add(1)
					t.Logf("request %d: %v", n, err)
				}
			})
		}
	})
	defer load.Wait()
	defer cancel()

	data := func() map[string][]byte {
		secret, err := secrets.Get(t.Context(), "hooks", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	remove := func(key, renewed string) {
		before := string(data()[renewed])
		patch := fmt.Appendf(nil, `{"data":{%q:null}}`, key)
		if _, err := secrets.Patch(t.Context(), "hooks", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, renewed+" is renewed", func(context.Context) (bool, error) {
			now := string(data()[renewed])
			return now != "" && now != before, nil
		})
	}
	for range 3 { // A new authority, and when the API server trusts it, a new certificate.
		remove("ca.key", "ca.crt")
		until(t, "the API server trusts the new authority", func(context.Context) (bool, error) {
			return strings.TrimSpace(c.kubectl(t, "", "get", "crd", "gadgets.hooks.example.com", "-o",
				"jsonpath={.spec.conversion.webhook.clientConfig.caBundle}")) == base64.StdEncoding.EncodeToString(data()["ca.crt"]), nil
		})
		time.Sleep(3 * time.Second) // The API server hears of it. The controller waits for ten minutes.
		remove("tls.crt", "tls.crt")
		time.Sleep(2 * time.Second) // Both copies serve it.
	}
	for i := range copies { // The copies are replaced. The Secret goes in between: then a new one is not ready.
		if i == 1 {
			if err := secrets.Delete(t.Context(), "hooks", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		next := c.startHooks(t, namespace)
		if i == 1 {
			time.Sleep(2 * time.Second)
			if next.check() == nil {
				t.Error("a copy without a certificate is ready")
			}
			next.stop()
			continue
		}
		until(t, "the next copy is ready", func(context.Context) (bool, error) { return next.check() == nil, nil })
		service.set(next.address, copies[1].address)
		time.Sleep(time.Second)
		copies[i].stop()
		copies[i] = next
	}
	cancel()
	load.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d requests have failed", n, requests.Load())
	}
	t.Logf("%d requests", requests.Load())

	// A new Secret gets new certificates.
	create()
	until(t, "the Secret has a certificate", func(context.Context) (bool, error) { return data()["tls.crt"] != nil, nil })
	until(t, "requests work again", func(ctx context.Context) (bool, error) { return write(ctx, 1) == nil, nil })

	// The API server restarts, and the copies go on.
	for _, do := range []func(string) error{c.KillComponent, c.StartComponent} {
		if err := do("kube-apiserver"); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "requests work again", func(ctx context.Context) (bool, error) { return write(ctx, 2) == nil, nil })
	remove("tls.crt", "tls.crt")
	until(t, "requests still work", func(ctx context.Context) (bool, error) { return write(ctx, 0) == nil, nil })
}
