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
	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/foo-controller/hack/tools/markdown"
)

// This file executes the commands in README.md and docs/try.md, in their order, and compares what they print with the
// pages. With -rewrite it writes the real outputs into the pages:
//
//	go test -run 'TestReadme|TestTry' . -rewrite

var rewrite = flag.Bool("rewrite", false, "write what is real into the documents: the outputs in README.md and "+
	"docs/try.md, and the table of flags in docs/operations.md")

// TestTryWithMakeRun does what a reader does who follows the page: `make run` in one terminal, and the commands in
// another one.
func TestTryWithMakeRun(t *testing.T) {
	waitForRoom(t)
	page := openPage(t, "docs/try.md")
	blocks := page.blocksOf(t)
	if len(blocks) < 3 || blocks[0].Text != "make run\n" || blocks[1].Text != "source .cluster/env\n" {
		t.Fatalf("%s: the first commands are not `make run` and `source .cluster/env`", page.file)
	}
	dir := filepath.Join(t.TempDir(), ".cluster") // Other tests, or a person, may use that of the checkout.
	first := startMakeRun(t, dir)
	first.waitFor(t, regexp.MustCompile("foo/example-foo is Ready"))
	sourced := "source " + dir + "/env\n"
	if !strings.Contains(first.out.String(), "  "+sourced) {
		t.Fatalf("make run does not print %q", sourced)
	}

	second := &shell{prelude: "export CLUSTER_DIR=" + dir + "\n" + sourced}
	page.play(t, second, blocks[2])
	first.waitFor(t, regexp.MustCompile("example-foo +5 +5 +5 +True"))
	for _, block := range blocks[3:] {
		page.play(t, second, block)
	}
	page.close(t)
	first.interrupt(t)
}

// TestReadmeFirstLook plays the scenario of the page.
func TestReadmeFirstLook(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	t.Cleanup(func() { _ = os.Remove("docs/scenarios/try.txt") }) // The last command of the page has removed it.
	page := openPage(t, "README.md")
	for _, block := range page.blocksOf(t) {
		page.play(t, &shell{}, block)
	}
	page.close(t)
}

func TestOnlyAgesMayDiffer(t *testing.T) {
	const page = "web   True   5s\nok  \tfoo\t0.104s\n"
	for _, test := range []struct {
		name, printed string
		same          bool
	}{
		{name: "other ages", same: true,
			printed: "web   True   2m15s\nok  \tfoo\t12s\n"},
		{name: "whole minutes", same: true,
			printed: "web   True   3m\nok  \tfoo\t0.104s\n"},
		{name: "another value",
			printed: "web   False   5s\nok  \tfoo\t0.104s\n"},
		{name: "no age",
			printed: "web   True   \nok  \tfoo\t0.104s\n"},
		{name: "a line less",
			printed: "web   True   5s\n"},
	} {
		if same := normal(page) == normal(test.printed); same != test.same {
			t.Errorf("%s: same = %t, want %t", test.name, same, test.same)
		}
	}
}

// The outputs of a page are written where they are shown, and nothing else changes.
func TestOutputsAreWrittenIntoThePage(t *testing.T) {
	const text = "# A\n```sh\nls\n```\n\n```text\nold\nold\n```\nwords\n```sh\npwd\n```\n```text\n```\n"
	p := &page{file: filepath.Join(t.TempDir(), "page.md"), text: text, printed: map[int]string{6: "new\n", 14: "/\n"}}
	p.close(t)
	want := strings.ReplaceAll(text, "old\nold\n", "new\n")
	want = strings.ReplaceAll(want, "```text\n```", "```text\n/\n```")
	if have, err := os.ReadFile(p.file); err != nil || string(have) != want {
		t.Errorf("%v, the page is\n%s\nwant\n%s", err, have, want)
	}
}

// TestOperationsMetricsPermission executes the command of operations.md that lets Prometheus read the metrics.
func TestOperationsMetricsPermission(t *testing.T) {
	e := newEnv(t, apiCluster)
	prometheus := []string{"auth", "can-i", "get", "/metrics", "--as=system:serviceaccount:monitoring:prometheus"}
	if out, err := e.try("", prometheus...); err == nil {
		t.Fatalf("it has the permission already: %s", out)
	}
	t.Cleanup(func() { e.kubectl(t, "", "delete", "clusterrolebinding", "read-foo-metrics") })
	page := openPage(t, "docs/operations.md")
	sh := &shell{prelude: fmt.Sprintf("kubectl() { %s \"$@\"; }\n", strings.Join(e.Kubectl().Args, " "))}
	for _, block := range page.blocksOf(t) {
		page.play(t, sh, block)
	}
	e.kubectl(t, "", prometheus...)
}

// A page is a document whose commands are executed.
type page struct {
	file, text string
	printed    map[int]string // What was printed, by the line of the block that shows it. Only with -rewrite.
}

func openPage(t *testing.T, file string) *page {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &page{file: file, text: string(text), printed: map[int]string{}}
}

// blocksOf returns the blocks whose marker in the page names this test.
func (p *page) blocksOf(t *testing.T) []markdown.Block {
	t.Helper()
	var blocks []markdown.Block
	for _, block := range markdown.Parse(p.text).Blocks {
		if block.IsCommand() && block.RunBy() == t.Name() {
			blocks = append(blocks, block)
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no commands for this test", p.file)
	}
	return blocks
}

// play executes the commands of a block and compares what they print, if the page shows it.
func (p *page) play(t *testing.T, sh *shell, block markdown.Block) {
	t.Helper()
	want := ""
	if block.Output != nil {
		want = block.Output.Text
	}
	printed := ""
	for _, command := range commandsOf(block.Text) {
		out, err := sh.run(t, command, func(out string) bool {
			return block.Output == nil || strings.HasPrefix(normal(want), normal(printed+out))
		})
		printed += out
		if err != nil {
			t.Fatalf("%s:%d: %s: %v\n%s", p.file, block.Line, command, err, out)
		}
	}
	if block.Output == nil || normal(printed) == normal(want) {
		return
	}
	if !*rewrite {
		diff := cmp.Diff(strings.Split(normal(want), "\n"), strings.Split(normal(printed), "\n"))
		t.Fatalf("%s:%d: the commands print (-page +real):\n%s", p.file, block.Line, diff)
	}
	p.printed[block.Output.Line] = printed
}

// close writes the outputs that differ into the page, with -rewrite.
func (p *page) close(t *testing.T) {
	t.Helper()
	if len(p.printed) == 0 {
		return
	}
	var text strings.Builder
	skip := 0
	for i, line := range strings.SplitAfter(p.text, "\n") {
		if skip > 0 {
			skip--
			continue
		}
		text.WriteString(line)
		if printed, ok := p.printed[i+1]; ok {
			text.WriteString(printed)
			skip = strings.Count(p.outputAt(i+1), "\n")
		}
	}
	if err := os.WriteFile(p.file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (p *page) outputAt(line int) string {
	blocks := markdown.Parse(p.text).Blocks
	return blocks[slices.IndexFunc(blocks, func(b markdown.Block) bool { return b.Line == line })].Text
}

// commandsOf returns the commands of a block: its lines. A here document is one command.
func commandsOf(text string) []string {
	if strings.Contains(text, "<<") {
		return []string{text}
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

var (
	// A read is repeated until it prints what the page shows: a reader is slower than a test.
	isRead = regexp.MustCompile(`^(k |make kubectl ARGS=.)get `)
	age    = regexp.MustCompile(`\b(\d+m(\d+s)?|\d+(\.\d+)?s)( +|\n|$)`)
)

// normal replaces what differs from run to run: ages.
func normal(text string) string { return age.ReplaceAllString(text, "AGE\n") }

// A shell executes commands in the root of the repository.
type shell struct {
	prelude string // What was typed before and still counts.
}

// run executes a command. It repeats a read until isExpected returns true of its output, or for some time.
func (s *shell) run(t *testing.T, command string, isExpected func(out string) bool) (out string, err error) {
	patience := eventually
	if *rewrite {
		patience = 10 * time.Second
	}
	_ = wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			cmd := exec.CommandContext(t.Context(), "bash", "-c", s.prelude+command)
			cmd.Env = withoutMake()
			var printed []byte
			printed, err = cmd.CombinedOutput()
			out = string(printed)
			return !isRead.MatchString(command) || err == nil && isExpected(out), nil
		})
	return out, err
}

// A makeRun is a running `make run`.
type makeRun struct {
	cmd   *exec.Cmd
	out   *syncBuffer
	ended chan error
}

// startMakeRun starts `make run` with its cluster in dir.
func startMakeRun(t *testing.T, dir string) *makeRun {
	t.Helper()
	// Other tests use the binaries at the same time, so they are not built again.
	cmd := exec.Command("make", "--no-print-directory", "--old-file=build", "run")
	cmd.Env = append(withoutMake(), "CLUSTER_DIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A terminal sends Ctrl-C to the whole group.
	run := &makeRun{cmd: cmd, out: &syncBuffer{}, ended: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = run.out, run.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		run.ended <- cmd.Wait()
		close(run.ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // It may have ended before.
		<-run.ended
		if t.Failed() {
			t.Logf("make run printed:\n%s", run.out)
		}
	})
	return run
}

// withoutMake returns the environment without what `make test` sets for the make processes that it starts. A reader has
// none of that.
func withoutMake() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS")
	})
}

// waitFor waits until make run has printed something.
func (r *makeRun) waitFor(t *testing.T, what *regexp.Regexp) {
	t.Helper()
	until(t, "make run prints "+what.String(), func(context.Context) (bool, error) {
		select {
		case err := <-r.ended:
			return false, fmt.Errorf("it ended: %v", err)
		default:
			return what.MatchString(r.out.String()), nil
		}
	})
}

// interrupt presses Ctrl-C, and waits for the end.
func (r *makeRun) interrupt(t *testing.T) {
	t.Helper()
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT)
	select {
	case err := <-r.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Errorf("make run ended with %v", err)
		}
	case <-time.After(eventually):
		t.Fatal("make run did not end after Ctrl-C")
	}
	if !strings.HasSuffix(r.out.String(), "Nothing is left behind.\n") {
		t.Errorf("make run ended with:\n%s", r.out.String())
	}
}
