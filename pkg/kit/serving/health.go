package serving

import (
	"context"
	"net/http"

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

// NewHealth returns a Server for /healthz and /readyz, which is plain HTTP without authentication, as the kubelet needs
// it. The Server listens when NewHealth returns. An error means that the address is invalid or in use. The Server logs
// to the logger of ctx. NewHealth panics if two checks of one page have the same name, as http.ServeMux does.
func NewHealth(ctx context.Context, config HealthConfig) (*Server, error) {
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
	return newServer(ctx, "health", listener, nil, TLS{}, mux), nil
}
