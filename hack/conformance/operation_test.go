package conformance

import (
	"fmt"
	"strings"
)

// An operation is one request, in terms that are valid for any server.
type operation struct {
	verb   string // The name under which it is counted.
	method string
	kind   *kind
	name   string // Empty for all objects of the kind.
	sub    string // The subresource.
	// nowhere sends the request to a namespace that does not exist.
	nowhere bool
	// misplaced leaves the namespace out of the path, or adds one if the kind has none.
	misplaced   bool
	accept      string // The media types that the client accepts, if not those that it always does.
	query       []parameter
	contentType string
	body        any // A tree with symbols, or a string that is sent unchanged.
}

// A parameter is a parameter of the query. Its value is a string or a symbol.
type parameter struct {
	key   string
	value any
}

func (o operation) watches() bool { return o.verb == "watch" }

func (o operation) parameter(key string) string {
	for _, p := range o.query {
		if p.key == key {
			return fmt.Sprint(p.value)
		}
	}
	return ""
}

// String describes the operation in one line.
func (o operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.method, o.kind)
	if o.nowhere {
		b.WriteString(" in no namespace")
	}
	if o.misplaced {
		b.WriteString(" misplaced")
	}
	if o.name != "" {
		b.WriteString("/" + o.name)
	}
	if o.sub != "" {
		b.WriteString("/" + o.sub)
	}
	separator := "?"
	for _, p := range o.query {
		fmt.Fprintf(&b, "%s%s=%v", separator, p.key, p.value)
		separator = "&"
	}
	if o.contentType != "" && o.contentType != "application/json" {
		b.WriteString(" " + strings.TrimPrefix(o.contentType, "application/"))
	}
	if o.accept != "" {
		b.WriteString(" accept " + o.accept)
	}
	if o.body != nil {
		b.WriteString(" " + describe(o.body))
	}
	return b.String()
}

// GoString is used when rapid prints a sequence that failed.
func (o operation) GoString() string { return o.String() }
