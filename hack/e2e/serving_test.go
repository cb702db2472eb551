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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestReadinessShowsWhatIsMissing(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	kubeconfig := e.cluster.kubeconfig(t, nil)
	e.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	p := startController(t, "--kubeconfig", kubeconfig, "--health-probe-bind-address=127.0.0.1:0")
	url := "http://" + p.address(t, "health")
	shows := func(what string, want int, texts ...string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			status, body := fetch(t, url+"/readyz?verbose", "")
			for _, text := range texts {
				if !strings.Contains(body, text) {
					return false, nil
				}
			}
			return status == want, nil
		})
		_, body := fetch(t, url+"/readyz?verbose", "")
		t.Logf("%s:\n%s", what, body)
		if status, body := fetch(t, url+"/healthz?verbose", ""); status != http.StatusOK {
			t.Errorf("%s: /healthz: %d %s", what, status, body)
		}
	}
	shows("the CRD is missing", 500,
		"[-]foos failed: not listed yet", "kubectl apply -f artifacts/crd", "[-]cluster failed")
	definition, err := os.ReadFile("artifacts/crd/samplecontroller.k8s.io_foos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e.kubectl(t, strings.ReplaceAll(string(definition), "name: v1alpha1", "name: v1beta1"), "apply", "-f", "-")
	shows("the CRD is of another version", 500,
		"is installed in another version", `installed="v1beta1"`, `needed="v1alpha1"`)
	e.kubectl(t, "", "delete", "crd", "foos.samplecontroller.k8s.io")
	if err := e.Install("artifacts/crd"); err != nil {
		t.Fatal(err)
	}
	shows("it works", 200, "[+]foos ok", "[+]deployments ok", "[+]cluster ok")

	e.kubectl(t, "", "patch", "clusterrole", "foo-controller", "--type=json", "-p",
		`[{"op":"replace","path":"/rules/3/verbs","value":["get","list","watch"]}]`)
	e.kubectl(t, `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"name":"web"},
		"spec":{"deploymentName":"web","replicas":1}}`, "create", "-n", e.namespace, "-f", "-")
	shows("a permission was revoked", 500, "[+]foos ok",
		`permission="create deployments.apps"`,
		"kubectl auth can-i create deployments.apps --all-namespaces --as="+controllerUser)
	e.kubectl(t, "", "apply", "-f", "artifacts/deploy/rbac.yaml")
	shows("it was granted again", 200, "[+]cluster ok")

	e.kubectl(t, "", "patch", "crd", "foos.samplecontroller.k8s.io", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/subresources"}]`)
	e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
	shows("the CRD has no status", 500, "has no subresource status")
	e.kubectl(t, "", "apply", "-f", "artifacts/crd")
	shows("the CRD is complete", 200, "[+]cluster ok")

	if err := e.KillComponent("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	shows("the API server is down", 500, "Cannot reach the API server")
	if err := e.StartComponent("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	shows("it is up again", 200, "[+]cluster ok")
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
	if _, err := e.kube.CoreV1().ServiceAccounts(e.namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := func(audiences ...string) string {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		request, err := e.kube.CoreV1().ServiceAccounts(e.namespace).CreateToken(
			t.Context(), "reader", request, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	reader := token()
	for _, refused := range []struct {
		name, token string
		want        int
	}{
		{"without a token", "", http.StatusUnauthorized},
		{"with a token for another audience", token("somebody-else"), http.StatusUnauthorized},
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

// Nothing is refused, so only the check at the start finds it.
func TestADefinitionWithoutConditionsIsShown(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	e.kubectl(t, "", "patch", "crd", "foos.samplecontroller.k8s.io", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions"}]`)
	until(t, "the API server publishes that schema", func(context.Context) (bool, error) {
		schema, err := e.try("", "get", "--raw", "/openapi/v3/apis/samplecontroller.k8s.io/v1alpha1")
		return err == nil && !strings.Contains(schema, "lastTransitionTime"), nil
	})
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--health-probe-bind-address=127.0.0.1:0")
	readyz := "http://" + p.address(t, "health") + "/readyz?verbose"
	shows := func(what string, want int, text string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			status, body := fetch(t, readyz, "")
			return status == want && strings.Contains(body, text), nil
		})
	}
	shows("the CRD has no conditions", 500,
		`The CustomResourceDefinition drops fields of the status name="foos.samplecontroller.k8s.io"`)
	shows("it names the field", 500, `fields="conditions"`)
	e.kubectl(t, "", "apply", "-f", "artifacts/crd")
	shows("the CRD has conditions again", 200, "[+]cluster ok")
}

// The reviews go over a connection of their own. A missing permission for them is noticed too.
func TestARevokedPermissionForReviewsIsShown(t *testing.T) {
	e := newDedicatedEnv(t, apiCluster)
	p := startController(t, "--kubeconfig", e.kubeconfig(t, nil), "--metrics-bind-address=0.0.0.0:0",
		"--health-probe-bind-address=127.0.0.1:0")
	p.waitForLog(t, `"Started"`)
	_, port, _ := strings.Cut(p.address(t, "metrics"), "]:")
	readyz := "http://" + p.address(t, "health") + "/readyz?verbose"
	shows := func(what string, want int, text string) {
		t.Helper()
		until(t, what, func(context.Context) (bool, error) {
			fetch(t, "https://127.0.0.1:"+port+"/metrics", "unknown") // Asks for a review.
			status, body := fetch(t, readyz, "")
			return status == want && strings.Contains(body, text), nil
		})
	}
	shows("it works", 200, "[+]cluster ok")
	e.kubectl(t, "", "delete", "clusterrolebinding", "foo-controller-auth-delegator")
	shows("no reviews", 500, `permission="create tokenreviews.authentication.k8s.io"`)
	e.kubectl(t, "", "apply", "-f", "artifacts/deploy/rbac.yaml")
	shows("reviews again", 200, "[+]cluster ok")
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

// docs/metrics.md has each metric of the controller's own with its type and labels, and no metric that it does not serve.
func TestMetricsAreDocumented(t *testing.T) {
	e, scrape := scrapeOfALeader(t)
	served, documented := metricsIn(scrape), documentedMetrics(metricsPage(t))
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

func metricsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// documentedMetrics returns the type and the labels of each metric in the tables of a page.
func documentedMetrics(page string) map[string]string {
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	for _, columns := range row.FindAllStringSubmatch(page, -1) {
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
