package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusalsOfASecondKind: each is one line, and nothing has changed then. The kit of this repository is not there, so
// what is not refused fails at the end, when it looks for it.
func TestRefusalsOfASecondKind(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":                         "module example.net/x\n\ngo 1.26.0\n",
		"main.go":                        "package main\n\nvar program = kit.Program{Kind: \"Site\", Kinds: \"Sites\"}\n\nvar events = 1\n",
		"pkg/apis/acme/v1/doc.go":        "// +groupName=acme.example.com\n// +groupGoName=Acme\npackage v1\n",
		"pkg/apis/acme/v1/site_types.go": "package v1\n\ntype Site struct{}\n",
		"docs/page.md":                   "",
		"artifacts/deploy/rbac.yaml":     "subjects:\n- kind: ServiceAccount\n  name: site\n",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commitAll(t, dir)
	for _, test := range []struct{ arguments, want string }{
		{"", "KIND is missing: make kind KIND=Gadget"},
		{"KIND=Gadget GROUP=a.b", "GROUP=a.b: there is no such argument"},
		{"KIND=gadget", "a kind is one word"},
		{"KIND=Site", "pkg/apis/acme/v1/site_types.go has it"},
		{"KIND=Docs", "there is a directory docs"},
		{"KIND=Vendor", "Go or git does not take vendor for an ordinary directory"},
		{"KIND=Place PLURAL=sites", "PLURAL=sites: Site has this plural; choose another, such as places"},
		{"KIND=Event", "KIND=Event: main.go has the name events for something else"},
		{"KIND=Gadget SCOPE=all", "SCOPE=all: it is Namespaced or Cluster"},
		{"KIND=Gadget", "module example.com/foo-controller: not a known dependency"},
	} {
		have := refusal(t, dir, append([]string{"kind"}, strings.Fields(test.arguments)...)...)
		if !strings.HasPrefix(have, "make kind: ") || !strings.Contains(have, test.want) {
			t.Errorf("%s: it prints %q, want a line with %q", test.arguments, have, test.want)
		}
		if status := git(t, dir, "status", "--porcelain"); status != "" {
			t.Errorf("%s: it has changed %s", test.arguments, status)
		}
	}
	git(t, dir, "config", "status.showUntrackedFiles", "no") // Files that git does not show are the user's, too.
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if have := refusal(t, dir, "kind", "KIND=Gadget"); !strings.Contains(have, "this checkout has changes") {
		t.Errorf("with changes it prints %q", have)
	}
	if have := refusal(t, t.TempDir(), "kind", "KIND=Gadget"); !strings.Contains(have, "needs a checkout of git") {
		t.Errorf("elsewhere it prints %q", have)
	}
}
