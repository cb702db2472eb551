package apiserver

import (
	"errors"
	"io"
	"maps"
	"net/http"
)

// ServeHTTP answers a request as RoundTrip does, so that kubectl and any other client can use the server: it is an
// http.Handler. The user is the first word of the User-Agent header. A request for which RoundTrip returns an error
// gets no response: its connection is closed.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response, err := s.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	control := http.NewResponseController(w)
	_ = control.Flush() // The client of a watch waits for the header. Write returns the error.
	if _, err := io.Copy(flushing{w, control}, response.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// A flushing writer sends each event of a watch at once.
type flushing struct {
	io.Writer
	control *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		return n, err
	}
	if err := f.control.Flush(); !errors.Is(err, errors.ErrUnsupported) { // As with a writer that buffers everything.
		return n, err
	}
	return n, nil
}
