package main

import (
	"bufio"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/foo-controller/hack/tools/pages"
)

// root is the root of the repository.
const root = "../../.."

// allFaults makes TestEachFaultTurnsItsScenarioRed plant all faults. Each of them needs a build.
var allFaults = flag.Bool("faults", false, "plant all faults of step 9, which takes minutes")

// allSteps returns the steps of the tutorial.
func allSteps(t *testing.T) []step {
	t.Helper()
	steps, err := readSteps(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) == 0 {
		t.Fatal("no steps")
	}
	return steps
}

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
	steps := allSteps(t)
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
	for _, step := range allSteps(t) {
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
	if err := s.Play(t.Context(), []pages.Scene{{Command: left, Lines: []string{"..."}, IsScript: true}}); err != nil {
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

// TestCodeInPagesIsInThePrograms checks that Go code in a page is in the program of the step, except for the
// indentation.
func TestCodeInPagesIsInThePrograms(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, step := range allSteps(t) {
		if !step.hasProgram {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, step.dir, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks.FindAllStringSubmatch(step.page, -1) {
			if !strings.Contains(withoutIndentation(string(source)), withoutIndentation(block[1])) {
				t.Errorf("%s/README.md has code that is not in the program:\n%s", step.dir, block[1])
			}
		}
	}
}

// TestNamesInPagesExist checks that a link [`name`](file.go) leads to a file that declares name.
func TestNamesInPagesExist(t *testing.T) {
	links := regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([^)]+\\.go)\\)")
	for _, step := range allSteps(t) {
		for _, match := range links.FindAllStringSubmatch(step.page, -1) {
			file := filepath.Join(root, step.dir, match[2])
			name := match[1][strings.LastIndex(match[1], ".")+1:]
			names, err := pages.Declared(file)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(names, name) {
				t.Errorf("%s/README.md: %s does not declare %s", step.dir, match[2], name)
			}
		}
	}
}

func withoutIndentation(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

// lessonsOf returns the lessons of step 9.
func lessonsOf(t *testing.T) []lesson {
	t.Helper()
	lessons, err := readLessons(root)
	if err != nil || len(lessons) < 20 {
		t.Fatalf("%d lessons, want at least 20: %v", len(lessons), err)
	}
	return lessons
}

func TestEachLessonHasAFaultThatFits(t *testing.T) {
	for _, l := range lessonsOf(t) {
		if _, err := overlay(root, t.TempDir(), l.fault); err != nil {
			t.Errorf("fault %s: %v", l.number, err)
		}
		if _, err := os.Stat(filepath.Join(root, "docs/scenarios", l.scenario+".txt")); err != nil {
			t.Errorf("fault %s: %v", l.number, err)
		}
	}
}

// TestEachFaultTurnsItsScenarioRed plants the faults of step 9. Its play plants one of them; with -faults it is all.
func TestEachFaultTurnsItsScenarioRed(t *testing.T) {
	if !*allFaults {
		t.Skip("takes minutes; run with -faults")
	}
	for _, l := range lessonsOf(t) {
		t.Run(l.number, func(t *testing.T) {
			if err := plant(t.Context(), root, l.number, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
}
