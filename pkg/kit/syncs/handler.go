package syncs

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// pageHTML is the whole page. It has one style and one script, and reads the JSON each second.
//
//go:embed page.html
var pageHTML string

// pagePolicy permits the page its own style, its own script and requests to its own address, and nothing else: the
// names and messages that it shows are texts of users.
var pagePolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; "+
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", hashOf("style"), hashOf("script"))

// hashOf returns the hash of an element of the page, as a Content-Security-Policy has it.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageHTML, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	hash := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(hash[:])
}

var outcomes = []string{"done", "retry", "wait", "terminal", running}

const (
	allSyncs    = maxRecent + maxObjects*maxPerObject
	listedSyncs = 50 // In the text, unless limit= is given.
)

// ServeHTTP serves the page to a browser, and text to others. With ?format=json, text or html it serves that. The
// parameters namespace, name (a part of it), outcome, after (a Number) and limit choose syncs.
func (l *Log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	format := query.Get("format")
	if format == "" {
		format = "text"
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			format = "html"
		}
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	f, err := filterOf(query, format)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch format {
	case "html":
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", pagePolicy)
		_, _ = w.Write([]byte(pageHTML)) // A client that is gone needs no response, here and below.
	case "json":
		header.Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(l.state(f))
	case "text":
		header.Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(l.state(f).String()))
	}
}

// filterOf returns what a request asks for. A parameter that does not exist is an error, so that a mistake does not
// show all syncs.
func filterOf(query url.Values, format string) (f filter, err error) {
	f.limit = allSyncs
	if format == "text" {
		f.limit = listedSyncs
	}
	for name, values := range query {
		value := values[0]
		switch name {
		case "format":
			if value != "json" && value != "text" && value != "html" {
				err = fmt.Errorf("format=%q: it is json, text or html", value)
			}
		case "namespace":
			f.namespace = value
		case "name":
			f.name = value
		case "outcome":
			f.outcome = value
			if !slices.Contains(outcomes, value) {
				err = fmt.Errorf("outcome=%q: it is one of %q", value, outcomes)
			}
		case "after":
			f.after, err = strconv.ParseInt(value, 10, 64)
		case "limit":
			var limit uint64
			limit, err = strconv.ParseUint(value, 10, 31)
			f.limit = int(limit)
		default:
			err = fmt.Errorf("there is no parameter %q: use format, namespace, name, outcome, after or limit", name)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// String returns the state as text for a terminal.
func (s State) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(Printable(fmt.Sprintf(format, args...)) + "\n") }
	line("%s: syncs since %s, the newest first; it is %s", s.Kind, clock(s.Started), clock(s.Now))
	line("queue: %d tokens left for retries", s.Queue.Tokens)
	for _, n := range s.Queue.Namespaces {
		line("  namespace %s: %d waiting, %d in work, %d backing off", n.Namespace, n.Waiting, n.InWork, n.BackingOff)
	}
	if s.Queue.NamespacesLeftOut > 0 {
		line("  and %d other namespaces", s.Queue.NamespacesLeftOut)
	}
	explained := map[string]bool{} // Only the newest sync of an object is printed with its rules: they are long.
	for i := range s.Syncs {
		r := &s.Syncs[i]
		key := r.Namespace + "/" + r.Name
		r.print(line, !explained[key])
		explained[key] = true
	}
	if len(s.Syncs) == 0 {
		line("")
		line("No sync was found. %d older ones were dropped.", s.Dropped)
	}
	return b.String()
}

// print prints the Record as a conversation, with the answers of the rules if they are wanted.
func (r *Record) print(line func(string, ...any), withRules bool) {
	line("")
	line("%s  %s/%s", clock(r.Began), r.Namespace, r.Name)
	waited := ""
	if !r.Queued.IsZero() {
		waited = fmt.Sprintf("; waited %s", seconds(r.WaitedSeconds))
	}
	line("  queued    %s%s", r.Why, waited)
	if r.Observed != "" {
		line("  observed  %s", r.Observed)
	}
	for i := range r.Requests {
		r.Requests[i].print(line)
	}
	if r.RequestsLeftOut > 0 {
		line("            and %d more requests", r.RequestsLeftOut)
	}
	for _, rule := range r.Rules {
		if withRules {
			line("  rule      %s: %s", rule.Rule, rule.Answer)
		}
	}
	if r.StatusBefore != "" {
		line("  status    %s", r.StatusBefore)
	}
	if r.StatusAfter != r.StatusBefore {
		line("         -> %s", r.StatusAfter)
	}
	r.printOutcome(line)
}

func (r *Record) printOutcome(line func(string, ...any)) {
	if r.Ended.IsZero() {
		line("  outcome   none: the sync is running")
		return
	}
	outcome := fmt.Sprintf("%s, the sync took %s", r.Outcome, r.Ended.Sub(r.Began).Round(time.Microsecond))
	if r.For != "" {
		outcome += ", waits for " + r.For
	}
	if !r.Until.IsZero() {
		outcome += ", comes back at " + clock(r.Until)
	}
	line("  outcome   %s", outcome)
	if r.Error != "" {
		line("  error     %s", r.Error)
	}
}

func (r *Request) print(line func(string, ...any)) {
	reason := strings.Trim(r.Rule+": "+r.Why, ": ")
	if reason != "" {
		reason = " (" + reason + ")"
	}
	line("  request   %s %s%s", r.Request, r.Name, reason)
	for _, f := range r.Fields {
		values := ""
		if f.Have != "" || f.Want != "" {
			values = fmt.Sprintf(" %s -> %s", f.Have, f.Want)
		}
		line("            %s%s", f.Path, values)
	}
	took := ""
	if r.TookSeconds > 0 {
		took = fmt.Sprintf(", after %s", seconds(r.TookSeconds))
	}
	line("            %s%s", r.Answer, took)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

func clock(t time.Time) string { return t.Format("15:04:05.000Z") }

// Printable returns text without characters that a terminal would interpret. They are escaped as in JSON.
func Printable(text string) string {
	var b strings.Builder
	for _, char := range text {
		if strconv.IsPrint(char) {
			b.WriteRune(char)
			continue
		}
		for _, unit := range utf16.Encode([]rune{char}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
