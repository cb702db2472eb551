// Package serving is the HTTP side of a controller: health for the kubelet, metrics for Prometheus, and a page for a
// person who debugs the process. It knows nothing of the controller. Its caller gives it checks, which are functions
// with a name, a handler for the metrics, and plain values to show.
//
// There are three endpoints, each with a Server and an address of its own. The address "0" turns an endpoint off.
//
//   - NewHealth serves /healthz and /readyz to everybody, without TLS. A failed check of /healthz gets the process
//     killed. A failed check of /readyz makes the pod not ready. The responses have the format of the API server, and
//     unlike there, they have the reasons: ?verbose shows all checks, /readyz/NAME one of them.
//   - NewMetrics serves /metrics over TLS, to users of the cluster who may get the nonResourceURL /metrics.
//   - NewDebug serves /debug/config and profiles, and sets the level of the log, on a loopback address only.
//
// A constructor listens before it returns, so that an address that is in use ends the start of the program with one
// error. Server.Run serves until its context ends, and then finishes the requests in work. The context of the health
// Server should end last: until then the kubelet has to know that the process still stops.
//
// Busy makes a check of workers: it fails when one of them has been busy with one key for too long. Until makes a check
// of a cache that has to be filled.
//
// # Security
//
// The API server authenticates and authorizes the readers of metrics; its answers are remembered for a while, and
// readers about whom there is no answer are refused. Everything else is net/http with its limits for time and size.
// HTTP/2 is off. Health has no authentication, because the kubelet has no token for it.
//
// A NetworkPolicy should keep other pods away from both ports. The reasons of health may have names of objects. And no
// code here defends against a pod that floods a port: each request with an invalid token costs a TokenReview.
package serving

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// Server is one endpoint. NewHealth, NewMetrics and NewDebug create it, and it listens from then on. Run serves. Only
// the end of Run closes the listener.
type Server struct {
	name     string
	logger   klog.Logger
	listener net.Listener // Nil if the endpoint is off.
	http     *http.Server
	drain    time.Duration // How long the end of Run waits for requests in work.
	// linger is how long, before that, Run still serves, and closes each connection with the next answer. A client whose
	// requests cannot be repeated, such as the API server, would lose one that it sends just when a connection is closed.
	linger  time.Duration
	closing atomic.Bool
}

// TLS limits what clients may use. Its zero value is TLS 1.2 or later, with the cipher suites of Go.
type TLS struct {
	MinVersion   uint16
	CipherSuites []uint16 // Of TLS 1.2. Those of 1.3 cannot be chosen.
}

// newServer returns a Server that serves handler on listener, with TLS if certificate is not nil.
//
// Its limits cut off clients that are slow or send too much. There are no flags for them: nobody has to tune them. The
// number of connections is not limited, because that limit would be a way to lock the kubelet out.
func newServer(
	ctx context.Context, name string, listener net.Listener, certificate getCertificate, limits TLS, handler http.Handler,
) *Server {
	logger := klog.FromContext(ctx).WithValues("endpoint", name)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 stays off: one connection could then have many requests in work.
	s := &Server{name: name, logger: logger, listener: listener, drain: 5 * time.Second}
	s.http = &http.Server{
		Handler:   s.served(handler),
		Protocols: protocols,
		// For the TLS handshake, and for a request with its body. It is the answer to clients that send one byte at a time.
		ReadTimeout: 5 * time.Second,
		// From the end of the request's header, so both reviews are within it. The handlers of pprof extend it by the time
		// that a profile takes.
		WriteTimeout:   30 * time.Second,
		IdleTimeout:    90 * time.Second, // Prometheus keeps its connection between two scrapes.
		MaxHeaderBytes: 16 << 10,         // Tokens may have some kB.
		ErrorLog:       log.New(errorLog{logger}, "", 0),
	}
	if certificate != nil {
		s.http.TLSConfig = &tls.Config{
			MinVersion: cmp.Or(limits.MinVersion, tls.VersionTLS12), CipherSuites: limits.CipherSuites,
			GetCertificate: certificate,
		}
	}
	return s
}

// served returns handler as it is served: it closes each connection with its answer once the Server is closing, and a
// panic is logged. net/http closes the connection after a panic too, and writes the stack only to its own log, which is
// not shown by default, see errorLog.
func (s *Server) served(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer utilruntime.HandleCrashWithLogger(s.logger.WithValues("path", r.URL.Path))
		if s.closing.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// Address returns the address that the Server listens on, with the port that the system chose if the configured one is
// 0. It returns "" if the endpoint is off.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends, and a bit longer if the Server is for webhooks. Then it accepts no more connections, lets
// requests in work finish for some seconds, closes all connections, and returns nil. It returns an error if serving
// ends before ctx. If the endpoint is off, it returns nil at once. Call it once.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	s.logger.V(2).Info("Serving", "address", s.Address(), "tls", s.http.TLSConfig != nil)
	ended := make(chan error, 1)
	serve := s.http.Serve
	if s.http.TLSConfig != nil {
		serve = func(listener net.Listener) error { return s.http.ServeTLS(listener, "", "") }
	}
	go func() { ended <- serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s on %s: %w", s.name, s.Address(), err)
	case <-ctx.Done():
	}
	s.closing.Store(true)
	time.Sleep(s.linger)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	if err := s.http.Shutdown(drain); err != nil {
		s.logger.V(2).Info("Cut off the requests that are still in work", "err", err)
		_ = s.http.Close() // The process ends: there is nothing to do about a connection that cannot be closed.
	}
	<-ended
	return nil
}

// errorLog is the log of net/http. Everybody who reaches the port can cause its lines, for instance with a handshake
// that is not TLS, so they are not in the log by default.
type errorLog struct{ logger klog.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.logger.V(4).Info("HTTP server reported", "line", strings.TrimSpace(string(line)))
	return len(line), nil
}

// off is the address that turns an endpoint off, as the flags of controllers have it.
const off = "0"

// listen opens address, which is HOST:PORT or :PORT. With onlyLoopback it refuses an address that other machines or
// pods can reach. The host is resolved once, so that the address that is checked is the one that is opened.
func listen(address string, onlyLoopback bool) (net.Listener, error) {
	_, _, err := net.SplitHostPort(address) // ResolveTCPAddr accepts "" and means any port of all addresses.
	if err != nil {
		return nil, fmt.Errorf("%w; give HOST:PORT or :PORT, or 0 to turn the endpoint off", err)
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	if onlyLoopback && !resolved.IP.IsLoopback() {
		return nil, fmt.Errorf("address %q can be reached from other machines; give one such as 127.0.0.1:%d",
			address, resolved.Port)
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("address %q is in use; stop the process that has it, give another one, or 0 to turn "+
			"the endpoint off: %w", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return listener, nil
}

// localOnly passes on requests whose Host header names this machine by localhost or a loopback address. A loopback
// address alone keeps other machines out, but not a web page in a browser on this machine: its author can let a name of
// their own resolve to 127.0.0.1 (DNS rebinding), and the page could read the responses. Its requests have that name.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host // Without a port.
		}
		if host != "localhost" && !net.ParseIP(host).IsLoopback() {
			respond(w, http.StatusForbidden, "use localhost or a loopback address in the URL\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// getCertificate returns the certificate for a TLS handshake. It may be called concurrently.
type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificateOf returns the certificate of two files, or other if no files are given.
func certificateOf(certFile, keyFile string, logger klog.Logger, other getCertificate) (getCertificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return other, nil
	case certFile == "" || keyFile == "":
		return nil, errors.New("the certificate and its key are two files; give both or none")
	}
	f := &certFiles{certFile: certFile, keyFile: keyFile, logger: logger}
	var err error
	f.current, err = f.load()
	return f.get, err
}

// selfSignedAge is how long a self-signed certificate is valid. It is longer than any process runs, because nothing
// replaces the certificate.
const selfSignedAge = 10 * 365 * 24 * time.Hour

// selfSigned returns a certificate that is made now and is only in memory. It encrypts the connection. It does not
// prove which server this is, so clients can only use it without verification.
func selfSigned() (getCertificate, error) {
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host: "localhost", AlternateIPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, MaxAge: selfSignedAge,
	})
	if err != nil {
		return nil, fmt.Errorf("make a self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("make a self-signed certificate: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}

// certFiles is a certificate and its key in two files, which may be replaced at any time.
//
// The files are read for each handshake. That costs a small part of the handshake, needs no goroutine and no watch of
// the file system, and a new certificate is served at once. If the files cannot be read, or the key does not belong to
// the certificate because only one of them is replaced yet, the previous pair is served.
type certFiles struct {
	certFile, keyFile string
	logger            klog.Logger

	mu      sync.Mutex
	current *tls.Certificate // The newest pair that was valid. mu guards it and failure.
	failure string           // Why the newest content is not served. "" if it is.
}

// get implements getCertificate.
func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pair, err := f.load()
	if err != nil {
		if f.failure != err.Error() { // The next handshake has the same error.
			f.logger.Error(err, "Cannot load the certificate, serving the previous one", "file", f.certFile)
		}
		f.failure = err.Error()
		return f.current, nil
	}
	if !bytes.Equal(pair.Certificate[0], f.current.Certificate[0]) {
		f.logger.Info("Loaded the new certificate", "file", f.certFile)
	}
	f.current, f.failure = pair, ""
	return pair, nil
}

// load returns the pair in the files.
func (f *certFiles) load() (*tls.Certificate, error) {
	certPEM, err := os.ReadFile(f.certFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("read key of certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.certFile, f.keyFile, err)
	}
	return &pair, nil
}

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
	certificate, err := certificateOf(config.CertFile, config.KeyFile, klog.FromContext(ctx), config.Certificate)
	if err != nil {
		return nil, err
	}
	if certificate == nil {
		return nil, errors.New("there is no certificate")
	}
	listener, err := listen(config.Address, false)
	if err != nil {
		return nil, err
	}
	server := newServer(ctx, "webhooks", listener, certificate, config.TLS, config.Handler)
	server.linger = 3 * time.Second
	return server, nil
}
