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
