package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// modulePath is the module of the controller.
	modulePath = "example.com/foo-controller"
	// tags are the build tags of the Makefile. The Makefile explains them.
	tags = "grpcnotrace"
)

// A source is what an image is built from.
type source struct {
	// root is the root of the repository.
	root string
	// version is a tag or commit. The binary prints it for --version.
	version string
	// revision is the commit. It is empty if the files differ from the commit, or if there is no commit.
	revision string
	// created is the time that the image has. It is not the time of the build, so that two builds are equal.
	created time.Time
}

// findRoot returns the root of the repository, which contains the working directory.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("run this in the repository: no directory above has the go.mod of %s", modulePath)
		}
	}
}

// describe returns the source in root. If version is empty, it is that of git.
func describe(ctx context.Context, root, version string) (*source, error) {
	src := &source{root: root, version: "unknown"}
	seconds := "0"
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil { // An archive of the sources has none.
		if seconds, err = src.addCommit(ctx); err != nil {
			return nil, err
		}
	}
	src.version = cmp.Or(version, src.version)
	number, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), seconds), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	src.created = time.Unix(number, 0).UTC()
	return src, nil
}

// addCommit adds the version and revision of the commit, and returns its time in seconds.
//
// Files that git does not know are changes too, because Go compiles all files of a package. `git describe --dirty` does
// not count them. The Makefile finds the version in the same way.
func (s *source) addCommit(ctx context.Context) (seconds string, err error) {
	version, err := s.output(ctx, "git", "describe", "--tags", "--always")
	if err != nil {
		return "", err
	}
	changes, err := s.output(ctx, "git", "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return "", err
	}
	commit, err := s.output(ctx, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return "", err
	}
	revision, seconds, _ := strings.Cut(commit, " ")
	if changes != "" {
		s.version = version + "-dirty"
		return seconds, nil
	}
	s.version, s.revision = version, revision
	return seconds, nil
}

// output returns what a program prints in the root of the repository.
func (s *source) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := command(ctx, program, args...)
	cmd.Dir = s.root
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// command returns a program that is interrupted when ctx ends, so that git removes its lock. It is killed if it has not
// ended 10 s later.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// compile builds the controller for a platform and writes it to dir/binaryPath. dir is for temporary files too: go
// leaves them behind when it is interrupted.
func (s *source) compile(ctx context.Context, platform v1.Platform, dir string) error {
	cmd := command(ctx, "go", "build", "-C", s.root, "-tags", tags, "-o", filepath.Join(dir, binaryPath),
		"-trimpath",                                         // Without it, the binary has the path of the sources.
		"-buildvcs=false",                                   // Without it, the binary depends on the directory .git.
		"-ldflags", "-s -w -X main.buildVersion="+s.version, // -s and -w: no tables for debuggers.
		".")
	var err error
	if cmd.Env, err = s.environment(ctx, platform); err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, "GOTMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the controller for %s: %w\n%s", platform, err, out)
	}
	return nil
}

// places are the settings of Go that name the places of modules, caches and Go itself. They do not change the binary
// that a version of Go compiles. A developer may need them, for instance to download modules.
var places = []string{
	"GOAUTH", "GOCACHE", "GOCACHEPROG", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE",
	"GOPROXY", "GOSUMDB", "GOTOOLCHAIN", "GOVCS",
}

// environment returns the environment of the compiler.
//
// Other settings than places can change the binary, and a developer may have given them other values: in the
// environment, or with `go env -w`. If a variable in the environment is empty, Go takes the value of `go env -w`. So
// GOENV=off hides those values, and only the places are copied.
func (s *source) environment(ctx context.Context, platform v1.Platform) ([]string, error) {
	out, err := s.output(ctx, "go", append([]string{"env", "-json"}, places...)...)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	env := append(os.Environ(),
		"GOENV=off",
		"CGO_ENABLED=0", // A static binary: the image has no C library.
		"GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GO_EXTLINK_ENABLED=")
	for _, name := range places {
		env = append(env, name+"="+values[name])
	}
	return env, nil
}
