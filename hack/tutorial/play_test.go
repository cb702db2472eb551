package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/foo-controller/hack/tools/play"
)

// root is the root of the repository.
const root = "../.."

// TestPlays runs the commands of each README.md on a local control plane, and compares their output with the page.
// TestTheStepWithoutAClusterPlays does that for the one that needs none.
func TestPlays(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a local control plane; run without -short")
	}
	t.Parallel()
	stage, err := newStage(root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stage.close)
	if err := stage.startCluster(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(filepath.Join(root, "docs/scenarios/mine.txt")) }) // Step 8 has removed it.
	steps := pages(t)
	for _, step := range steps {
		if !step.needsCluster {
			continue
		}
		ok := t.Run(step.program, func(t *testing.T) {
			var out strings.Builder
			stage.Out = io.MultiWriter(t.Output(), &out)
			began := time.Now()
			if err := stage.build(t.Context(), step); err != nil {
				t.Fatal(err)
			}
			if err := stage.Play(t.Context(), step.scenes()); err != nil {
				t.Fatal(err)
			}
			if step.number == 1 {
				checkLists(t, out.String(), time.Since(began))
				checkCost(t, stage, step)
			}
			stage.clear(t)
		})
		if !ok {
			break // The next step could not expect an empty cluster.
		}
	}
}

func TestTheStepWithoutAClusterPlays(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a test; run without -short")
	}
	t.Parallel()
	stage, err := newStage(root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range pages(t) {
		if step.needsCluster {
			continue
		}
		if err := stage.Play(t.Context(), step.scenes()); err != nil {
			t.Fatal(err)
		}
	}
}

// clear ends all programs, and deletes what a play has left.
func (s *stage) clear(t *testing.T) {
	t.Helper()
	s.Close()
	const left = "kubectl delete foos,deployments,replicasets,pods --all --now\n" +
		"kubectl delete crds -l tutorial; kubectl delete secrets,storageversionmigrations --all\n" +
		"kubectl delete configmaps,clusterroles,clusterrolebindings -l tutorial\n" +
		"kubectl delete serviceaccount/learner lease/twice --ignore-not-found"
	if err := s.Play(t.Context(), []play.Scene{{Command: left, Lines: []string{"..."}, IsScript: true}}); err != nil {
		t.Fatal(err)
	}
}

var list = regexp.MustCompile(`list ([0-9]+): Pods: 1; so far: requests: ([0-9]+),`)

// checkLists checks the last numbers of step 1. On any machine, three seconds are between two lists, and each list is a
// request, also those that failed.
func checkLists(t *testing.T, printed string, took time.Duration) {
	t.Helper()
	all := list.FindAllStringSubmatch(printed, -1)
	last := all[len(all)-1]
	lists, err := strconv.Atoi(last[1])
	requests, err2 := strconv.Atoi(last[2])
	if most := int(took/(3*time.Second)) + 1; err != nil || err2 != nil || lists > most || requests < lists {
		t.Errorf("%q after %v: want at most %d lists, and a request for each", last[0], took, most)
	}
}

var bytesOfAPod = regexp.MustCompile(`One Pod is about ([0-9,]+) bytes`)

// checkCost compares the size of a Pod in the page of step 1 with Pods of a Deployment. A tenth more or less is the
// same.
func checkCost(t *testing.T, stage *stage, step step) {
	t.Helper()
	stage.clear(t)
	match := bytesOfAPod.FindStringSubmatch(step.page)
	if match == nil {
		t.Fatalf("%s/README.md has no sentence %v", step.dir, bytesOfAPod)
	}
	want, err := strconv.Atoi(strings.ReplaceAll(match[1], ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	stage.Out = &out
	err = stage.Play(t.Context(), []play.Scene{
		{Command: "kubectl create deployment many --image=nginx --replicas=20", Lines: []string{"..."}, IsScript: true},
		{Command: "kubectl rollout status deployment/many", Lines: []string{"..."}, IsScript: true},
		{Command: "ask-again --every=1h &", Lines: []string{"[ask-again] list 1: Pods: 20; so far: requests: 1, bytes: <n>"}},
	})
	stage.Out = t.Output()
	var size int
	_, text, _ := strings.Cut(out.String(), "bytes: ")
	if _, scanErr := fmt.Sscan(text, &size); err != nil || scanErr != nil {
		t.Fatalf("%v, %v:\n%s", err, scanErr, &out)
	}
	if have := size / 20; have < want*9/10 || have > want*11/10 {
		t.Errorf("20 Pods have %d bytes, %d each; the page has %d", size, have, want)
	}
}

// TestTheCommandLeavesNothing runs the command itself: it plays a step, waits for Ctrl-C, and leaves no files. Its
// control plane and its programs have ended then: they would still have its output open.
func TestTheCommandLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a local control plane; run without -short")
	}
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(t.TempDir(), "tutorial")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary, "--step=2", "--pace=1ms")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		printed += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "last command") {
			_ = cmd.Process.Signal(os.Interrupt) // Without it, the command does not end.
		}
	}
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(printed, "\nEverything is stopped and removed.\n") {
		t.Errorf("%v\n%s", err, printed)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
