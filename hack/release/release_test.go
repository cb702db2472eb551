package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const testRelease = "v1.2.3-rc.1"

// TestRelease makes a release for this machine, and pushes it to a registry.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the controller")
	}
	first := releaseOf(t, committed(t))
	t.Run("a second one of another directory and environment has the same bytes", func(t *testing.T) {
		testReproducible(t, first)
	})
	t.Run("each checksum is right", func(t *testing.T) {
		shell(t, first, "sha256sum --check --quiet SHA256SUMS && test $(wc -l <SHA256SUMS) -ge 15")
	})
	t.Run("the manifests have the image, and the notes what is not released", func(t *testing.T) {
		for file, want := range map[string]string{
			"install.yaml": "image: foo-controller:" + testRelease + "\n", "crds.yaml": "kind: CustomResourceDefinition\n",
			"NOTES.md": "\n### For operators\n", "LICENSES.txt": "\n======== k8s.io/client-go/LICENSE\n",
		} {
			if !strings.Contains(string(must(os.ReadFile(filepath.Join(first, file)))(t)), want) {
				t.Errorf("%s has no %q", file, want)
			}
		}
	})
	t.Run("a registry gets all of it, also after an interruption", func(t *testing.T) { testPush(t, first) })
}

// committed returns a clone in which the changes of the working directory are committed.
func committed(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	shell(t, ".", `git clone -q . "`+dir+`" && git ls-files -dz | (cd "`+dir+`" && xargs -0r rm) &&
		git ls-files -mo --exclude-standard | while read -r file; do
			[[ ! -e $file ]] || cp --parents -P "$file" "`+dir+`"
		done
		cd "`+dir+`" && git add --all && git -c user.name=a \
			-c user.email=a@example.com commit -q --allow-empty -m text`)
	return dir
}

// releaseOf releases a clone for the native platform.
func releaseOf(t *testing.T, clone string) string {
	t.Helper()
	t.Chdir(clone)
	opts := optionsHere(testRelease)
	opts.release, opts.output = true, "bin/release"
	if err := build(opts); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(clone, "bin/release")
}

func testReproducible(t *testing.T, first string) {
	other := filepath.Join(t.TempDir(), "another", "directory")
	shell(t, filepath.Join(first, "../.."), `git clone -q . "`+other+`"`)
	for name, value := range map[string]string{
		"GOFLAGS": "-race -buildvcs=true", "GOAMD64": "v3", "GOARM64": "v9.0", "CGO_ENABLED": "1", "GOOS": "windows",
		"GO_EXTLINK_ENABLED": "0", "TZ": "Asia/Tokyo", "TMPDIR": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	shell(t, ".", "diff '"+first+"/SHA256SUMS' '"+releaseOf(t, other)+"/SHA256SUMS'")
}

// testPush pushes to a registry that tells nobody which repositories exist, that lists referrers only by tags, and that
// refuses such a tag first. What is pushed has the digests of the release, the image has an SBOM, a further push sends
// next to nothing, and another image of the same version is refused.
func testPush(t *testing.T, dir string) {
	var begun, refused atomic.Bool
	var sent atomic.Int32
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			begun.Store(true)
		case r.Method == http.MethodPut:
			sent.Add(1)
		}
		switch {
		case !begun.Load() && strings.Contains(r.URL.Path, "/manifests/"):
			http.Error(w, "who are you?", http.StatusForbidden)
		case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/sha256-") && refused.CompareAndSwap(false, true):
			http.Error(w, "a quota", http.StatusForbidden)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://") + "/me"
	if err := push(dir, address); err == nil || !strings.Contains(err.Error(), "a quota") {
		t.Fatalf("with a registry that refuses a request: %v", err)
	}
	if err := push(dir, address); err != nil {
		t.Fatal(err)
	}
	image := must(name.NewTag(address + "/foo-controller:" + testRelease))(t)
	index := must(must(remote.Index(image))(t).IndexManifest())(t)
	native := image.Digest(index.Manifests[0].Digest.String())
	sboms := must(must(remote.Referrers(native))(t).IndexManifest())(t).Manifests
	if len(sboms) != 1 {
		t.Fatal("what refers to the image:", sboms)
	}
	sbom := must(must(remote.Image(image.Digest(sboms[0].Digest.String())))(t).Manifest())(t)
	if sbom.ArtifactType != string(sbomType) || sbom.Layers[0].MediaType != sbomType {
		t.Errorf("the SBOM is %v", sbom)
	}
	testChart(t, must(remote.Image(must(name.NewTag(address+"/charts/foo-controller:1.2.3-rc.1"))(t)))(t))

	sent.Store(0)
	if err := push(dir, address); err != nil || sent.Load() != 1 { // The manifest of the SBOM.
		t.Errorf("the second push sent %d: %v", sent.Load(), err)
	}
	if err := remote.Write(image, must(remote.Image(native))(t)); err != nil {
		t.Fatal(err)
	}
	if err := push(dir, address); err == nil || !strings.Contains(err.Error(), "a version never changes") {
		t.Errorf("with another image of this version in the registry: %v", err)
	}
}

func testChart(t *testing.T, chart v1.Image) {
	t.Helper()
	var config struct{ Name, Version, AppVersion string }
	if err := json.Unmarshal(must(chart.RawConfigFile())(t), &config); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(config); got != "{foo-controller 1.2.3-rc.1 1.2.3-rc.1}" {
		t.Errorf("the chart is %s", got)
	}
	file := filepath.Join(t.TempDir(), "chart.tgz")
	packed := must(must(chart.Layers())(t)[0].Compressed())(t)
	if err := os.WriteFile(file, must(io.ReadAll(packed))(t), 0o600); err != nil {
		t.Fatal(err)
	}
	files := shell(t, ".", "tar --list --gzip --file "+file)
	for name, want := range map[string]bool{
		"foo-controller/templates/objects.yaml\n": true, "foo-controller/files/deploy/rbac.yaml\n": true,
		"foo-controller/files/monitoring/dashboard.json\n": false, "kustomization.yaml\n": false,
	} {
		if strings.Contains(files, name) != want {
			t.Errorf("the chart has %q: %t; it has\n%s", name, !want, files)
		}
	}
}

func TestWhatCannotBeReleased(t *testing.T) {
	for name, c := range map[string]struct{ change, version, want string }{
		"no version":            {version: "1.2.3", want: "no semantic version"},
		"a short version":       {version: "v1.2", want: "no semantic version"},
		"a change":              {change: "echo >>main.go", version: "v1.2.3", want: "git status"},
		"a filled directory":    {change: "mkdir -p bin/release/a", version: "v1.2.3", want: "remove it first"},
		"a version unannounced": {version: "v1.2.4", want: "rename the section"},
		"an announced version":  {version: "v1.2.3"},
		"a pre-release":         {version: "v1.2.4-rc.1"},
	} {
		t.Run(name, func(t *testing.T) {
			newRepository(t)
			writeFile(t, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\nnew\n\n## 1.2.3\n\nold\n")
			shell(t, ".", "git add . && git -c user.name=a -c user.email=a@example.com commit -q -m text; "+c.change)
			err := checkRelease(must(describe(options{version: c.version}))(t), "bin/release")
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestLicencesAreThoseThatArePermitted(t *testing.T) {
	apache := string(must(os.ReadFile("LICENSE"))(t))
	for name, c := range map[string]struct {
		files      map[string]string
		want, fail string
	}{
		"one":                   {files: map[string]string{"LICENSE": apache}, want: "Apache-2.0"},
		"a notice beside it":    {files: map[string]string{"LICENSE": apache, "NOTICE": "by me"}, want: "Apache-2.0"},
		"none":                  {files: map[string]string{"NOTICE": "by me"}, fail: "no file"},
		"one that nobody knows": {files: map[string]string{"COPYING": "Do no evil."}, fail: "known licence"},
		"one that is not permitted": {
			files: map[string]string{"LICENSE": apache, "b/LICENSE": "This Source Code Form is subject to the terms of the " +
				"Mozilla Public License, v. 2.0. If a copy of the MPL was not distributed with this file, You can obtain " +
				"one at http://mozilla.org/MPL/2.0/."},
			fail: "MPL-2.0",
		},
	} {
		module := &licensed{texts: map[string][]byte{}}
		for file, text := range c.files {
			module.texts[file] = []byte(text)
		}
		got, err := module.evaluate()
		if got != c.want || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %q, %v, want %q, %q", name, got, err, c.want, c.fail)
		}
	}
}

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
