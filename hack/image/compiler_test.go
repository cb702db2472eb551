package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
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

// newRepository makes a repository with one commit, v1, the working directory. It has our Makefile and scripts, and a
// small program in place of the controller, which the compiler finishes in a second.
func newRepository(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	shell(t, ".", "mkdir "+dir+"/hack && cp Makefile "+dir+" && cp hack/build.sh "+dir+"/hack")
	t.Chdir(dir)
	writeFile(t, ".gitignore", "/bin/\n")
	writeFile(t, "go.mod", "module example.com/foo-controller\n\ngo 1.26\n")
	writeFile(t, "main.go", `package main

var buildVersion, fromAnotherFile string

func main() { println(buildVersion + fromAnotherFile) }
`)
	shell(t, ".", "git init -q && git add . && git -c user.name=a -c user.email=a@example.com commit -q -m text && "+
		"git tag v1")
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// compileHere returns the binary that the sources in the working directory give.
func compileHere(t *testing.T) string {
	t.Helper()
	src := must(describe(options{version: "v1", fips140: "off"}))(t)
	file := must(src.compile(v1.Platform{OS: "linux", Architecture: "amd64"}, t.TempDir()))(t)
	return string(must(os.ReadFile(file))(t))
}

// Go compiles each file of a package, whether or not git knows it. The Makefile gives the version to `make build` and
// to `make image`.
func TestAnImageThatDiffersFromTheCommitDoesNotClaimToBeTheCommit(t *testing.T) {
	for name, c := range map[string]struct{ change, version string }{
		"no change":                 {change: ":", version: "v1"},
		"an ignored file":           {change: "mkdir bin && touch bin/image", version: "v1"},
		"a changed file":            {change: "echo >>main.go", version: "v1-dirty"},
		"a file in the next commit": {change: "touch another.go && git add another.go", version: "v1-dirty"},
		"an unknown file":           {change: "touch a.go && git config status.showUntrackedFiles no", version: "v1-dirty"},
		"no repository":             {change: "rm -r .git", version: "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			newRepository(t)
			shell(t, ".", c.change)
			if got, _ := madeWith(t, ""); got != c.version {
				t.Errorf("%s, want the version %s", got, c.version)
			}
			src := must(describe(options{version: c.version}))(t)
			if _, label := src.labels()["org.opencontainers.image.revision"]; label != (c.version == "v1") {
				t.Errorf("the image has the label with the revision: %t", label)
			}
			if inRepository := name != "no repository"; (src.created.Unix() != 0) != inRepository {
				t.Errorf("the time of the image is %s", src.created)
			}
		})
	}
}

// A script has `make deploy IMAGE=$IMAGE`, and $IMAGE is not set there.
func TestAnEmptyImageIsTheOneThatWasBuilt(t *testing.T) {
	newRepository(t)
	t.Setenv("IMAGE", "")
	for arguments, want := range map[string]string{
		"":                    "foo-controller:v1",
		"IMAGE=":              "foo-controller:v1",
		"IMAGE= VERSION=v2":   "foo-controller:v2",
		"IMAGE=example/foo:1": "example/foo:1",
	} {
		if _, got := madeWith(t, arguments); got != want {
			t.Errorf("make %s: %s, want %s", arguments, got, want)
		}
	}
	t.Setenv("IMAGE", "example/foo:2")
	if _, got := madeWith(t, ""); got != "example/foo:2" {
		t.Errorf("from the environment: %s", got)
	}
	t.Setenv("VERSION", "v3") // Other programs use this name too.
	if version, got := madeWith(t, "IMAGE="); version != "v1" || got != "foo-controller:v1" {
		t.Errorf("with a version in the environment: %s, %s", version, got)
	}
}

// madeWith returns the version and the image that the recipes of the Makefile get. The make that runs the tests gives
// its own arguments to its children.
func madeWith(t *testing.T, arguments string) (version, image string) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	const show = `unset MAKEFLAGS MAKELEVEL MFLAGS; make --eval='show: ; @echo "$$VERSION $$IMAGE"' show `
	version, image, _ = strings.Cut(strings.TrimSpace(shell(t, ".", show+arguments)), " ")
	return version, image
}

// A developer may have changed them with `go env -w`. An empty variable in the environment does not cancel such a
// value.
func TestTheSettingsOfGoEnvDoNotChangeTheBinary(t *testing.T) {
	newRepository(t)
	settings := filepath.Join(t.TempDir(), "env")
	writeFile(t, settings, "GOEXPERIMENT=nogreenteagc\nGO_EXTLINK_ENABLED=0\nCGO_LDFLAGS=-g\nGOFLAGS=-race\n")
	t.Setenv("GOENV", "off")
	want := compileHere(t)
	t.Setenv("GOENV", settings)
	if compileHere(t) != want {
		t.Error("in the settings of go env: another binary")
	}
	t.Setenv("GO_EXTLINK_ENABLED", "0")
	if compileHere(t) != want {
		t.Error("in the environment: another binary")
	}
}

func TestTheBinaryHasTheCryptographyThatIsChosen(t *testing.T) {
	newRepository(t)
	src := must(describe(options{version: "v1", fips140: "v1.0.0"}))(t)
	file := must(src.compile(v1.Platform{OS: "linux", Architecture: "amd64"}, t.TempDir()))(t)
	if info := must(buildinfo.ReadFile(file))(t); !strings.Contains(info.String(), "GOFIPS140=v1.0.0") {
		t.Error("the binary does not have it:", info)
	}
}

// Without these settings, the compiler finds no modules behind a company's firewall, or compiles everything a second
// time. No other setting reaches it.
func TestTheCompilerHasOnlyTheSettingsThatNamePlaces(t *testing.T) {
	developer := map[string]string{
		"GOAUTH": "off", "GOCACHE": "/a/cache", "GOCACHEPROG": "/a/program", "GOINSECURE": "insecure.example",
		"GOMODCACHE": "/a/modcache", "GONOPROXY": "direct.example", "GONOSUMDB": "unchecked.example", "GOPATH": "/a/path",
		"GOPRIVATE": "private.example", "GOPROXY": "https://proxy.example,off", "GOSUMDB": "sum.example",
		"GOTOOLCHAIN": "local", "GOVCS": "*:off",
	}
	others := map[string]string{
		"CC": "clang", "CGO_ENABLED": "1", "GO111MODULE": "on", "GOAMD64": "v3", "GOARCH": "386",
		"GOARM64": "v9.0", "GOBIN": "/a/bin", "GOEXPERIMENT": "nogreenteagc", "GOFIPS140": "latest",
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
	want := goEnv(t, "off", slices.Collect(maps.Keys(others)))
	maps.Copy(want, developer)
	got := goEnv(t, settings, slices.Collect(maps.Keys(want)))
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("the compiler has %s=%s, want %q", name, got[name], want[name])
		}
	}
}

// goEnv returns the values that `go env` prints where the compiler runs, for a developer with a file of settings.
func goEnv(t *testing.T, settings string, names []string) map[string]string {
	t.Helper()
	t.Setenv("GOENV", settings)
	cmd := exec.Command("go", append([]string{"env", "-json"}, names...)...)
	cmd.Env = must((&source{fips140: "off"}).environment(v1.Platform{OS: "linux", Architecture: "arm64"}))(t)
	values := map[string]string{}
	if err := json.Unmarshal(must(cmd.Output())(t), &values); err != nil {
		t.Fatal(err)
	}
	return values
}
