package conformance

import (
	"fmt"
	"strings"
)

// An operation is one request, in terms that mean the same to any server.
type operation struct {
	verb   string // How it is counted.
	method string
	kind   *kind
	name   string // Empty for all objects of the kind.
	sub    string // The subresource.
	// nowhere sends it to a namespace that does not exist.
	nowhere     bool
	query       []parameter
	contentType string
	body        any // A tree with symbols, or a string that is sent as it is.
}

// A parameter is one of the query: its value is a string or a symbol.
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

// String tells the operation in a line.
func (o operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.method, o.kind)
	if o.nowhere {
		b.WriteString(" in no namespace")
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
	if o.body != nil {
		b.WriteString(" " + describe(o.body))
	}
	return b.String()
}

// GoString is how a sequence that failed is printed.
func (o operation) GoString() string { return o.String() }
