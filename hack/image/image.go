package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
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
		Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/image", Comment: "the controller"},
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
