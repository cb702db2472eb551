package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/foo-controller/hack/cmd/localcluster/child"
)

const (
	// stopGrace is the time between SIGTERM and SIGKILL for one component.
	stopGrace = 3 * time.Second
	// stopBudget is the time for stopping all components.
	stopBudget = 8 * time.Second
)

// A supervisor starts and stops the child processes. Each child is in a process group of its own, so
// that Ctrl-C in a terminal reaches only the parent, which then stops the children in order.
//
// Every child also has the read end of the parent pipe, and exits when the pipe is closed. Only the
// parent has the write end (Go opens it close-on-exec), so the kernel closes the pipe when the parent
// ends, even by SIGKILL. This works on every Unix, unlike Linux's Pdeathsig.
type supervisor struct {
	binary string
	// Nothing is written to parentPipeWriter. The field keeps the file referenced: otherwise Go's garbage
	// collector would close it, and all children would exit.
	parentPipe, parentPipeWriter *os.File

	mu      sync.Mutex
	running map[string]*process // guarded by mu
	stopped bool                // guarded by mu; no process is started any more
}

// A process is one run of a component.
type process struct {
	name     string
	log      string
	logged   int // The length of log before this run.
	cmd      *exec.Cmd
	stopping atomic.Bool   // its end is not an error
	exited   chan struct{} // closed when it has ended and cmd.ProcessState is set
}

func newSupervisor() (*supervisor, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find our own binary: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open the parent pipe: %w", err)
	}
	return &supervisor{binary: binary, parentPipe: read, parentPipeWriter: write, running: map[string]*process{}}, nil
}

// start runs a binary, by default this one, as the named component. Its output is appended to the file log.
func (s *supervisor) start(binary, name string, args, env []string, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer out.Close() // The child has its own file descriptor.
	info, err := out.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}

	cmd := exec.Command(cmp.Or(binary, s.binary), append([]string{child.Command, name}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{s.parentPipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, fmt.Errorf("start %s: the cluster is being stopped", name)
	}
	if s.running[name] != nil {
		return nil, fmt.Errorf("%s is running already", name)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, log: log, logged: int(info.Size()), cmd: cmd, exited: make(chan struct{})}
	s.running[name] = p
	go func() {
		cmd.Wait() // The outcome is in cmd.ProcessState.
		s.mu.Lock()
		delete(s.running, name)
		s.mu.Unlock()
		close(p.exited)
	}()
	return p, nil
}

// process returns the process of the named component, or nil if it does not run.
func (s *supervisor) process(name string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[name]
}

// stop ends all processes in the order of names, and returns when they have ended.
func (s *supervisor) stop(names []string) {
	s.mu.Lock()
	s.stopped = true
	for _, p := range s.running {
		p.stopping.Store(true) // Before the first process ends, because others may die without it.
	}
	s.mu.Unlock()

	budget := time.Now().Add(stopBudget)
	for _, name := range names {
		if p := s.process(name); p != nil {
			p.stop(min(stopGrace, time.Until(budget)))
		}
	}
}

// killAll ends all processes now.
func (s *supervisor) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, p := range s.running {
		p.stopping.Store(true)
		p.cmd.Process.Kill()
	}
}

// stop sends SIGTERM to the process, and SIGKILL after grace. It returns when the process has ended.
func (p *process) stop(grace time.Duration) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
		p.kill()
	}
}

// kill ends the process at once.
func (p *process) kill() {
	p.stopping.Store(true)
	p.cmd.Process.Kill() // An error means it has ended already.
	<-p.exited
}

// outcome returns the error for callers that need the process after it has ended.
func (p *process) outcome() error {
	if p.stopping.Load() {
		return fmt.Errorf("%s was stopped", p.name)
	}
	return &deathError{p}
}

// A deathError is the error for a process that ended although it was not stopped.
type deathError struct{ process *process }

func (e *deathError) Error() string {
	p := e.process
	return fmt.Sprintf("%s died: %s. The end of %s:\n%s", p.name, p.cmd.ProcessState, p.log, indent(p.logTail()))
}

// isPortTaken reports whether a process died because another process listens on its port.
func isPortTaken(err error) bool {
	var death *deathError
	return errors.As(err, &death) && strings.Contains(death.process.logTail(), "address already in use")
}

// logTail returns the last lines that the process has written to its log, before the stack of a panic.
func (p *process) logTail() string {
	const most, bytes = 20, 16 << 10
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	log = log[min(p.logged, len(log)):]
	text, _, _ := strings.Cut(string(log[max(0, len(log)-bytes):]), "\ngoroutine ")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
