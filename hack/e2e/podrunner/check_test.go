//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The user who starts the runner may have any umask.
func TestTheUmaskOfTheUserIsNotThatOfThePods(t *testing.T) {
	binary, err := filepath.Abs("../../../bin/podrunner")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "check").CombinedOutput(); err != nil {
		if os.Getenv("FOO_PODS_REQUIRED") != "" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("%v: %s", err, out)
	}
	if out, err := exec.Command("bash", "-c", `umask 077; exec "$0" check`, binary).CombinedOutput(); err != nil {
		t.Errorf("with umask 077: %v: %s", err, out)
	}
}
