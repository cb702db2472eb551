package main

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// testSBOM reads the SBOM with the library of the SPDX project.
func (b *buildResult) testSBOM(t *testing.T) {
	file, err := os.Open(b.path(b.platform().file(".spdx.json")))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	doc := &v2_3.Document{}
	if err := spdxjson.ReadInto(file, doc); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(doc.DocumentNamespace, digestOf(t, b.platform().image).Hex) {
		t.Errorf("namespace %s", doc.DocumentNamespace)
	}
	info, err := buildinfo.Read(bytes.NewReader(b.platform().binary))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"docker.io/library/foo-controller@" + testVersion:       digestOf(t, b.platform().image).Hex,
		"example.com/foo-controller@" + testVersion:             "",
		"stdlib@" + strings.TrimPrefix(runtime.Version(), "go"): "",
	}
	for _, module := range info.Deps {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
		if err != nil {
			t.Fatal(err)
		}
		want[module.Path+"@"+module.Version] = hex.EncodeToString(sum)
	}
	got := map[string]string{}
	for _, pkg := range doc.Packages {
		sum := ""
		for _, checksum := range pkg.PackageChecksums {
			sum = checksum.Value
		}
		got[pkg.PackageName+"@"+pkg.PackageVersion] = sum
		purl, golang := pkg.PackageExternalReferences[0].Locator, "pkg:golang/"+strings.ToLower(pkg.PackageName)+"@"
		if !strings.HasPrefix(purl, golang) && !strings.HasPrefix(purl, "pkg:oci/foo-controller@") {
			t.Errorf("%s has the package URL %s", pkg.PackageName, purl)
		}
	}
	if len(info.Deps) < 30 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("packages:\n%v\nwant:\n%v", got, want)
	}
	b.checkFiles(t, doc)
}

// checkFiles checks that the SBOM has the files of the image.
func (b *buildResult) checkFiles(t *testing.T, doc *v2_3.Document) {
	t.Helper()
	got, want := map[string]bool{}, map[string]bool{}
	for _, f := range doc.Files {
		for _, sum := range f.Checksums {
			got[fmt.Sprint(f.FileName, sum.Algorithm, sum.Value)] = true
		}
	}
	for _, f := range rootfs(b.platform().binary) {
		if f.content != nil {
			want[fmt.Sprintf("./%sSHA1%x", f.path, sha1.Sum(f.content))] = true
			want[fmt.Sprintf("./%sSHA256%x", f.path, sha256.Sum256(f.content))] = true
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("files: %v, want %v", got, want)
	}
}

func (b *buildResult) testArtifact(t *testing.T) {
	path, err := layout.FromPath(b.path("sbom"))
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := top.IndexManifest()
	if err != nil || len(entries.Manifests) != 1 {
		t.Fatal("entries:", entries, err)
	}
	artifact, err := top.Image(entries.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := artifact.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest != digestOf(t, b.index) {
		t.Errorf("subject: %v", manifest.Subject)
	}
	if manifest.Config.MediaType != spdxType || len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != spdxType {
		t.Errorf("media types: %v %v", manifest.Config, manifest.Layers)
	}
	content, err := os.ReadFile(b.path("sbom", "blobs", "sha256", manifest.Layers[0].Digest.Hex))
	if err != nil || !bytes.Equal(content, b.platform().sbom) {
		t.Error("the artifact does not have the SBOM:", err)
	}
}

func TestPackageURLsAreEscaped(t *testing.T) {
	got := golangPURL("github.com/Azure/thing", "v5.9.11+incompatible")
	if want := "pkg:golang/github.com/azure/thing@v5.9.11%2Bincompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAModuleWithoutAChecksumIsAnError(t *testing.T) {
	if sum, err := decodeSum(""); err == nil {
		t.Errorf("got %q", sum)
	}
	if sum, err := decodeSum("h1:AAEC"); err != nil || sum != "000102" {
		t.Errorf("got %q, %v", sum, err)
	}
}
