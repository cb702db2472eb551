package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
)

// asCommand is a variable of the environment. With it, the test binary is the command image.
const asCommand = "FOO_CONTROLLER_IMAGE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAnInterruptedBuildLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		temp, output := t.TempDir(), filepath.Join(t.TempDir(), "image")
		cmd := exec.Command(os.Args[0], "--output", output)
		var messages bytes.Buffer
		cmd.Stderr = &messages
		cmd.Env = append(os.Environ(), asCommand+"=1", "TMPDIR="+temp)
		compiler, ended := startAndCompile(t, cmd)
		// In a terminal, all processes get the signal. Here only the command gets it, and has to end the compiler.
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		<-ended
		if cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(messages.String(), "image: "+signal.String()) {
			t.Errorf("%v: %v: %s", signal, cmd.ProcessState, messages.String())
		}
		if err := syscall.Kill(compiler, syscall.SIGKILL); err != syscall.ESRCH {
			t.Errorf("%v: the compiler still ran", signal)
		}
		for _, dir := range []string{temp, filepath.Dir(output)} {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v: %s has %v, %v", signal, dir, left, err)
			}
		}
	}
}

func TestABuildThatIsInterruptedAfterItsCompilerKeepsTheEarlierImage(t *testing.T) {
	dir := t.TempDir()
	earlier := filepath.Join(dir, "layout", "oci-layout")
	writeFile(t, earlier, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := write(ctx, &result{index: empty.Index, sboms: empty.Image}, dir, io.Discard); err != context.Canceled {
		t.Error(err)
	}
	if _, err := os.Stat(earlier); err != nil {
		t.Error(err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// startAndCompile starts cmd and returns when it compiles, with the process that stands in for the compiler. That never
// ends by itself, so a signal arrives while it runs.
func startAndCompile(t *testing.T, cmd *exec.Cmd) (compiler int, ended <-chan struct{}) {
	t.Helper()
	realGo, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
[ $1 = build ] || exec %q "$@"
mkdir ${GOTMPDIR:-$TMPDIR}/go-build1 # go does not remove it when it is interrupted.
echo $$ >%q
exec sleep 600
`, realGo, pipe)
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	started, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer started.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // Its state is in cmd.
		fmt.Fprintln(started, "an early end")
		close(done)
	}()
	if _, err := fmt.Fscanln(started, &compiler); err != nil {
		t.Fatal("the command does not compile:", err, cmd.Stderr)
	}
	return compiler, done
}
