package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"

	"golang.org/x/net/netutil"
	"k8s.io/klog/v2"
)

// Server is one endpoint. NewHealth, NewMetrics and NewDebug create it, and it listens from then on. Run serves. Only
// the end of Run closes the listener.
type Server struct {
	name     string
	logger   klog.Logger
	listener net.Listener // Nil if the endpoint is off.
	http     *http.Server
	limits   limits
}

// newServer returns a Server that serves handler on listener, with TLS if certificate is not nil.
func newServer(
	ctx context.Context, name string, listener net.Listener, certificate getCertificate, handler http.Handler,
	limits limits,
) *Server {
	logger := klog.FromContext(ctx).WithValues("endpoint", name)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 stays off: one connection could then have any number of requests in work.
	server := &http.Server{
		Handler:           recovering(handler, logger),
		Protocols:         protocols,
		ReadHeaderTimeout: limits.header,
		ReadTimeout:       limits.read,
		WriteTimeout:      limits.write,
		IdleTimeout:       limits.idle,
		MaxHeaderBytes:    limits.headerBytes,
		ErrorLog:          log.New(errorLog{logger}, "", 0),
	}
	if certificate != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	}
	server.SetKeepAlivesEnabled(limits.keepAlive)
	return &Server{name: name, logger: logger, listener: listener, http: server, limits: limits}
}

// Address returns the address that the Server listens on, with the port that the system chose if the configured one is
// 0. It returns "" if the endpoint is off.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends. Then it accepts no more connections, lets requests in work finish for some seconds, closes
// all connections, and returns nil. It returns an error if serving ends before ctx. If the endpoint is off, it returns
// nil at once. Call it once.
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
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.drain)
	defer cancel()
	if err := s.http.Shutdown(drain); err != nil {
		s.logger.V(2).Info("Cut off the requests that are still in work", "err", err)
		_ = s.http.Close() // The process ends: there is nothing to do about a connection that cannot be closed.
	}
	<-ended
	return nil
}

func (s *Server) serve() error {
	fair := &fairListener{Listener: s.listener, max: s.limits.perAddress, open: map[netip.Addr]int{}}
	limited := netutil.LimitListener(fair, s.limits.connections)
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(limited, "", "")
	}
	return s.http.Serve(limited)
}

// recovering returns a handler that answers 500 when handler panics. net/http would close the connection and write the
// stack to its own log, which is not shown by default, see errorLog.
func recovering(handler http.Handler, logger klog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // A handler's way to close the connection.
			}
			logger.Error(fmt.Errorf("%v", cause), "Request panicked", "path", r.URL.Path, "stack", string(debug.Stack()))
			respond(w, http.StatusInternalServerError, "the handler failed; the log has the reason\n")
		}()
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
