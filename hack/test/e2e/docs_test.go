package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/foo-controller/hack/tools/pages"
)

// This file executes scripts and the commands in documents, and compares what they print with the pages.

// TestTryWithMakeRun does what a reader does who follows docs/try.md: `make run` in one terminal, the commands in
// another one, and Ctrl-C.
func TestTryWithMakeRun(t *testing.T) {
	waitForRoom(t)
	scenes := scenesOf(t, "docs/try.md")
	if len(scenes) < 3 || scenes[0].Command != "make run" || scenes[1].Command != "source .cluster/env" {
		t.Fatal("docs/try.md: the first commands are not `make run` and `source .cluster/env`")
	}
	out := playMake(t, "docs/try.md", "run", "foo/example-foo is Ready with 2 of 2 replicas available", scenes[2:])
	if scaled := regexp.MustCompile("example-foo +5 +5 +5 +True"); !scaled.MatchString(out) {
		t.Errorf("make run does not show %v:\n%s", scaled, out)
	}
}

// playMake runs a target of make that starts a cluster, in another terminal the scenes of a page, and then Ctrl-C. It
// checks that nothing is left behind, and returns the output of make.
func playMake(t *testing.T, page, target, ready string, scenes []pages.Scene) string {
	t.Helper()
	// Other tests use the binaries at the same time, so they are not built again.
	cmd := exec.Command("make", "--no-print-directory", "--old-file=bin/foo-controller", "--old-file=bin/localcluster",
		"--old-file=bin/play", target)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // What `make test-e2e` sets; a reader has none of it.
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS")
	})
	temp := t.TempDir()
	dir := filepath.Join(temp, "it's a cluster") // Somebody may use that of the checkout.
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, "CLUSTER_DIR="+dir)
	out := playScript(t, cmd, ready, func() {
		playScenes(t, page, fmt.Sprintf("export CLUSTER_DIR=%[1]q\nsource %[1]q/env", dir), scenes)
	})
	for _, want := range []string{"NAME ", "Nothing is left behind."} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("files are left behind: %v", left)
	}
	if left := processesWith(t, temp); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
	if strings.Contains(out, "make: ***") {
		t.Errorf("make %s ended with an error:\n%s", target, out)
	}
	return out
}

// TestPlay does what a reader of README.md and of hack/cmd/play/README.md does: `make play` in one terminal, the
// commands in another one, and Ctrl-C.
func TestPlay(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	const page = "hack/cmd/play/README.md"
	scenes := scenesOf(t, page)
	for name, first := range map[string]pages.Scene{"README.md": scenesOf(t, "README.md")[0], page: scenes[0]} {
		if first.Command != "make play" {
			t.Errorf("%s begins with %q", name, first.Command)
		}
	}
	out := playMake(t, page, "play", "True      Available", scenes[2:])
	if !strings.HasPrefix(out, "Simulated: ") {
		t.Errorf("make play does not begin with what is simulated:\n%s", out)
	}
	if scaled := regexp.MustCompile("example-foo +5 +5 +5 +True"); !scaled.MatchString(out) {
		t.Errorf("make play does not show %v:\n%s", scaled, out)
	}
}

// playScript starts a script, waits until its output has the text ready, calls meanwhile, sends Ctrl-C, and waits until
// the script has ended without an error. It returns the whole output.
func playScript(t *testing.T, cmd *exec.Cmd, ready string, meanwhile func()) string {
	t.Helper()
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A terminal sends Ctrl-C to the whole group.
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // It may still run.
			t.Logf("output:\n%s", out)
		}
	})
	for giveUp := time.After(5 * time.Minute); !strings.Contains(out.String(), ready); {
		select {
		case err := <-ended:
			t.Fatalf("the script ended before its output has %q: %v", ready, err)
		case <-giveUp:
			t.Fatalf("the output has no %q", ready)
		case <-time.After(20 * time.Millisecond):
		}
	}
	meanwhile()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		isMake := filepath.Base(cmd.Path) == "make" // After Ctrl-C, it ends by the signal.
		if err != nil && !(isMake && err.Error() == "signal: interrupt") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(eventually):
		t.Error("did not end")
	}
	if strings.Contains(out.String(), "killed everything") {
		t.Error("the control plane has got two signals")
	}
	return out.String()
}

// newScriptTree returns a new directory with scripts of the repository and the binaries, and nothing else.
func newScriptTree(t *testing.T, scripts ...string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(t.TempDir(), `it's a "tree"`) // As a user may call it.
	for _, dir := range []string{"hack", "bin"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, binary := range map[string]string{
		"foo-controller": "foo-controller", "localcluster": "localcluster", "node": "node",
		"image": "image-native",
	} {
		if err := os.Symlink(filepath.Join(here, "bin", binary), filepath.Join(tree, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range scripts {
		script, err := os.ReadFile(file)
		if err := errors.Join(err, os.WriteFile(filepath.Join(tree, file), script, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// processesWith returns the command lines of all processes that have words in their command line, in their working
// directory or in their mounts. It needs /proc.
func processesWith(t *testing.T, words string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs { // The process may have ended, so errors are no matter.
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		mounts, _ := os.ReadFile(filepath.Join(dir, "mountinfo"))
		working, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if strings.Contains(string(line)+"\n"+string(mounts)+"\n"+working, words) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// TestReadmeFirstLook plays the scenario of README.md.
func TestReadmeFirstLook(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	t.Cleanup(func() { _ = os.Remove("docs/scenarios/try.txt") }) // The last command of the page has removed it.
	playScenes(t, "README.md", "", scenesOf(t, "README.md"))
}

// TestOperationsMetricsPermission executes the command of docs/operations.md that lets Prometheus read the metrics.
func TestOperationsMetricsPermission(t *testing.T) {
	e := newEnv(t, apiCluster)
	prometheus := []string{"auth", "can-i", "get", "/metrics", "--as=system:serviceaccount:monitoring:prometheus"}
	if out, err := e.try("", prometheus...); err == nil {
		t.Fatalf("it has the permission already: %s", out)
	}
	t.Cleanup(func() { e.kubectl(t, "", "delete", "clusterrolebinding", "read-foo-metrics") })
	playScenes(t, operationsPage, kubectlFunction(e.Kubectl()), scenesOf(t, operationsPage))
	until(t, "Prometheus may read the metrics", func(context.Context) (bool, error) {
		_, err := e.try("", prometheus...)
		return err == nil, nil
	})
}

// kubectlFunction returns a shell function kubectl that runs cmd.
func kubectlFunction(cmd *exec.Cmd) string {
	return fmt.Sprintf("kubectl() { %s \"$@\"; }", strings.Join(cmd.Args, " "))
}

// scenesOf returns the scenes of a page that this test plays.
func scenesOf(t *testing.T, page string) []pages.Scene {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	scenes := pages.Scenes(string(text), test)
	if len(scenes) == 0 {
		t.Fatalf("%s has no commands for this test", page)
	}
	return scenes
}

func playScenes(t *testing.T, page, prelude string, scenes []pages.Scene) {
	t.Helper()
	stage := &pages.Stage{Root: ".", Prelude: prelude, Out: t.Output()}
	if err := stage.Play(t.Context(), scenes); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}

var rewrite = flag.Bool("rewrite", false, "write the real tables of flags and of the chart's values into their pages")

const operationsPage = "docs/operations.md"

// The table of flags in docs/operations.md is that of --help, which prints the definitions in pkg/kit.
func TestOperationsHasTheFlags(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	help, err := exec.Command(controllerBinary, "--help").Output()
	if err != nil {
		t.Fatalf("%v: `make %s` builds it", err, controllerBinary)
	}
	want := flagsTable(string(help))
	if flags, rows := strings.Count(string(help), "\n  --"), strings.Count(want, "\n| `--"); rows != flags || rows == 0 {
		t.Fatalf("--help has %d flags, and the table %d", flags, rows)
	}
	checkTable(t, operationsPage, "flag", want)
}

// checkTable compares the table of a page that begins with a word. With -rewrite, it writes the table.
func checkTable(t *testing.T, file, first, want string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?m)^\| ` + first + ` \| default \| meaning \|\n(?:\|.*\n)+`)
	have := table.FindString(string(page))
	if *rewrite {
		rewritten := strings.Replace(string(page), have, want, 1)
		if err := os.WriteFile(file, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s has another table: run this test with -rewrite (-want +have):\n%s", file, diff)
	}
}

// flagsTable returns the flags that --help prints as a table.
func flagsTable(help string) string {
	var table strings.Builder
	table.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
	// A flag has two lines: its name with the kind of its value, and its meaning with its default.
	lines := regexp.MustCompile(`(?m)^  --(\S+)(?: (\S+))?\n      (.*?)(?: \(default (\S+)\))?$`)
	for _, found := range lines.FindAllStringSubmatch(help, -1) {
		name, kind, meaning, value := found[1], found[2], found[3], found[4]
		if kind != "" {
			name += "=" + strings.ToUpper(kind)
		}
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", name, value, meaning)
	}
	return table.String()
}
