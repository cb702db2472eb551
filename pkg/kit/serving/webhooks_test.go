package serving

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// Webhooks have the certificate of their files, which somebody else renews, or the one that a function returns.
func TestCertificatesOfWebhooks(t *testing.T) {
	noLeaks(t)
	certFile, keyFile := writePair(t, t.TempDir(), "of the files")
	own, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	none := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("there is none yet") }
	for _, tc := range []struct {
		name   string
		config WebhooksConfig
		served string // The subject of the certificate, "" if there is no connection.
	}{
		{name: "files", config: WebhooksConfig{CertFile: certFile, KeyFile: keyFile, Certificate: own}, served: "of the files"},
		{name: "a function", config: WebhooksConfig{Certificate: own}, served: "localhost"},
		{name: "no certificate yet", config: WebhooksConfig{Certificate: none}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.config.Address, tc.config.Handler = anyPort, http.HandlerFunc(answerOK)
			server, err := NewWebhooks(t.Context(), tc.config)
			if err != nil || server.linger == 0 {
				t.Fatal("requests that are on their way at a stop would be lost", err)
			}
			server.linger = 0
			resp, err := newClient(t).Get(start(t, server, err))
			if err != nil {
				if tc.served != "" {
					t.Error(err)
				}
				return
			}
			resp.Body.Close()
			if subject := resp.TLS.PeerCertificates[0].Subject.CommonName; !strings.HasPrefix(subject, tc.served) || resp.ProtoMajor != 1 {
				t.Errorf("%s with the certificate of %q, want %q", resp.Proto, subject, tc.served)
			}
		})
	}
	for _, config := range []WebhooksConfig{{CertFile: certFile}, {KeyFile: keyFile}, {CertFile: keyFile, KeyFile: certFile}, {}} {
		config.Address = anyPort
		if _, err := NewWebhooks(t.Context(), config); err == nil {
			t.Errorf("with the files %q and %q there is no error", config.CertFile, config.KeyFile)
		}
	}
}
