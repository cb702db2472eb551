package trim

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
	matched int    // The number of bytes of a string that are equal to those of key, or differs.
	depth   int    // The number of open brackets of the array that is removed, 0 outside such an array.
	pending string // The rest of a replacement that is not yet written.
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

// scan copies from src to dst, until either is used up. It returns the numbers of bytes.
func (s *scanner) scan(dst, src []byte) (written, read int) {
	for written < len(dst) {
		if len(s.pending) > 0 {
			n := copy(dst[written:], s.pending)
			written, s.pending = written+n, s.pending[n:]
			continue
		}
		if read == len(src) {
			break
		}
		b := src[read]
		read++
		if s.passes(b) {
			dst[written] = b
			written++
		}
	}
	return written, read
}

// passes reports whether the next byte is copied.
func (s *scanner) passes(b byte) bool {
	removing := s.depth > 0
	switch s.state {
	case inString:
		s.scanString(b)
	case escaped:
		s.state = inString
	default:
		s.scanOutside(b)
	}
	return !removing && s.depth == 0
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
		s.depth, s.pending = 1, replacement
	case s.depth > 0:
		s.depth += nesting(b)
	}
}

// nesting returns by how much a byte outside a string changes the depth.
func nesting(b byte) int {
	switch b {
	case '[', '{':
		return 1
	case ']', '}':
		return -1
	}
	return 0
}
