// Command image builds the container image of the controller. `make image` runs it; in the root of the repository:
//
//	go run -C hack/image .           writes bin/image for linux/amd64 and linux/arm64
//	go run -C hack/image . --help    lists the flags
//
// It needs Go and git. It needs no Docker, no registry and no base image. A container image is a few files, and the
// library go-containerregistry writes them:
//
//	main.go      flags, and the order of the steps
//	source.go    the version of the sources, and the compiler with all settings that change the binary
//	rootfs.go    the one layer: a tar file with the binary, /etc/passwd and /etc/group
//	image.go     the configuration (user, entrypoint, labels), and the index with one image for each platform
//	sbom.go      the list of modules in the binary, as SPDX
//	output.go    the files in bin/image
//
// The image is reproducible: the same commit and the same version of Go give the same digest, on any machine and in any
// directory. So nothing here may depend on the time, on the machine, or on the order of a map.
//
// This is a module of its own, because the controller does not depend on go-containerregistry. docs/image.md shows how
// to use the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the command at once.
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // And not the error of the program that was interrupted.
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	// output is the directory to write.
	output string
	// platforms are those to build for, such as linux/arm64.
	platforms []v1.Platform
	// name is the name of the image without a tag, version its tag and the version of the binary.
	name, version string
}

const usage = `Writes the container image of the controller, without Docker, a registry or a base image.

usage: go run -C hack/image . [flags]

The directory of --output gets:
  layout/                          all platforms, as an OCI image layout
  foo-controller-linux-ARCH.tar    one platform, for kind, minikube, containerd, podman and docker
  foo-controller-linux-ARCH.spdx.json
                                   the SBOM of one platform
  sbom/                            an OCI image layout with both SBOMs, to push beside the image

The time in the image is SOURCE_DATE_EPOCH if it is set, or the time of the commit.

flags:
`

// run ends early if ctx ends, and then removes its temporary files.
func run(ctx context.Context, args []string, out io.Writer) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	opts, err := parse(args, root, out)
	if err != nil {
		return err
	}
	source, err := describe(ctx, root, opts.version)
	if err != nil {
		return err
	}
	built, err := build(ctx, source, opts)
	if err != nil {
		return err
	}
	return write(ctx, built, opts.output, out)
}

// parse reads the flags. Relative paths are relative to root, because the command runs in hack/image.
func parse(args []string, root string, out io.Writer) (*options, error) {
	opts := &options{}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // A mistake gets one line, from main.
	flags.StringVar(&opts.output, "output", "bin/image",
		"`directory` to write; a relative path begins at the root of the repository")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "`platforms` to build for, with commas")
	flags.StringVar(&opts.name, "name", "foo-controller", "`name` of the image, without a tag")
	flags.StringVar(&opts.version, "version", "",
		"`version` of the binary and tag of the image; empty is that of git describe")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if !filepath.IsAbs(opts.output) {
		opts.output = filepath.Join(root, opts.output)
	}
	var err error
	opts.platforms, err = parsePlatforms(*platforms)
	return opts, err
}

func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	seen := map[string]bool{}
	for _, text := range strings.Split(list, ",") {
		switch {
		case text != "linux/amd64" && text != "linux/arm64":
			return nil, fmt.Errorf("--platforms: %q is neither linux/amd64 nor linux/arm64", text)
		case seen[text]:
			return nil, fmt.Errorf("--platforms: %s is there twice", text)
		}
		seen[text] = true
		platforms = append(platforms, v1.Platform{OS: "linux", Architecture: strings.TrimPrefix(text, "linux/")})
	}
	return platforms, nil
}
