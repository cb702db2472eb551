package main

import (
	"archive/tar"
	"bytes"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// compressionLevel is that of gzip. Level 9 takes eight times as long and saves 1 %.
	compressionLevel = 5
	// binaryPath is where the binary is in the image.
	binaryPath = "foo-controller"
	// passwd and group give the user of the image a name. Without them, all works the same, except that tools which
	// search for the name of a user do not find it.
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
)

// A file is one entry of the layer. Entries belong to root, and the user of the image cannot write to any of them.
type file struct {
	path    string
	mode    int64
	content []byte // Nil for a directory.
}

// rootfs returns everything in the image.
//
// There is no /tmp, because the controller writes no files. There are no CA certificates: the controller connects only
// to the API server, and the CA of the cluster is in the ServiceAccount or in the kubeconfig. There is no time zone
// data: the controller uses UTC. The kubelet adds /etc/hosts, /etc/resolv.conf and /dev.
func rootfs(binary []byte) []file {
	return []file{
		{path: "etc/", mode: 0o755},
		{path: "etc/group", mode: 0o644, content: []byte(group)},
		{path: "etc/passwd", mode: 0o644, content: []byte(passwd)},
		{path: binaryPath, mode: 0o755, content: binary},
	}
}

// writeTar writes files to w. Two tar files with the same files are equal: owner, times and format are fixed.
func writeTar(w io.Writer, files []file) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}
		if f.content == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// newLayer returns a layer with files.
func newLayer(files []file) (v1.Layer, error) {
	var content bytes.Buffer
	if err := writeTar(&content, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(compressionLevel), tarball.WithCompressedCaching)
}
