//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// newStore returns a store with one image for this machine, foo-controller:v1, that has these files.
func newStore(t *testing.T, files ...*tar.Header) *imageStore {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(archive(t, files...), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	other, err := mutate.Config(empty.Image, v1.Config{User: "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: runtime.GOOS, Architecture: "other"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}}})
	s := &imageStore{layout: t.TempDir(), dir: t.TempDir()}
	path, err := layout.Write(s.layout, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	named := layout.WithAnnotations(map[string]string{"io.containerd.image.name": "docker.io/library/foo-controller:v1"})
	if err := path.AppendIndex(index, named); err != nil {
		t.Fatal(err)
	}
	return s
}

// archive returns a tar file. The content of each file is its name.
func archive(t *testing.T, files ...*tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, header := range files {
		if header.Typeflag == tar.TypeReg {
			header.Size = int64(len(header.Name))
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte(header.Name))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAnImageIsFoundByItsNameAndUnpackedOnce(t *testing.T) {
	s := newStore(t, &tar.Header{Typeflag: tar.TypeReg, Name: "program", Mode: 0o755},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "program"})
	first, err := s.get("foo-controller:v1")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(first.dir, "link"))
	if err != nil || info.Mode().Perm() != 0o755 || info.Size() != int64(len("program")) {
		t.Errorf("the program is %+v, %v", info, err)
	}
	if !strings.HasPrefix(first.id, "docker.io/library/foo-controller@sha256:") {
		t.Errorf("the ID is %s", first.id)
	}
	before, err := os.Stat(first.dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.get("docker.io/library/foo-controller:v1")
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(again.dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was unpacked again: %v", err)
	}
	for _, name := range []string{"foo-controller", "foo-controller:v2", "registry.example/foo-controller:v1"} {
		if _, err := s.get(name); !errors.Is(err, errNoImage) {
			t.Errorf("%s: %v, want %v", name, err, errNoImage)
		}
	}
	s.layout = filepath.Join(s.layout, "absent")
	if _, err := s.get("foo-controller:v1"); !errors.Is(err, errNoImage) {
		t.Errorf("without a layout: %v, want %v", err, errNoImage)
	}
}

func TestAnArchiveCannotWriteOutsideOfItsDirectory(t *testing.T) {
	for name, files := range map[string][]*tar.Header{
		"a path with dots": {{Typeflag: tar.TypeReg, Name: "../../escaped", Mode: 0o600}},
		"an absolute path": {{Typeflag: tar.TypeReg, Name: "/escaped", Mode: 0o600}},
		"a link": {{Typeflag: tar.TypeSymlink, Name: "out", Linkname: ".."},
			{Typeflag: tar.TypeReg, Name: "out/escaped", Mode: 0o600}},
	} {
		outside := t.TempDir()
		dir := filepath.Join(outside, "in", "dir")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = untar(bytes.NewReader(archive(t, files...)), dir) // Refused, or inside.
		err := filepath.WalkDir(outside, func(path string, entry os.DirEntry, err error) error {
			if entry.Name() == "escaped" && !strings.HasPrefix(path, dir+"/") {
				t.Errorf("%s: the file %s was written", name, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheUserOfAnImageIsANumber(t *testing.T) {
	for user, want := range map[string][2]int{"": {0, 0}, "7": {7, 0}, "65532:65533": {65532, 65533}, "nobody": {-1, -1}} {
		img := &image{config: v1.Config{User: user}}
		uid, gid, err := img.user()
		if err != nil {
			uid, gid = -1, -1
		}
		if uid != want[0] || gid != want[1] {
			t.Errorf("%q: %d, %d, %v; want %v", user, uid, gid, err, want)
		}
	}
}
