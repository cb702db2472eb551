package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// newRepository returns a repository with one commit, v1. It has our Makefile and a small program in place of the
// controller, which the compiler finishes in a second.
func newRepository(t *testing.T) string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "Makefile"), string(makefile))
	writeFile(t, filepath.Join(dir, ".gitignore"), "/bin/\n")
	writeFile(t, filepath.Join(dir, "go.mod"), "module "+modulePath+"\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "main.go"), `package main

var buildVersion, fromAnotherFile string

func main() { println(buildVersion + fromAnotherFile) }
`)
	inRepository(t, dir, "git init -q && git add . && "+
		"git -c user.name=a -c user.email=a@example.com commit -q -m text && git tag v1")
	return dir
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inRepository runs a shell command in dir and returns its output.
func inRepository(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// compileIn returns the binary that the sources in dir give, and their description.
func compileIn(t *testing.T, dir string) (*source, string) {
	t.Helper()
	src, err := describe(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "foo-controller")
	if err := src.compile(v1.Platform{OS: "linux", Architecture: "amd64"}, file); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return src, string(binary)
}

// Go compiles each file of a package, whether or not git knows it.
func TestAnImageWithAFileThatIsNotInTheCommitDoesNotClaimToBeTheCommit(t *testing.T) {
	dir := newRepository(t)
	inRepository(t, dir, "git config status.showUntrackedFiles no")
	writeFile(t, filepath.Join(dir, "another.go"),
		"package main\n\nfunc init() { fromAnotherFile = \" and a text that is in no commit\" }\n")
	src, binary := compileIn(t, dir)
	if !strings.Contains(binary, "and a text that is in no commit") {
		t.Fatal("the file is not in the binary")
	}
	if src.revision != "" || src.version != "v1-dirty" {
		t.Errorf("version %q, revision %q", src.version, src.revision)
	}
	if !strings.Contains(binary, "v1-dirty") {
		t.Error("the binary prints another version")
	}
}

func TestFilesThatGitIgnoresDoNotChangeTheVersion(t *testing.T) {
	dir := newRepository(t)
	writeFile(t, filepath.Join(dir, "bin", "image", "file"), "of an earlier build")
	src, err := describe(dir, "")
	if err != nil || src.revision == "" || src.version != "v1" {
		t.Errorf("%+v, %v", src, err)
	}
}

// The Makefile gives the version to `make build` and to `make image`.
func TestTheMakefileDescribesTheSourceAsTheImageDoes(t *testing.T) {
	for name, change := range map[string]string{
		"no change":                 ":",
		"a changed file":            "echo >>main.go",
		"a file in the next commit": "touch another.go && git add another.go",
		"an unknown file":           "touch another.go && git config status.showUntrackedFiles no",
		"an ignored file":           "mkdir bin && touch bin/image",
		"no repository":             "rm -r .git",
	} {
		dir := newRepository(t)
		inRepository(t, dir, change)
		src, err := describe(dir, "")
		if err != nil {
			t.Fatal(name, err)
		}
		if got, want := dryRun(t, dir, "image"), "--version "+src.version+"\n"; !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s\nwant: %s", name, got, want)
		}
	}
}

// A script has `make deploy IMAGE=$IMAGE`, and $IMAGE is not set there.
func TestAnEmptyImageIsTheOneThatWasBuilt(t *testing.T) {
	dir := newRepository(t)
	t.Setenv("IMAGE", "")
	for arguments, want := range map[string]string{
		"deploy":                     "IMAGE=foo-controller:v1 ",
		"deploy IMAGE=":              "IMAGE=foo-controller:v1 ",
		"deploy IMAGE= VERSION=v2":   "IMAGE=foo-controller:v2 ",
		"manifests IMAGE=":           "IMAGE=foo-controller:v1 ",
		"deploy IMAGE=example/foo:1": "IMAGE=example/foo:1 ",
	} {
		if got := dryRun(t, dir, arguments); !strings.Contains(got, want) {
			t.Errorf("make %s: %s\nwant: %s", arguments, got, want)
		}
	}
	t.Setenv("IMAGE", "example/foo:2")
	if got, want := dryRun(t, dir, "deploy"), "IMAGE=example/foo:2 "; !strings.Contains(got, want) {
		t.Errorf("from the environment: %s\nwant: %s", got, want)
	}
	t.Setenv("VERSION", "v3") // Other programs use this name too.
	if got, want := dryRun(t, dir, "deploy IMAGE="), "IMAGE=foo-controller:v1 "; !strings.Contains(got, want) {
		t.Errorf("with a version in the environment: %s\nwant: %s", got, want)
	}
}

// dryRun returns what make would run in dir. The make that runs the tests gives its own arguments to its children.
func dryRun(t *testing.T, dir, arguments string) string {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	return inRepository(t, dir, "unset MAKEFLAGS MAKELEVEL MFLAGS; make --dry-run "+arguments)
}
