package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"example.com/foo-controller/hack/cluster/controlplane"
	"example.com/foo-controller/hack/tools/play"
)

// A stage is where the steps are played: a shell and, after startCluster, a control plane.
type stage struct {
	play.Stage
	plane *controlplane.ControlPlane
	dir   string // The directory of the control plane. Its bin has the commands of the pages.
}

func newStage(root string, out io.Writer) (*stage, error) {
	root, err := filepath.Abs(root)
	return &stage{Stage: play.Stage{Root: root, Out: out}}, err
}

// startCluster starts a control plane with the kind Foo. It writes the file env, which makes the commands of the pages
// known: to the play, and to a person in another terminal.
func (s *stage) startCluster() (err error) {
	if s.plane, err = controlplane.Start(s.Root); err != nil {
		return err
	}
	s.dir = filepath.Dir(s.plane.Kubeconfig())
	shop, err := freeAddress()
	if err != nil {
		return err
	}
	hook, err := freeAddress()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o700); err != nil {
		return err
	}
	bin := filepath.Join(s.Root, "bin")
	for name, text := range map[string]string{
		"bin/kubectl":      fmt.Sprintf("#!/bin/sh\nexec '%s/localcluster' kubectl --dir '%s' -- \"$@\"\n", bin, s.dir),
		"bin/localcluster": fmt.Sprintf("#!/bin/sh\nexec '%s/localcluster' \"$@\" --dir '%s'\n", bin, s.dir),
		"env": fmt.Sprintf("# source this file: the commands of the pages work, and k is kubectl.\n"+
			"unalias k 2>/dev/null || true\nk() { kubectl \"$@\"; }\n"+
			"export KUBECONFIG='%s' SHOP=%s HOOK=%s PATH='%s/bin:%s':\"$PATH\"\n", s.plane.Kubeconfig(), shop, hook, s.dir, bin),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o700); err != nil {
			return err
		}
	}
	s.Prelude = fmt.Sprintf("source '%s/env'", s.dir)
	return s.plane.Install(filepath.Join(s.Root, "artifacts/crd"))
}

// freeAddress returns an address on which nothing listens, for the shop of step 6 and the webhook of step 10. Its port
// is below those that systems take for outgoing connections: these programs are started later, and twice.
func freeAddress() (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(10000))
		if listener, err := net.Listen("tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("no port is free")
}

// close ends all programs and the control plane, and removes their files.
func (s *stage) close() {
	s.Close()
	if s.plane != nil {
		s.plane.Stop()
	}
}

// build builds the programs of a step, so that the shell finds them: main.go, and those in folders below it. Each has
// the name of its folder, without the number. The program of the step is also there as "second": a play has one program
// of a name.
func (s *stage) build(ctx context.Context, step step) error {
	if !step.hasProgram {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.Root, step.dir, "*/main.go"))
	if err != nil {
		return err
	}
	for _, dir := range append(files, filepath.Join(s.Root, step.dir, "main.go")) {
		dir = filepath.Dir(dir)
		name := strings.TrimLeft(filepath.Base(dir), "0123456789-")
		cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(s.dir, "bin", name), ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", dir, err, out)
		}
	}
	second := filepath.Join(s.dir, "bin", "second")
	if err := os.Remove(second); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(step.program, second)
}
