package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	commit(t, dir, "v1")
	return dir
}

// commit makes dir a repository with one commit of all its files, and a tag.
func commit(t *testing.T, dir, tag string) {
	t.Helper()
	inRepository(t, dir, "git init -q && git add . && "+
		"git -c user.name=a -c user.email=a@example.com commit -q -m text && git tag "+tag)
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
	src, err := describe(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	if err := src.compile(t.Context(), v1.Platform{OS: "linux", Architecture: "amd64"}, temp); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(filepath.Join(temp, binaryPath))
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
	src, err := describe(t.Context(), dir, "")
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
		src, err := describe(t.Context(), dir, "")
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

// A developer may have changed them with `go env -w`. An empty variable in the environment does not cancel such a
// value.
func TestTheSettingsOfGoEnvDoNotChangeTheBinary(t *testing.T) {
	dir := newRepository(t)
	settings := filepath.Join(t.TempDir(), "env")
	writeFile(t, settings, "GOEXPERIMENT=nogreenteagc\nGO_EXTLINK_ENABLED=0\nCGO_LDFLAGS=-g\n")
	t.Setenv("GOENV", "off")
	_, want := compileIn(t, dir)
	t.Setenv("GOENV", settings)
	if _, got := compileIn(t, dir); got != want {
		t.Error("in the settings of go env: another binary")
	}
	t.Setenv("GO_EXTLINK_ENABLED", "0")
	if _, got := compileIn(t, dir); got != want {
		t.Error("in the environment: another binary")
	}
}

// Without these settings, the compiler finds no modules behind a company's firewall, or compiles everything a second
// time. No other setting reaches it.
func TestTheCompilerHasOnlyTheSettingsThatNamePlaces(t *testing.T) {
	dir := newRepository(t)
	developer := map[string]string{
		"GOAUTH": "off", "GOCACHE": "/a/cache", "GOCACHEPROG": "/a/program", "GOINSECURE": "insecure.example",
		"GOMODCACHE": "/a/modcache", "GONOPROXY": "direct.example", "GONOSUMDB": "unchecked.example", "GOPATH": "/a/path",
		"GOPRIVATE": "private.example", "GOPROXY": "https://proxy.example,off", "GOSUMDB": "sum.example",
		"GOTOOLCHAIN": "local", "GOVCS": "*:off",
	}
	others := map[string]string{
		"CC": "clang", "CGO_ENABLED": "1", "GO111MODULE": "on", "GOAMD64": "v3", "GOARCH": "386",
		"GOARM64": "v9.0", "GOBIN": "/a/bin", "GOEXPERIMENT": "nogreenteagc", "GOFIPS140": "latest", "GOFLAGS": "-race",
		"GOOS": "windows", "GOWORK": "/a/work", "GO_EXTLINK_ENABLED": "0",
	}
	var lines strings.Builder
	for _, values := range []map[string]string{developer, others} {
		for name, value := range values {
			t.Setenv(name, "")
			fmt.Fprintf(&lines, "%s=%s\n", name, value)
		}
	}
	settings := filepath.Join(t.TempDir(), "env")
	writeFile(t, settings, lines.String())
	want := goEnv(t, dir, "off", slices.Collect(maps.Keys(others)))
	maps.Copy(want, developer)
	got := goEnv(t, dir, settings, slices.Collect(maps.Keys(want)))
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("the compiler has %s=%s, want %q", name, got[name], want[name])
		}
	}
	if len(want) != len(developer)+len(others) {
		t.Errorf("%d settings were compared", len(want))
	}
}

// goEnv returns the values that `go env` prints where the compiler runs, for a developer with a file of settings.
func goEnv(t *testing.T, dir, settings string, names []string) map[string]string {
	t.Helper()
	t.Setenv("GOENV", settings)
	cmd := exec.Command("go", append([]string{"env", "-C", dir, "-json"}, names...)...)
	var err error
	cmd.Env, err = (&source{root: dir}).environment(t.Context(), v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	if err := json.Unmarshal(out, &values); err != nil {
		t.Fatal(err)
	}
	return values
}
