package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// license is that of the controller, see the file LICENSE.
	license = "Apache-2.0"
	// noAssertion is SPDX for: nobody has checked it.
	noAssertion = "NOASSERTION"
	// spdxType is the media type of an SPDX document in JSON.
	spdxType = "application/spdx+json"

	imageID  = "SPDXRef-Image"
	moduleID = "SPDXRef-Module"
	stdlibID = "SPDXRef-Stdlib"
)

// The fields of SPDX 2.3 that an SBOM of ours needs: https://spdx.github.io/spdx-spec/v2.3/
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Files             []spdxFile         `json:"files"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string            `json:"SPDXID"`
		Name             string            `json:"name"`
		VersionInfo      string            `json:"versionInfo"`
		Purpose          string            `json:"primaryPackagePurpose,omitempty"`
		DownloadLocation string            `json:"downloadLocation"`
		FilesAnalyzed    bool              `json:"filesAnalyzed"`
		Checksums        []spdxChecksum    `json:"checksums,omitempty"`
		SourceInfo       string            `json:"sourceInfo,omitempty"`
		LicenseConcluded string            `json:"licenseConcluded"`
		LicenseDeclared  string            `json:"licenseDeclared"`
		CopyrightText    string            `json:"copyrightText"`
		ExternalRefs     []spdxExternalRef `json:"externalRefs"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxExternalRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxFile struct {
		SPDXID             string         `json:"SPDXID"`
		FileName           string         `json:"fileName"`
		FileTypes          []string       `json:"fileTypes"`
		Checksums          []spdxChecksum `json:"checksums"`
		LicenseConcluded   string         `json:"licenseConcluded"`
		LicenseInfoInFiles []string       `json:"licenseInfoInFiles"`
		CopyrightText      string         `json:"copyrightText"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// newSBOM returns the SPDX document of the image of a platform. It lists the files of the image, and the modules that
// the linker recorded in the binary. A list from go.mod would also have modules that only tests need, or that this
// platform does not need.
//
// Two builds give the same document. The namespace, which must be unique, is derived from the digest of the image.
func newSBOM(src *source, fullName string, p platformImage, info *debug.BuildInfo, files []file) ([]byte, error) {
	digest, err := p.image.Digest()
	if err != nil {
		return nil, err
	}
	doc := &spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT",
		Name:              fullName + " " + p.platform.String(),
		DocumentNamespace: "https://" + modulePath + "/spdx/" + digest.Algorithm + "-" + digest.Hex,
		CreationInfo: spdxCreation{
			Created: src.created.Format(time.RFC3339), Creators: []string{"Tool: foo-controller/hack/image-" + src.version},
		},
	}
	doc.relate(doc.SPDXID, "DESCRIBES", imageID)
	doc.addImage(src, fullName, p.platform, digest)
	if err := doc.addModules(src, info); err != nil {
		return nil, err
	}
	doc.addFiles(files)
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

func (d *spdxDocument) relate(element, relationship, related string) {
	d.Relationships = append(d.Relationships, spdxRelationship{element, relationship, related})
}

// addPackage adds a package with purl, its name in all tools: https://github.com/package-url/purl-spec
func (d *spdxDocument) addPackage(pkg spdxPackage, purl string) {
	pkg.DownloadLocation, pkg.LicenseConcluded, pkg.CopyrightText = noAssertion, noAssertion, noAssertion
	if pkg.LicenseDeclared == "" {
		pkg.LicenseDeclared = noAssertion
	}
	pkg.ExternalRefs = []spdxExternalRef{{"PACKAGE-MANAGER", "purl", purl}}
	d.Packages = append(d.Packages, pkg)
}

func (d *spdxDocument) addImage(src *source, fullName string, platform v1.Platform, digest v1.Hash) {
	repository := fullName[:strings.LastIndex(fullName, ":")]
	d.addPackage(spdxPackage{
		SPDXID: imageID, Name: repository, VersionInfo: src.version, Purpose: "CONTAINER",
		Checksums: []spdxChecksum{{"SHA256", digest.Hex}},
	}, fmt.Sprintf("pkg:oci/%s@%s?arch=%s&repository_url=%s&tag=%s", repository[strings.LastIndex(repository, "/")+1:],
		url.QueryEscape(digest.String()), platform.Architecture, url.QueryEscape(repository), url.QueryEscape(src.version)))
}

// addModules adds the controller, the modules that it contains, and Go's standard library.
func (d *spdxDocument) addModules(src *source, info *debug.BuildInfo) error {
	d.addPackage(spdxPackage{
		SPDXID: moduleID, Name: modulePath, VersionInfo: src.version, LicenseDeclared: license, Purpose: "APPLICATION",
	}, golangPURL(modulePath, src.version))
	d.relate(imageID, "CONTAINS", moduleID)
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	d.addPackage(spdxPackage{
		SPDXID: stdlibID, Name: "stdlib", VersionInfo: goVersion, LicenseDeclared: "BSD-3-Clause", Purpose: "LIBRARY",
	}, golangPURL("stdlib", goVersion))
	d.relate(moduleID, "DEPENDS_ON", stdlibID)
	for i, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		sum, err := decodeSum(module.Sum)
		if err != nil {
			return fmt.Errorf("module %s: %w", module.Path, err)
		}
		id := "SPDXRef-Module-" + strconv.Itoa(i+1)
		d.addPackage(spdxPackage{
			SPDXID: id, Name: module.Path, VersionInfo: module.Version, Purpose: "LIBRARY",
			Checksums:  []spdxChecksum{{"SHA256", sum}},
			SourceInfo: "The checksum is that of go.sum, in hexadecimal: " + module.Sum,
		}, golangPURL(module.Path, module.Version))
		d.relate(moduleID, "DEPENDS_ON", id)
	}
	return nil
}

// golangPURL returns the package URL of a Go module. In a package URL, a plus sign would be a space.
func golangPURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// decodeSum returns a checksum of go.sum in hexadecimal. It is a SHA-256 over the SHA-256 of each file of the module.
func decodeSum(sum string) (string, error) {
	encoded, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return "", fmt.Errorf("the checksum %q is not an h1 one; is the module replaced by a directory?", sum)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return hex.EncodeToString(raw), err
}

func (d *spdxDocument) addFiles(files []file) {
	for _, f := range files {
		if f.content == nil {
			continue // A directory.
		}
		id, fileType := "SPDXRef-File-"+strings.ReplaceAll(f.path, "/", "-"), "TEXT"
		if f.path == binaryPath {
			fileType = "BINARY"
			d.relate(id, "GENERATED_FROM", moduleID)
		}
		old, sum := sha1.Sum(f.content), sha256.Sum256(f.content) // SPDX requires SHA-1.
		d.Files = append(d.Files, spdxFile{
			SPDXID: id, FileName: "./" + f.path, FileTypes: []string{fileType},
			Checksums:        []spdxChecksum{{"SHA1", hex.EncodeToString(old[:])}, {"SHA256", hex.EncodeToString(sum[:])}},
			LicenseConcluded: noAssertion, LicenseInfoInFiles: []string{noAssertion}, CopyrightText: noAssertion,
		})
		d.relate(imageID, "CONTAINS", id)
	}
}

// newArtifact returns an OCI artifact with the SBOM of each platform. Its subject is the index, so that a registry
// which has both lists the artifact among the referrers of the index.
func newArtifact(index v1.ImageIndex, platforms []platformImage) (v1.Image, error) {
	subject, err := partial.Descriptor(index)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdxType)
	for _, p := range platforms {
		artifact, err = mutate.Append(artifact, mutate.Addendum{
			Layer:       static.NewLayer(p.sbom, spdxType),
			Annotations: map[string]string{"org.opencontainers.image.title": p.file(".spdx.json")},
		})
		if err != nil {
			return nil, err
		}
	}
	return mutate.Subject(artifact, v1.Descriptor{
		MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest,
	}).(v1.Image), nil
}
