package e2e

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

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
	join(client, server)
}

// join copies between two connections until one ends, and closes both.
func join(client, server net.Conn) {
	defer client.Close()
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

// A converter is a copy of the program of the tutorial's step 10, which converts Bells.
type converter struct {
	address string
	cmd     *exec.Cmd
}

// ready reports whether the copy serves a certificate.
func (c *converter) ready() bool {
	conn, err := tls.Dial("tcp", c.address, &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// stop ends the copy as the kubelet does.
func (c *converter) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // It may have ended.
	_ = c.cmd.Wait()
}

func (c *cluster) startConverter(t *testing.T, program, namespace string) *converter {
	t.Helper()
	// An address that no other process uses.
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d:9443", 1+pid>>8&63, pid&255, 1+started.Add(1))
	cmd := exec.Command(program, "--kubeconfig="+c.Kubeconfig(), "--webhook-bind-address="+address,
		"--webhook-namespace="+namespace)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	copy := &converter{address, cmd}
	t.Cleanup(copy.stop)
	return copy
}

// While authorities and certificates are replaced, pods roll and the Secret is deleted, no request fails.
func TestWebhooksRotateUnderLoad(t *testing.T) {
	c := newDedicatedEnv(t, apiCluster).cluster // Its API server is restarted.
	namespace, service := c.namespace(t), newService(t)
	const step = "docs/tutorial/10-two-versions"
	crd, err := os.ReadFile(step + "/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "two-versions")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = step
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.kubectl(t, strings.Replace(string(crd), "HOOK", service.Addr().String(), 1), "apply", "-f", "-")
	secrets := c.kube.CoreV1().Secrets(namespace)
	create := func() {
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bells"}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	create()
	copies := []*converter{c.startConverter(t, program, namespace), c.startConverter(t, program, namespace)}
	service.set(copies[0].address, copies[1].address)
	until(t, "the webhook answers",
		func(ctx context.Context) (bool, error) { return copies[0].ready() && copies[1].ready(), nil })
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	newer := client.Resource(schema.GroupVersionResource{Group: "tutorial.example.com", Version: "v1", Resource: "bells"}).
		Namespace(namespace)
	write := func(ctx context.Context, n int) error {
		patch := fmt.Appendf(nil, `{"apiVersion":"tutorial.example.com/v1","kind":"Bell","metadata":{"name":"a"},
			"spec":{"inscription":{"language":"l%d"}}}`, n)
		_, err := newer.Patch(ctx, "a", types.ApplyPatchType, patch,
			metav1.PatchOptions{FieldManager: "e2e", Force: new(true)})
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

	// Up to 50 requests a second, each of which needs a conversion. A slow machine has fewer: nobody sends a second one
	// before the answer.
	var requests, failed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 10 {
		load.Go(func() {
			for ticker := time.Tick(200 * time.Millisecond); ctx.Err() == nil; <-ticker {
				n := requests.Add(1)
				if err := write(ctx, int(n%3)); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					failed.Add(1)
					t.Logf("request %d: %v", n, err)
				}
			}
		})
	}
	defer load.Wait()
	defer cancel()

	data := func() map[string][]byte {
		secret, err := secrets.Get(t.Context(), "bells", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	remove := func(key, renewed string) {
		before := string(data()[renewed])
		patch := fmt.Appendf(nil, `{"data":{%q:null}}`, key)
		if _, err := secrets.Patch(t.Context(), "bells", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
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
			trusted := c.kubectl(t, "", "get", "crd", "bells.tutorial.example.com", "-o",
				"jsonpath={.spec.conversion.webhook.clientConfig.caBundle}")
			return strings.TrimSpace(trusted) == base64.StdEncoding.EncodeToString(data()["ca.crt"]), nil
		})
		time.Sleep(3 * time.Second) // The API server hears of it. The controller waits for ten minutes.
		remove("tls.crt", "tls.crt")
		time.Sleep(2 * time.Second) // Both copies serve it.
	}
	// A copy is replaced. Then the Secret goes: the next copy is not ready, and the others go on.
	next := c.startConverter(t, program, namespace)
	until(t, "the next copy is ready", func(context.Context) (bool, error) { return next.ready(), nil })
	service.set(next.address, copies[1].address)
	time.Sleep(time.Second)
	copies[0].stop()
	if err := secrets.Delete(t.Context(), "bells", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	withoutSecret := c.startConverter(t, program, namespace)
	time.Sleep(2 * time.Second)
	if withoutSecret.ready() {
		t.Error("a copy without a certificate is ready")
	}
	withoutSecret.stop()
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
	c.kill(t, "kube-apiserver")
	c.revive(t, "kube-apiserver")
	until(t, "requests work again", func(ctx context.Context) (bool, error) { return write(ctx, 2) == nil, nil })
	remove("tls.crt", "tls.crt")
	until(t, "requests still work", func(ctx context.Context) (bool, error) { return write(ctx, 0) == nil, nil })
}
