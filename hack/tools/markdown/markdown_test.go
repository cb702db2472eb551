package markdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocksHaveTheirMarkerAndOutput(t *testing.T) {
	const text = "# Title\n" +
		"<!-- run: TestReadme -->\n```sh\nk get foos\n\nk get pods\n```\n\n```text\nNAME\n```\n" +
		"Words.\n\n```text\nno output, because words are before it\n```\n" +
		"<!-- not run: needs a registry -->\n\n```bash\na marker counts only on the line before\n```\n" +
		"1. A list:\n   <!-- not run: needs a registry -->\n   ```sh\n   push \\\n     image\n   ```\n" +
		"```\nno language\n```\n"
	type block struct {
		Line                          int
		Language, Text, RunBy, NotRun string
		Output                        string
		Command                       bool
	}
	want := []block{
		{Line: 3, Language: "sh", Text: "k get foos\n\nk get pods\n", RunBy: "TestReadme", Output: "NAME\n", Command: true},
		{Line: 9, Language: "text", Text: "NAME\n"},
		{Line: 14, Language: "text", Text: "no output, because words are before it\n"},
		{Line: 19, Language: "bash", Text: "a marker counts only on the line before\n", Command: true},
		{Line: 24, Language: "sh", Text: "push \\\n  image\n", NotRun: "needs a registry", Command: true},
		{Line: 28, Text: "no language\n", Command: true},
	}
	var have []block
	for _, b := range Parse(text).Blocks {
		found := block{Line: b.Line, Language: b.Language, Text: b.Text, RunBy: b.RunBy(), NotRun: b.NotRun(),
			Command: b.IsCommand()}
		if b.Output != nil {
			found.Output = b.Output.Text
		}
		have = append(have, found)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("blocks (-want +have):\n%s", diff)
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	const text = "# The `Foo` API, version 2\n## A [link](x.md) & more\n## Twice\n## Twice\n" +
		"```text\n# no heading\n```\n<a id=\"by-hand\"></a>\n"
	want := []string{"the-foo-api-version-2", "a-link--more", "twice", "twice-1", "by-hand"}
	if diff := cmp.Diff(want, Parse(text).Anchors); diff != "" {
		t.Errorf("anchors (-want +have):\n%s", diff)
	}
}

func TestLinksAndCodeAreFound(t *testing.T) {
	const text = "See [`main.go`](main.go), [a title](b.md \"title\"), ![a picture](c.svg) and\n" +
		"<img src=\"d.svg\">. `[no link](e.md)` is code.\n```text\n[no link](f.md)\n```\n"
	doc := Parse(text)
	wantLinks := []Link{{1, "main.go"}, {1, "b.md"}, {1, "c.svg"}, {2, "d.svg"}}
	if diff := cmp.Diff(wantLinks, doc.Links); diff != "" {
		t.Errorf("links (-want +have):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"main.go", "[no link](e.md)"}, doc.Code); diff != "" {
		t.Errorf("code (-want +have):\n%s", diff)
	}
}
