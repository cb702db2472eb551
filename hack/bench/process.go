package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// listed is what a contender prints when it has both lists.
const listed = "listed"

// A process is a running contender.
type process struct {
	cmd     *exec.Cmd
	started time.Time
	// address is where the profiles are.
	address string
	// lists gets the time when the contender printed that it has both lists. Not all do.
	lists chan time.Time
	done  chan error
}

// startProcess starts a contender. Its log is in a file of dir.
func startProcess(name, kubeconfig, dir string) (*process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	listener.Close() // Free for the process.
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{address: address, lists: make(chan time.Time, 1), done: make(chan error, 1)}
	if own[name] == nil {
		p.cmd = exec.Command("bin/foo-controller", "--kubeconfig", kubeconfig, "--debug-bind-address", address)
	} else {
		p.cmd = exec.Command("/proc/self/exe", "-contender", name, "-kubeconfig", kubeconfig, "-address", address)
	}
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // If this program is killed.
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		if line, _ := bufio.NewReader(stdout).ReadString('\n'); line == listed+"\n" {
			p.lists <- time.Now()
		}
		_, _ = io.Copy(io.Discard, stdout)
		p.done <- p.cmd.Wait()
		log.Close()
	}()
	return p, nil
}

// stop ends the process.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended.
	select {
	case err := <-p.done:
		return err
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		return errors.New("it did not end within a minute of SIGTERM")
	}
}

// heap returns the bytes of the heap after a collection.
func (p *process) heap() (bytes float64, err error) {
	for range 2 { // What the first one finds to be finalized, the second one frees.
		response, err := http.Get("http://" + p.address + "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return 0, err
		}
		found := regexp.MustCompile(`# HeapAlloc = (\d+)`).FindSubmatch(text)
		if found == nil {
			return 0, fmt.Errorf("the profile at %s has no HeapAlloc", p.address)
		}
		bytes, _ = strconv.ParseFloat(string(found[1]), 64)
	}
	return bytes, nil
}

// rss returns the resident set, and its maximum so far, in bytes.
func (p *process) rss() (now, peak float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for field, value := range map[string]*float64{"VmRSS": &now, "VmHWM": &peak} {
		if found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status); found != nil {
			*value, _ = strconv.ParseFloat(string(found[1]), 64)
			*value *= 1024
		}
	}
	return now, peak, err
}

// cpu returns the processor time of a process so far, in seconds, or 0 for one that has ended.
func cpu(pid int) float64 {
	const ticks = 100 // A second, on every Linux.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // The name of the program may have spaces.
	fields := strings.Fields(rest)
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks
}

// serverCPU returns the processor time of the control plane, in seconds.
func (c *cluster) serverCPU() (seconds float64) {
	dir := filepath.Dir(c.Kubeconfig())
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		command, _ := os.ReadFile(file) // The process may have ended.
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		program, args, _ := strings.Cut(string(command), "\x00")
		if strings.HasSuffix(program, "/localcluster") && strings.Contains(args, dir) {
			seconds += cpu(pid)
		}
	}
	return seconds
}

// busy returns the processor time of the machine so far, in seconds.
func busy() float64 {
	stat, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(stat), "\n")
	total := 0.0
	for i, field := range strings.Fields(first)[1:] {
		if value, _ := strconv.ParseFloat(field, 64); i != 3 && i != 4 && i < 8 { // Without idle, iowait and guests.
			total += value / 100
		}
	}
	return total
}
