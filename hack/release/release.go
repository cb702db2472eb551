package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// darwin are the platforms of the binaries that only people's own machines run, for --explain.
var darwin = []v1.Platform{{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"}}

// A release is what writeRelease writes to dir beside the image.
type release struct {
	*source
	image string // As the manifests and the chart name it.
	dir   string
}

// checkRelease returns why the source cannot be released to a directory, before minutes of compiling.
func checkRelease(src *source, output string) error {
	entries, err := os.ReadDir(output)
	switch {
	case !semver.IsValid(src.version) || semver.Canonical(src.version) != src.version:
		return fmt.Errorf("%q is no semantic version: give one such as VERSION=v1.2.3", src.version)
	case src.revision == "":
		return errors.New("files differ from the commit, or are in none (git status lists them): commit or remove them first")
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: remove it first", output)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	_, err = notes(src.version)
	return err
}

// writeRelease writes the files of a release: SBOMs and chart as entries of the layout, binaries, manifests, texts.
func writeRelease(src *source, opts options, index v1.ImageIndex, platforms []platformImage, dir string) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	r := &release{source: src, image: opts.name + ":" + src.version, dir: dir}
	if strings.Contains(opts.name, "/") { // Of a registry. A node that got the image as an archive has no digest of it.
		r.image = opts.name + "@" + digest.String()
	}
	all := licensedSet{}
	for _, p := range platforms {
		all.add(p.licenses)
		if err := r.file("foo-controller-linux-"+p.platform.Architecture, p.binary, 0o755); err != nil {
			return err
		}
	}
	if opts.platforms == "" {
		if err := r.compileForPeople(all); err != nil {
			return err
		}
	}
	notes, notesErr := notes(src.version)
	return errors.Join(notesErr, r.artifacts(platforms), r.manifests(),
		r.file("LICENSES.txt", licenseTexts(all), 0o644),
		r.file("NOTES.md", fmt.Appendf(notes, "\nThe image is `%s`, its digest `%s`.\n", r.image, digest), 0o644),
		r.checksums())
}

func (r *release) file(name string, content []byte, mode fs.FileMode) error {
	return os.WriteFile(filepath.Join(r.dir, name), content, mode)
}

// compileForPeople compiles the binaries for darwin, and adds what is in them to all.
func (r *release) compileForPeople(all licensedSet) error {
	for _, platform := range darwin {
		modules, err := r.licenses(platform)
		if err != nil {
			return err
		}
		all.add(modules)
		if _, err := r.compile(platform, r.dir); err != nil {
			return err
		}
	}
	return nil
}

// artifacts adds the SBOMs and the chart to the layout, and writes the chart as a file, too.
func (r *release) artifacts(platforms []platformImage) error {
	images, err := layout.FromPath(filepath.Join(r.dir, "layout"))
	if err != nil {
		return err
	}
	for _, p := range platforms {
		sbom, err := p.sbomArtifact(r.source)
		if err != nil {
			return err
		}
		if err := sbom.append(images, nil); err != nil {
			return err
		}
	}
	chart, err := r.chart()
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(r.version, "v")
	return errors.Join(r.file("foo-controller-"+version+".tgz", chart.content, 0o644),
		chart.append(images, map[string]string{tagOf: version}))
}

// chart packs artifacts/chart as `helm package` does, with the version, and with the image as its default.
func (r *release) chart() (*artifact, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	helmignore, err := os.ReadFile("artifacts/chart/.helmignore")
	if err != nil {
		return nil, err
	}
	ignored := strings.Split(string(helmignore), "\n") // Names only, no patterns.
	archive := tar.NewWriter(compressed)
	chart := &artifact{
		manifest:   v1.Manifest{ArtifactType: string(chartConfig), Annotations: r.labels()},
		configType: chartConfig, contentType: chartType,
	}
	add := func(name string, content []byte) error {
		content, err := r.versioned(name, content)
		if name == "foo-controller/Chart.yaml" {
			chart.config, err = yaml.YAMLToJSON(content)
		}
		headerErr := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: r.created,
			Format: tar.FormatUSTAR,
		})
		_, writeErr := archive.Write(content)
		return errors.Join(err, headerErr, writeErr)
	}
	err = walk("artifacts/chart", "foo-controller", ignored, add)
	err = errors.Join(err, archive.Close(), compressed.Close())
	chart.content = packed.Bytes()
	return chart, err
}

// walk calls do with each file below dir in the order of their names, which begin with name. It follows links, and
// leaves out what has an ignored name.
func walk(dir, name string, ignored []string, do func(name string, content []byte) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		file, name := filepath.Join(dir, entry.Name()), path.Join(name, entry.Name())
		info, err := os.Stat(file)
		switch {
		case err != nil:
			return err
		case slices.Contains(ignored, entry.Name()):
		case slices.Contains(ignored, entry.Name()+"/"):
		case info.IsDir():
			if err := walk(file, name, ignored, do); err != nil {
				return err
			}
		default:
			content, err := os.ReadFile(file)
			if err := errors.Join(err, do(name, content)); err != nil {
				return err
			}
		}
	}
	return nil
}

// versioned returns a file of the chart with what a release sets in it.
func (r *release) versioned(name string, content []byte) (_ []byte, err error) {
	for _, line := range []struct{ file, key, value string }{
		{"foo-controller/Chart.yaml", "version", strings.TrimPrefix(r.version, "v")},
		{"foo-controller/Chart.yaml", "appVersion", strings.TrimPrefix(r.version, "v")},
		{"foo-controller/values.yaml", "image", r.image},
	} {
		if line.file == name && err == nil {
			content, err = setLine(content, line.key, line.value)
		}
	}
	return content, err
}

// manifests writes what `kubectl apply` needs: the CustomResourceDefinition, and it with the controller.
func (r *release) manifests() error {
	var rendered [][]byte
	for _, folder := range []string{"artifacts/crd", "artifacts/deploy"} {
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
		if err != nil {
			return err
		}
		text, err := objects.AsYaml()
		if err != nil {
			return err
		}
		rendered = append(rendered, text)
	}
	controller, err := setLine(rendered[1], "        image", r.image)
	const warning = "# Do not delete this file as a whole: without the CustomResourceDefinition, no Foo is left.\n"
	definition := slices.Concat([]byte(warning), rendered[0])
	return errors.Join(err, r.file("crds.yaml", definition, 0o644),
		r.file("install.yaml", slices.Concat(definition, []byte("---\n"), controller), 0o644))
}

// setLine gives the only line of a text that begins with a key another value.
func setLine(text []byte, key, value string) ([]byte, error) {
	line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
	if found := len(line.FindAll(text, -1)); found != 1 {
		return nil, fmt.Errorf("there are %d lines with %s", found, key)
	}
	return line.ReplaceAllLiteral(text, []byte(key+": "+value)), nil
}

// notes returns the section of a version in the changelog. That of a pre-release is what is not released yet.
func notes(version string) ([]byte, error) {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return nil, err
	}
	title := strings.TrimPrefix(version, "v")
	if semver.Prerelease(version) != "" {
		title = "Unreleased"
	}
	_, section, found := bytes.Cut(changelog, []byte("\n## "+title+"\n"))
	if !found {
		return nil, fmt.Errorf("CHANGELOG.md has no section %q: rename the section \"Unreleased\", and commit that",
			"## "+title)
	}
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	return fmt.Appendf(nil, "# foo-controller %s\n%s", version, section), nil
}

// checksums writes those of all files, as sha256sum does.
func (r *release) checksums() error {
	var sums bytes.Buffer
	files := os.DirFS(r.dir)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
		return err
	})
	return errors.Join(err, r.file("SHA256SUMS", sums.Bytes(), 0o644))
}
