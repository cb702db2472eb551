package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user and group that the controller runs as. A number and not a name, because the kubelet refuses a name
// for a container with runAsNonRoot. Other images without a shell use the same number.
const user = "65532:65532"

// A result is all that is written to the disk.
type result struct {
	// name is the full name with the tag, such as docker.io/library/foo-controller:v1.2.3.
	name string
	// index has the image of each platform.
	index     v1.ImageIndex
	platforms []platformImage
	// sboms is an OCI artifact with the SBOM of each platform. It refers to index.
	sboms v1.Image
}

// A platformImage is the image of one platform.
type platformImage struct {
	platform v1.Platform
	image    v1.Image
	binary   []byte
	// sbom is the SPDX document.
	sbom []byte
}

// file returns the name of a file in the output.
func (p platformImage) file(extension string) string {
	return "foo-controller-" + strings.ReplaceAll(p.platform.String(), "/", "-") + extension
}

// build builds the image for all platforms, in memory.
func build(ctx context.Context, src *source, opts *options) (*result, error) {
	fullName, err := fullName(opts.name, src.version)
	if err != nil {
		return nil, err
	}
	built := &result{name: fullName}
	for _, platform := range opts.platforms {
		image, err := buildPlatform(ctx, src, fullName, platform)
		if err != nil {
			return nil, err
		}
		built.platforms = append(built.platforms, image)
	}
	built.index = newIndex(src, built.platforms)
	built.sboms, err = newArtifact(built.index, built.platforms)
	return built, err
}

// fullName returns the name that containerd and the kubelet give to the image. A name without a registry is one of
// docker.io for them, also if the image was never there.
func fullName(image, version string) (string, error) {
	tag, err := name.NewTag(image + ":" + version)
	if err != nil {
		return "", fmt.Errorf("name of the image: %w", err)
	}
	full := tag.Name()
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry+"/"); ok {
		return "docker.io/" + rest, nil
	}
	return full, nil
}

// buildPlatform compiles the controller and puts it into an image.
func buildPlatform(
	ctx context.Context, src *source, fullName string, platform v1.Platform,
) (p platformImage, err error) {
	dir, err := os.MkdirTemp("", "foo-controller-image-")
	if err != nil {
		return p, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // A file that is left does no harm.
	if err := src.compile(ctx, platform, dir); err != nil {
		return p, err
	}
	binaryFile := filepath.Join(dir, binaryPath)
	info, err := buildinfo.ReadFile(binaryFile)
	if err != nil {
		return p, err
	}
	p.platform = platform
	if p.binary, err = os.ReadFile(binaryFile); err != nil {
		return p, err
	}
	files := rootfs(p.binary)
	layer, err := newLayer(files)
	if err != nil {
		return p, err
	}
	if p.image, err = newImage(src, platform, layer); err != nil {
		return p, err
	}
	p.sbom, err = newSBOM(src, fullName, p, info, files)
	return p, err
}

// newImage returns an image with one layer.
func newImage(src *source, platform v1.Platform, layer v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: src.created}
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + binaryPath}, WorkingDir: "/", Labels: src.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: created, CreatedBy: "hack/image", Comment: "the controller, /etc/passwd, /etc/group"},
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
		platform := p.platform
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: p.image, Descriptor: v1.Descriptor{Platform: &platform},
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
