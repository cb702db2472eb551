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
