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
	"syscall"
	"time"

	"github.com/prometheus/procfs"
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

// startProcess starts a contender. Its log is in a file of dir. If profiled, it serves profiles. That costs
// foo-controller processor time, because it records its syncs for the same address.
func startProcess(name, kubeconfig, dir string, profiled bool) (*process, error) {
	p := &process{address: "0", printed: make(chan time.Time, 1)}
	if profiled {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p.address = listener.Addr().String()
		listener.Close() // The process listens there.
	}
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

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// heap returns the bytes of the heap after a collection.
func (p *process) heap() (bytes float64, err error) {
	for range 2 { // The second one frees what the first one found to have a finalizer.
		response, err := http.Get("http://" + p.address + "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		found := heapAlloc.FindSubmatch(text)
		if err != nil || found == nil {
			return 0, fmt.Errorf("no heap at %s: %w", p.address, err)
		}
		bytes, _ = strconv.ParseFloat(string(found[1]), 64) // Digits.
	}
	return bytes, nil
}

// usage returns the processor time of the process so far, in seconds, and its resident memory, in bytes.
func (p *process) usage() (cpu, rss float64, err error) {
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	stat, err := proc.Stat()
	return stat.CPUTime(), float64(stat.ResidentMemory()), err
}

// disturbance returns the seconds of processor time that other programs use in a second.
func disturbance() (float64, error) {
	busy := 0.0
	for _, sign := range []float64{-1, 1} {
		machine, err := procfs.NewDefaultFS()
		if err != nil {
			return 0, err
		}
		stat, err := machine.Stat()
		if err != nil {
			return 0, err
		}
		t := stat.CPUTotal
		busy += sign * (t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal)
		if sign < 0 {
			time.Sleep(time.Second)
		}
	}
	return busy, nil
}
