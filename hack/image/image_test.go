package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	testVersion = "v1.2.3-test"
	testName    = "docker.io/library/foo-controller:" + testVersion
)

// TestImage builds the image of this machine's platform and checks the files that were written.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the controller")
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skipf("there is no image for %s", runtime.GOARCH)
	}
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	b := buildIn(t, root)
	t.Run("a second build in another directory writes the same bytes", func(t *testing.T) { testReproducible(t, b, root) })
	t.Run("the layer has the binary and the users, and nothing else", b.testLayer)
	t.Run("the configuration has a user, an entrypoint and labels", b.testConfig)
	t.Run("the binary is static and has the build tags of the Makefile", b.testBinary)
	t.Run("the binary starts in the image, as its user", b.testStart)
	t.Run("the layout is valid and has one entry with its name", b.testLayout)
	t.Run("the archive has the same image, for containerd and for Docker", b.testArchive)
	t.Run("the SBOM has every module and file with its checksum", b.testSBOM)
	t.Run("the SBOM refers to the index", b.testArtifact)
}

// A buildResult is an output directory that was written.
type buildResult struct {
	*result
	dir string
}

// platform returns the only platform.
func (b *buildResult) platform() platformImage { return b.platforms[0] }

func (b *buildResult) path(names ...string) string {
	return filepath.Join(append([]string{b.dir}, names...)...)
}

// buildIn builds the image of the native platform from the sources in root.
func buildIn(t *testing.T, root string) *buildResult {
	t.Helper()
	src := &source{
		root: root, version: testVersion, revision: strings.Repeat("ab", 20),
		created: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
	}
	opts := &options{name: "foo-controller", platforms: []v1.Platform{{OS: "linux", Architecture: runtime.GOARCH}}}
	built, err := build(t.Context(), src, opts)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "image")
	if err := write(t.Context(), built, dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	return &buildResult{result: built, dir: dir}
}

// testReproducible builds again: from a copy of the sources, with other times of the files, and with other settings in
// the environment.
func testReproducible(t *testing.T, first *buildResult, root string) {
	other := filepath.Join(t.TempDir(), "another", "directory")
	for _, name := range []string{"go.mod", "go.sum", "main.go", "controller.go"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(os.MkdirAll(other, 0o700), os.WriteFile(filepath.Join(other, name), content, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(other, "pkg"), os.DirFS(filepath.Join(root, "pkg"))); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"GOFLAGS": "-race -buildvcs=true", "GOAMD64": "v3", "GOARM64": "v9.0", "CGO_ENABLED": "1", "GOOS": "windows",
		"GO_EXTLINK_ENABLED": "0", "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1", "TMPDIR": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	second := buildIn(t, other)
	want, got := contents(t, first.dir), contents(t, second.dir)
	if len(want) < 10 {
		t.Errorf("%d files in %s", len(want), first.dir)
	}
	for name, sum := range want {
		if got[name] != sum {
			t.Errorf("%s differs or is missing", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files, then %d", len(want), len(got))
	}
}

// contents returns the mode and the checksum of each file in dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, readErr := os.ReadFile(name)
		info, err := entry.Info()
		sums[strings.TrimPrefix(name, dir)] = fmt.Sprintf("%v %x", info.Mode(), sha256.Sum256(content))
		return errors.Join(readErr, err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// readImage returns the image that the index in the layout has for the platform.
func (b *buildResult) readImage(t *testing.T) v1.Image {
	t.Helper()
	top, err := layout.ImageIndexFromPath(b.path("layout"))
	if err != nil {
		t.Fatal(err)
	}
	index, err := top.ImageIndex(digestOf(t, b.index))
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(digestOf(t, b.platform().image))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func digestOf(t *testing.T, object interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	digest, err := object.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func (b *buildResult) testLayer(t *testing.T) {
	layers, err := b.readImage(t).Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(len(layers), "layers", err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var got []string
	files := map[string][]byte{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %04o %d:%d %q%q %d %s", header.Typeflag, header.Mode, header.Uid, header.Gid,
			header.Uname, header.Gname, header.ModTime.Unix(), header.Name))
		if header.Mode&0o7022 != 0 {
			t.Errorf("%s has the mode %o: others than its owner can write to it, or it is setuid", header.Name, header.Mode)
		}
	}
	want := []string{
		`5 0755 0:0 """" 0 etc/`,
		`0 0644 0:0 """" 0 etc/group`,
		`0 0644 0:0 """" 0 etc/passwd`,
		`0 0755 0:0 """" 0 foo-controller`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("entries:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !bytes.Equal(files["foo-controller"], b.platform().binary) {
		t.Error("the binary is not the one that was built")
	}
	wantUsers := "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	if got := string(files["etc/passwd"]); got != wantUsers {
		t.Errorf("/etc/passwd: %q", got)
	}
	if got := string(files["etc/group"]); got != "root:x:0:\nnonroot:x:65532:\n" {
		t.Errorf("/etc/group: %q", got)
	}
}

func (b *buildResult) testConfig(t *testing.T) {
	image := b.readImage(t)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	created := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	got := fmt.Sprint(config.OS, config.Architecture, config.Config.User, config.Config.Entrypoint, config.Config.Cmd,
		config.Config.Env, config.Config.WorkingDir, config.Created.Equal(created), len(config.History),
		config.History[0].Created.Equal(created), manifest.MediaType, manifest.Config.MediaType, manifest.Layers[0].MediaType)
	want := fmt.Sprint("linux", runtime.GOARCH, "65532:65532", []string{"/foo-controller"}, []string{},
		[]string{}, "/", true, 1,
		true, types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer)
	if got != want {
		t.Errorf("configuration:\n%s\nwant:\n%s", got, want)
	}
	index, err := b.index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	wantLabels := fmt.Sprint(map[string]string{
		"org.opencontainers.image.title":       "foo-controller",
		"org.opencontainers.image.description": "Maintains one Deployment for each Foo",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     testVersion,
		"org.opencontainers.image.revision":    strings.Repeat("ab", 20),
		"org.opencontainers.image.created":     "2026-01-31T12:00:00Z",
	})
	for place, labels := range map[string]map[string]string{
		"labels of the configuration": config.Config.Labels, "annotations of the manifest": manifest.Annotations,
		"annotations of the index": index.Annotations,
	} {
		if got := fmt.Sprint(labels); got != wantLabels {
			t.Errorf("%s: %s\nwant: %s", place, got, wantLabels)
		}
	}
}

func (b *buildResult) testBinary(t *testing.T) {
	binary, err := elf.NewFile(bytes.NewReader(b.platform().binary))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("the binary needs a dynamic linker, which the image does not have")
		}
	}
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Error("the binary needs libraries, which the image does not have:", libraries, err)
	}
	info, err := buildinfo.Read(bytes.NewReader(b.platform().binary))
	if err != nil {
		t.Fatal(err)
	}
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range info.Settings {
		if setting.Key == "-tags" && strings.Contains(string(makefile), "\nTAGS := "+setting.Value+"\n") {
			return
		}
	}
	t.Error("the binary does not have the build tags of the Makefile:", info.Settings)
}

// testStart runs the binary where nothing but the image exists: no libraries, no /proc, and nothing that its user can
// write to.
func (b *buildResult) testStart(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("needs Linux, and root for chroot")
	}
	root := t.TempDir()
	for _, f := range rootfs(b.platform().binary) {
		var err error
		switch target := filepath.Join(root, f.path); f.content {
		case nil:
			err = os.Mkdir(target, fs.FileMode(f.mode))
		default:
			err = os.WriteFile(target, f.content, fs.FileMode(f.mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/foo-controller", "--version")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), testVersion) {
		t.Errorf("--version: %v: %s", err, out)
	}
}

func (b *buildResult) testLayout(t *testing.T) {
	path, err := layout.FromPath(b.path("layout"))
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Error(err)
	}
	entries, err := top.IndexManifest()
	if err != nil || len(entries.Manifests) != 1 {
		t.Fatal("entries:", entries, err)
	}
	entry := entries.Manifests[0]
	if entry.MediaType != types.OCIImageIndex || entry.Digest != digestOf(t, b.index) {
		t.Errorf("the entry is not the index: %v", entry)
	}
	want := map[string]string{"io.containerd.image.name": testName, "org.opencontainers.image.ref.name": testVersion}
	if fmt.Sprint(entry.Annotations) != fmt.Sprint(want) {
		t.Errorf("names: %v, want %v", entry.Annotations, want)
	}
	inner, err := top.ImageIndex(entry.Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := inner.IndexManifest()
	if err != nil || len(images.Manifests) != 1 {
		t.Fatal("images:", images, err)
	}
	if got := images.Manifests[0].Platform.String(); got != "linux/"+runtime.GOARCH {
		t.Errorf("platform %s", got)
	}
}

func (b *buildResult) testArchive(t *testing.T) {
	file := b.path(b.platform().file(".tar"))
	tag, err := name.NewTag(testName)
	if err != nil {
		t.Fatal(err)
	}
	forDocker, err := tarball.ImageFromPath(file, &tag) // It reads manifest.json.
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(forDocker); err != nil {
		t.Error("for Docker:", err)
	}
	got, err := forDocker.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.platform().image.ConfigName()
	if err != nil || got != want {
		t.Errorf("configuration %s, want %s: %v", got, want, err)
	}
	dir := t.TempDir()
	extract(t, file, dir)
	path, err := layout.FromPath(dir) // It reads index.json.
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Error("for containerd:", err)
	}
	entries, err := top.IndexManifest()
	if err != nil || len(entries.Manifests) != 1 {
		t.Fatal("entries:", entries, err)
	}
	entry := entries.Manifests[0]
	if entry.Digest != digestOf(t, b.platform().image) || entry.Annotations["io.containerd.image.name"] != testName {
		t.Errorf("the entry is not the image: %v", entry)
	}
}

// extract writes the files of the tar file into dir.
func extract(t *testing.T, file, dir string) {
	t.Helper()
	source, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	for archive := tar.NewReader(source); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.Mkdir(target, 0o755)
		} else {
			err = os.WriteFile(target, content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
