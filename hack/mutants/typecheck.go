package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
)

// A checker finds the faults that do not compile. It checks their types only, because a run of the compiler for each
// fault takes much longer. Go's compiler finds the same errors with the same algorithm.
type checker struct {
	root string
	fset *token.FileSet

	mu       sync.Mutex // Guards importer, which is not for concurrent use.
	importer types.Importer
	// packages has the package of each directory, relative to root.
	packages map[string]*goPackage
}

// A goPackage has the files of a package that are not tests, by their names relative to the root.
type goPackage struct {
	importPath, name string
	files            map[string]*source
}

// newChecker reads the packages in the directories. A directory that has no package of this module is left out.
func newChecker(ctx context.Context, root string, dirs []string) (*checker, error) {
	args := []string{"list", "-e", "-export", "-deps", "-json=Dir,ImportPath,Name,GoFiles,Export,DepOnly,Error"}
	for _, dir := range dirs {
		args = append(args, "./"+dir)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, &bytes.Buffer{}
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, cmd.Stderr)
	}
	c := &checker{root: root, fset: token.NewFileSet(), packages: map[string]*goPackage{}}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			Dir, ImportPath, Name, Export string
			GoFiles                       []string
			DepOnly                       bool
			Error                         *struct{ Err string }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly || p.Error != nil {
			continue
		}
		if err := c.read(p.Dir, p.GoFiles, &goPackage{importPath: p.ImportPath, name: p.Name}); err != nil {
			return nil, err
		}
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c, nil
}

// read adds a package.
func (c *checker) read(dir string, names []string, p *goPackage) error {
	root, err := filepath.Abs(c.root)
	if err != nil {
		return err
	}
	if dir, err = filepath.Rel(root, dir); err != nil {
		return err
	}
	dir = filepath.ToSlash(dir)
	p.files = map[string]*source{}
	for _, name := range names {
		file := path.Join(dir, name)
		text, err := os.ReadFile(filepath.Join(c.root, file))
		if err != nil {
			return err
		}
		if p.files[file], err = c.parse(file, text); err != nil {
			return err
		}
	}
	c.packages[dir] = p
	return nil
}

func (c *checker) parse(file string, text []byte) (*source, error) {
	tree, err := parser.ParseFile(c.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{text: text, tree: tree, file: c.fset.File(tree.FileStart)}, nil
}

// Import returns the package with this path, from what the compiler wrote of it.
func (c *checker) Import(path string) (*types.Package, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.importer.Import(path)
}

// version returns the version that has a mutant, or the reason why the mutant cannot be woven.
func (c *checker) version(m mutant) (v version, reason string) {
	p := c.packages[path.Dir(m.file)]
	if p == nil || p.files[m.file] == nil {
		return version{}, notInPackage
	}
	original := p.files[m.file]
	faulty, err := c.parse(m.file, m.apply(original.text))
	if err != nil {
		return version{}, wrongType
	}
	if v, reason = versionOf(m, original, faulty); reason != "" {
		return version{}, reason
	}
	trees := []*ast.File{faulty.tree}
	for file, other := range p.files {
		if file != m.file {
			trees = append(trees, other.tree)
		}
	}
	config := types.Config{Importer: c, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	if _, err := config.Check(p.importPath, c.fset, trees, nil); err != nil {
		return version{}, wrongType
	}
	return v, ""
}

// versions returns the version of each mutant. A mutant that cannot be woven has a reason instead. The number of a
// version is the index of its mutant plus one.
func (c *checker) versions(mutants []mutant) (versions []version, reasons []string) {
	versions, reasons = make([]version, len(mutants)), make([]string, len(mutants))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				versions[i], reasons[i] = c.version(mutants[i])
				versions[i].number = i + 1
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	workers.Wait()
	return versions, reasons
}

// directories returns the directories of the mutants, each once.
func directories(mutants []mutant) []string {
	var dirs []string
	for _, m := range mutants {
		dirs = append(dirs, path.Dir(m.file))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
