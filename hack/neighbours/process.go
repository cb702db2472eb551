package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ticks is the number of clock ticks in a second, in which Linux counts the CPU time of processes.
const ticks = 100

// A process is a running controller.
type process struct {
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // Closed when the process has ended.
}

func startProcess(binary string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(binary, args...), log: &logBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // It must not survive this command.
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: `make build` builds the controller", err)
	}
	go func() {
		_ = p.cmd.Wait() // How it ends is not measured.
		close(p.done)
	}()
	return p, nil
}

// stop ends the process, with SIGKILL if it does not end in time.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended before.
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) hasLogged(text string) bool { return p.log.contains(text) }

// cpu returns the CPU time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return cpuOf(string(stat))
}

// cpuOf reads the CPU time in the user and the kernel mode from /proc/PID/stat.
func cpuOf(stat string) (time.Duration, error) {
	_, rest, found := strings.Cut(stat[strings.LastIndex(stat, ")")+1:], " ") // The name before may contain spaces.
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("not the format of /proc/PID/stat: %q", stat)
	}
	sum := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// peakMemory returns the largest resident memory that the process has had, in MB.
func (p *process) peakMemory() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return peakOf(string(status))
}

// peakOf reads the peak of the resident memory from /proc/PID/status.
func peakOf(status string) (int, error) {
	_, rest, found := strings.Cut(status, "VmHWM:")
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, fmt.Errorf("no VmHWM in %q", status)
	}
	kb, err := strconv.Atoi(fields[0])
	return kb / 1024, err
}

// A logBuffer has the begin of a log. It can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.b.Len() < 1<<20 {
		b.b.Write(p)
	}
	return len(p), nil
}

func (b *logBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Contains(b.b.Bytes(), []byte(text))
}
