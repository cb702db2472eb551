package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// credentials are those that `docker login`, `podman login` or `crane auth login` have stored.
var credentials = remote.WithAuthFromKeychain(authn.DefaultKeychain)

// push pushes a release: the image to REGISTRY/foo-controller, its SBOMs beside it, and then the chart to
// REGISTRY/charts/foo-controller. After an interruption it sends only what the registry does not have yet. A tag that
// has another digest already is an error, because a version never changes. So is a release whose chart and install.yaml
// have the image of another registry.
func push(dir, registry string) error {
	if registry == "" {
		return errors.New("no registry is given: make push REGISTRY=registry.example/me")
	}
	entries, err := layout.ImageIndexFromPath(filepath.Join(dir, "layout"))
	if err != nil {
		return fmt.Errorf("%s has no release: make it with `make release VERSION=v1.2.3`: %w", dir, err)
	}
	manifest, err := entries.IndexManifest()
	if err != nil {
		return err
	}
	first, last := manifest.Manifests[0], manifest.Manifests[len(manifest.Manifests)-1]
	image, set := registry+"/foo-controller", ""
	switch named, _, _ := strings.Cut(first.Annotations[nameOf], ":"+first.Annotations[tagOf]); named {
	case image:
	case "docker.io/library/foo-controller": // Without a registry.
		set = " --set image=" + image + "@" + first.Digest.String()
	default:
		return fmt.Errorf("the release is for the image %s: make it with REGISTRY=%s", named, registry)
	}
	for _, entry := range manifest.Manifests {
		target, err := reference(entry, registry)
		if err != nil {
			return err
		}
		if err := pushEntry(entries, entry, target); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	fmt.Printf("\nhelm install foo-controller oci://%s/charts/foo-controller --version %s \\\n"+
		"  --namespace foo-system --create-namespace%s\n", registry, last.Annotations[tagOf], set)
	return nil
}

// tagOf is the annotation of an entry of the layout with the tag under which it is pushed, and nameOf the one with the
// full name of the image.
const (
	tagOf  = "org.opencontainers.image.ref.name"
	nameOf = "io.containerd.image.name"
)

// reference returns where an entry of the layout belongs.
func reference(entry v1.Descriptor, registry string) (name.Reference, error) {
	repository := registry + "/foo-controller"
	if entry.ArtifactType == string(chartConfig) {
		repository = registry + "/charts/foo-controller"
	}
	if tag := entry.Annotations[tagOf]; tag != "" {
		return name.NewTag(repository + ":" + tag)
	}
	return name.NewDigest(repository + "@" + entry.Digest.String())
}

func pushEntry(entries v1.ImageIndex, entry v1.Descriptor, target name.Reference) error {
	// A registry may answer anything for what is not there. If it refuses us, it refuses the push, too. What has no tag
	// may be there and not be listed as a referrer, so it is sent again, without its blobs.
	there, err := remote.Head(target, credentials)
	switch {
	case err == nil && there.Digest != entry.Digest:
		return fmt.Errorf("the registry has it with another digest, %s: a version never changes, so release a new one",
			there.Digest)
	case err == nil && entry.Annotations[tagOf] != "":
		fmt.Printf("%s was there\n  %s\n", target, entry.Digest)
		return nil
	}
	if err := send(entries, entry, target); err != nil {
		return err
	}
	fmt.Printf("%s\n  %s\n", target, entry.Digest)
	return nil
}

func send(entries v1.ImageIndex, entry v1.Descriptor, target name.Reference) error {
	if entry.MediaType == types.OCIImageIndex {
		index, err := entries.ImageIndex(entry.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(target, index, credentials)
	}
	image, err := entries.Image(entry.Digest)
	if err != nil {
		return err
	}
	err = remote.Write(target, image, credentials)
	if err == nil && entry.Annotations[tagOf] == "" {
		err = remote.Put(target, image, credentials) // Write does not list as a referrer what is there.
	}
	return err
}

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
