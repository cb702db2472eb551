// Package localcluster_test tests the built binary from outside, as users run it. It does not import
// Kubernetes, so that it compiles quickly.
package localcluster_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	upDeadline   = 90 * time.Second
	stopDeadline = 10 * time.Second
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	binary = os.Getenv("LOCALCLUSTER_BIN")
	if binary == "" {
		binary = filepath.Join("..", "..", "..", "..", "bin", "localcluster")
	}
	binary, _ = filepath.Abs(binary)
	dir, err := os.MkdirTemp("", "localcluster-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	sharedDir = filepath.Join(dir, "shared")
	code := m.Run()
	if shared == nil {
		return code
	}
	shared.stdin.Close()
	if _, err := shared.wait(stopDeadline); err != nil {
		fmt.Fprintf(os.Stderr, "shared cluster: %v\n", err)
		return 1
	}
	return code
}

// An upRun is one run of "localcluster up". Its standard input is a pipe from this process, so the cluster
// ends with the test process, even if that is killed.
type upRun struct {
	dir    string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer // complete once exited is closed
	exited chan struct{}

	mu    sync.Mutex
	lines []string // of standard output; guarded by mu
}

var (
	sharedDir string
	shared    *upRun
)

// sharedCluster returns a complete cluster for tests that leave it working.
func sharedCluster(t *testing.T) *upRun {
	t.Helper()
	needBinary(t)
	if shared == nil {
		up, err := launch(sharedDir, "--nodes=2", "--audit")
		if err != nil {
			t.Fatal(err)
		}
		shared = up
	}
	awaitReady(t, shared)
	return shared
}

// startCluster starts a cluster in a directory of its own, which is removed after the test. The name of the directory
// has characters that are special in lists and commands, as a user's may have.
func startCluster(t *testing.T, args ...string) *upRun {
	t.Helper()
	up := launchCluster(t, filepath.Join(t.TempDir(), `a "cluster", its files`), args...)
	awaitReady(t, up)
	return up
}

// launchCluster starts a cluster like startCluster, but does not wait until it is ready.
func launchCluster(t *testing.T, dir string, args ...string) *upRun {
	t.Helper()
	needBinary(t)
	up, err := launch(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		up.stdin.Close()
		if _, err := up.wait(stopDeadline); err != nil {
			up.cmd.Process.Kill() // Its children end too.
			t.Errorf("cleaning up: %v", err)
		}
		// A test that finds orphans also ends them.
		for pid, args := range up.leftovers(t) {
			t.Errorf("left behind, killed now: %d %s", pid, args)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return up
}

func needBinary(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real clusters; not with -short")
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("no localcluster at %s: build it (see ldflags.sh), or set LOCALCLUSTER_BIN", binary)
	}
}

func launch(dir string, args ...string) (*upRun, error) {
	up := &upRun{dir: dir, exited: make(chan struct{})}
	up.cmd = exec.Command(binary, append([]string{"up", "--stop-with-stdin", "--dir", dir}, args...)...)
	up.cmd.Stderr = &up.stderr
	stdin, err := up.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	up.stdin = stdin
	stdout, err := up.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := up.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			up.mu.Lock()
			up.lines = append(up.lines, scanner.Text())
			up.mu.Unlock()
		}
		up.cmd.Wait() // The outcome is in up.cmd.ProcessState.
		close(up.exited)
	}()
	return up, nil
}

func awaitReady(t *testing.T, up *upRun) {
	t.Helper()
	eventually(t, upDeadline, "ready", func() error {
		select {
		case <-up.exited:
			t.Fatalf("up ended before it was ready: %s\n%s\n%s", up.cmd.ProcessState, up.output(), up.stderr.String())
		default:
		}
		if !up.printed("ready") {
			return fmt.Errorf("up has printed:\n%s", up.output())
		}
		return nil
	})
}

// printed reports whether up has printed the line.
func (up *upRun) printed(line string) bool {
	return strings.Contains("\n"+up.output()+"\n", "\n"+line+"\n")
}

func (up *upRun) output() string {
	up.mu.Lock()
	defer up.mu.Unlock()
	return strings.Join(up.lines, "\n")
}

// wait returns the exit code of up.
func (up *upRun) wait(deadline time.Duration) (int, error) {
	select {
	case <-up.exited:
		return up.cmd.ProcessState.ExitCode(), nil
	case <-time.After(deadline):
		return 0, fmt.Errorf("up has not ended after %s; it has printed:\n%s", deadline, up.output())
	}
}

// pids returns the process id of each component, as printed by up.
func (up *upRun) pids() map[string]int {
	pids := map[string]int{}
	for line := range strings.Lines(up.output()) {
		name, pid, found := strings.Cut(strings.TrimSpace(line), ": started, pid ")
		if n, err := strconv.Atoi(pid); found && err == nil {
			pids[name] = n
		}
	}
	return pids
}

// address returns where a component listens.
func (up *upRun) address(component string) string {
	for line := range strings.Lines(up.output()) {
		if strings.HasPrefix(line, component+": healthy") {
			_, address, _ := strings.Cut(strings.TrimSpace(line), " s, ")
			return address
		}
	}
	return ""
}

func (up *upRun) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := up.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func expectExit(t *testing.T, up *upRun, want int) {
	t.Helper()
	code, err := up.wait(stopDeadline)
	if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("exit code %d, want %d; up printed:\n%s\n%s", code, want, up.output(), up.stderr.String())
	}
}

// expectNothingLeft checks that the children of up have ended, and all other processes with its directory
// on their command line.
func expectNothingLeft(t *testing.T, up *upRun) {
	t.Helper()
	eventually(t, 5*time.Second, "no process is left", func() error {
		if left := up.leftovers(t); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

// leftovers returns the processes of up that still run, by process id.
func (up *upRun) leftovers(t *testing.T) map[int]string {
	t.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,stat=,args=").Output()
	if err != nil {
		t.Fatalf("list processes: %v", err)
	}
	names := map[int]string{}
	for name, pid := range up.pids() {
		names[pid] = name
	}
	left := map[int]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(fields[1], "Z") {
			continue // A zombie that init has not reaped yet.
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			continue
		}
		// The name is compared too, because another process may have the id now.
		ours := names[pid] != "" && strings.Contains(line, " "+names[pid]+" ")
		if ours || strings.Contains(line, up.dir+"/") {
			left[pid] = strings.Join(fields[2:], " ")
		}
	}
	return left
}

// localcluster runs a command of the binary and returns what it printed, standard error included.
func localcluster(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), upDeadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustLocalcluster(t *testing.T, args ...string) string {
	t.Helper()
	out, err := localcluster(t, args...)
	if err != nil {
		t.Fatalf("localcluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (up *upRun) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return localcluster(t, append([]string{"kubectl", "--dir", up.dir, "--"}, args...)...)
}

func (up *upRun) mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := up.kubectl(t, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// eventually calls ask until it returns nil.
func eventually(t *testing.T, deadline time.Duration, what string, ask func() error) {
	t.Helper()
	timeout := time.After(deadline)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-timeout:
			t.Fatalf("not after %s: %s: %v", deadline, what, err)
		case <-ticker.C:
		}
	}
}
