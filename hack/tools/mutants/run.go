package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/foo-controller/hack/tools/faults"
)

type outcome string

const (
	killed      outcome = "killed"
	survived    outcome = "survived"
	notCompiled outcome = "not compiled"
	shared      outcome = "not tried yet, in the shared binary"
)

// A runner runs tests in the module at root. With the flag -overlay, Go reads a mutant from dir instead of the original
// file, so the sources never change.
type runner struct {
	root, dir string
	out       io.Writer
	timeout   time.Duration
	tests     string // The directory whose tests run, "" for those beside the code.

	mu   sync.Mutex
	done int
	last time.Time // When it printed how many are done.
}

// A binary is a test binary. That of a package has most of its mutants, see weave.
type binary struct {
	dir  string // The directory of the package, relative to the root.
	file string
	slow string // Matches the names of the slow tests, "" if no test is slow.

	sources map[string]*source // By the paths of the files, as woven.
	woven   map[string][]version
}

// all tries the mutants, several at a time, and returns the outcomes in their order. First it runs the tests without a
// mutant.
func (r *runner) all(ctx context.Context, mutants []mutant) ([]outcome, error) {
	started := time.Now()
	outcomes, binaries := make([]outcome, len(mutants)), map[string]*binary{}
	for i, m := range mutants {
		dir := path.Dir(m.file)
		b := binaries[dir]
		if b == nil {
			b = &binary{dir: dir, file: filepath.Join(r.dir, fmt.Sprintf("shared-%d.test", len(binaries)))}
			b.sources, b.woven = map[string]*source{}, map[string][]version{}
			binaries[dir] = b
		}
		if b.sources[m.file] == nil {
			var err error
			if b.sources[m.file], err = readSource(r.root, m.file); err != nil {
				return nil, err
			}
		}
		if v, found := b.sources[m.file].version(m, i+1); found {
			b.woven[m.file] = append(b.woven[m.file], v)
			outcomes[i] = shared
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(binaries)) {
		if err := r.prepare(ctx, binaries[dir], outcomes); err != nil {
			return nil, err
		}
	}
	err := inParallel(ctx, len(mutants), func(ctx context.Context, i int) (err error) {
		m, b := mutants[i], binaries[path.Dir(mutants[i].file)]
		switch outcomes[i] {
		case notCompiled:
			return nil
		case shared:
			outcomes[i], err = r.try(ctx, b, i+1)
		default:
			outcomes[i], err = r.tryAlone(ctx, b, m, fmt.Sprint("alone-", i))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}
		r.progress(m, outcomes[i], len(mutants))
		return nil
	})
	fmt.Fprintf(r.out, "%d faults in %s\n", len(mutants), time.Since(started).Round(time.Second))
	return outcomes, err
}

// inParallel calls do with the numbers below n, and returns the first error.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// progress prints a survivor at once, because a long run may be stopped, and every 10 s how many are done.
func (r *runner) progress(m mutant, have outcome, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if have == survived {
		fmt.Fprintln(r.out, "survived:", m.key)
	}
	if time.Since(r.last) > 10*time.Second {
		r.last = time.Now()
		fmt.Fprintf(r.out, "%d of %d are done\n", r.done, total)
	}
}

var ofMutant = regexp.MustCompile(`mutant(\d+):\d`)

// prepare builds the binary that all woven mutants of a package share, without those that do not compile, and runs its
// tests without a fault: if they failed, the failure of a mutant would prove nothing.
func (r *runner) prepare(ctx context.Context, b *binary, outcomes []outcome) error {
	for {
		texts := map[string][]byte{}
		for file, source := range b.sources {
			texts[path.Join(b.dir, selectorName)] = selectorFile(source.tree.Name.Name)
			texts[file] = weave(source.text, b.woven[file])
		}
		output, err := r.build(ctx, b, texts)
		if err == nil {
			break
		}
		wrong := ofMutant.FindAllStringSubmatch(output, -1)
		if wrong == nil {
			return err
		}
		for _, match := range wrong {
			number, _ := strconv.Atoi(match[1]) // It was printed by weave.
			outcomes[number-1] = notCompiled
		}
		for file, versions := range b.woven {
			b.woven[file] = slices.DeleteFunc(versions, func(v version) bool { return outcomes[v.number-1] == notCompiled })
		}
	}
	output, err := r.passes(ctx, b, "-test.v")
	if err != nil {
		return err
	}
	if names := slowTests(output); names != nil {
		b.slow = "^(" + strings.Join(names, "|") + ")$"
		_, errQuick := r.passes(ctx, b, "-test.skip="+b.slow)
		_, errSlow := r.passes(ctx, b, "-test.run="+b.slow)
		err = errors.Join(errQuick, errSlow)
	}
	fmt.Fprintf(r.out, "the tests of ./%s pass without a fault\n", cmp.Or(r.tests, b.dir))
	return err
}

// passes runs tests without a fault, and returns an error if they fail.
func (r *runner) passes(ctx context.Context, b *binary, flags ...string) (string, error) {
	output, err := r.run(ctx, b, 0, flags...)
	if err != nil {
		return "", fmt.Errorf("the tests fail without any fault: %s: %w\n%s", b.dir, err, output)
	}
	return output, nil
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\w+) \((\d+\.\d+)s\)$`)

// slowTests returns the tests that took longer than the others. output is what a test binary prints with -test.v.
func slowTests(output string) (names []string) {
	const slow = 0.1 // Seconds.
	for _, match := range passed.FindAllStringSubmatch(output, -1) {
		if seconds, err := strconv.ParseFloat(match[2], 64); err == nil && seconds >= slow {
			names = append(names, match[1])
		}
	}
	return names
}

// tryAlone compiles a mutant without any other, and runs its tests.
func (r *runner) tryAlone(ctx context.Context, ofPackage *binary, m mutant, name string) (outcome, error) {
	b := &binary{dir: ofPackage.dir, file: filepath.Join(r.dir, name+".test"), slow: ofPackage.slow}
	defer os.Remove(b.file)
	text := m.apply(ofPackage.sources[m.file].text)
	_, err := r.build(ctx, b, map[string][]byte{m.file: text})
	var exit *exec.ExitError
	switch {
	case ctx.Err() == nil && errors.As(err, &exit):
		return notCompiled, nil
	case err != nil:
		return "", err
	}
	return r.try(ctx, b, 0)
}

func (m *mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.from], []byte(m.text), src[m.to:])
}

// build compiles the test binary of a package with these texts in place of its files, and returns what Go prints.
func (r *runner) build(ctx context.Context, b *binary, texts map[string][]byte) (string, error) {
	overlay, err := faults.Overlay(r.root, r.dir, filepath.Base(b.file), texts)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-ldflags=-s -w", // -e: all errors.
		"-overlay="+overlay, "-o", b.file)
	cmd.Dir = r.testsOf(b)
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("compile the tests of %s: %w\n%s", cmd.Dir, err, output)
	}
	return string(output), err
}

func (r *runner) testsOf(b *binary) string { return filepath.Join(r.root, cmp.Or(r.tests, b.dir)) }

// try runs the tests of a binary with the mutant of this number, the quick ones first: the sooner a mutant fails, the
// sooner the next one can run. Quick tests get less time than others, because many mutants make them hang.
func (r *runner) try(ctx context.Context, b *binary, number int) (outcome, error) {
	const quickTimeout = 20 * time.Second
	rounds := [][]string{{"-test.timeout=" + min(r.timeout, quickTimeout).String()}}
	if b.slow != "" {
		rounds[0] = append(rounds[0], "-test.skip="+b.slow)
		rounds = append(rounds, []string{"-test.run=" + b.slow})
	}
	for _, flags := range rounds {
		output, err := r.run(ctx, b, number, flags...)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.As(err, &exit):
			return killed, nil
		case err != nil:
			return "", fmt.Errorf("%s: %w\n%s", b.dir, err, output)
		}
	}
	return survived, nil
}

// run runs the tests of a binary with the mutant of this number, in the directory of the package, as `go test` does.
func (r *runner) run(ctx context.Context, b *binary, number int, flags ...string) (string, error) {
	// After its timeout, a test binary ends by itself, but not if it hangs before the first test.
	ctx, cancel := context.WithTimeout(ctx, 3*r.timeout)
	defer cancel()
	fixed := []string{"-test.short", "-test.failfast", "-test.paniconexit0", "-test.timeout=" + r.timeout.String()}
	cmd := exec.CommandContext(ctx, b.file, append(fixed, flags...)...)
	cmd.Dir = r.testsOf(b)
	cmd.Env = append(os.Environ(), selectorVariable+"="+strconv.Itoa(number))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // With the processes that a test has started, it is a group.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // What a test has started may keep the output open.
	output, err := cmd.CombinedOutput()
	return string(output), err
}

const (
	// selector is a variable that a woven package has in addition. Its value is the number of the mutant that a test
	// binary has in this run, or 0 for none.
	selector = "numberOfTheMutant"
	// selectorVariable is the environment variable that sets it.
	selectorVariable = "MUTANT"
	// selectorName is the name of the file that declares selector.
	selectorName = "zz_number_of_the_mutant.go"
)

// selectorFile returns the text of the file selectorName.
func selectorFile(packageName string) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"os"
	"strconv"
)

var %s, _ = strconv.Atoi(os.Getenv(%q))
`, packageName, selector, selectorVariable)
}

// A version is the body of a function with one fault in it.
type version struct {
	number  int // The value of selector that selects it.
	from    int // Where the original body begins, after its brace.
	results string
	text    string
}

// weave returns the text of a file that has all these versions, so that one compilation serves all of them. A function
// begins with a switch, such as
//
//	func (s *State) Next() *Step {
//		switch numberOfTheMutant {
//		case 17:
//			return func() *Step {
//	//line mutant17:1
//				... the body with fault 17
//			}()
//		}
//		... the original body
//	}
//
// The compiler reports an error in a version with its number, because of the line directive.
func weave(src []byte, versions []version) []byte {
	functions := map[int][]version{}
	for _, v := range versions {
		functions[v.from] = append(functions[v.from], v)
	}
	var woven bytes.Buffer
	done := 0
	for _, from := range slices.Sorted(maps.Keys(functions)) {
		woven.Write(src[done:from])
		done = from
		fmt.Fprintf(&woven, "\nswitch %s {\n", selector)
		for _, v := range functions[from] {
			format := "case %d:\nreturn func() %s {\n//line mutant%d:1\n%s\n}()\n"
			if v.results == "" {
				format = "case %d:\nfunc() %s {\n//line mutant%d:1\n%s\n}()\nreturn\n"
			}
			fmt.Fprintf(&woven, format, v.number, v.results, v.number, v.text)
		}
		woven.WriteString("}\n")
	}
	woven.Write(src[done:])
	return woven.Bytes()
}

// A source is a Go file and its syntax tree.
type source struct {
	text []byte
	tree *ast.File
	base int
}

func readSource(root, file string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{text: text, tree: tree, base: files.File(tree.Pos()).Base()}, nil
}

// version returns the version that has a mutant. It is false for one that is not inside of a function.
func (s *source) version(m mutant, number int) (v version, found bool) {
	for _, decl := range s.tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		from, to := int(f.Body.Lbrace)-s.base+1, int(f.Body.Rbrace)-s.base
		if m.from < from || m.to > to {
			continue
		}
		v = version{number: number, from: from}
		v.text = string(s.text[from:m.from]) + m.text + string(s.text[m.to:to])
		if list := f.Type.Results; list != nil {
			v.results = string(s.text[int(list.Pos())-s.base : int(list.End())-s.base])
		}
		return v, true
	}
	return version{}, false
}
