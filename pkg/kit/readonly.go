package kit

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// readTimeout is how long a read of a ReadOnly connection may take.
const readTimeout = time.Minute

// ReadOnly returns a connection that sends nothing but GET requests: any other request is an error. It is for a program
// that answers a question and exits, without a Process. An error is one line, for the user.
func (o *Options) ReadOnly() (Connection, error) {
	config, err := o.restConfig()
	if err != nil {
		return Connection{}, err
	}
	config.Timeout = readTimeout
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &readOnly{next: next} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Connection{}, fmt.Errorf("make connection: %w", err)
	}
	return Connection{Config: config, HTTP: client}, nil
}

// readOnly is a transport that refuses every request but a GET.
type readOnly struct{ next http.RoundTripper }

// WrappedRoundTripper makes next known to client-go, which closes its idle connections.
func (t *readOnly) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, fmt.Errorf("%s %s was not sent: this connection only reads", req.Method, req.URL.Path)
}
