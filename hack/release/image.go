package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is the user and group that the controller runs as. A number and not a name, because the kubelet refuses a
	// name for a container with runAsNonRoot. Other images without a shell use the same number.
	user = "65532:65532"
	// license is that of the controller, see the file LICENSE.
	license = "Apache-2.0"
	// compressionLevel is that of gzip. Level 9 takes eight times as long and saves 1 %.
	compressionLevel = 5
)

// A platformImage is the image of one platform.
type platformImage struct {
	platform v1.Platform
	binary   []byte
	image    v1.Image
	licenses licensedSet
	sbom     []byte // The SPDX document.
}

// buildPlatform compiles the controller for a platform, such as linux/arm64, and puts it into an image. dir is for the
// binary, which is removed again.
func buildPlatform(src *source, tag name.Tag, text, dir string) (p platformImage, err error) {
	architecture, ok := strings.CutPrefix(text, "linux/")
	if !ok || architecture != "amd64" && architecture != "arm64" {
		return p, errors.New("the platform is neither linux/amd64 nor linux/arm64")
	}
	p.platform = v1.Platform{OS: "linux", Architecture: architecture}
	file, err := src.compile(p.platform, dir)
	if err != nil {
		return p, err
	}
	p.binary, err = os.ReadFile(file)
	if err := errors.Join(err, os.Remove(file)); err != nil {
		return p, err
	}
	info, err := buildinfo.Read(bytes.NewReader(p.binary))
	if err != nil {
		return p, err
	}
	if p.licenses, err = src.licenses(p.platform); err != nil {
		return p, err
	}
	layer, err := newLayer(p.binary)
	if err != nil {
		return p, err
	}
	if p.image, err = newImage(src, p.platform, layer); err == nil {
		p.sbom, err = newSBOM(src, tag, p, info)
	}
	return p, err
}

// newLayer returns the layer, which has the binary and nothing else. The binary belongs to root, so the user of the
// image cannot change it.
//
// There is no /tmp, because the controller writes no files. There are no CA certificates: the controller connects only
// to the API server, and the CA of the cluster is in the ServiceAccount or in the kubeconfig. There is no time zone
// data: the controller uses UTC. There is no /etc/passwd, because nothing searches for the name of a user. The kubelet
// adds /etc/hosts, /etc/resolv.conf and /dev.
func newLayer(binary []byte) (v1.Layer, error) {
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	headerErr := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "foo-controller", Mode: 0o755, Size: int64(len(binary)),
		ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
	})
	_, err := archive.Write(binary)
	if err := errors.Join(headerErr, err, archive.Close()); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(compressionLevel), tarball.WithCompressedCaching)
}

// newImage returns an image with one layer.
func newImage(src *source, platform v1.Platform, layer v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: src.created}
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/foo-controller"}, WorkingDir: "/", Labels: src.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/release", Comment: "the controller"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, src.labels()).(v1.Image), nil
}

// newIndex returns an index: a list from which a node takes the image of its platform.
func newIndex(src *source, platforms []platformImage) v1.ImageIndex {
	var index v1.ImageIndex = empty.Index
	for _, p := range platforms {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: p.image, Descriptor: v1.Descriptor{Platform: &p.platform},
		})
	}
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	return mutate.Annotations(index, src.labels()).(v1.ImageIndex)
}

// labels are the labels of the image and the annotations of its manifests. There is no label for the address of the
// sources, because the project has none.
func (s *source) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title":       "foo-controller",
		prefix + "description": "Maintains one Deployment for each Foo",
		prefix + "licenses":    license,
		prefix + "version":     s.version,
		prefix + "created":     s.created.Format(time.RFC3339),
	}
	if s.revision != "" {
		labels[prefix+"revision"] = s.revision
	}
	return labels
}

// releaseFlags are flags of the compiler that only the image and the benchmark have. `make build` has none of them, so
// that what it compiles is shared with the local control plane and with the tests.
//
//   - -trimpath: without it, the binary has the path of the sources.
//   - -s -w: no tables for debuggers.
const releaseFlags = "-mod=readonly -trimpath '-ldflags=-s -w -X main.buildVersion=%s'"

// A source is what an image is built from: the working directory, which is the root of the repository.
type source struct {
	// version is the tag of the image, and what the binary prints for --version.
	version string
	// revision is the commit. It is empty if files differ from the commit, or if there is no commit.
	revision string
	// created is the time that the image has: that of the commit and not of the build, so that two builds are equal.
	created time.Time
	// fips140 is the setting of Go's cryptography: off, or the version of a validated module.
	fips140 string
}

// describe returns the source for opts. A file that git does not know is a difference from the commit, because
// Go compiles it. The Makefile gives such a source a version that ends in -dirty.
func describe(opts options) (*source, error) {
	src := &source{version: opts.version, fips140: opts.fips140, created: time.Unix(0, 0).UTC()}
	if _, err := os.Stat(".git"); err != nil { // An archive of the sources has none.
		return src, nil
	}
	changes, err := output(nil, "git", "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return nil, err
	}
	commit, err := output(nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	revision, seconds, _ := strings.Cut(commit, " ")
	if changes == "" {
		src.revision = revision
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	src.created = time.Unix(number, 0).UTC()
	return src, err
}

// output returns what a program prints. Without env, it has the environment of this process.
func output(env []string, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// compile builds the controller for a platform in dir, and returns the name of the file. hack/build.sh prints the
// progress: a platform takes minutes where nothing is compiled yet.
func (s *source) compile(platform v1.Platform, dir string) (string, error) {
	env, err := s.environment(platform)
	if err != nil {
		return "", err
	}
	binary := "foo-controller-" + platform.OS + "-" + platform.Architecture
	cmd := exec.Command("hack/build.sh", binary)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Env = append(env, "RELEASE_DIR="+dir, "GOFLAGS="+fmt.Sprintf(releaseFlags, s.version))
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the controller: %w", err)
	}
	return filepath.Join(dir, binary), nil
}

// places are the settings of Go that name the places of modules, caches and Go itself. They do not change the binary
// that a version of Go compiles. A developer may need them, for instance to download modules.
var places = []string{
	"GOAUTH", "GOCACHE", "GOCACHEPROG", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE",
	"GOPROXY", "GOSUMDB", "GOTOOLCHAIN", "GOVCS",
}

// environment returns the environment of the compiler.
//
// Other settings than places can change the binary, and a developer may have given them other values: in the
// environment, or with `go env -w`. If a variable in the environment is empty, Go takes the value of `go env -w`. So
// GOENV=off hides those values, and only the places are copied.
func (s *source) environment(platform v1.Platform) ([]string, error) {
	out, err := output(nil, "go", append([]string{"env", "-json"}, places...)...)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	env := append(os.Environ(),
		"GOENV=off",
		"CGO_ENABLED=0", // A static binary: the image has no C library.
		"GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOWORK=off", "GOEXPERIMENT=", "GOFIPS140="+s.fips140, "GO_EXTLINK_ENABLED=",
		"GOFLAGS=-mod=readonly") // For go list. The compiler has further ones.
	for _, name := range places {
		env = append(env, name+"="+values[name])
	}
	return env, nil
}
