package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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
		Handler:   s.lastAnswers(logPanics(handler, logger)),
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

// lastAnswers returns a handler that closes each connection with its answer once the Server is closing.
func (s *Server) lastAnswers(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	go func() { ended <- s.serve() }()
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

func (s *Server) serve() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// logPanics returns a handler that logs a panic of handler. net/http closes the connection then, and writes the stack
// only to its own log, which is not shown by default, see errorLog.
func logPanics(handler http.Handler, logger klog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer utilruntime.HandleCrashWithLogger(logger.WithValues("path", r.URL.Path))
		handler.ServeHTTP(w, r)
	})
}

// errorLog is the log of net/http. Everybody who reaches the port can cause its lines, for instance with a handshake
// that is not TLS, so they are not in the log by default.
type errorLog struct{ logger klog.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.logger.V(4).Info("HTTP server reported", "line", strings.TrimSpace(string(line)))
	return len(line), nil
}
