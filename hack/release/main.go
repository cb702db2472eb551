// Command imagebuilder builds the container image of the controller and the files of a release, and pushes them to a
// registry. `make image`, `make release` and `make push` run it, in the root of the repository.
//
// It needs Go and git. It needs no Docker, no registry and no base image. A container image is a few files, and the
// library go-containerregistry writes them.
//
// The result is reproducible: the same commit and the same version of Go give the same bytes, on any machine and in any
// directory. So nothing here may depend on the time, on the machine, or on the order of a map.
//
// docs/release.md shows how to use the result.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const usage = `usage: imagebuilder image FLAGS          build the image
       imagebuilder release FLAGS        build the image and all other files of a release
       imagebuilder push DIR REGISTRY    push a release, such as bin/release, to a registry
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := runCommand(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func runCommand(command string, args []string) error {
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	opts := options{}
	flags.StringVar(&opts.output, "output", "bin/"+command, "`directory` to write")
	flags.StringVar(&opts.platforms, "platforms", "", "`platforms` to build for, with commas; empty is all")
	flags.StringVar(&opts.name, "name", "foo-controller", "`name` of the image, without a tag")
	flags.StringVar(&opts.version, "version", "", "`version` of the binary, and tag of the image")
	flags.StringVar(&opts.fips140, "fips140", "off", "`version` of Go's validated cryptography, or off")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case command == "push" && flags.NArg() == 2:
		return push(flags.Arg(0), flags.Arg(1))
	case command == "image" && flags.NArg() == 0:
		return build(opts)
	case command == "release" && flags.NArg() == 0:
		opts.release = true
		return build(opts)
	}
	return errors.New("unexpected arguments: see imagebuilder --help")
}

// options are the values of the flags.
type options struct {
	output, platforms, name, version, fips140 string
	release                                   bool
}

// build builds the image, or a release, in a directory beside the output, and then replaces the output with it.
func build(opts options) error {
	tag, err := fullName(opts.name, opts.version)
	if err != nil {
		return err
	}
	src, err := describe(opts)
	if err != nil {
		return err
	}
	output, err := filepath.Abs(opts.output)
	if err != nil {
		return err
	}
	if opts.release {
		if err := checkRelease(src, output); err != nil {
			return err
		}
	}
	err = os.MkdirAll(filepath.Dir(output), 0o755)
	work, errWork := os.MkdirTemp(filepath.Dir(output), "new-"+filepath.Base(output)+"-")
	defer func() { _ = os.RemoveAll(work) }() // It does not exist any more, unless there was an error.
	if err := errors.Join(err, errWork, os.Chmod(work, 0o755)); err != nil {
		return err
	}
	var platforms []platformImage
	for text := range strings.SplitSeq(opts.imagePlatforms(), ",") {
		p, err := buildPlatform(src, tag, text, work)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		platforms = append(platforms, p)
	}
	index := newIndex(src, platforms)
	if err := write(index, platforms, tag, work); err != nil {
		return err
	}
	if opts.release {
		if err := writeRelease(src, opts, index, platforms, work); err != nil {
			return err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if err := replace(output, work); err != nil {
		return err
	}
	fmt.Printf("%s\n  %s in %s\n", tag, digest, filepath.Join(output, "layout"))
	return nil
}

// imagePlatforms returns the platforms of the image: those of Linux.
func (opts options) imagePlatforms() string {
	return cmp.Or(opts.platforms, "linux/amd64,linux/arm64")
}

// fullName returns the name that containerd and the kubelet give to the image. A name without a registry is one of
// docker.io for them, also if the image was never there.
func fullName(image, version string) (name.Tag, error) {
	tag, err := name.NewTag(image + ":" + version)
	if err != nil {
		return tag, fmt.Errorf("name and version of the image: %w", err)
	}
	full := tag.Name()
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry+"/"); ok {
		full = "docker.io/" + rest
	}
	return name.NewTag(full)
}

// write writes the files for users. The layout has one entry, the index: crane refuses to push a layout with two.
// containerd and podman read the full name of the entry, and skopeo the tag.
func write(index v1.ImageIndex, platforms []platformImage, tag name.Tag, dir string) error {
	images, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{nameOf: tag.String(), tagOf: tag.TagStr()}
	if err := images.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	for _, p := range platforms {
		file := filepath.Join(dir, "foo-controller-linux-"+p.platform.Architecture)
		err := errors.Join(tarball.WriteToFile(file+".tar", tag, p.image), os.WriteFile(file+".spdx.json", p.sbom, 0o644))
		if err != nil {
			return err
		}
	}
	return nil
}

// replace renames work to output. It removes an earlier image there, and nothing else: a wrong --output deletes no
// files of others.
func replace(output, work string) error {
	if _, err := os.Stat(filepath.Join(output, "layout", "oci-layout")); err == nil {
		if err := os.RemoveAll(output); err != nil {
			return err
		}
	}
	return os.Rename(work, output) // An error if output is a directory.
}
