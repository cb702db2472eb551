package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// WebhooksConfig is what NewWebhooks needs.
type WebhooksConfig struct {
	// Address is HOST:PORT or :PORT. "0" turns the endpoint off; then nothing else of the config is used.
	Address string
	// Handler answers the reviews. No client is authenticated: an answer must have nothing that is secret.
	Handler http.Handler
	// CertFile and KeyFile have the certificate and its key in PEM. They may be replaced at any time. If both are empty,
	// Certificate returns the one for a handshake. It may be called concurrently.
	CertFile, KeyFile string
	Certificate       func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// TLS limits what clients may use.
	TLS TLS
}

// NewWebhooks returns a Server for webhooks over TLS. It listens when NewWebhooks returns. An error means that the
// address is invalid or in use, or that there is no certificate. The Server logs to the logger of ctx.
func NewWebhooks(ctx context.Context, config WebhooksConfig) (*Server, error) {
	if config.Address == off {
		return &Server{}, nil
	}
	own := func() (getCertificate, error) {
		if config.Certificate == nil {
			return nil, errors.New("there is no certificate")
		}
		return config.Certificate, nil
	}
	certificate, err := certificateOf(config.CertFile, config.KeyFile, klog.FromContext(ctx), own)
	if err != nil {
		return nil, err
	}
	listener, err := listen(config.Address, false)
	if err != nil {
		return nil, err
	}
	server := newServer(ctx, "webhooks", listener, certificate, config.TLS, config.Handler)
	server.linger = 3 * time.Second
	return server, nil
}
