package serving

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"
	"time"
)

// DebugConfig is what NewDebug needs.
type DebugConfig struct {
	// Address is HOST:PORT, where HOST is a loopback address. "0" turns the endpoint off, which is the default that a
	// program should have.
	Address string
	// Version is the version of the program.
	Version string
	// Started is when the process started.
	Started time.Time
	// Flags are the values in effect, by the name of the flag without dashes. They must not have credentials.
	Flags map[string]string
	// Syncs serves /debug/syncs and what is below. Nil leaves it out.
	Syncs http.Handler
	// SetLevel sets the level of the log. Nil leaves /debug/flags/v out.
	SetLevel func(level string) error
}

// debugInfo is the response of /debug/config.
type debugInfo struct {
	Version string            `json:"version"`
	Started time.Time         `json:"started"`
	Uptime  string            `json:"uptime"` // In whole seconds, such as 1h2m3s.
	Flags   map[string]string `json:"flags"`
}

// NewDebug returns a Server for /debug/config, which has the version, the uptime and the flags as JSON, for
// /debug/syncs, for a PUT of the level of the log to /debug/flags/v, as the components of Kubernetes have it, and for
// the profiles of net/http/pprof under /debug/pprof/. A profile costs CPU time, and a dump of the memory has all that
// the process knows. So there is no configuration that serves them to another machine: use kubectl port-forward. The
// Server listens when NewDebug returns. An error means that the address is invalid, in use, or not a loopback address.
// The Server logs to the logger of ctx.
func NewDebug(ctx context.Context, config DebugConfig) (*Server, error) {
	if config.Address == off {
		return &Server{}, nil
	}
	listener, err := listen(config.Address, true)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/config", config.serve)
	if config.SetLevel != nil {
		mux.HandleFunc("PUT /debug/flags/v", config.setLevel)
	}
	if config.Syncs != nil {
		mux.Handle("GET /debug/syncs", config.Syncs)
		mux.Handle("GET /debug/syncs/", config.Syncs)
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index) // Also the profiles that have no handler of their own, such as heap.
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return newServer(ctx, "debug", listener, nil, TLS{}, localOnly(mux)), nil
}

// serve answers /debug/config.
func (c DebugConfig) serve(w http.ResponseWriter, _ *http.Request) {
	text, err := json.MarshalIndent(debugInfo{
		Version: c.Version,
		Started: c.Started.UTC().Truncate(time.Second),
		Uptime:  time.Since(c.Started).Truncate(time.Second).String(),
		Flags:   c.Flags,
	}, "", "  ")
	if err != nil {
		respond(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // A client that is gone needs no response.
}

// setLevel answers a PUT of /debug/flags/v. The handler of k8s.io/apiserver does the same, and would bring that module
// back.
func (c DebugConfig) setLevel(w http.ResponseWriter, r *http.Request) {
	const maxLength = 10
	level, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLength))
	if err == nil {
		err = c.SetLevel(string(level))
	}
	if err != nil {
		respond(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	respond(w, http.StatusOK, "the level of the log is "+string(level)+"\n")
}
