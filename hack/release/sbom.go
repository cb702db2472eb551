package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/licensecheck"
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
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "foo-controller/hack/release-" + src.version}},
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

// permitted are the licences, as SPDX names them, under which a module may be part of the binary: they demand no more
// than their text beside it. A module with another one, or with none, ends the build.
var permitted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// coverage is how much of a file with licences has to be known text, in percent. The rest are names and years, and
// explanations of which file has which licence.
const coverage = 75

// grants are the files with licences, and texts those and what has to be kept beside them.
var (
	grants = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)
	texts  = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)
)

// A licensed is a module with the licences of its files.
type licensed struct {
	expression string            // For SPDX, such as "Apache-2.0 AND MIT".
	texts      map[string][]byte // The content of each file, by its path in the module.
}

// A licensedSet is the modules in a binary, by their paths. Go itself is one, with the path stdlib.
type licensedSet map[string]*licensed

// licenses returns the licences of what is in the binary of a platform. As go-licenses does, it reads those of the
// directories with the packages, and of all directories above them: a package may be a copy of somebody else's. The
// main module may have any: it may be a fork.
func (s *source) licenses(platform v1.Platform) (licensedSet, error) {
	env, err := s.environment(platform)
	if err != nil {
		return nil, err
	}
	goroot, err := output(env, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	const inModule = "{{with .Module}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}\t{{.Main}}{{end}}"
	out, err := output(env, "go", "list", "-deps", "-f", inModule, ".")
	if err != nil {
		return nil, err
	}
	stdlib := &licensed{texts: map[string][]byte{}}
	if err := stdlib.read(goroot, goroot); err != nil {
		return nil, err
	}
	modules, seen, main := licensedSet{"stdlib": stdlib}, map[string]bool{}, ""
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		module, root := modules[fields[0]], fields[1]
		if fields[3] == "true" {
			main = fields[0]
		}
		if module == nil {
			module = &licensed{texts: map[string][]byte{}}
			modules[fields[0]] = module
		}
		for dir := fields[2]; strings.HasPrefix(dir, root) && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true // And so are those above it.
			if err := module.read(root, dir); err != nil {
				return nil, err
			}
		}
	}
	for path, module := range modules {
		if module.expression, err = module.evaluate(); err != nil && path != main {
			return nil, fmt.Errorf("the licence of %s: %w", path, err)
		}
	}
	return modules, nil
}

// read adds the texts in a directory of the module.
func (m *licensed) read(root, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !texts.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		m.texts[filepath.ToSlash(path)] = content
	}
	return err
}

// evaluate returns the licences, or an error if there is none, or one that is not permitted.
func (m *licensed) evaluate() (string, error) {
	var names []string
	for _, path := range slices.Sorted(maps.Keys(m.texts)) {
		if !grants.MatchString(filepath.Base(path)) {
			continue
		}
		found := licensecheck.Scan(m.texts[path])
		if found.Percent < coverage {
			return "", fmt.Errorf("%.0f %% of %s is the text of a known licence, less than %d", found.Percent, path, coverage)
		}
		for _, match := range found.Match {
			if !slices.Contains(permitted, match.ID) {
				return "", fmt.Errorf("%s has %s, which is none of %s", path, match.ID, strings.Join(permitted, ", "))
			}
			names = append(names, match.ID)
		}
	}
	if len(names) == 0 {
		return "", errors.New("there is no file with one")
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " AND "), nil
}

// add adds the modules in the binary of another platform, which may have further packages of a module.
func (s licensedSet) add(others licensedSet) {
	for path, module := range others {
		if s[path] == nil {
			s[path] = &licensed{texts: map[string][]byte{}}
		}
		maps.Copy(s[path].texts, module.texts)
	}
}

// licenseTexts returns the texts for the modules, in one file.
func licenseTexts(modules licensedSet) []byte {
	var all bytes.Buffer
	all.WriteString("The texts that the licences of the modules in foo-controller demand to be kept with it.\n")
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		for _, file := range slices.Sorted(maps.Keys(modules[path].texts)) {
			fmt.Fprintf(&all, "\n======== %s/%s\n\n%s\n", path, file, bytes.TrimSpace(modules[path].texts[file]))
		}
	}
	return all.Bytes()
}
