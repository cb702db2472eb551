package terminal

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPictureHasItsLines(t *testing.T) {
	lines := []string{`$ k patch foo/web -p '{"a":"<b>"}'`, "", "==> Stopping & starting", "NAME   READY"}
	picture := Picture("one & two", "a comment", lines)
	if diff := cmp.Diff(lines, Lines(picture)); diff != "" {
		t.Errorf("lines (-want +have):\n%s", diff)
	}
	for _, want := range []string{`class="command"`, `class="step"`, "one &amp; two", "<!-- a comment -->"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		switch _, err := decoder.Token(); err {
		case nil:
		case io.EOF:
			return
		default:
			t.Fatal(err)
		}
	}
}
