package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"example.com/foo-controller/hack/cluster/controlplane"
)

// patience is how long a play waits for lines that do not come, and readersPatience how long if it is not strict.
const (
	patience        = 90 * time.Second
	readersPatience = 30 * time.Second
)

// A stage is where plays happen: a control plane, a shell, and programs in the background.
type stage struct {
	root  string // The root of the repository.
	dir   string // Temporary. Its bin is the first directory in the shell's PATH.
	plane *controlplane.ControlPlane
	out   io.Writer
	// pace is the time before each command, for those who read along.
	pace time.Duration
	// strict makes a line that the page does not have an error. Otherwise it is only printed: a reader may change objects
	// in another terminal.
	strict bool

	// shop is a free address on loopback, for the shop of step 5.
	shop string

	programs map[string]*program
	// lines has what the programs in the background print.
	lines chan string
}

// A program runs in the background of a play.
type program struct {
	cmd *exec.Cmd
	// ended is closed after the last line was read.
	ended chan struct{}
	// killed is set when the play ends the program in a way that cannot have the exit code 0.
	killed bool
}

// newStage returns a stage without a control plane.
func newStage(root string, out io.Writer) (_ *stage, err error) {
	s := &stage{out: out, programs: map[string]*program{}, lines: make(chan string, 10000)}
	if s.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if s.shop, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "foo-tutorial-"); err != nil {
		return nil, err
	}
	return s, os.Mkdir(s.bin(), 0o700)
}

// startCluster starts a control plane. The kind Foo is installed.
func (s *stage) startCluster() (err error) {
	if s.plane, err = controlplane.Start(s.root); err != nil {
		return err
	}
	binary, dir := filepath.Join(s.root, "bin/localcluster"), filepath.Dir(s.plane.Kubeconfig())
	for name, line := range map[string]string{
		"kubectl":      fmt.Sprintf(`exec '%s' kubectl --dir '%s' -- "$@"`, binary, dir),
		"localcluster": fmt.Sprintf(`exec '%s' "$@" --dir '%s'`, binary, dir),
		// Step 5 runs the controller, too. `make tutorial` and `make test` build it before.
		"foo-controller": fmt.Sprintf(`exec '%s' "$@"`, filepath.Join(s.root, "bin/foo-controller")),
	} {
		if err := os.WriteFile(filepath.Join(s.bin(), name), []byte("#!/bin/sh\n"+line+"\n"), 0o700); err != nil {
			return err
		}
	}
	return s.plane.Install(filepath.Join(s.root, "artifacts/crd"))
}

// freeAddress returns an address on which nothing listens.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (s *stage) bin() string { return filepath.Join(s.dir, "bin") }

// close ends all programs and the control plane, and removes their files.
func (s *stage) close() {
	s.endPrograms()
	if s.plane != nil {
		s.plane.Stop()
	}
	os.RemoveAll(s.dir)
}

func (s *stage) endPrograms() {
	for _, p := range s.programs {
		_ = p.cmd.Process.Kill() // It may have ended.
		<-p.ended
	}
	clear(s.programs)
	for len(s.lines) > 0 {
		<-s.lines
	}
}

// build builds the programs of a step, so that the shell finds them: main.go, and those in folders below it.
func (s *stage) build(ctx context.Context, step step) error {
	dir := filepath.Join(s.root, step.dir)
	for pattern, name := range map[string]func(file string) string{
		"main.go":   func(string) string { return step.program },
		"*/main.go": func(file string) string { return filepath.Base(filepath.Dir(file)) },
	} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(s.bin(), name(file)), ".")
			cmd.Dir = filepath.Dir(file)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("build %s: %w\n%s", file, err, out)
			}
		}
	}
	return nil
}

// play runs the scenes one after another. Each begins when all lines of the one before have been printed, so a play
// needs no pauses.
func (s *stage) play(ctx context.Context, scenes []scene) error {
	for _, sc := range scenes {
		for _, comment := range sc.comments {
			s.printf("\n# %s\n", comment)
		}
		if sc.command != "" {
			s.printf("$ %s\n", strings.ReplaceAll(sc.command, "\n", "\n> "))
		}
		if err := s.pause(ctx); err != nil {
			return err
		}
		if err := s.run(ctx, sc); err != nil {
			return err
		}
		if err := s.awaitLines(ctx, sc); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *stage) pause(ctx context.Context) error {
	if s.pace == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.pace):
		return nil
	}
}

var (
	startCommand = regexp.MustCompile(`^([a-z-]+)( .*)? &$`)
	killCommand  = regexp.MustCompile(`^kill -(INT|KILL) %([a-z-]+)$`)
)

// run runs the command of a scene: in the background if it ends with "&", else to its end.
func (s *stage) run(ctx context.Context, sc scene) error {
	if sc.command == "" {
		return nil
	}
	if parts := startCommand.FindStringSubmatch(sc.command); parts != nil {
		return s.start(parts[1], parts[2])
	}
	if parts := killCommand.FindStringSubmatch(sc.command); parts != nil {
		return s.kill(parts[1], parts[2])
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := s.shell(sc.command)
	out, err := runUntil(ctx, cmd)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w\n%s", sc.command, ctx.Err(), err, out)
	}
	s.printf("%s", out)
	if have := splitLines(out); s.strict && !matchAll(sc.output, have) {
		return differs{command: sc.command, want: sc.output, have: have}
	}
	return nil
}

// runUntil runs a command and all its children, at most until ctx ends, and returns its output.
func runUntil(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	err := cmd.Wait()
	return out.String(), err
}

// shell returns a command that bash runs in the root of the repository, in a process group of its own.
func (s *stage) shell(command string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "PATH="+s.bin()+":"+os.Getenv("PATH"), "SHOP="+s.shop)
	if s.plane != nil {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+s.plane.Kubeconfig())
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// start starts a program in the background.
func (s *stage) start(name, args string) error {
	if s.programs[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	cmd := s.shell("exec " + name + args)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return err
	}
	p := &program{cmd: cmd, ended: make(chan struct{})}
	s.programs[name] = p
	go s.follow(name, p, out)
	return nil
}

// follow passes on what a program prints, until it ends.
func (s *stage) follow(name string, p *program, out io.ReadCloser) {
	defer close(p.ended)
	defer out.Close()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.lines <- fmt.Sprintf("[%s] %s", name, lines.Text())
	}
	if err := p.cmd.Wait(); err != nil && !p.killed {
		s.lines <- fmt.Sprintf("[%s] (%v)", name, err)
	}
}

// kill ends a program in the background, and waits until it has ended.
func (s *stage) kill(signal, name string) error {
	p := s.programs[name]
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	delete(s.programs, name)
	sent := os.Interrupt
	if signal == "KILL" {
		p.killed, sent = true, os.Kill
	}
	if err := p.cmd.Process.Signal(sent); err != nil {
		return fmt.Errorf("end %s: %w", name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%s does not end", name)
	}
}

// awaitLines prints the lines of the programs in the background, until all lines that the page has were printed. Lines
// of different programs may come in another order than in the page.
func (s *stage) awaitLines(ctx context.Context, sc scene) error {
	expected := newMatchers(sc.background)
	timeout := time.After(patience)
	if !s.strict {
		timeout = time.After(readersPatience)
	}
	for !expected.done() {
		select {
		case line := <-s.lines:
			s.printf("%s\n", line)
			if !expected.accept(line) && s.strict {
				return differs{command: sc.command, want: expected.missing(), have: []string{line}}
			}
		case <-timeout:
			if !s.strict {
				s.printf("# The page has other lines here. The play continues.\n")
				return nil
			}
			return fmt.Errorf("after %v: %w", patience, differs{command: sc.command, want: expected.missing()})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// forward prints the lines of the programs in the background until ctx ends.
func (s *stage) forward(ctx context.Context) {
	for {
		select {
		case line := <-s.lines:
			s.printf("%s\n", line)
		case <-ctx.Done():
			return
		}
	}
}

// differs is the error of a play whose output is not that of the page.
type differs struct {
	command    string
	want, have []string
}

func (d differs) Error() string {
	return fmt.Sprintf("after %q, the page has:\n  %s\nand this was printed:\n  %s",
		d.command, strings.Join(d.want, "\n  "), strings.Join(d.have, "\n  "))
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
