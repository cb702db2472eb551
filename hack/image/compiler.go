package main

import (
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

// releaseFlags are flags of the compiler that only the image and the benchmark have. `make build` has none of them, so
// that what it compiles is shared with the local control plane and with the tests.
//
//   - -trimpath: without it, the binary has the path of the sources.
//   - -s -w: no tables for debuggers.
const releaseFlags = "-mod=readonly -trimpath '-ldflags=-s -w -X main.buildVersion=%s'"

// A source is what an image is built from: the working directory, which is the root of the repository.
type source struct {
	// version is the tag of the image, and what the binary prints for --version.
	version string
	// revision is the commit. It is empty if files differ from the commit, or if there is no commit.
	revision string
	// created is the time that the image has: that of the commit and not of the build, so that two builds are equal.
	created time.Time
	// fips140 is the setting of Go's cryptography: off, or the version of a validated module.
	fips140 string
}

// describe returns the source for opts. A file that git does not know is a difference from the commit, because
// Go compiles it. The Makefile gives such a source a version that ends in -dirty.
func describe(opts options) (*source, error) {
	src := &source{version: opts.version, fips140: opts.fips140, created: time.Unix(0, 0).UTC()}
	if _, err := os.Stat(".git"); err != nil { // An archive of the sources has none.
		return src, nil
	}
	changes, err := output(nil, "git", "status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return nil, err
	}
	commit, err := output(nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, err
	}
	revision, seconds, _ := strings.Cut(commit, " ")
	if changes == "" {
		src.revision = revision
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	src.created = time.Unix(number, 0).UTC()
	return src, err
}

// output returns what a program prints. Without env, it has the environment of this process.
func output(env []string, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// compile builds the controller for a platform in dir, and returns the name of the file. hack/build.sh prints the
// progress: a platform takes minutes where nothing is compiled yet.
func (s *source) compile(platform v1.Platform, dir string) (string, error) {
	env, err := s.environment(platform)
	if err != nil {
		return "", err
	}
	binary := "foo-controller-" + platform.OS + "-" + platform.Architecture
	cmd := exec.Command("hack/build.sh", binary)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Env = append(env, "RELEASE_DIR="+dir, "GOFLAGS="+fmt.Sprintf(releaseFlags, s.version))
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the controller: %w", err)
	}
	return filepath.Join(dir, binary), nil
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
func (s *source) environment(platform v1.Platform) ([]string, error) {
	out, err := output(nil, "go", append([]string{"env", "-json"}, places...)...)
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
		"GOWORK=off", "GOEXPERIMENT=", "GOFIPS140="+s.fips140, "GO_EXTLINK_ENABLED=",
		"GOFLAGS=-mod=readonly") // For go list. The compiler has further ones.
	for _, name := range places {
		env = append(env, name+"="+values[name])
	}
	return env, nil
}
