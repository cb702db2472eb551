package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// write writes all files into the directory output, and prints a summary. A directory of an earlier build is replaced,
// and only after all files of the new one are complete. Once it has begun, it does not end early: it takes a second.
func write(ctx context.Context, built *result, output string, out io.Writer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := checkReplaceable(output); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(output), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // It does not exist any more, unless there was an error.
	if err := writeFiles(built, dir); err != nil {
		return err
	}
	if err := makeReadable(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	if err := os.Rename(dir, output); err != nil {
		return err
	}
	return summarise(built, output, out)
}

// checkReplaceable returns an error if output has anything else than an earlier build, so that a wrong --output does
// not delete files.
func checkReplaceable(output string) error {
	entries, err := os.ReadDir(output)
	switch {
	case os.IsNotExist(err) || err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return err
	}
	if _, err := os.Stat(filepath.Join(output, "layout", "oci-layout")); err != nil {
		return fmt.Errorf("--output: %s has other files than those of an earlier image: remove it first", output)
	}
	return nil
}

func writeFiles(built *result, dir string) error {
	// Each layout has one entry, because crane and skopeo refuse to choose.
	images, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return err
	}
	if err := images.AppendIndex(built.index, layout.WithAnnotations(nameAnnotations(built.name))); err != nil {
		return err
	}
	sboms, err := layout.Write(filepath.Join(dir, "sbom"), empty.Index)
	if err != nil {
		return err
	}
	if err := sboms.AppendImage(built.sboms); err != nil {
		return err
	}
	for _, p := range built.platforms {
		if err := os.WriteFile(filepath.Join(dir, p.file(".spdx.json")), p.sbom, 0o644); err != nil {
			return err
		}
		if err := writeArchive(p, built.name, filepath.Join(dir, p.file(".tar"))); err != nil {
			return err
		}
	}
	return nil
}

// makeReadable lets all users read dir. go-containerregistry writes some files for their owner only.
func makeReadable(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.Chmod(name, 0o755)
		}
		return os.Chmod(name, 0o644)
	})
}

// nameAnnotations give an entry of a layout its name. containerd and podman read the full name, as BuildKit writes it,
// and skopeo the tag.
func nameAnnotations(fullName string) map[string]string {
	return map[string]string{
		"io.containerd.image.name":          fullName,
		"org.opencontainers.image.ref.name": fullName[strings.LastIndex(fullName, ":")+1:],
	}
}

// writeArchive writes the image of one platform as a tar file with two tables of contents: index.json for containerd,
// podman and skopeo, and manifest.json for Docker. `docker save` writes such files too.
func writeArchive(p platformImage, fullName, target string) error {
	dir, err := os.MkdirTemp("", "foo-controller-archive-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // A file that is left does no harm.
	images, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = images.AppendImage(p.image, layout.WithAnnotations(nameAnnotations(fullName)), layout.WithPlatform(p.platform))
	if err != nil {
		return err
	}
	if err := writeDockerTable(p.image, fullName, filepath.Join(dir, "manifest.json")); err != nil {
		return err
	}
	files, err := readFiles(os.DirFS(dir))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, files); err != nil {
		return err
	}
	return os.WriteFile(target, archive.Bytes(), 0o644)
}

// writeDockerTable writes manifest.json, in which Docker finds the files of an image.
func writeDockerTable(image v1.Image, fullName, target string) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }
	entry := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{Config: blob(manifest.Config), RepoTags: []string{fullName}}
	for _, layer := range manifest.Layers {
		entry.Layers = append(entry.Layers, blob(layer))
	}
	table, err := json.Marshal([]any{entry})
	if err != nil {
		return err
	}
	return os.WriteFile(target, table, 0o644)
}

// readFiles returns all files and directories of root, in the order of their names.
func readFiles(root fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case entry.IsDir():
			files = append(files, file{path: name + "/", mode: 0o755})
			return nil
		}
		content, err := fs.ReadFile(root, name)
		files = append(files, file{path: name, mode: 0o644, content: content})
		return err
	})
	return files, err
}

// summarise prints what was written.
func summarise(built *result, output string, out io.Writer) error {
	digest, err := built.index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n  %s in %s\n", built.name, digest, filepath.Join(output, "layout"))
	for _, p := range built.platforms {
		manifest, err := p.image.Manifest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %s: binary %.1f MB, layer %.1f MB\n", p.platform,
			float64(len(p.binary))/1e6, float64(manifest.Layers[0].Size)/1e6)
	}
	return nil
}
