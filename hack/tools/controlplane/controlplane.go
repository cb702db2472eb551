// Package controlplane starts local control planes for tests: real API servers on loopback, each a process of
// bin/localcluster with a directory of its own. Several can run in parallel.
//
// It uses only the standard library, so that test modules with different dependencies can share it.
package controlplane

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A ControlPlane is a running control plane. It ends with Stop, or at the latest with this process.
type ControlPlane struct {
	binary, dir string
	process     *exec.Cmd
	// stdin is the standard input of the process. The control plane ends when it is closed, which the operating
	// system does when this process dies.
	stdin io.Closer
	// stdout has what the process printed before it was ready. stderr may be read when the process has ended.
	stdout, stderr bytes.Buffer
}

// Start starts a control plane and waits until its API server answers. root is the root of the repository, under which
// bin/localcluster is built. flags are those of `localcluster up`, for instance --components=api or --audit.
func Start(root string, flags ...string) (_ *ControlPlane, err error) {
	const binary = "bin/localcluster"
	c := &ControlPlane{binary: filepath.Join(root, binary)}
	if _, err := os.Stat(c.binary); err != nil {
		return nil, fmt.Errorf("%w: build it with `make %s`, or skip the tests that need it with -short", err, binary)
	}
	if c.dir, err = os.MkdirTemp("", "foo-controlplane-"); err != nil {
		return nil, err
	}
	if err := c.start(flags); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start a local control plane: %w\n%s%s", err, &c.stdout, &c.stderr)
	}
	return c, nil
}

func (c *ControlPlane) start(flags []string) error {
	cmd := exec.Command(c.binary, append([]string{"up", "--dir", c.dir, "--stop-with-stdin"}, flags...)...)
	cmd.Stderr = &c.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.process, c.stdin = cmd, stdin

	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == "ready" {
			go io.Copy(io.Discard, stdout) // A full pipe would block the process.
			return nil
		}
		fmt.Fprintln(&c.stdout, lines.Text())
	}
	return errors.New("it ended before it was ready")
}

// Stop ends the control plane, waits until it has ended, and removes its files.
func (c *ControlPlane) Stop() {
	if c.process != nil {
		c.stdin.Close()
		_ = c.process.Wait() // The exit code does not matter.
	}
	os.RemoveAll(c.dir)
}

// Kubeconfig returns the path of an administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// AuditLog returns the path of the audit log of the API server, which has one JSON object per line. It exists only with
// the flag --audit.
func (c *ControlPlane) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// Kubectl returns the command that runs kubectl as an administrator.
func (c *ControlPlane) Kubectl(args ...string) *exec.Cmd {
	return exec.Command(c.binary, append([]string{"kubectl", "--dir", c.dir, "--"}, args...)...)
}

// Install applies manifests, files or directories, and waits until the API server serves the kinds that they define.
func (c *ControlPlane) Install(manifests ...string) error {
	apply := []string{"apply"}
	for _, manifest := range manifests {
		apply = append(apply, "-f", manifest)
	}
	for _, args := range [][]string{apply, {"wait", "--for=condition=Established", "crds", "--all"}} {
		if out, err := c.Kubectl(args...).CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// KillComponent kills a component, for instance kube-apiserver.
func (c *ControlPlane) KillComponent(name string) error { return c.control("kill", name) }

// StartComponent starts a component that was killed, and waits until it is healthy.
func (c *ControlPlane) StartComponent(name string) error { return c.control("start", name) }

// Load gives the image of an OCI layout a name on all real nodes. The word pause stands for an image that only waits.
func (c *ControlPlane) Load(layout, name string) error { return c.control("load", layout, name) }

func (c *ControlPlane) control(args ...string) error {
	out, err := exec.Command(c.binary, append(args, "--dir", c.dir)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("localcluster %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// timeRule matches the type of a time in a CRD with the rule that hack/tools/crd-times adds. Its first group is the
// indentation.
var timeRule = regexp.MustCompile(
	`( +)maxLength: 64\n +type: string\n +x-kubernetes-validations:\n +- message: .*\n +rule: .*\n`)

// OlderCRD returns the CRD in a file as it was before it had a rule for times: with the format date-time in place of
// it. An API server with that CRD stores times that Go cannot read.
func OlderCRD(file string) (string, error) {
	crd, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	older := timeRule.ReplaceAllString(string(crd), "${1}format: date-time\n${1}type: string\n")
	if strings.Count(older, "format: date-time") != 1 {
		return "", errors.New(file + " has not one rule for times")
	}
	return older, nil
}
