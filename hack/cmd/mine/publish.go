package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const publishHelp = `Writes a copy of this repository under a module path of yours, so that others can import its kit.

  ` + publishExample + `

  MODULE   the Go module of the copy
  DIR      where to; else a directory beside this one, named after MODULE. It must be empty, or not exist

Nothing that is not committed is copied.`

const publishExample = "make publish MODULE=git.example.org/platform/foo-controller"

// ofThisPath matches the path of this module, and not a longer one. The module of the starter becomes one below it, as
// its directory is, so that make kind can download it.
var (
	ofThisPath    = regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(thisModule) + `\b`)
	ofTheStarters = regexp.MustCompile(`\b` + regexp.QuoteMeta(starterModule) + `\b`)
)

// publish writes a copy of the checkout under another module path.
func publish(ctx context.Context, root string, arguments []string, out io.Writer) error {
	given, err := parse(arguments, publishExample, []string{"MODULE"}, "DIR")
	if err != nil {
		return err
	}
	o := &order{root: root, module: given["MODULE"]}
	if err := o.setDirectory(given["DIR"]); err != nil {
		return err
	}
	files, err := committed(root)
	if err != nil {
		return err
	}
	if err := o.create(ctx, func(w *writing) error {
		for _, file := range files {
			if err := w.publishFile(file); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "Copied %d files. Building the copy\n", len(files))
		_, err := w.output(ctx, "go", "build", "./...")
		return err
	}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, publishNext, strings.ReplaceAll(o.shownDir, "'", `'\''`), o.module)
	return err
}

// committed returns the files of a checkout without changes.
func committed(root string) ([]string, error) {
	files, err := gitFiles(root, ".")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("git", "status", "--porcelain", "--untracked-files=normal")
	cmd.Dir = root
	if changes, err := cmd.Output(); err != nil || len(changes) > 0 {
		return nil, errors.Join(err, errors.New("this checkout has changes: commit them, or put them away"))
	}
	return files, nil
}

// publishFile copies a file, with the other path of the module.
func (w *writing) publishFile(file string) error {
	return copyFile(filepath.Join(w.root, file), filepath.Join(w.dir, file), func(text []byte) ([]byte, error) {
		if bytes.IndexByte(text, 0) >= 0 {
			return text, nil
		}
		text = ofThisPath.ReplaceAll(text, []byte("${1}"+w.module))
		text = ofTheStarters.ReplaceAll(text, []byte(w.module+"/"+starter))
		if !strings.HasSuffix(file, ".go") {
			return text, nil
		}
		formatted, err := format.Source(text) // The order of imports may be another one.
		if err != nil {
			return text, nil
		}
		return formatted, nil
	})
}

const publishNext = `Next, with a version of yours in place of v0.1.0:
  cd '%s' && make test
  git init && git add --all && git commit --message='The kit'
  for module in '' hack/cmd/localcluster/ hack/starter/ pkg/sim/crd/; do git tag "$module"v0.1.0; done
Push all of that to your server. From then on, make mine takes KIT=%s@v0.1.0.
`
