package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The API server listens on [::1] only, its Services have only IPv6 addresses, and all endpoints of the leader are on
// [::1]. The endpoints of a standby have no host, as in artifacts/deploy, and are on both families.
func TestIPv6Only(t *testing.T) {
	loopback, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	loopback.Close()
	waitForRoom(t)
	c, err := startCluster("api", "--ipv6")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	service, err := c.kube.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "fd00::1" || !strings.HasPrefix(c.config.Host, "https://[::1]:") {
		t.Fatalf("the test has no cluster with IPv6 only: %s, %v", c.config.Host, err)
	}

	e := c.env(t)
	p := c.controller(t, append(patient.flags(), "--health-probe-bind-address=[::1]:0",
		"--metrics-bind-address=[::1]:0", "--debug-bind-address=[::1]:0")...)
	e.createFoo(t, "web", fooSpec("web"))
	e.waitForReason(t, "web", v1alpha1.ReasonCreating)
	for endpoint, path := range map[string]string{"health": "/readyz", "metrics": "/metrics", "debug": "/debug/config"} {
		address := p.address(t, endpoint)
		if status, body := fetch(t, "http://"+address+path, ""); status != http.StatusOK || address[:6] != "[::1]:" {
			t.Errorf("%s%s: %d %s", address, path, status, body)
		}
	}

	standby := startController(t, append(patient.flags(), "--kubeconfig", c.kubeconfig(t, nil),
		"--health-probe-bind-address=:0", "--metrics-bind-address=:0")...)
	standby.waitForLog(t, "Standing by")
	for _, host := range []string{"127.0.0.1", "::1"} {
		for endpoint, want := range map[string]int{"http health /healthz": 200, "https metrics /metrics": 401} {
			parts := strings.Fields(endpoint)
			_, port, _ := net.SplitHostPort(standby.address(t, parts[1]))
			url := parts[0] + "://" + net.JoinHostPort(host, port) + parts[2]
			if status, body := fetch(t, url, ""); status != want {
				t.Errorf("%s: %d, want %d: %s", url, status, want, body)
			}
		}
	}
}
