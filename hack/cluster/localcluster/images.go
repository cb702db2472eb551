package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// load gives an image a name on all nodes, in place of another one with this name. layout is the directory of an OCI
// layout.
func (c *cluster) load(ctx context.Context, layout, name string) error {
	if len(c.nodes) == 0 {
		return errors.New("this cluster has only simulated nodes, which need no images")
	}
	for _, node := range c.nodes {
		archive, err := archiveOf(layout)
		if err != nil {
			return err
		}
		if err := node.load(ctx, archive, name); err != nil {
			return err
		}
	}
	return nil
}

// archiveOf returns a layout as an archive.
func archiveOf(layout string) (io.ReadCloser, error) {
	if layout == pauseLayout {
		return pauseArchive()
	}
	reader, writer := io.Pipe()
	go func() {
		archive := tar.NewWriter(writer)
		writer.CloseWithError(errors.Join(archive.AddFS(os.DirFS(layout)), archive.Close()))
	}()
	return reader, nil
}

// load imports an archive, which is an OCI layout or what "docker save" writes.
func (n realNode) load(ctx context.Context, archive io.ReadCloser, name string) error {
	defer archive.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(isolatedPrograms, "ctr"), "--address", n.socket(),
		"--namespace", "k8s.io", "images", "import", "--local", "--snapshotter", "native", "--index-name", name, "-")
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s on %s: %w: %s", name, n.name(), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// serveLoad answers requests to load images.
func (c *cluster) serveLoad(w http.ResponseWriter, r *http.Request) {
	answer(w, c.load(r.Context(), r.FormValue("layout"), r.FormValue("name")))
}

// pauseLayout stands for the image of the pods themselves, in place of the directory of a layout.
const pauseLayout = "pause"

// pauseArchive returns the image of the program that holds the namespaces of a pod, as "docker save" would write it.
func pauseArchive() (io.ReadCloser, error) {
	program, err := os.ReadFile(filepath.Join(isolatedPrograms, "pause"))
	if err != nil {
		return nil, err
	}
	layer, err := tarOf(map[string][]byte{"pause": program})
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": []string{"/pause"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]object{{
		"Config": "config.json", "RepoTags": []string{pauseImage}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	archive, err := tarOf(map[string][]byte{"config.json": config, "layer.tar": layer, "manifest.json": manifest})
	return io.NopCloser(bytes.NewReader(archive)), err
}

func tarOf(files map[string][]byte) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), w.Close()
}
