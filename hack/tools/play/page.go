package play

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"example.com/foo-controller/hack/tools/markdown"
)

// A Scene is a command of a page, or a comment, and the lines that the page shows after it.
type Scene struct {
	Command string
	Lines   []string
	// IsScript is true for a block of commands without a transcript: each of them must succeed.
	IsScript bool
}

// Scenes returns the scenes of the blocks whose marker in the page names the test, see markdown.Block. A block of the
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
	for _, block := range markdown.Parse(page).Blocks {
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
