package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// profileAddress is where a contender serves profiles. Only one at a time does that.
const profileAddress = "127.0.0.1:24060"

// A process is a running contender.
type process struct {
	cmd     *exec.Cmd
	started time.Time
}

// startAt starts the contender. It serves profiles on address, unless that is 0. That costs foo-controller processor
// time, because it records its syncs for the same address.
func (r *trial) startAt(address string) error {
	cmd := exec.Command("/proc/self/exe", contendCommand, r.contender, r.contenderKubeconfig(), address)
	if r.contender == ours {
		cmd = exec.Command("bin/foo-controller", "--kubeconfig", r.contenderKubeconfig(), "--debug-bind-address", address)
		cmd.Env = append(os.Environ(), strings.Fields(r.env)...)
	}
	log, err := os.Create(filepath.Join(r.dir, r.contender+".log"))
	if err := errors.Join(err, r.audit.reset()); err != nil {
		return err
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // In case this program is killed.
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.process = &process{cmd, started}
	return nil
}

// stop ends the process.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended.
	return p.cmd.Wait()
}

const mebi = 1 << 20

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// heap returns the MiB of the heap after a collection.
func (p *process) heap() (size float64, err error) {
	for range 2 { // The second one frees what the first one found to have a finalizer.
		response, err := http.Get("http://" + profileAddress + "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		found := heapAlloc.FindSubmatch(text)
		if err != nil || found == nil {
			return 0, fmt.Errorf("no heap: %w", err)
		}
		size, _ = strconv.ParseFloat(string(found[1]), 64) // Digits.
	}
	return size / mebi, nil
}

// usage returns the processor time of the process so far, in ms, and its resident memory, in MiB.
func (p *process) usage() (cpu, rss float64, err error) {
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	stat, err := proc.Stat()
	return stat.CPUTime() * 1000, float64(stat.ResidentMemory()) / mebi, err
}
