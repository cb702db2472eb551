package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

const (
	testVersion = "v1.2.3-test"
	testName    = "docker.io/library/foo-controller:" + testVersion
)

// The tests run in the root of the repository, as the command does.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestImage builds the image of this machine's platform and checks the files that were written.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the controller")
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skipf("there is no image for %s", runtime.GOARCH)
	}
	opts := optionsHere(testVersion)
	opts.output = filepath.Join(t.TempDir(), "image")
	if err := build(opts); err != nil {
		t.Fatal(err)
	}
	b := readBuilt(t, opts.output)
	t.Run("the layout is valid and has one entry with its name", b.testLayout)
	t.Run("the configuration has a user, an entrypoint and labels", b.testConfig)
	t.Run("the binary is static and stripped", b.testBinary)
	t.Run("the binary starts in the image, as its user", b.testStart)
	t.Run("the archive has the same image", b.testArchive)
	t.Run("the SBOM has every module", b.testSBOM)
}

// optionsHere are those for the native platform.
func optionsHere(version string) options {
	return options{platforms: "linux/" + runtime.GOARCH, name: "foo-controller", version: version, fips140: "off"}
}

// shell runs a command of bash in dir and returns its output.
func shell(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-o", "errexit", "-o", "pipefail", "-c", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// A built is an output directory as it was read again.
type built struct {
	dir    string
	top    v1.ImageIndex // index.json of the layout.
	index  v1.ImageIndex
	image  v1.Image
	binary []byte
}

// readBuilt checks that the image has one layer with one file, which only root can change.
func readBuilt(t *testing.T, dir string) *built {
	t.Helper()
	b := &built{dir: dir}
	b.top = must(layout.ImageIndexFromPath(filepath.Join(dir, "layout")))(t)
	entries := must(b.top.IndexManifest())(t)
	b.index = must(b.top.ImageIndex(entries.Manifests[0].Digest))(t)
	images := must(b.index.IndexManifest())(t)
	if got := images.Manifests[0].Platform.String(); len(images.Manifests) != 1 || got != "linux/"+runtime.GOARCH {
		t.Errorf("%d images, the first for %s", len(images.Manifests), got)
	}
	b.image = must(b.index.Image(images.Manifests[0].Digest))(t)
	layers := must(b.image.Layers())(t)
	if len(layers) != 1 {
		t.Fatalf("%d layers", len(layers))
	}
	archive := tar.NewReader(must(layers[0].Uncompressed())(t))
	h := must(archive.Next())(t)
	b.binary = must(io.ReadAll(archive))(t)
	got := fmt.Sprintf("%04o %d:%d %q%q %d %s", h.Mode, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime.Unix(), h.Name)
	if want := `0755 0:0 """" 0 foo-controller`; got != want {
		t.Errorf("the file in the layer is %s, want %s", got, want)
	}
	if _, err := archive.Next(); err != io.EOF {
		t.Errorf("the layer has another file: %v", err)
	}
	return b
}

// must returns a function that returns value, or ends the test if there was an error.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// The layout has one entry, because crane refuses to push one with two.
func (b *built) testLayout(t *testing.T) {
	if err := validate.Index(b.top); err != nil {
		t.Error(err)
	}
	entries := must(b.top.IndexManifest())(t).Manifests
	want := map[string]string{"io.containerd.image.name": testName, "org.opencontainers.image.ref.name": testVersion}
	if len(entries) != 1 || entries[0].MediaType != types.OCIImageIndex ||
		fmt.Sprint(entries[0].Annotations) != fmt.Sprint(want) {
		t.Errorf("the entries are %v, want one index with %v", entries, want)
	}
}

func (b *built) testConfig(t *testing.T) {
	config, manifest := must(b.image.ConfigFile())(t), must(b.image.Manifest())(t)
	got := fmt.Sprint(config.OS, config.Architecture, config.Config.User, config.Config.Entrypoint, config.Config.Cmd,
		config.Config.Env, config.Config.WorkingDir, manifest.MediaType, manifest.Config.MediaType,
		manifest.Layers[0].MediaType)
	want := fmt.Sprint("linux", runtime.GOARCH, "65532:65532", []string{"/foo-controller"}, []string{},
		[]string{}, "/", types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer)
	if got != want {
		t.Errorf("configuration:\n%s\nwant:\n%s", got, want)
	}
	wantLabels := must(describe(options{version: testVersion}))(t).labels()
	for place, labels := range map[string]map[string]string{
		"labels of the configuration": config.Config.Labels, "annotations of the manifest": manifest.Annotations,
		"annotations of the index": must(b.index.IndexManifest())(t).Annotations,
	} {
		if got := fmt.Sprint(labels); got != fmt.Sprint(wantLabels) || labels["org.opencontainers.image.created"] == "" {
			t.Errorf("%s: %s\nwant: %s", place, got, wantLabels)
		}
	}
}

func (b *built) testBinary(t *testing.T) {
	binary := must(elf.NewFile(bytes.NewReader(b.binary)))(t)
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("the binary needs a dynamic linker, which the image does not have")
		}
	}
	if binary.Section(".symtab") != nil {
		t.Error("the binary is not stripped")
	}
}

// testStart runs the binary where nothing but the image exists: no libraries, no /proc, and nothing that its user can
// write to.
func (b *built) testStart(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("needs Linux, and root for chroot")
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "foo-controller"), b.binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/foo-controller", "--version")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), testVersion) {
		t.Errorf("--version: %v: %s", err, out)
	}
}

func (b *built) testArchive(t *testing.T) {
	tag := must(name.NewTag(testName))(t)
	got := must(tarball.ImageFromPath(filepath.Join(b.dir, "foo-controller-linux-"+runtime.GOARCH+".tar"), &tag))(t)
	if err := validate.Image(got); err != nil {
		t.Error(err)
	}
	if have, want := must(got.ConfigName())(t), must(b.image.ConfigName())(t); have != want {
		t.Errorf("configuration %s, want %s", have, want)
	}
}

func (b *built) testSBOM(t *testing.T) {
	file := must(os.Open(filepath.Join(b.dir, "foo-controller-linux-"+runtime.GOARCH+".spdx.json")))(t)
	defer file.Close()
	doc := &v2_3.Document{}
	if err := errors.Join(spdxjson.ReadInto(file, doc), spdxlib.ValidateDocument(doc)); err != nil {
		t.Error(err)
	}
	digest := must(b.image.Digest())(t)
	if !strings.HasSuffix(doc.DocumentNamespace, digest.Hex) || doc.Packages[0].PackageChecksums[0].Value != digest.Hex {
		t.Errorf("namespace %s and %v, want the digest %s", doc.DocumentNamespace, doc.Packages[0], digest)
	}
	info := must(buildinfo.Read(bytes.NewReader(b.binary)))(t)
	want := []string{
		"docker.io/library/foo-controller@" + testVersion, "example.com/foo-controller@" + testVersion,
		"stdlib@" + strings.TrimPrefix(runtime.Version(), "go"),
	}
	for _, module := range info.Deps {
		want = append(want, module.Path+"@"+module.Version)
	}
	var got []string
	for _, pkg := range doc.Packages {
		got = append(got, pkg.PackageName+"@"+pkg.PackageVersion)
		if declared := pkg.PackageLicenseDeclared; declared == noAssertion && pkg.PrimaryPackagePurpose == "LIBRARY" {
			t.Errorf("%s has no licence", pkg.PackageName)
		}
		purl, golang := pkg.PackageExternalReferences[0].Locator, "pkg:golang/"+strings.ToLower(pkg.PackageName)+"@"
		if !strings.HasPrefix(purl, golang) && !strings.HasPrefix(purl, "pkg:oci/foo-controller@") {
			t.Errorf("%s has the package URL %s", pkg.PackageName, purl)
		}
	}
	if len(info.Deps) < 30 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("packages:\n%v\nwant:\n%v", got, want)
	}
}

// A fork replaces modules. Their licences are those of what is compiled.
func TestTheSBOMHasModulesThatAreReplaced(t *testing.T) {
	info := &debug.BuildInfo{Deps: []*debug.Module{{Path: "a.example/a", Replace: &debug.Module{Path: "./fork"}}}}
	p := platformImage{image: empty.Image, licenses: licensedSet{"a.example/a": {expression: "MIT"}, "stdlib": {}}}
	text := string(must(newSBOM(&source{}, must(name.NewTag("a:v1"))(t), p, info))(t))
	if !strings.Contains(text, `"name": "./fork"`) || !strings.Contains(text, `"licenseDeclared": "MIT"`) {
		t.Error(text)
	}
}

func TestPackageURLsAreEscaped(t *testing.T) {
	got := golangPURL("github.com/Azure/thing", "v5.9.11+incompatible")
	if want := "pkg:golang/github.com/azure/thing@v5.9.11%2Bincompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNamesAreThoseOfTheKubelet(t *testing.T) {
	for image, want := range map[string]string{
		"foo-controller":              "docker.io/library/foo-controller:v1",
		"me/foo-controller":           "docker.io/me/foo-controller:v1",
		"registry.example:5000/a/foo": "registry.example:5000/a/foo:v1",
		"localhost/foo":               "localhost/foo:v1",
	} {
		if got, err := fullName(image, "v1"); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", image, got, err, want)
		}
	}
	for _, version := range []string{"", "v1+meta"} {
		if _, err := fullName("foo-controller", version); err == nil {
			t.Errorf("the version %q, which cannot be a tag, was accepted", version)
		}
	}
}

func TestOnlyAnEarlierImageIsReplaced(t *testing.T) {
	output, work := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, file := range []string{filepath.Join(output, "thesis.txt"), filepath.Join(work, "layout", "oci-layout")} {
		writeFile(t, file, "")
	}
	if err := replace(output, work); err == nil {
		t.Error("a directory with other files was replaced")
	}
	if _, err := os.Stat(filepath.Join(output, "thesis.txt")); err != nil {
		t.Error(err)
	}
	output = filepath.Join(t.TempDir(), "image")
	writeFile(t, filepath.Join(output, "layout", "oci-layout"), "")
	if err := replace(output, work); err != nil {
		t.Error("an earlier image:", err)
	}
}
