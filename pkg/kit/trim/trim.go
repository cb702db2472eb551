// Package trim drops what users write into objects and a controller does not read: on its way from the API server, and
// before it is cached. It sends nothing.
//
// [Identity] and [Child] are for transforms of informers: they return the metadata that is worth keeping. Then what
// nobody reads costs no memory, and what is read has a limit. [Conditions] and [Shared] are for what is kept: texts
// that many objects have are in memory once.
//
// [Responses] removes metadata.managedFields from the responses of an API server while they are read. Then one object
// with deep managed fields cannot stop a controller for all others. Use it with rest.Config.Wrap for every client that
// reads, as JSON, objects that users write. A transform would be too late. The following sections are about Responses.
//
// # The problem
//
// Go's JSON decoders refuse a document with more than 10,000 levels. The API server uses them too, so an object alone
// is within that limit. But an object in a watch event has one level more, and in a list two more. A user can create an
// object that can be stored and that no client can read in a list. The decoder fails before it reaches the object, so
// the whole list and the whole watch are lost, for all namespaces, also after a restart.
//
// The managed fields are the only such place in a custom resource with a structural schema: fieldsV1 takes any object
// from a user. All else is either of a type that is not deep, or removed by the API server. A controller that
// writes only what it owns does not need the managed fields.
//
// # The result
//
// Each array that is the value of a key "managedFields", at any depth, becomes null. Nothing else changes. The value of
// a label or an annotation of that name is a string, and stays. A key that is written with escapes, such as
// "\u006danagedFields", stays with its value: the API server writes only quotes, backslashes, <, >, & and control
// characters in that way, also if a client has sent other escapes.
//
// Only responses of the type application/json are read. Others, for instance in protobuf, pass untouched. The package
// does not check that a document is valid: what is not JSON stays an error of the decoder that reads it.
//
// # Writes
//
// An object that was read through Responses has no managed fields, and may be written in this state. A PUT or PATCH
// without managed fields, or with null, does not change those that are stored. The API server keeps them and records
// the manager of this write (decodeLiveOrNew in k8s.io/apimachinery/pkg/util/managedfields/internal/fieldmanager.go).
// For subresources such as status, it even ignores the managed fields of the request. An empty list is something else:
// it resets them (isResetManagedFields there). Typed clients do not send an empty list, but unstructured ones do. This
// is why the array becomes null and not [].
//
// What else a cache leaves out, such as labels, is a removal to API servers before 1.36, also in a PUT of a status:
// they keep it, and drop it from the managed fields. So write a status by a patch.
//
// # Cost
//
// A response needs two buffers of 4 KiB, however long it is, and passes on what has arrived without waiting for more.
package trim

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxText is how many bytes are kept of each text in an owner reference, and how many a shared text has at most. Names
// and uids are shorter.
const maxText = 256

// Identity returns what every object has: names, versions and times. It leaves out what users write: labels,
// annotations, finalizers, and owners.
func Identity(obj metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: Shared(obj.GetNamespace()),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		Generation: obj.GetGeneration(), CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
}

// Child is Identity with the controller of obj, if it has one. A text of the reference that is too long is cut: it is
// then no name or uid that exists.
func Child(obj metav1.Object) metav1.ObjectMeta {
	meta := Identity(obj)
	if ref := metav1.GetControllerOf(obj); ref != nil {
		for _, text := range []*string{&ref.APIVersion, &ref.Kind, &ref.Name, (*string)(&ref.UID)} {
			if len(*text) > maxText {
				*text = strings.ToValidUTF8(strings.Clone((*text)[:maxText-len(dots)]), "") + dots
			}
		}
		ref.APIVersion, ref.Kind = Shared(ref.APIVersion), Shared(ref.Kind)
		meta.OwnerReferences = []metav1.OwnerReference{*ref}
	}
	return meta
}

const dots = "..."

// Conditions returns a copy that needs less memory. A decoder leaves room for more conditions, and most conditions have
// the same few types and reasons.
func Conditions(conditions []metav1.Condition) []metav1.Condition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		c := &conditions[i]
		c.Type, c.Status, c.Reason = Shared(c.Type), Shared(c.Status), Shared(c.Reason)
	}
	return conditions
}

// Shared returns text, in memory that all equal texts share. It is for short texts that many objects have. It remembers
// 4,096 of them, and begins again when there are more: then equal texts may be in memory twice. It may be called
// concurrently.
func Shared[T ~string](text T) T {
	if len(text) > maxText {
		return text
	}
	texts.Lock()
	defer texts.Unlock()
	known, found := texts.known[string(text)]
	if !found {
		if len(texts.known) >= maxTexts {
			clear(texts.known)
		}
		known = strings.Clone(string(text))
		texts.known[known] = known
	}
	return T(known)
}

// maxTexts is how many texts are remembered: a megabyte at most.
const maxTexts = 4096

var texts = struct {
	sync.Mutex
	known map[string]string
}{known: map[string]string{}}

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
	from           io.ReadCloser
	read, filtered []byte // The memory of what is read, and of that without managed fields.
	out            []byte // The part of filtered that is not yet passed on.
	err            error  // The error of from. It is returned after everything that came before it.
	scanner        scanner
}

func newBody(from io.ReadCloser) *body {
	return &body{from: from, read: make([]byte, bufferSize), filtered: make([]byte, 0, bufferSize+len(replacement))}
}

// Read returns what has arrived. It waits for more only if nothing of that is passed on.
func (b *body) Read(p []byte) (int, error) {
	for len(b.out) == 0 && b.err == nil {
		var n int
		n, b.err = b.from.Read(b.read)
		b.out = b.scanner.filter(b.filtered, b.read[:n])
	}
	if len(b.out) == 0 {
		return 0, b.err
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}

func (b *body) Close() error { return b.from.Close() }

const (
	key         = "managedFields"
	replacement = "null"
)

// A scanner copies a stream of JSON documents, and replaces each array that is the value of key. The stream may come in
// pieces of any size.
//
// A string is key only if all its bytes are equal and the quote at its end comes next. It is a key, and not a value, if
// a colon follows. An array ends with the bracket that closes it. Brackets in strings do not count, so the scanner
// has to know where a string begins and ends, and for that, which quotes are escaped.
type scanner struct {
	state   state
	matched int // The number of bytes of a string that are equal to those of key, or differs.
	depth   int // The number of open brackets of the array that is removed, 0 outside such an array.
}

type state uint8

const (
	outside    state = iota // Not in a string, and in none of the following states.
	inString                // After the quote at the beginning of a string.
	escaped                 // After a backslash in a string.
	afterKey                // After a string that is equal to key.
	afterColon              // After the colon that follows key.
)

// differs is the value of scanner.matched for a string that is not key.
const differs = -1

// filter appends the next part of the stream to dst, without what is removed.
func (s *scanner) filter(dst, src []byte) []byte {
	for _, b := range src {
		wasRemoving := s.depth > 0
		switch s.state {
		case inString:
			s.scanString(b)
		case escaped:
			s.state = inString
		default:
			s.scanOutside(b)
		}
		switch removes := s.depth > 0; {
		case wasRemoving: // The bracket at the end of the array, too.
		case removes:
			dst = append(dst, replacement...)
		default:
			dst = append(dst, b)
		}
	}
	return dst
}

func (s *scanner) scanString(b byte) {
	switch {
	case b == '\\':
		s.state, s.matched = escaped, differs
	case b == '"' && s.matched == len(key):
		s.state = afterKey
	case b == '"':
		s.state = outside
	case s.matched >= 0 && s.matched < len(key) && b == key[s.matched]:
		s.matched++
	default:
		s.matched = differs
	}
}

func (s *scanner) scanOutside(b byte) {
	before := s.state
	switch b {
	case ' ', '\t', '\r', '\n':
		return
	case '"':
		s.state, s.matched = inString, 0
		return
	}
	s.state = outside
	switch {
	case b == ':' && before == afterKey:
		s.state = afterColon
	case b == '[' && before == afterColon && s.depth == 0:
		s.depth = 1
	case s.depth > 0 && (b == '[' || b == '{'):
		s.depth++
	case s.depth > 0 && (b == ']' || b == '}'):
		s.depth--
	}
}
