// Package pages reads the documents of this project, and plays them: it runs the commands of a page in a shell, and
// compares what they print with what the page shows. The tests of the documents use it, and `make tutorial`.
//
// Nothing is played twice. Where a state comes only after a while, a command of the page waits for it.
package pages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long a play waits for the end of a command, and for lines that do not come. A busy machine must not
	// end a play, so it is long. kuberc has the timeout of kubectl wait.
	patience = 10 * time.Minute
	// readersPatience is how long a play with a pace waits for lines.
	readersPatience = 30 * time.Second
	kuberc          = "hack/tools/pages/kuberc.yaml"
)

// A Stage is where plays happen: a shell, and programs in the background.
type Stage struct {
	Root string // The root of the repository, in which commands run.
	// Prelude is what the shell runs before each command, such as "source .cluster/env".
	Prelude string
	Out     io.Writer
	// Pace is the time before each command, for a person who reads along. Such a person may change objects in another
	// terminal, so a line that the page does not have is only printed. With 0, it is an error.
	Pace time.Duration

	programs map[string]*program
	lines    chan string // What the programs in the background print.
}

// A program runs in the background of a play.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{} // Closed after the last line was read.
}

// Play plays the scenes one after another. Each begins when all lines of the one before have been printed, so a play
// needs no pauses.
func (s *Stage) Play(ctx context.Context, scenes []Scene) error {
	for _, scene := range scenes {
		if err := s.play(ctx, scene); err != nil {
			for len(s.lines) > 0 { // No scene has read them. They may show why it has failed.
				s.printf("%s\n", <-s.lines)
			}
			return fmt.Errorf("%q: %w", scene.Command, err)
		}
	}
	return nil
}

func (s *Stage) play(ctx context.Context, scene Scene) error {
	if !scene.IsScript && strings.HasPrefix(scene.Command, "#") {
		s.printf("\n%s\n", scene.Command)
		return nil
	}
	s.printf("$ %s\n", strings.ReplaceAll(scene.Command, "\n", "\n> "))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.Pace):
	}
	missing := newMatcher(scene.Lines)
	if err := s.perform(ctx, scene, missing); err != nil {
		return err
	}
	return s.awaitLines(ctx, missing)
}

func (s *Stage) printf(format string, args ...any) { fmt.Fprintf(s.Out, format, args...) }

var (
	startCommand = regexp.MustCompile(`^([a-z-]+)( .*)? &$`)
	killCommand  = regexp.MustCompile(`^kill -(INT|KILL|STOP|CONT) %([a-z-]+)$`)
	signals      = map[string]syscall.Signal{
		"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}
)

// perform performs the command of a scene: in the background if it ends with "&", else to its end.
func (s *Stage) perform(ctx context.Context, scene Scene, missing matcher) error {
	if parts := startCommand.FindStringSubmatch(scene.Command); parts != nil {
		return s.start(parts[1], parts[2])
	}
	if parts := killCommand.FindStringSubmatch(scene.Command); parts != nil {
		return s.kill(signals[parts[1]], parts[2])
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	command := scene.Command
	if scene.IsScript {
		command = "set -o errexit\n" + command
	}
	out, err := runUntil(ctx, s.shell(command))
	s.printf("%s", out)
	if ctx.Err() != nil || scene.IsScript && err != nil {
		return errors.Join(ctx.Err(), err)
	}
	own, fits := matcher{"": missing[""]}, true
	delete(missing, "")
	for _, line := range splitLines(out) {
		fits = own.accept(line) && fits
	}
	if s.Pace == 0 && (!fits || len(own.missing()) > 0) {
		return differs(scene.Lines, splitLines(out))
	}
	return nil
}

func differs(page, printed []string) error {
	return fmt.Errorf("the page has:\n  %s\nand this was printed:\n  %s",
		strings.Join(page, "\n  "), strings.Join(printed, "\n  "))
}

// runUntil runs a command and all its children, at most until ctx ends, and returns its output.
func runUntil(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	err := cmd.Wait()
	return out.String(), err
}

// shell returns a command that bash runs, in a process group of its own.
func (s *Stage) shell(command string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", s.Prelude+"\n"+command)
	cmd.Dir = s.Root
	cmd.Env = append(os.Environ(), "KUBERC="+kuberc)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// start starts a program in the background.
func (s *Stage) start(name, args string) error {
	if s.programs == nil {
		s.programs, s.lines = map[string]*program{}, make(chan string, 10000)
	}
	if s.programs[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	cmd := s.shell("exec " + name + args)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return err
	}
	p := &program{cmd: cmd, ended: make(chan struct{})}
	s.programs[name] = p
	go s.follow(name, p, out)
	return nil
}

// follow passes on what a program prints, until it ends.
func (s *Stage) follow(name string, p *program, out io.ReadCloser) {
	defer close(p.ended)
	defer out.Close()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.lines <- fmt.Sprintf("[%s] %s", name, lines.Text())
	}
	if err := p.cmd.Wait(); err != nil {
		s.lines <- fmt.Sprintf("[%s] (%v)", name, err)
	}
}

// kill sends a signal to a program in the background and its children, as a shell does. If the signal ends programs, it
// waits for that.
func (s *Stage) kill(signal syscall.Signal, name string) error {
	p := s.programs[name]
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	err := syscall.Kill(-p.cmd.Process.Pid, signal)
	if err != nil || signal == syscall.SIGSTOP || signal == syscall.SIGCONT {
		return err
	}
	select {
	case <-p.ended:
		delete(s.programs, name)
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s does not end", name)
	}
}

// awaitLines prints the lines of the programs in the background, until none of the page is missing.
func (s *Stage) awaitLines(ctx context.Context, missing matcher) error {
	timeout := time.After(patience)
	if s.Pace > 0 {
		timeout = time.After(readersPatience)
	}
	for len(missing.missing()) > 0 {
		select {
		case line := <-s.lines:
			s.printf("%s\n", line)
			if !missing.accept(line) && s.Pace == 0 {
				return differs(missing.missing(), []string{line})
			}
		case <-timeout:
			if s.Pace > 0 {
				s.printf("# The page has other lines here. The play continues.\n")
				return nil
			}
			return fmt.Errorf("after %v, this is missing:\n  %s", patience, strings.Join(missing.missing(), "\n  "))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Forward prints the lines of the programs in the background until ctx ends.
func (s *Stage) Forward(ctx context.Context) {
	for {
		select {
		case line := <-s.lines:
			s.printf("%s\n", line)
		case <-ctx.Done():
			return
		}
	}
}

// Close ends all programs.
func (s *Stage) Close() {
	for _, p := range s.programs {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // It may have ended.
		<-p.ended
	}
	s.programs, s.lines = nil, nil
}

// A Scene is a command of a page, or a comment, and the lines that the page shows after it.
type Scene struct {
	Command string
	Lines   []string
	// IsScript is true for a block of commands without a transcript: each of them must succeed.
	IsScript bool
}

// Scenes returns the scenes of the blocks whose marker in the page names the test, see Block. A block of the
// language console is a transcript of a terminal, for example:
//
//	# A sentence for the reader.
//	$ kubectl run web --image=nginx
//	pod/web created
//	$ ask-again --every=2s &
//	[ask-again] list 1: Pods: 1; so far: requests: 1, bytes: <n>
//	...
//
// A line that begins with "> " continues a command. Lines of programs that run in the background begin with the name
// in brackets. Any other block is one command, and its output is the block after it, if there is one. A part such as
// <name> is different each time, <n> is a number, and a line "..." stands for any number of lines.
func Scenes(page, test string) []Scene {
	var scenes []Scene
	for _, block := range Parse(page).Blocks {
		switch {
		case block.RunBy() != test:
		case block.Language == "console":
			scenes = append(scenes, transcript(block.Text)...)
		case block.Output == nil:
			scenes = append(scenes, Scene{Command: strings.TrimSpace(block.Text), Lines: []string{skipLines}, IsScript: true})
		default:
			lines := splitLines(block.Output.Text)
			scenes = append(scenes, Scene{Command: strings.TrimSpace(block.Text), Lines: lines, IsScript: true})
		}
	}
	return scenes
}

func transcript(text string) []Scene {
	scenes := []Scene{{}} // For lines before the first command.
	for _, line := range splitLines(text) {
		last := &scenes[len(scenes)-1]
		command, isCommand := strings.CutPrefix(line, "$ ")
		continued, isContinued := strings.CutPrefix(line, "> ")
		switch {
		case isCommand || strings.HasPrefix(line, "# "):
			scenes = append(scenes, Scene{Command: command})
		case isContinued && last.Lines == nil:
			last.Command += "\n" + continued
		default:
			last.Lines = append(last.Lines, line)
		}
	}
	return slices.DeleteFunc(scenes, func(s Scene) bool { return s.Command == "" && s.Lines == nil })
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// skipLines stands for any number of lines.
const skipLines = "..."

// placeholder matches the parts of a line of a page that differ from run to run, such as <n> or <port>.
var placeholder = regexp.MustCompile(`<[a-z][a-zA-Z ]*>`)

// matchLine reports whether a line of a page, which may have placeholders, fits a line that was printed.
func matchLine(want, have string) bool {
	var pattern strings.Builder
	at := 0
	for _, found := range placeholder.FindAllStringIndex(want, -1) {
		pattern.WriteString(regexp.QuoteMeta(want[at:found[0]]))
		at = found[1]
		if want[found[0]:at] == "<n>" {
			pattern.WriteString("[0-9]+")
		} else {
			pattern.WriteString(".+")
		}
	}
	return regexp.MustCompile("^" + pattern.String() + regexp.QuoteMeta(want[at:]) + "$").MatchString(have)
}

// A matcher has the lines of a page that are still missing, by the name in brackets of the program that prints them.
// Those of the command itself have no name. Lines of different programs may come in another order than in the page.
type matcher map[string][]string

// newMatcher returns the matcher for the lines of a scene. A line skipLines is about the program of the next line or,
// as the last line, about that of the line before it.
func newMatcher(lines []string) matcher {
	m, of := matcher{}, ""
	for i, line := range lines {
		if line == skipLines && i+1 < len(lines) {
			of = programOf(lines[i+1])
		} else if line != skipLines {
			of = programOf(line)
		}
		m[of] = append(m[of], line)
	}
	return m
}

var programName = regexp.MustCompile(`^\[[a-z-]+\] `)

func programOf(line string) string { return programName.FindString(line) }

// accept reports whether line is the next one of its program in the page, or is skipped. skipLines fits any number of
// lines, up to one that fits the line after it. After false the matcher has not changed.
func (m matcher) accept(line string) bool {
	want := m[programOf(line)]
	skips := len(want) > 0 && want[0] == skipLines
	if skips {
		want = want[1:]
	}
	if len(want) > 0 && matchLine(want[0], line) {
		m[programOf(line)] = want[1:]
		return true
	}
	return skips
}

// missing returns the lines that were not printed yet.
func (m matcher) missing() []string {
	var lines []string
	for _, program := range slices.Sorted(maps.Keys(m)) {
		if want := m[program]; !slices.Equal(want, []string{skipLines}) {
			lines = append(lines, want...)
		}
	}
	return lines
}
