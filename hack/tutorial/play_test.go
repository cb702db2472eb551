package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// root is the root of the repository.
const root = "../.."

// attempts is how often the play of a step may be tried. In these steps, something happens while the program waits or
// works, if kubectl is fast enough. On a busy machine it is not always. The pages promise only that it can happen.
var attempts = map[int]int{1: 3, 3: 3}

// newStrictStage returns a stage for a test that may run beside others, and closes it at the end. The reason is why the
// test is skipped with -short.
func newStrictStage(t *testing.T, reason string) *stage {
	t.Helper()
	if testing.Short() {
		t.Skip(reason + "; run without -short")
	}
	t.Parallel()
	stage, err := newStage(root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stage.close)
	stage.strict = true
	return stage
}

// TestPlays runs the commands of each page on a local control plane, and compares their output with the page.
func TestPlays(t *testing.T) {
	stage := newStrictStage(t, "needs a local control plane")
	if err := stage.startCluster(); err != nil {
		t.Fatal(err)
	}
	steps := pages(t)
	for _, step := range steps[:len(steps)-1] {
		t.Run(step.program, func(t *testing.T) {
			stage.out = t.Output()
			defer stage.reset(t)
			playPage(t, stage, step)
		})
	}
	t.Run("the numbers of step 1", func(t *testing.T) {
		stage.out = t.Output()
		checkCost(t, stage, steps[0])
	})
}

// TestTheLastStep is TestPlays for the step that needs no cluster.
func TestTheLastStep(t *testing.T) {
	stage := newStrictStage(t, "compiles the controller")
	steps := pages(t)
	playPage(t, stage, steps[len(steps)-1])
}

func playPage(t *testing.T, stage *stage, step step) {
	scenes, err := parsePlay(step.page)
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.build(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	for attempt := range max(1, attempts[step.number]) {
		if attempt > 0 {
			t.Logf("once more, because of: %v", err)
			stage.reset(t)
		}
		if err = stage.play(t.Context(), scenes); err == nil {
			return
		}
	}
	t.Errorf("%s/README.md: %v", step.dir, err)
}

// reset ends all programs and deletes all objects of a play, so that the next one finds an empty cluster.
func (s *stage) reset(t *testing.T) {
	t.Helper()
	s.endPrograms()
	for _, command := range []string{
		// The API server may have been killed. If it runs, start is an error. The scheduler needs some seconds to connect
		// again. If meanwhile a Pod was deleted and created again, on another node, it ends, and with it the cluster.
		"localcluster start kube-apiserver && kubectl run connected --image=nginx &&" +
			" kubectl wait --for=condition=Ready pod/connected --timeout=80s",
		"for foo in $(kubectl get foos --output=name); do" +
			` kubectl patch $foo --type=merge --patch='{"metadata": {"finalizers": null}}'; done`,
		"kubectl delete foos,deployments,replicasets,pods --all --now --wait",
		"kubectl delete configmaps -l tutorial",
		"kubectl delete clusterroles,clusterrolebindings -l tutorial",
		"kubectl delete serviceaccount learner --ignore-not-found",
	} {
		sc := scene{command: command, output: []string{skipLines}}
		if err := s.run(context.WithoutCancel(t.Context()), sc); err != nil {
			t.Fatal(err)
		}
	}
}

var bytesOfAPod = regexp.MustCompile(`One Pod is about ([0-9,]+) bytes`)

// checkCost compares the size of a Pod in the page of step 1 with Pods of a Deployment. A tenth more or less is the
// same. It is the last that uses the stage, so it leaves the Pods.
func checkCost(t *testing.T, stage *stage, step step) {
	const pods = 20
	match := bytesOfAPod.FindStringSubmatch(step.page)
	if match == nil {
		t.Fatalf("%s/README.md has no sentence %v", step.dir, bytesOfAPod)
	}
	want, err := strconv.Atoi(strings.ReplaceAll(match[1], ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := stage.build(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		fmt.Sprintf("kubectl create deployment many --image=nginx --replicas=%d", pods),
		"kubectl rollout status deployment/many",
	} {
		if err := stage.run(t.Context(), scene{command: command, output: []string{skipLines}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stage.start(step.program, " --every=1h"); err != nil {
		t.Fatal(err)
	}
	var n, size int
	line := <-stage.lines
	const format = "[ask-again] list 1: Pods: %d; so far: requests: 1, bytes: %d"
	if _, err := fmt.Sscanf(line, format, &n, &size); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if have := size / n; n != pods || have < want*9/10 || have > want*11/10 {
		t.Errorf("%d Pods have %d bytes, %d each; the page has %d Pods with %d each", n, size, have, pods, want)
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
	cmd := exec.CommandContext(t.Context(), binary, "--step=2", "--pace=0s")
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
	printed, interrupted := "", false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		printed += lines.Text() + "\n"
		if !interrupted && strings.Contains(printed, "last command") {
			interrupted = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
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
