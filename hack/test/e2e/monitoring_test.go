package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// address returns the address of an endpoint that listens on any port.
func (p *process) address(t *testing.T, endpoint string) string {
	t.Helper()
	line := regexp.MustCompile(`"Serving" endpoint="` + endpoint + `" address="([^"]+)"`)
	p.waitForLog(t, `"Serving" endpoint="`+endpoint+`"`)
	return line.FindStringSubmatch(p.log.String())[1]
}

// fetch returns the status and the body of a response. The certificate is not checked: it is self-signed.
func fetch(t *testing.T, url, token string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	e := newEnv(t, apiCluster)
	// Not a loopback address, so that there are TLS and permissions.
	// It never leads, because it may not write a Lease in that namespace. So its writes do not pass the gate. Reviews do.
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--metrics-bind-address=0.0.0.0:0",
		"--health-probe-bind-address=127.0.0.1:0", "--namespace="+e.namespace,
		"--leader-elect", "--leader-elect-namespace="+e.namespace)
	missing := fmt.Sprintf("kubectl auth can-i update leases.coordination.k8s.io/foo-controller-%[1]s --namespace=%[1]s",
		e.namespace)
	until(t, "the readiness shows that a permission is missing", func(context.Context) (bool, error) {
		status, body := fetch(t, "http://"+p.address(t, "health")+"/readyz", "")
		return status != http.StatusOK && strings.Contains(body, missing), nil
	})
	_, port, _ := strings.Cut(p.address(t, "metrics"), "]:")
	url := fmt.Sprintf("https://127.0.0.1:%s/metrics", port)
	account := e.newAccount(t)
	reader := e.token(t, account)
	for _, refused := range []struct {
		name, token string
		want        int
	}{
		{"without a token", "", http.StatusUnauthorized},
		{"with a token for another audience", e.token(t, account, "--audience=somebody-else"), http.StatusUnauthorized},
		{"with what the API server reads as no token", " x", http.StatusUnauthorized},
		{"with a token that was changed", reader[:len(reader)-8] + "AAAAAAAA", http.StatusUnauthorized},
		{"without the permission", reader, http.StatusForbidden},
	} {
		if status, _ := fetch(t, url, refused.token); status != refused.want {
			t.Errorf("%s: %d, want %d", refused.name, status, refused.want)
		}
	}
	e.readers(t)
	until(t, "the metrics are served", func(context.Context) (bool, error) { // A refusal is cached for some seconds.
		status, body := fetch(t, url, reader)
		return status == http.StatusOK && strings.Contains(body, "\nfoo_controller_"), nil
	})
}

// scrapeOfALeader returns the metrics of a controller that leads and has synced a Foo, and its election.
func scrapeOfALeader(t *testing.T) (e *electorate, scrape string) {
	t.Helper()
	e = newElectorate(t, usual)
	e.create(t, e.leader, "first")
	address := e.leader.address(t, "metrics")
	until(t, "a sync is counted", func(context.Context) (bool, error) {
		_, scrape = fetch(t, "http://"+address+"/metrics", "")
		return strings.Contains(scrape, "foo_controller_syncs_total{"), nil
	})
	return e, scrape
}

// docs/metrics.md has each metric of the controller's own with its type and labels, and no metric that it does not
// serve.
func TestMetricsAreDocumented(t *testing.T) {
	e, scrape := scrapeOfALeader(t)
	served, documented := metricsIn(scrape), documentedMetrics(t)
	for name, want := range documented {
		if served[name] != want {
			t.Errorf("docs/metrics.md has %s as a %q, and what is served is a %q", name, want, served[name])
		}
	}
	own := 0
	for name := range served {
		if !strings.HasPrefix(name, "foo_controller_") {
			continue
		}
		own++
		if documented[name] == "" {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
	if own < 5 || len(documented) < 10 {
		t.Errorf("%d metrics are our own and %d documented: are they still found?", own, len(documented))
	}
	if t.Failed() {
		t.Logf("the rows:\n%s", rows(scrape))
	}
	series := len(regexp.MustCompile(`(?m)^[a-z]`).FindAllString(scrape, -1))
	t.Logf("%d series:\n%s", series, scrape)
	if series > 1000 {
		t.Errorf("%d series, docs/metrics.md has about 520", series)
	}
	// The name of the Lease has the namespace that the flags name.
	if strings.Contains(strings.ReplaceAll(scrape, e.lease(), ""), e.namespace) {
		t.Error("a label has the name of a namespace")
	}
}

// documentedMetrics returns the type and the labels of each metric in the tables of docs/metrics.md.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	for _, columns := range row.FindAllStringSubmatch(string(page), -1) {
		documented[columns[1]] = columns[2] + " " + strings.ReplaceAll(columns[3], "`", "")
	}
	return documented
}

var (
	typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	helpLine = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`)
	label    = regexp.MustCompile(`([a-z_]+)="`)
)

// metricsIn returns the type and the labels of each metric in a scrape.
func metricsIn(scrape string) map[string]string {
	metrics := map[string]string{}
	for _, found := range typeLine.FindAllStringSubmatch(scrape, -1) {
		name := found[1]
		labels := map[string]bool{}
		series := regexp.MustCompile(`(?m)^` + name + `(_bucket|_sum|_count)?\{(.*)\} `)
		for _, series := range series.FindAllStringSubmatch(scrape, -1) {
			for _, l := range label.FindAllStringSubmatch(series[2], -1) {
				labels[l[1]] = true
			}
		}
		delete(labels, "le")
		delete(labels, "quantile")
		metrics[name] = found[2] + " " + strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
	}
	return metrics
}

// rows returns the table of docs/metrics.md that fits a scrape.
func rows(scrape string) string {
	help := map[string]string{}
	for _, found := range helpLine.FindAllStringSubmatch(scrape, -1) {
		help[found[1]] = strings.NewReplacer("[ALPHA] ", "", "[BETA] ", "", "[STABLE] ", "").Replace(found[2])
	}
	var lines []string
	for name, described := range metricsIn(scrape) {
		kind, labels, _ := strings.Cut(described, " ")
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", name, kind, labels, help[name]))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

const (
	prometheus = "system:serviceaccount:monitoring:prometheus-k8s"
	// targetLabels are those that Prometheus adds to each series.
	targetLabels = "job namespace pod"
)

// A selector is a metric in the expression of an alert, with its labels.
type selector struct {
	alert, metric string
	matchers      []matcher
}

type matcher struct{ label, operator, value string }

// selectors returns all metrics in the expressions of the alerts. hack/test/monitoring checks with Prometheus' own
// parser that each metric has this form.
func selectors(t *testing.T) []selector {
	t.Helper()
	metric := regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	label := regexp.MustCompile(`([a-z_]+)(=~|!~|=|!=)"([^"]*)"`)
	var all []selector
	for _, object := range objects(t, "artifacts/monitoring/alerts.yaml") {
		groups, _, _ := unstructured.NestedSlice(object.Object, "spec", "groups")
		for _, group := range groups {
			rules, _, _ := unstructured.NestedSlice(group.(map[string]any), "rules")
			for _, rule := range rules {
				alert, expr := rule.(map[string]any)["alert"].(string), rule.(map[string]any)["expr"].(string)
				for _, found := range metric.FindAllStringSubmatch(expr, -1) {
					s := selector{alert: alert, metric: found[1]}
					for _, pair := range label.FindAllStringSubmatch(found[2], -1) {
						s.matchers = append(s.matchers, matcher{pair[1], pair[2], pair[3]})
					}
					all = append(all, s)
				}
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("the alerts have %d metrics: are they still found?", len(all))
	}
	return all
}

// Each metric of an alert is served by a running controller, with the labels that the alert selects by. An alert on a
// metric that does not exist, or on a value that no label has, never fires. The codes of failures are those of requests
// that fail here.
func TestTheMetricsOfTheAlertsAreServed(t *testing.T) {
	e, _ := scrapeOfALeader(t)
	e.leader.proxy.fail(http.MethodPatch, "/status", http.StatusUnauthorized, http.StatusForbidden)
	e.createFoo(t, "second", fooSpec("second"))
	e.waitForReason(t, "second", v1alpha1.ReasonCreating)
	lease := "/leases/" + e.lease() // The standby reads it again and again.
	read := e.standby.proxy.count(http.MethodGet, lease)
	codes := []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError,
		noAnswer, noAnswer, // net/http repeats a read once, on another connection.
	}
	e.standby.proxy.fail(http.MethodGet, lease, codes...)
	until(t, "reads have failed, and one has not", func(context.Context) (bool, error) {
		return e.standby.proxy.count(http.MethodGet, lease) > read+len(codes)+1, nil
	})
	var scrape string
	for _, p := range []*candidate{e.leader, e.standby} {
		_, served := fetch(t, "http://"+p.address(t, "metrics")+"/metrics", "")
		scrape += served
	}
	for _, s := range selectors(t) {
		if s.metric == "up" { // Prometheus writes it itself.
			continue
		}
		s.check(t, scrape)
	}
}

// check compares the metric with a scrape.
func (s selector) check(t *testing.T, scrape string) {
	t.Helper()
	series := regexp.MustCompile(`(?m)^`+s.metric+`(?:\{(.*)\})? `).FindAllStringSubmatch(scrape, -1)
	if len(series) == 0 {
		t.Errorf("%s: the controller does not serve %s", s.alert, s.metric)
		return
	}
	for _, m := range s.matchers {
		if slices.Contains(strings.Fields(targetLabels), m.label) {
			continue
		}
		var values []string
		if m.label == "outcome" { // Not all of them need be in the scrape. The reasons of Foos are always served.
			values = []string{"done", "retry", "wait", "terminal"}
		}
		for _, found := range series {
			if value := regexp.MustCompile(`(?:^|,)` + m.label + `="([^"]*)"`).FindStringSubmatch(found[1]); value != nil {
				values = append(values, value[1])
			} else {
				t.Errorf("%s: %s has no label %s: %s", s.alert, s.metric, m.label, found[0])
			}
		}
		for _, alternative := range strings.Split(m.value, "|") {
			pattern := regexp.MustCompile("^(?:" + alternative + ")$")
			if !slices.ContainsFunc(values, pattern.MatchString) {
				t.Errorf("%s: %s has no %s %q, only %q", s.alert, s.metric, m.label, alternative, values)
			}
		}
	}
}

// The bindings give the ServiceAccount of Prometheus what it needs, and nothing else.
func TestPrometheusMayReadTheMetricsAndFindThePods(t *testing.T) {
	e := newEnv(t, apiCluster)
	e.kubectl(t, "", "apply", "-f", "artifacts/monitoring/rbac.yaml")
	t.Cleanup(func() { e.kubectl(t, "", "delete", "-f", "artifacts/monitoring/rbac.yaml") })
	for _, test := range []struct {
		question string
		want     string
	}{
		{question: "get /metrics", want: "yes"},
		{question: "list endpointslices.discovery.k8s.io -n foo-system", want: "yes"},
		{question: "watch endpoints -n foo-system", want: "yes"},
		{question: "list services -n foo-system", want: "yes"},
		{question: "get pods -n foo-system", want: "yes"},
		{question: "get secrets -n foo-system", want: "no"},
		{question: "list pods -n default", want: "no"},
		{question: "get /debug/pprof", want: "no"},
	} {
		args := append([]string{"auth", "can-i", "--as=" + prometheus}, strings.Fields(test.question)...)
		until(t, "Prometheus may "+test.question+": "+test.want, func(context.Context) (bool, error) {
			out, _ := e.try("", args...) // It ends with an error if the answer is no.
			lines := strings.Fields(out)
			return len(lines) > 0 && lines[len(lines)-1] == test.want, nil
		})
	}
}

// The ServiceMonitor finds the Service in artifacts/deploy, and the name of its label job is the one that the alerts
// select by.
func TestTheServiceMonitorSelectsTheService(t *testing.T) {
	service := objects(t, "artifacts/deploy/service.yaml")[0]
	monitor := objects(t, "artifacts/monitoring/service-monitor.yaml")[0]
	if service.GetNamespace() != monitor.GetNamespace() {
		t.Errorf("the Service is in %s, the ServiceMonitor in %s", service.GetNamespace(), monitor.GetNamespace())
	}
	want, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	for label, value := range want {
		if service.GetLabels()[label] != value {
			t.Errorf("the Service has %s=%s, the ServiceMonitor selects %s", label, service.GetLabels()[label], value)
		}
	}
	jobLabel, _, _ := unstructured.NestedString(monitor.Object, "spec", "jobLabel")
	for _, s := range selectors(t) {
		if job := (matcher{"job", "=", service.GetLabels()[jobLabel]}); !slices.Contains(s.matchers, job) {
			t.Errorf("%s: %s does not select %v", s.alert, s.metric, job)
		}
	}
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	for _, endpoint := range endpoints {
		port := endpoint.(map[string]any)["port"]
		if !slices.ContainsFunc(ports, func(p any) bool { return p.(map[string]any)["name"] == port }) {
			t.Errorf("the Service has the ports %v, the ServiceMonitor reads %v", ports, port)
		}
	}
}

// With the component tls, the controller serves the certificate in the Secret whose CA Prometheus trusts, and
// Prometheus expects the name of the Service in it.
func TestTheComponentForTLSFitsTheController(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	d := read(t, overlay(t, "resources: [../../artifacts/deploy, ../../artifacts/monitoring]\n"+
		"components: [../../artifacts/monitoring/tls]\n"))
	byKind := map[string]*unstructured.Unstructured{}
	for _, object := range d.all {
		byKind[object.GetKind()] = object
	}
	pod := d.deployment.Spec.Template.Spec
	for _, arg := range []string{
		"--metrics-bind-address=:8443", // One of those that were there.
		"--metrics-cert-file=/etc/foo-controller/tls/" + corev1.TLSCertKey,
		"--metrics-key-file=/etc/foo-controller/tls/" + corev1.TLSPrivateKeyKey,
	} {
		if !slices.Contains(pod.Containers[0].Args, arg) {
			t.Errorf("the container has the args %q, want %s", pod.Containers[0].Args, arg)
		}
	}
	volume, mount := pod.Volumes[len(pod.Volumes)-1], pod.Containers[0].VolumeMounts[0]
	if mount.Name != volume.Name || mount.MountPath != "/etc/foo-controller/tls" {
		t.Errorf("%+v mounts not %+v", mount, volume)
	}
	monitor, service := byKind["ServiceMonitor"], byKind["Service"]
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	want := map[string]any{
		"serverName": fmt.Sprintf("%s.%s.svc", service.GetName(), service.GetNamespace()),
		"ca":         map[string]any{"secret": map[string]any{"name": volume.Secret.SecretName, "key": "ca.crt"}},
	}
	if diff := cmp.Diff(want, endpoints[0].(map[string]any)["tlsConfig"]); diff != "" {
		t.Errorf("the TLS of the ServiceMonitor (-want +have):\n%s", diff)
	}
}
