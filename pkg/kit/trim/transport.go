package trim

import (
	"io"
	"net/http"
	"strings"
)

// bufferSize is how much of a response is read at once.
const bufferSize = 4 << 10

// Responses returns a transport that sends requests with next and removes the managed fields from responses in JSON. It
// is for rest.Config.Wrap.
func Responses(next http.RoundTripper) http.RoundTripper { return &transport{next: next} }

type transport struct{ next http.RoundTripper }

// WrappedRoundTripper makes next known to client-go, which closes its idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.Body == nil || !isJSON(resp.Header) {
		return resp, err
	}
	resp.Body = newBody(resp.Body)
	resp.ContentLength = -1 // Unknown until the end.
	resp.Header.Del("Content-Length")
	return resp, nil
}

// isJSON reports whether a response with this header can be read as JSON. A response that next has not decompressed
// cannot. client-go never asks for one.
func isJSON(header http.Header) bool {
	mediaType, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "application/json") && header.Get("Content-Encoding") == ""
}

// body is the body of a response, without managed fields.
type body struct {
	from    io.ReadCloser
	buffer  []byte
	in      []byte // The part of buffer that is read and not yet passed on.
	err     error  // The error of from. It is returned after everything that came before it.
	scanner scanner
}

func newBody(from io.ReadCloser) *body { return &body{from: from, buffer: make([]byte, bufferSize)} }

// Read returns what has arrived. It waits for more only if nothing of that is passed on.
func (b *body) Read(p []byte) (int, error) {
	for len(p) > 0 {
		written, read := b.scanner.scan(p, b.in)
		b.in = b.in[read:]
		if written > 0 {
			return written, nil
		}
		if b.err != nil {
			return 0, b.err
		}
		var n int
		n, b.err = b.from.Read(b.buffer)
		b.in = b.buffer[:n]
	}
	return 0, nil
}

func (b *body) Close() error { return b.from.Close() }
