package kit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/serving"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A fixture is a Process on a simulated API server that has ConfigMaps and Leases.
type fixture struct {
	*Process
	t         *testing.T
	api       *apiserver.Server
	health    string // The address of /healthz and /readyz.
	write     kubernetes.Interface
	informers []Informer

	mu sync.Mutex
	// requests are the requests for ConfigMaps, as "create by widget-controller".
	requests []string
	// forbidden makes the API server refuse to list ConfigMaps. held, unless nil, delays the requests of the informer.
	forbidden bool
	held      chan struct{}
}

func newFixture(t *testing.T, flags ...string) *fixture {
	t.Helper()
	resetLogging(t)
	t.Setenv("KUBECONFIG", "/does/not/exist")
	f := &fixture{t: t, api: apiserver.New(apiserver.ConfigMaps(), apiserver.Leases())}
	f.api.Intercept(f.intercept)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "apiserver"}) },
		Transport: f.api, FlushInterval: -1,
	})
	t.Cleanup(server.Close)
	f.health = freeAddress(t)
	options, err := Parse(widgets, append(flags, "--master="+server.URL, "--health-probe-bind-address="+f.health),
		io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if f.Process, err = NewProcess(t.Context(), options, preflight.Hints{}); err != nil {
		t.Fatal(err)
	}
	f.exitLater = func() {} // It would end the tests.
	watch := kubernetes.NewForConfigOrDie(f.Watch.Config)
	f.write, err = kubernetes.NewForConfigAndClient(f.Write.Config, f.Write.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	configMaps := informers.NewSharedInformerFactory(watch, 0).Core().V1().ConfigMaps().Informer()
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	f.informers = []Informer{NewInformer(resource, configMaps, f.write.CoreV1().ConfigMaps)} // As KindOf does.
	return f
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (f *fixture) intercept(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
	if r.Resource.Resource != "configmaps" {
		return next()
	}
	f.mu.Lock()
	f.requests = append(f.requests, fmt.Sprint(r.Verb, " by ", r.User))
	ofInformer := r.Verb != "create" && len(f.requests) > 1 // The first request is whether it can list.
	f.mu.Unlock()
	if ofInformer && f.held != nil {
		<-f.held
	}
	if f.forbidden && r.Verb == "list" {
		return r.Refuse(apierrors.NewForbidden(corev1.Resource("configmaps"), "", nil))
	}
	return next()
}

// serve starts the endpoints until the test ends.
func (f *fixture) serve(ctx context.Context) (stop func()) {
	f.t.Helper()
	queue := NewQueue(ctx, QueueConfig{Kind: "widget", Sync: returnsDone})
	f.t.Cleanup(queue.ShutDown)
	stop, err := f.Serve(ctx, Needs{}, f.informers, queue.Check())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(stop)
	return stop
}

// get returns the status and the body of a page of the address for probes.
func (f *fixture) get(path string) string { return f.send(http.MethodGet, f.health, path, "") }

// send returns the status and the body of the answer of an address.
func (f *fixture) send(method, address, path, body string) string {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "no answer"
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(string(answer)))
}

// eventually waits until a page begins with want.
func (f *fixture) eventually(path, want string) {
	f.t.Helper()
	for range 2000 {
		if strings.HasPrefix(f.get(path), want) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	f.t.Fatalf("%s: %s, want %s", path, f.get(path), want)
}

// create creates a ConfigMap through the connection for writes.
func (f *fixture) create(name string) error {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := f.write.CoreV1().ConfigMaps("default").Create(f.t.Context(), configMap, metav1.CreateOptions{})
	return err
}

func (f *fixture) lease() string {
	lease, err := kubernetes.NewForConfigOrDie(f.api.Config("test")).CoordinationV1().Leases("acme").Get(f.t.Context(),
		"widget-controller", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

func TestAProcessWritesOnlyWhileItLeads(t *testing.T) {
	f := newFixture(t, "--leader-elect", "--leader-elect-namespace=acme", "--leader-elect-lease-duration=2s",
		"--leader-elect-renew-deadline=1s", "--leader-elect-retry-period=100ms")
	ctx, stop := context.WithCancel(t.Context())
	stopServing := f.serve(ctx)
	if got, want := f.get("/readyz"), "500 [-]configmaps failed: not listed yet"; !strings.HasPrefix(got, want) {
		t.Errorf("before Lead: /readyz: %s, want %s", got, want)
	}
	if f.create("too-early") == nil {
		t.Error("a process that does not lead could write")
	}
	leads, stopped := make(chan struct{}), make(chan error)
	go func() {
		stopped <- f.Lead(ctx, f.informers, func(ctx context.Context) {
			if !f.informers[0].HasSynced() {
				t.Error("the process leads before its caches are filled")
			}
			if err := f.create("web"); err != nil {
				t.Errorf("the leader writes: %v", err)
			}
			close(leads)
			<-ctx.Done()
			if err := f.create("last"); err != nil {
				t.Errorf("the leader finishes its work: %v", err)
			}
			if f.lease() == "" {
				t.Error("the Lease was released before the end of the work")
			}
		})
	}()
	<-leads
	f.eventually("/readyz", "200")
	f.eventually("/healthz", "200")
	if n := f.Problems(); n != 0 {
		t.Errorf("%d problems, want none", n)
	}
	stop()
	if err := <-stopped; err != nil {
		t.Errorf("Lead: %v", err)
	}
	if holder := f.lease(); holder != "" {
		t.Errorf("the Lease is held by %s after the stop", holder)
	}
	if f.create("too-late") == nil {
		t.Error("a process that has stopped could write")
	}
	f.eventually("/healthz", "200") // Probes are answered until the end.
	stopServing()
	if got := f.get("/healthz"); got != "no answer" {
		t.Errorf("/healthz after the end: %s", got)
	}
	want := []string{"create by widget-controller", "create by widget-controller"}
	writes := slices.DeleteFunc(f.requests, func(r string) bool { return !strings.HasPrefix(r, "create") })
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Two kinds of one process may have children of one type. Each is checked and shown under a name of its own.
func TestAProcessServesTwoKinds(t *testing.T) {
	address := freeAddress(t)
	f := newFixture(t, "--debug-bind-address="+address)
	var live []serving.Check
	for _, kind := range []string{"widget", "gadget"} {
		queue := NewQueue(t.Context(), QueueConfig{Kind: kind, Sync: returnsDone})
		t.Cleanup(queue.ShutDown)
		f.Show(queue)
		live = append(live, queue.Check())
	}
	stop, err := f.Serve(t.Context(), Needs{}, slices.Concat(f.informers, f.informers), live...)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for path, want := range map[string]string{
		"/healthz/workers": "200 ok", "/healthz/workers-2": "200 ok", "/healthz/workers-3": "404",
		"/readyz/configmaps": "500 ", "/readyz/configmaps-2": "500 ", "/readyz/configmaps-3": "404",
	} {
		if got := f.get(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]string{
		"": `200 {"kind":"widget",`, "/gadget": `200 {"kind":"gadget",`, "/other": "404",
	} {
		if got := f.send(http.MethodGet, address, "/debug/syncs"+path+"?format=json", ""); !strings.HasPrefix(got, want) {
			t.Errorf("/debug/syncs%s: %s, want %s", path, got, want)
		}
	}
}

// A copy that cannot work must not become the leader. It shows why, and it can be stopped.
func TestAProcessThatCannotListDoesNotLead(t *testing.T) {
	f := newFixture(t)
	f.forbidden = true
	ctx, stop := context.WithCancel(t.Context())
	f.serve(ctx)
	stopped := make(chan error)
	go func() {
		stopped <- f.Lead(ctx, f.informers, func(context.Context) { t.Error("it leads") })
	}()
	f.eventually("/readyz", "500 [-]configmaps failed: not listed yet: Not allowed to list and watch")
	f.eventually("/readyz/cluster", "500")
	f.eventually("/healthz", "200") // A restart would not help.
	if n := f.Problems(); n != 1 {
		t.Errorf("%d problems, want 1", n)
	}
	stop()
	if err := <-stopped; err != nil {
		t.Errorf("Lead: %v", err)
	}
}

// A leader that waits for its caches does nothing, and keeps the others from it.
func TestAProcessDoesNotLeadBeforeItsCachesAreFilled(t *testing.T) {
	f := newFixture(t)
	f.held = make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	stopped, leads := make(chan error), make(chan struct{})
	go func() {
		stopped <- f.Lead(ctx, f.informers, func(context.Context) { close(leads) })
	}()
	select {
	case <-leads:
		t.Error("it leads before its caches are filled")
	case <-time.After(200 * time.Millisecond):
	}
	close(f.held)
	<-leads
	stop()
	if err := <-stopped; err != nil {
		t.Errorf("Lead: %v", err)
	}
}

func TestTheLevelOfTheLogIsSetAtRunTime(t *testing.T) {
	address := freeAddress(t)
	f := newFixture(t, "--debug-bind-address="+address)
	f.serve(t.Context())
	if got, want := f.send(http.MethodGet, address, "/debug/flags/v", ""), "405"; !strings.HasPrefix(got, want) {
		t.Errorf("a GET is answered with %s, want %s", got, want)
	}
	for _, test := range []struct {
		level, want string
		logs        bool // At level 4.
	}{
		{level: "4", want: "200 the level of the log is 4", logs: true},
		{level: "high", want: `400 "high" is no level of the log; give a number such as 0, 2 or 4`, logs: true},
		{level: "-1", want: `400 "-1" is no level of the log; give a number such as 0, 2 or 4`, logs: true},
		{level: "12345678901", want: "400 http: request body too large", logs: true},
		{level: "0", want: "200 the level of the log is 0"},
	} {
		got := f.send(http.MethodPut, address, "/debug/flags/v", test.level)
		if logs := klog.V(4).Enabled(); got != test.want || logs != test.logs {
			t.Errorf("%s: %s, and level 4 is in the log: %t", test.level, got, logs)
		}
	}
}

// A burst of writes must not delay what the caches hear.
func TestWatchesHaveAConnectionOfTheirOwn(t *testing.T) {
	f := newFixture(t)
	if f.Watch.Config.Dial == nil || f.Write.Config.Dial != nil {
		t.Error("client-go shares one connection between watches and writes: their configs have the same dialer")
	}
	if f.Watch.Config.Timeout != 0 || f.Write.Config.Timeout != writeTimeout {
		t.Errorf("timeouts %v and %v, want none for watches and %v for writes",
			f.Watch.Config.Timeout, f.Write.Config.Timeout, writeTimeout)
	}
}

func TestAServerThatIsNoURLIsOneLine(t *testing.T) {
	resetLogging(t)
	t.Setenv("KUBECONFIG", "/does/not/exist")
	options, err := Parse(widgets, []string{"--master=https://[::1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, processErr := NewProcess(t.Context(), options, preflight.Hints{})
	_, readErr := options.ReadOnly() // For --explain.
	for _, err := range []error{processErr, readErr} {
		if err == nil || !strings.Contains(err.Error(), "[::1") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with the address", err)
		}
	}
}

func TestPermissionsDependOnTheFlags(t *testing.T) {
	// A second kind needs the same.
	own := Needs{Permissions: Allow("team", "acme.example.com", "widgets/status", "update")}
	const (
		mine  = "update widgets.acme.example.com/status"
		lease = "create leases.coordination.k8s.io, get leases.coordination.k8s.io widget-controller-team, " +
			"update leases.coordination.k8s.io widget-controller-team"
		reviews = "create tokenreviews.authentication.k8s.io, create subjectaccessreviews.authorization.k8s.io"
	)
	for _, test := range []struct {
		name  string
		flags []string
		want  string
	}{
		{name: "no flags", want: mine},
		{name: "an election", flags: []string{"--leader-elect", "--leader-elect-namespace=acme"}, want: mine + ", " + lease},
		{name: "metrics for all with a token", flags: []string{"--metrics-bind-address=:8443"}, want: mine + ", " + reviews},
		{name: "metrics on loopback", flags: []string{"--metrics-bind-address=127.0.0.1:8080"}, want: mine},
		{
			name:  "metrics on loopback with a certificate",
			flags: []string{"--metrics-bind-address=localhost:8443", "--metrics-cert-file=a", "--metrics-key-file=b"},
			want:  mine + ", " + reviews,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, append(test.flags, "--namespace=team")...)
			var got []string
			for _, p := range f.Permissions(own.And(own)) {
				got = append(got, p.String())
				if want := map[bool]string{true: "team", false: p.Namespace}[p.Group == "acme.example.com"]; p.Namespace != want {
					t.Errorf("%s: namespace %q", p, p.Namespace)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
		})
	}
}

// A controller needs no line of its own for it.
func TestMetricsHaveTheVersionOfTheProgram(t *testing.T) {
	address := freeAddress(t)
	f := newFixture(t, "--metrics-bind-address="+address)
	f.serve(t.Context())
	want := fmt.Sprintf("widget_controller_build_info{go_version=%q,version=%q} 1", runtime.Version(), widgets.Version)
	if got := f.send(http.MethodGet, address, "/metrics", ""); !strings.Contains(got, want) {
		t.Errorf("/metrics lacks %s:\n%s", want, got)
	}
}

func TestAnAddressThatCannotBeServedIsAnErrorOfItsFlag(t *testing.T) {
	taken := httptest.NewServer(nil)
	defer taken.Close()
	address := taken.Listener.Addr().String()
	for name, set := range map[string]func(*Options){
		"health-probe-bind-address": func(o *Options) { o.healthAddress = address },
		"metrics-bind-address":      func(o *Options) { o.metricsAddress = address },
		"debug-bind-address":        func(o *Options) { o.debugAddress = address },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			set(f.options)
			_, err := f.Serve(t.Context(), Needs{}, f.informers)
			if err == nil || !strings.HasPrefix(err.Error(), "--"+name+": ") {
				t.Errorf("%v, want an error of --%s", err, name)
			}
		})
	}
}
