package main

import (
	"bufio"
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

// A process is a running contender.
type process struct {
	cmd     *exec.Cmd
	started time.Time
	// address is where the profiles are.
	address string
	// printed gets the time of the first line that it printed, or is closed when it ends.
	printed chan time.Time
}

// startProcess starts a contender. Its log is in a file of dir.
func startProcess(name, kubeconfig, dir string) (*process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &process{address: listener.Addr().String(), printed: make(chan time.Time, 1)}
	listener.Close() // The process listens there.
	p.cmd = exec.Command("bin/foo-controller", "--kubeconfig", kubeconfig, "--debug-bind-address", p.address)
	if own[name] != nil {
		p.cmd = exec.Command("/proc/self/exe", contendCommand, name, kubeconfig, p.address)
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // In case this program is killed.
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		if _, err := bufio.NewReader(stdout).ReadString('\n'); err == nil {
			p.printed <- time.Now()
		}
		close(p.printed)
	}()
	return p, nil
}

// stop ends the process.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended.
	return p.cmd.Wait()
}

func numberAfter(name string, text []byte) float64 {
	found := regexp.MustCompile(name + `\D*(\d+)`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	number, _ := strconv.ParseFloat(string(found[1]), 64) // Digits.
	return number
}

// heap returns the bytes of the heap after a collection.
func (p *process) heap() (bytes float64, err error) {
	for range 2 { // The second one frees what the first one found to have a finalizer.
		response, err := http.Get("http://" + p.address + "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if bytes = numberAfter("# HeapAlloc =", text); err != nil || bytes == 0 {
			return 0, fmt.Errorf("no heap at %s: %w", p.address, err)
		}
	}
	return bytes, nil
}

// cpu returns the processor time of a process so far, in seconds, or 0 for one that has ended.
func cpu(pid int) float64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ") // The name of the program may have spaces.
	return sum(rest, 11, 13)
}

// busy returns the processor time of the whole machine so far, in seconds.
func busy() float64 {
	stat, _ := os.ReadFile("/proc/stat")
	_, rest, _ := strings.Cut(string(stat), "cpu ")
	return sum(rest, 0, 3) + sum(rest, 5, 8) // Without idle and iowait.
}

// sum returns the sum of fields from the first to before the end, which are in hundredths of a second on every Linux.
func sum(line string, first, end int) (seconds float64) {
	if fields := strings.Fields(line); len(fields) > end {
		for _, field := range fields[first:end] {
			ticks, _ := strconv.ParseFloat(field, 64)
			seconds += ticks / 100
		}
	}
	return seconds
}

// serverCPU returns the processor time of the control plane so far, in seconds.
func (c *cluster) serverCPU() (seconds float64) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		command, _ := os.ReadFile(file) // The process may have ended.
		program, args, _ := strings.Cut(string(command), "\x00")
		if strings.HasSuffix(program, "/localcluster") && strings.Contains(args, filepath.Dir(c.Kubeconfig())) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			seconds += cpu(pid)
		}
	}
	return seconds
}
