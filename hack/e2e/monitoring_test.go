package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

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

// selectors returns all metrics in the expressions of the alerts. hack/monitoring checks with Prometheus' own parser
// that each metric has this form.
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
		values := knownValues(m.label)
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

// knownValues returns the values that a label may have and that need not be in the scrape. The reasons of Foos are
// always served.
func knownValues(label string) []string {
	switch label {
	case "outcome":
		return []string{"done", "retry", "wait", "terminal"}
	}
	return nil
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
