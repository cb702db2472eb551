package serving

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// metricsPath is the path of the metrics, and the nonResourceURL of the permission to read them.
const metricsPath = "/metrics"

// MetricsConfig is what NewMetrics needs.
type MetricsConfig struct {
	// Address is HOST:PORT or :PORT. "0" turns the endpoint off; then nothing else of the config is used.
	Address string
	// Handler serves the metrics, after all checks.
	Handler http.Handler
	// API is the API server that checks tokens and permissions. Its credentials need the permissions of the ClusterRole
	// system:auth-delegator: create tokenreviews and subjectaccessreviews. The config is copied; its rate limits are
	// not used.
	API *rest.Config
	// CertFile and KeyFile have the certificate and its key in PEM. They may be replaced at any time: the next
	// connection gets the new certificate. If both are empty, the certificate is self-signed and only in memory.
	CertFile, KeyFile string
	// Plain serves without TLS, and so without authentication, since a token must not be sent over a plain connection.
	// Then Address must be a loopback address, and there may be no certificate. API is not used.
	Plain bool
	// TLS limits what clients may use.
	TLS TLS

	backoff *wait.Backoff // For tests. Nil means reviewBackoff.
}

// NewMetrics returns a Server for /metrics over TLS. A client needs a bearer token of the cluster, and its user the
// permission to get the nonResourceURL /metrics. It gets 401 without a valid token, 403 without the permission, and 500
// if the API server cannot be asked. The Server listens when NewMetrics returns. An error means that the address is
// invalid, in use or not allowed, or that the certificate or API cannot be used. The Server logs to the logger of ctx.
func NewMetrics(ctx context.Context, config MetricsConfig) (*Server, error) {
	if config.Address == off {
		return &Server{}, nil
	}
	handler, certificate, err := config.protect(klog.FromContext(ctx))
	if err != nil {
		return nil, err
	}
	listener, err := listen(config.Address, config.Plain)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, handler)
	return newServer(ctx, "metrics", listener, certificate, config.TLS, mux), nil
}

// protect returns the handler with all checks, and the certificate to serve it with. The certificate is nil for Plain.
func (c *MetricsConfig) protect(logger klog.Logger) (http.Handler, getCertificate, error) {
	if c.Plain {
		if c.CertFile != "" || c.KeyFile != "" {
			return nil, nil, errors.New("metrics are plain and have a certificate; give only one of the two")
		}
		return localOnly(c.Handler), nil, nil
	}
	certificate, err := certificateOf(c.CertFile, c.KeyFile, logger, selfSigned)
	if err != nil {
		return nil, nil, err
	}
	backoff := c.backoff
	if backoff == nil {
		backoff = &reviewBackoff
	}
	handler, err := newAccess(logger, c.API, *backoff, c.Handler)
	return handler, certificate, err
}
