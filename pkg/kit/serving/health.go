package serving

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"k8s.io/klog/v2"
)

// HealthConfig is what NewHealth needs.
type HealthConfig struct {
	// Address is HOST:PORT or :PORT. "0" turns the endpoint off.
	Address string
	// Live are the checks of /healthz. A failure makes the kubelet kill the process, so they ask only what a restart
	// can repair: does the process hang? The state of the API server is not among that.
	Live []Check
	// Ready are the checks of /readyz. kubectl get pods shows a failure, and a rolling update waits for its end. A
	// replica that waits for the lease is ready, else an update of two replicas would never end.
	Ready []Check
}

var checkName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// NewHealth returns a Server for /healthz and /readyz, which is plain HTTP without authentication, as the kubelet needs
// it. The Server listens when NewHealth returns. An error means that the address is invalid or in use, that a name of a
// check is invalid, or that two checks of one page have the same name. The Server logs to the logger of ctx.
func NewHealth(ctx context.Context, config HealthConfig) (*Server, error) {
	for _, checks := range [][]Check{config.Live, config.Ready} {
		if err := validate(checks); err != nil {
			return nil, err
		}
	}
	if config.Address == off {
		return &Server{}, nil
	}
	listener, err := listen(config.Address, false)
	if err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx)
	mux := http.NewServeMux()
	newPage("healthz", config.Live, logger).install(mux)
	// V(2), because each problem that makes a process not ready is in the log anyway.
	newPage("readyz", config.Ready, logger.V(2)).install(mux)
	return newServer(ctx, "health", listener, nil, mux, probeLimits), nil
}

// validate reports a name that cannot be a part of a path, or that two checks have.
func validate(checks []Check) error {
	known := map[string]bool{}
	for _, check := range checks {
		if !checkName.MatchString(check.Name) {
			return fmt.Errorf("check %q: the name must match %s", check.Name, checkName)
		}
		if known[check.Name] {
			return fmt.Errorf("two checks are named %q", check.Name)
		}
		known[check.Name] = true
	}
	return nil
}
