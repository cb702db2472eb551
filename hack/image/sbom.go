package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// noAssertion is SPDX for: nobody has checked it.
const noAssertion = "NOASSERTION"

// newSBOM returns the SPDX document of the image of a platform. It lists the modules that the linker recorded in the
// binary. A list from go.mod would also have modules that only tests need, or that this platform does not need.
//
// Two builds give the same document. The namespace, which must be unique, is derived from the digest of the image.
func newSBOM(src *source, tag name.Tag, p platformImage, info *debug.BuildInfo) ([]byte, error) {
	digest, err := p.image.Digest()
	if err != nil {
		return nil, err
	}
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      tag.String() + " " + p.platform.String(),
		DocumentNamespace: "https://" + info.Main.Path + "/spdx/" + digest.Algorithm + "-" + digest.Hex,
		CreationInfo: &v2_3.CreationInfo{
			Created:  src.created.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "foo-controller/hack/image-" + src.version}},
		},
	}
	repository := strings.TrimSuffix(tag.String(), ":"+tag.TagStr())
	add(doc, "DOCUMENT", common.TypeRelationshipDescribe, &v2_3.Package{
		PackageSPDXIdentifier: "Image", PackageName: repository, PackageVersion: src.version,
		PrimaryPackagePurpose: "CONTAINER",
		PackageChecksums:      []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}},
	}, fmt.Sprintf("pkg:oci/%s@%s?arch=%s&repository_url=%s&tag=%s", path.Base(repository),
		url.QueryEscape(digest.String()), p.platform.Architecture, url.QueryEscape(repository), url.QueryEscape(src.version)))
	add(doc, "Image", common.TypeRelationshipContains, &v2_3.Package{
		PackageSPDXIdentifier: "Module", PackageName: info.Main.Path, PackageVersion: src.version,
		PrimaryPackagePurpose: "APPLICATION", PackageLicenseDeclared: license,
	}, golangPURL(info.Main.Path, src.version))
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	add(doc, "Module", common.TypeRelationshipDependsOn, &v2_3.Package{
		PackageSPDXIdentifier: "Stdlib", PackageName: "stdlib", PackageVersion: goVersion,
		PrimaryPackagePurpose: "LIBRARY", PackageLicenseDeclared: p.licenses["stdlib"].expression,
	}, golangPURL("stdlib", goVersion))
	for i, module := range info.Deps {
		licensed := p.licenses[module.Path]
		if module.Replace != nil {
			module = module.Replace
		}
		add(doc, "Module", common.TypeRelationshipDependsOn, &v2_3.Package{
			PackageSPDXIdentifier: common.ElementID("Module-" + strconv.Itoa(i+1)),
			PackageName:           module.Path, PackageVersion: module.Version, PrimaryPackagePurpose: "LIBRARY",
			PackageLicenseDeclared: licensed.expression,
			PackageSourceInfo:      "Its checksum in go.sum is " + module.Sum,
		}, golangPURL(module.Path, module.Version))
	}
	var text bytes.Buffer
	err = spdxjson.Write(doc, &text, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
	return text.Bytes(), err
}

// add adds a package with its purl, which is its name in all tools (https://github.com/package-url/purl-spec), and its
// relationship to what contains or needs it.
func add(doc *v2_3.Document, from common.ElementID, relationship string, pkg *v2_3.Package, purl string) {
	pkg.PackageDownloadLocation, pkg.PackageLicenseConcluded = noAssertion, noAssertion
	pkg.PackageCopyrightText = noAssertion
	if pkg.PackageLicenseDeclared == "" {
		pkg.PackageLicenseDeclared = noAssertion
	}
	pkg.PackageExternalReferences = []*v2_3.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: "purl", Locator: purl,
	}}
	doc.Packages = append(doc.Packages, pkg)
	doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: relationship,
		RefB: common.DocElementID{ElementRefID: pkg.PackageSPDXIdentifier},
	})
}

// golangPURL returns the package URL of a Go module. In a package URL, a plus sign would be a space.
func golangPURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
