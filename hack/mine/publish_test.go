package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPublish writes a copy of the small checkout. The path of its module is another one everywhere, and in a file of Go
// the imports are in their order.
func TestPublish(t *testing.T) {
	const imports = "package a\n\nimport (\n\t_ \"%s/pkg/kit\"\n\t_ \"fmt\"\n)\n"
	root := checkout(t, map[string]string{
		"a/a.go":                strings.ReplaceAll(imports, "%s", thisModule),
		"hack/cluster/x/go.mod": "module " + thisModule + "/hack/cluster/x\n\nreplace " + thisModule + " => ../../..\n",
		"README.md":             "`go get " + thisModule + "@v1`, see acme." + thisModule + " and " + thisModule + "s\n",
		"logo.png":              "\x00" + thisModule,
	})
	err := os.Symlink("../hack", filepath.Join(root, "a/link"))
	commitAll(t, root)
	out, err2 := command(t, root, "publish", "MODULE=zoo.example.org/team/kit").CombinedOutput()
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if next := "cd '../kit' && make test\n"; !strings.Contains(string(out), next) || !strings.Contains(string(out), "KIT=zoo.example.org/team/kit@v0.1.0") {
		t.Errorf("it prints %q", out)
	}
	dir := filepath.Join(filepath.Dir(root), "kit")
	for file, want := range map[string]string{
		"go.mod":                "module zoo.example.org/team/kit\n\ngo 1.26.0\n",
		"a/a.go":                "package a\n\nimport (\n\t_ \"fmt\"\n\t_ \"zoo.example.org/team/kit/pkg/kit\"\n)\n",
		"hack/cluster/x/go.mod": "module zoo.example.org/team/kit/hack/cluster/x\n\nreplace zoo.example.org/team/kit => ../../..\n",
		"README.md":             "`go get zoo.example.org/team/kit@v1`, see acme." + thisModule + " and " + thisModule + "s\n",
		"logo.png":              "\x00" + thisModule,
	} {
		if diff := cmp.Diff(want, read(t, dir, file)); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "hack/mine/starter/hack/generate.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a script is not executable: %v", err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "a/link")); target != "../hack" {
		t.Errorf("a link leads to %q: %v", target, err)
	}
	if have, want := strings.Fields(git(t, root, "ls-files")), filesBelow(t, dir); len(have) != len(want) {
		t.Errorf("it has the files %q, want %q", want, have)
	}
}

// filesBelow returns the files in a directory.
func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return files
}

func TestRefusalsToPublish(t *testing.T) {
	root := checkout(t, nil)
	full := filepath.Join(filepath.Dir(root), "full")
	if err := errors.Join(os.Mkdir(full, 0o755), os.WriteFile(filepath.Join(full, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	const module = "MODULE=git.example.org/team/kit"
	for _, test := range []struct {
		name, arguments, want string
		wrong                 string // A file of Go that is not committed.
	}{
		{name: "no module", want: "MODULE is missing: make publish MODULE="},
		{name: "not a module", arguments: "MODULE=kit", want: "MODULE=kit: Go refuses it"},
		{name: "a full directory", arguments: module + " DIR=../full", want: "it exists and is not an empty directory"},
		{name: "an argument of make mine", arguments: module + " KIND=Gateway", want: "KIND=Gateway: there is no such argument"},
		{name: "a change", arguments: module, want: "this checkout has changes: commit them", wrong: "package p"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.wrong != "" {
				if err := os.WriteFile(filepath.Join(root, "wrong.go"), []byte(test.wrong), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have := refusal(t, root, append([]string{"publish"}, strings.Fields(test.arguments)...)...)
			if !strings.HasPrefix(have, "make publish: ") || !strings.Contains(have, test.want) || strings.Count(have, "\n") != 1 {
				t.Errorf("it prints %q, want a line with %q", have, test.want)
			}
		})
	}
}

func TestACopyThatDoesNotBuildIsNotPublished(t *testing.T) {
	root := checkout(t, map[string]string{"wrong.go": "package p\n\nvar a int = \"\"\n"})
	if have := refusal(t, root, "publish", "MODULE=git.example.org/team/kit"); !strings.Contains(have, "go build ./...: exit status 1\n") {
		t.Error(have)
	}
}
