package e2e

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A proxy is between the controller and the API server. It records the requests, and can delay watch events and
// requests.
type proxy struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string      // "METHOD path", in the order of arrival.
	held     string        // The resource whose watches are held back, or "".
	released chan struct{} // Closed when held ends.
	// before, unless nil, is called with each request before the API server gets it.
	before func(*http.Request)
	// loseAnswer, unless nil, reports whether the response to a request is lost. The API server executes the request.
	loseAnswer func(*http.Request) bool
	// failures, unless nil, returns the status code with which a request is answered, noAnswer, or 0. With a code, the API
	// server does not get the request.
	failures func(*http.Request) int
}

// noAnswer, in place of a status code, means that the connection ends without an answer.
const noAnswer = -1

func newProxy(t *testing.T, c *cluster) *proxy {
	t.Helper()
	target, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: c.config.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	p, silence := &proxy{}, log.New(io.Discard, "", 0)
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,      // Watches: pass on each event at once.
		ErrorLog:      silence, // Tests end connections in the middle of requests.
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.URL.Query().Get("watch") != "" {
				resp.Body = &heldBody{ReadCloser: resp.Body, proxy: p, resource: resp.Request.URL.Path}
			}
			p.mu.Lock()
			lose := p.loseAnswer
			p.mu.Unlock()
			if lose != nil && lose(resp.Request) {
				panic(http.ErrAbortHandler)
			}
			return nil
		},
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests = append(p.requests, r.Method+" "+r.URL.Path)
		before, code := p.before, 0
		if p.failures != nil {
			code = p.failures(r)
		}
		p.mu.Unlock()
		if before != nil {
			before(r)
		}
		switch code {
		case 0:
		case noAnswer:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(code)
			return
		}
		reverse.ServeHTTP(w, r)
	}))
	p.EnableHTTP2 = true
	p.Config.ErrorLog = silence
	p.StartTLS() // Without TLS, client-go sends no credentials.
	t.Cleanup(func() {
		p.releaseWatch()
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// ca returns the certificate that clients of the proxy must trust, in PEM form.
func (p *proxy) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}

// setBefore sets before while the proxy serves.
func (p *proxy) setBefore(before func(*http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

// slow delays each answer by a time. The API server executes the request at once.
func (p *proxy) slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loseAnswer = func(r *http.Request) (lost bool) {
		select {
		case <-time.After(by):
		case <-r.Context().Done():
		}
		return false
	}
}

// hold delays the requests with the method, "" is any, and a path that ends in suffix, until release is called or the
// test ends. arrived is closed when all of the first one has come.
func (p *proxy) hold(t *testing.T, method, suffix string) (arrived <-chan struct{}, release func()) {
	t.Helper()
	first, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.setBefore(func(r *http.Request) {
		if method != "" && r.Method != method || !strings.HasSuffix(r.URL.Path, suffix) {
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		once.Do(func() { close(first) })
		<-released
	})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	return first, release
}

// fail answers the next requests with the method and a path that ends in suffix with one code each.
func (p *proxy) fail(method, suffix string, codes ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = func(r *http.Request) (code int) {
		if len(codes) > 0 && r.Method == method && strings.HasSuffix(r.URL.Path, suffix) {
			code, codes = codes[0], codes[1:]
		}
		return code
	}
}

// methodOf returns the method of a request, or "status" for one that is about a status.
func methodOf(r *http.Request) string {
	if strings.HasSuffix(r.URL.Path, "/status") {
		return "status"
	}
	return r.Method
}

// count returns the number of requests with the method and a path that ends in suffix.
func (p *proxy) count(method, suffix string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, request := range p.requests {
		if strings.HasPrefix(request, method+" ") && strings.HasSuffix(request, suffix) {
			n++
		}
	}
	return n
}

// holdWatch delays all events of watches of the resource until releaseWatch is called.
func (p *proxy) holdWatch(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.released = resource, make(chan struct{})
}

func (p *proxy) releaseWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != "" {
		p.held = ""
		close(p.released)
	}
}

// heldBody is the body of the response to a watch.
type heldBody struct {
	io.ReadCloser
	proxy    *proxy
	resource string
}

func (b *heldBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.proxy.mu.Lock()
	held, released := b.proxy.held != "" && strings.HasSuffix(b.resource, "/"+b.proxy.held), b.proxy.released
	b.proxy.mu.Unlock()
	if held {
		<-released
	}
	return n, err
}

// The controller goes through the proxy in its environment, as all of its connections to the API server do, unless the
// environment excepts the name of the server. Go asks no proxy for a loopback address, so the server has a name that
// only the proxy knows.
func TestTheControllerTakesAProxyFromItsEnvironment(t *testing.T) {
	e := newEnv(t, apiCluster)
	address := strings.TrimPrefix(e.config.Host, "https://")
	var tunnels atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", address)
		if err != nil || r.Method != http.MethodConnect || r.Host != "api.invalid:6443" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer there.Close()
		tunnels.Add(1)
		w.WriteHeader(http.StatusOK)
		if here, _, err := http.NewResponseController(w).Hijack(); err == nil {
			join(here, there)
		}
	}))
	defer server.Close()
	kubeconfig := e.kubeconfig(t, nil)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.TLSServerName = "https://api.invalid:6443", "127.0.0.1"
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	start := func(except string) *process {
		cmd := controllerCommand("--kubeconfig", kubeconfig, "--namespace", e.namespace)
		cmd.Env = append(os.Environ(), "HTTPS_PROXY="+server.URL, "NO_PROXY="+except)
		return startProcess(t, cmd)
	}
	e.createFoo(t, "web", fooSpec("web"))
	start("api.invalid").waitForLog(t, "Cannot reach the API server")
	if n := tunnels.Load(); n != 0 {
		t.Errorf("%d connections through the proxy, want none", n)
	}
	start("")
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
}
