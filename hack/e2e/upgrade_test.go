package e2e

import (
	"os/exec"
	"testing"
)

// startProcess starts a controller. It is stopped at the end of the test.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v: `make %s` builds it", err, controllerBinary)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result.
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("log of the controller %v:\n%s", cmd.Args, p.log)
		}
	})
	return p
}
