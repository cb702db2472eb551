package serving

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"k8s.io/klog/v2"
)

// maxReason is the length in bytes after which the reason of a failed check is cut.
const maxReason = 4096

// page serves a list of checks in the format of the API server: "ok" if all pass, otherwise 500 and one line for each
// check. With ?verbose there are always the lines. With ?exclude=NAME the check NAME is not made.
//
// There is one difference: the API server withholds the reason of a failure, and shows it only to users with a
// permission. Here it is shown. There are no users on this port, and Check.Do defines what a reason may contain.
type page struct {
	name   string // "healthz" or "readyz".
	checks []Check
	failed klog.Logger // For a check that fails for the first time, or again after it has passed.

	mu      sync.Mutex
	failing map[string]bool // By the name of the check: it failed when it was last made. Guarded by mu.
}

func newPage(name string, checks []Check, failed klog.Logger) *page {
	return &page{name: name, checks: checks, failed: failed, failing: map[string]bool{}}
}

// install adds the paths of the page to mux.
func (p *page) install(mux *http.ServeMux) {
	mux.HandleFunc("GET /"+p.name, p.serveAll)
	for _, check := range p.checks {
		mux.HandleFunc("GET /"+p.name+"/"+check.Name, func(w http.ResponseWriter, _ *http.Request) { p.serveOne(w, check) })
	}
}

// serveAll makes all checks. All of them are made even if one fails, since the reader wants to know all problems.
func (p *page) serveAll(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var lines strings.Builder
	passed := true
	for _, check := range p.checks {
		if slices.Contains(query["exclude"], check.Name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if reason := p.do(check); reason != "" {
			passed = false
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", check.Name, reason)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", check.Name)
	}
	switch {
	case !passed:
		respond(w, http.StatusInternalServerError, lines.String()+p.name+" check failed\n")
	case query.Has("verbose"):
		respond(w, http.StatusOK, lines.String()+p.name+" check passed\n")
	default:
		respond(w, http.StatusOK, "ok")
	}
}

func (p *page) serveOne(w http.ResponseWriter, check Check) {
	if reason := p.do(check); reason != "" {
		respond(w, http.StatusInternalServerError, reason+"\n")
		return
	}
	respond(w, http.StatusOK, "ok")
}

// do makes a check and returns the reason of its failure, "" if it passes. A check that begins to fail is logged, and
// so is the end of it: the response may be the last one before the process is killed, and nobody keeps it.
func (p *page) do(check Check) (reason string) {
	err := check.Do()
	p.mu.Lock()
	changed := p.failing[check.Name] != (err != nil)
	p.failing[check.Name] = err != nil
	p.mu.Unlock()

	logger := p.failed.WithValues("page", "/"+p.name, "check", check.Name)
	if err == nil {
		if changed {
			logger.Info("Check passes again")
		}
		return ""
	}
	reason = oneLine(err.Error())
	if changed {
		logger.Info("Check failed", "reason", reason)
	}
	return reason
}

// oneLine returns text on one line, so that a reason cannot imitate the line of another check, and not too much of it.
// It is never empty.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "no reason is known"
	}
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// respond sends plain text that no cache may keep and no browser may interpret.
func respond(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // A client that is gone needs no response.
}
