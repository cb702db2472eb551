//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	checkCommand = "check"
	// checkEntrypointCommand is the entrypoint of the container that check starts.
	checkEntrypointCommand = "check-entrypoint"
)

// check starts a container with this program in it, exactly as those of pods are started, and returns an error if the
// machine does not permit that.
func check(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "podrunner-check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // A file that is left does no harm.
	image := filepath.Join(dir, "image")
	if err := os.Mkdir(image, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(image, "podrunner"), program, 0o755); err != nil {
		return err
	}
	const user = 65532
	sandbox, err := startSandbox(sandboxSpec{Dir: dir, Image: image, PodIP: "10.245.0.2", Hostname: "check"}, user, user)
	if err != nil {
		return err
	}
	defer sandbox.stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = sandbox.start(ctx, &containerSpec{
		Args: []string{"/podrunner", checkEntrypointCommand}, Dir: "/", UID: user, GID: user, HostUID: hostID(user),
		HostGID: hostID(user), ReadOnly: true, NoNewPrivileges: true,
	}, os.Stderr)
	if err != nil {
		return err
	}
	select {
	case exit, ok := <-sandbox.exits:
		if !ok || exit.Code != 0 {
			return fmt.Errorf("a container ended with %d", exit.Code)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkEntrypoint runs in the container that check starts. It ends at once, with success if the container is as asked.
func checkEntrypoint() error {
	if os.Getuid() != 65532 || os.Getpid() != 1 {
		return fmt.Errorf("user %d and process %d, want 65532 and 1", os.Getuid(), os.Getpid())
	}
	if err := os.WriteFile("/written", nil, 0o600); err == nil {
		return fmt.Errorf("the root file system is not read-only")
	}
	return nil
}
