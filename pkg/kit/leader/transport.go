package leader

import (
	"context"
	"io"
	"net/http"
)

// gated is a connection whose writes pass a gate.
type gated struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *gated) RoundTrip(r *http.Request) (*http.Response, error) {
	if isRead(r.Method) {
		return t.next.RoundTrip(r)
	}
	w, err := t.gate.enter(r.Context())
	if err != nil {
		closeBody(r)
		return nil, err
	}
	response, err := t.next.RoundTrip(r.WithContext(w.ctx))
	t.gate.leave(w)
	if err != nil {
		err = orCause(w.ctx, err)
		w.cancel(nil)
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, cancel: w.cancel}
	return response, nil
}

// WrappedRoundTripper lets client-go find the connection, to close what is idle. Without it, client-go also logs a
// warning for every request that times out.
func (t *gated) WrappedRoundTripper() http.RoundTripper { return t.next }

// isRead reports whether requests with this method change nothing. Everything else is a write, also a method that the
// API server may get one day.
func isRead(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "": // Empty is GET.
		return true
	}
	return false
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // Nothing was sent, so nothing can be lost.
	}
}

// orCause returns why ctx ended instead of the error that this has caused.
func orCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// body frees the context of a request when its response has been read. Earlier would cut the response.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
