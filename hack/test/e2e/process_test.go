package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// pkg/kit has a test of each mistake.
func TestAnInvalidConfigurationEndsWithOneLine(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	for _, test := range []struct{ flag, env, want string }{
		{flag: "--no-such-flag", want: "no-such-flag"},
		{flag: "--v=0", env: "HOME=" + t.TempDir(), want: "--kubeconfig"}, // No configuration at all.
		{flag: "--v=0", env: "KUBECONFIG=Makefile", want: "Makefile"},     // It does not parse.
		{flag: "--kubeconfig=/does/not/exist", want: "/does/not/exist"},
		{flag: "--context=nowhere", want: "nowhere"},
	} {
		cmd := exec.Command(controllerBinary, test.flag)
		cmd.Env = append(os.Environ(), "KUBECONFIG=", test.env)
		out, _ := cmd.CombinedOutput()
		if code, lines := cmd.ProcessState.ExitCode(), strings.Count(string(out), "\n"); code != 1 || lines != 1 ||
			!strings.Contains(string(out), test.want) {
			t.Errorf("%s %s: exit code %d, want 1, and one line that contains %q:\n%s", test.flag, test.env, code,
				test.want, out)
		}
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	e := newEnv(t, apiCluster)
	proxy := newProxy(t, e.cluster)
	_, release := proxy.hold(t, http.MethodPost, "")
	defer release()
	e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web"})
	p := e.start(t, proxy)
	until(t, "a request is in flight", func(context.Context) (bool, error) {
		return proxy.count(http.MethodPost, "/deployments") > 0, nil
	})
	for range 2 {
		p.signal(os.Interrupt)
		p.waitForLog(t, `"Stopping`)
	}
	p.code = 1
	p.stop(t)
}

// countLog returns how often the log of the process contains text.
func (p *process) countLog(text string) int { return strings.Count("\n"+p.log.String(), text) }

// reader returns the kubeconfig of a ServiceAccount that may only list Foos, and list and get Deployments of the
// namespace.
func (e *env) reader(t *testing.T) (kubeconfig string) {
	t.Helper()
	e.kubectl(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %s}
rules:
- {apiGroups: [samplecontroller.k8s.io], resources: [foos], verbs: [list]}
- {apiGroups: [apps], resources: [deployments], verbs: [list, get]}
`, controllerName), "create", "-n", e.namespace, "-f", "-")
	e.kubectl(t, "", "create", "serviceaccount", controllerName, "-n", e.namespace)
	e.kubectl(t, "", "create", "rolebinding", controllerName, "--role="+controllerName,
		"--serviceaccount="+e.namespace+":"+controllerName, "-n", e.namespace)
	return e.kubeconfigOf(t, e.namespace, nil)
}

// explain runs the controller with --explain and returns what it prints, and the exit code.
func explain(t *testing.T, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(controllerBinary, flags...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// The binary explains a Foo with three permissions to read, and its exit code is for scripts. A write would be refused,
// and the exit code would be that of an error.
func TestExplain(t *testing.T) {
	e := newEnv(t, apiCluster)
	flags := []string{"--kubeconfig", e.reader(t), "--explain=" + e.namespace + "/web"}

	out, problem, code := explain(t, flags...)
	if code != 1 || out != "" || strings.Count(problem, "\n") != 1 || !strings.Contains(problem, "/web does not exist") {
		t.Errorf("no such Foo: exit code %d, output %q and %q", code, out, problem)
	}

	e.createFoo(t, "web", fooSpec("web"))
	out, problem, code = explain(t, flags...)
	if code != 2 || problem != "" || !strings.Contains(out, "the controller would send create Deployment web\n") {
		t.Errorf("a new Foo: exit code %d, output\n%s%s", code, out, problem)
	}

	e.editFoo(t, "web", `{"spec":{"paused":true}}`)
	controller := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--namespace", e.namespace)
	e.waitForReason(t, "web", v1alpha1.ReasonPaused)
	controller.stop(t)
	out, problem, code = explain(t, append(flags, "--explain-format=json")...)
	var report struct{ WouldSend bool }
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.WouldSend || problem != "" {
		t.Errorf("a Foo with nothing to do: exit code %d, %v, output\n%s%s", code, err, out, problem)
	}
}

// A proxy is between the controller and the API server. It records the requests, and can delay or answer them.
type proxy struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string      // "METHOD path", in the order of arrival.
	delay    time.Duration // Of each answer. The API server executes the request at once.
	// before, unless nil, is called with each request before the API server gets it.
	before func(*http.Request)
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
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			select {
			case <-time.After(delay):
			case <-resp.Request.Context().Done():
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

// slow delays each answer by a time.
func (p *proxy) slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
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

// The controller asks the proxy in its environment for a connection to the API server, unless the environment excepts
// that. Go asks no proxy for a loopback address, so the server has a name that does not exist.
func TestTheControllerTakesAProxyFromItsEnvironment(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect && r.Host == "api.invalid:6443" {
			asked.Add(1)
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer server.Close()
	start := func(except string) *process {
		cmd := controllerCommand("--master=https://api.invalid:6443")
		cmd.Env = append(os.Environ(), "KUBECONFIG=", "HTTPS_PROXY="+server.URL, "NO_PROXY="+except)
		return startProcess(t, cmd)
	}
	start("api.invalid").waitForLog(t, "Cannot reach the API server")
	if n := asked.Load(); n != 0 {
		t.Errorf("the proxy was asked %d times, want not once", n)
	}
	start("")
	until(t, "the proxy is asked", func(context.Context) (bool, error) { return asked.Load() > 0, nil })
}
