//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// errNoImage means that no image of that name is in the layout.
var errNoImage = errors.New("not found")

// An imageStore has the images of an OCI layout, which hack/image writes, and unpacks each of them once.
type imageStore struct {
	// layout is the directory with the images, dir the one for unpacked images.
	layout, dir string
	mu          sync.Mutex // Held while an image is unpacked.
}

// An image is an unpacked image.
type image struct {
	// id is the name with the digest, as the status of a pod has it. dir has the files.
	id, dir string
	config  v1.Config
}

// get returns the image that a pod names. It reads the layout again each time, because a new build replaces it.
func (s *imageStore) get(ref string) (*image, error) {
	wanted, err := name.ParseReference(ref)
	if err != nil {
		return nil, err
	}
	found, err := s.find(wanted)
	if err != nil {
		return nil, fmt.Errorf("image %s in %s: %w", ref, s.layout, err)
	}
	digest, err := found.Digest()
	if err != nil {
		return nil, err
	}
	config, err := found.ConfigFile()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, digest.Hex)
	if err := s.unpack(found, dir); err != nil {
		return nil, fmt.Errorf("unpack image %s: %w", ref, err)
	}
	id := containerdName(wanted.Context().Name()) + "@" + digest.String()
	return &image{id: id, dir: dir, config: config.Config}, nil
}

// find returns the image of that name or digest for this machine.
func (s *imageStore) find(wanted name.Reference) (v1.Image, error) {
	root, err := layout.ImageIndexFromPath(s.layout)
	if os.IsNotExist(err) {
		return nil, errNoImage
	}
	if err != nil {
		return nil, err
	}
	entries, err := root.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, entry := range entries.Manifests {
		named := entry.Annotations["io.containerd.image.name"] == containerdName(wanted.Name())
		if !named && entry.Digest.String() != wanted.Identifier() {
			continue
		}
		if entry.MediaType.IsIndex() {
			index, err := root.ImageIndex(entry.Digest)
			if err != nil {
				return nil, err
			}
			return forThisMachine(index)
		}
		return root.Image(entry.Digest)
	}
	return nil, errNoImage
}

// containerdName returns the name that containerd and the kubelet give to an image without a registry.
func containerdName(full string) string {
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry+"/"); ok {
		return "docker.io/" + rest
	}
	return full
}

func forThisMachine(index v1.ImageIndex) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, entry := range manifest.Manifests {
		if p := entry.Platform; p != nil && p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH {
			return index.Image(entry.Digest)
		}
	}
	return nil, fmt.Errorf("%w for %s/%s", errNoImage, runtime.GOOS, runtime.GOARCH)
}

// unpack writes the files of an image to dir, unless they are there.
func (s *imageStore) unpack(img v1.Image, dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	temp, err := os.MkdirTemp(s.dir, ".unpack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // It does not exist any more, unless there was an error.
	files := mutate.Extract(img)
	defer files.Close()
	if err := untar(files, temp); err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	return os.Rename(temp, dir)
}

// untar writes the files of an archive. They belong to the user of the runner, since the image is only ever mounted
// read-only. No name in the archive leads out of dir.
func untar(archive io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackFile(root, header, reader); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

func unpackFile(root *os.Root, header *tar.Header, content io.Reader) error {
	file := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	mode := os.FileMode(header.Mode).Perm()
	if file == "" {
		return nil
	}
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(file, mode); err != nil {
			return err
		}
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, file)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"), file)
	case tar.TypeReg:
		out, err := root.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, content); err != nil {
			out.Close()
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("a file of type %q", header.Typeflag)
	}
	return root.Chmod(file, mode) // The mode of a new file is without the umask.
}

// user returns the user and group of an image as numbers. The user is a name if it returns an error.
func (i *image) user() (uid, gid int, err error) {
	user, group, _ := strings.Cut(i.config.User, ":")
	if user == "" {
		return 0, 0, nil
	}
	if uid, err = strconv.Atoi(user); err != nil {
		return 0, 0, fmt.Errorf("the user %q of the image is not a number", user)
	}
	if group == "" {
		return uid, 0, nil
	}
	if gid, err = strconv.Atoi(group); err != nil {
		return 0, 0, fmt.Errorf("the group %q of the image is not a number", group)
	}
	return uid, gid, nil
}
