package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The types of what a registry holds beside images: SBOMs and the chart.
const (
	sbomType    types.MediaType = "application/spdx+json"
	emptyType   types.MediaType = "application/vnd.oci.empty.v1+json"
	chartConfig types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartType   types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// An artifact is one file with a configuration, as the manifest of an OCI image describes them.
type artifact struct {
	manifest        v1.Manifest // Without the descriptors of config and content.
	configType      types.MediaType
	contentType     types.MediaType
	config, content []byte
}

// append adds the artifact to a layout, as an entry with these annotations.
func (a *artifact) append(images layout.Path, annotations map[string]string) error {
	config, configErr := blob(images, a.configType, a.config)
	content, contentErr := blob(images, a.contentType, a.content)
	a.manifest.SchemaVersion, a.manifest.MediaType = 2, types.OCIManifestSchema1
	a.manifest.Config, a.manifest.Layers = config, []v1.Descriptor{content}
	text, err := json.Marshal(a.manifest)
	if err := errors.Join(configErr, contentErr, err); err != nil {
		return err
	}
	entry, err := blob(images, a.manifest.MediaType, text)
	if err != nil {
		return err
	}
	entry.ArtifactType, entry.Annotations = a.manifest.ArtifactType, annotations
	return images.AppendDescriptor(entry)
}

// blob writes a file of the layout and returns its descriptor.
func blob(images layout.Path, mediaType types.MediaType, content []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	err = images.WriteBlob(digest, io.NopCloser(bytes.NewReader(content)))
	return v1.Descriptor{MediaType: mediaType, Size: size, Digest: digest}, err
}

// sbomArtifact returns the SBOM of an image as an artifact that refers to it. A registry lists it among the referrers
// of the image.
func (p platformImage) sbomArtifact(src *source) (*artifact, error) {
	image, err := partial.Descriptor(p.image)
	if err != nil {
		return nil, err
	}
	return &artifact{
		manifest: v1.Manifest{
			ArtifactType: string(sbomType), Annotations: src.labels(),
			Subject: &v1.Descriptor{MediaType: image.MediaType, Size: image.Size, Digest: image.Digest},
		},
		configType: emptyType, config: []byte("{}"), contentType: sbomType, content: p.sbom,
	}, nil
}
