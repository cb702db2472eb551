package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// What the starter calls its kind, and where it is.
const (
	starter        = "hack/starter"
	starterModule  = "acme.example.com/widget-controller"
	starterGroup   = "acme.example.com"
	starterVersion = "v1alpha1"
	thisModule     = "example.com/foo-controller"
	// clusterDiff makes the kind of the starter one without namespaces.
	clusterDiff = "hack/recipes/cluster.diff"
)

var starterKind = noun{"Widget", "Widgets"}

// starterNames returns the renamer of the starter's files.
func (o *order) starterNames() *renamer {
	version := strings.ToUpper(o.version[:1]) + o.version[1:]
	return newRenamer(starterKind, o.kind, map[string]string{
		starterGroup: o.group, "acme": o.groupDirectory, "Acme": o.groupName,
		starterVersion: o.version, "V1alpha1": version,
		"module " + starterModule: "module " + o.module, starterModule + "/pkg": o.module + "/pkg",
		thisModule: o.kit,
	})
}

// isGenerated reports whether a file of the starter is generated in the new repository.
func isGenerated(file string) bool {
	return strings.HasPrefix(file, "pkg/generated/") || strings.HasPrefix(path.Base(file), "zz_generated.") ||
		strings.HasPrefix(file, "artifacts/crd/") && strings.HasSuffix(file, ".yaml")
}

// gitFiles returns the files in a directory, relative to it, without those that git ignores.
func gitFiles(root, dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = filepath.Join(root, dir)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s, which needs a checkout of git: %w", cmd.Dir, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
}

// A step of the work prints what it does, and how long it took.
type step struct {
	what string
	do   func(context.Context) error
}

// create calls write, which fills a hidden directory beside the wanted one, and gives it that name. So a relative path
// to this checkout is the right one from the beginning. After an error nothing is left.
func (o *order) create(ctx context.Context, write func(*writing) error) (err error) {
	w := &writing{order: o}
	for _, dir := range []*string{&w.dir, &w.temporary} {
		if *dir, err = os.MkdirTemp(filepath.Dir(o.dir), "."+filepath.Base(o.dir)+".new-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	}
	if err := errors.Join(os.Chmod(w.dir, 0o755), write(w), ctx.Err()); err != nil {
		return err
	}
	if err := syscall.Rename(w.dir, o.dir); err != nil { // Unlike os.Rename, it replaces an empty directory.
		return fmt.Errorf("rename %s to %s: %w", w.dir, o.dir, err)
	}
	return nil
}

// write writes the repository, and prints each step.
func (o *order) write(ctx context.Context, out io.Writer) error {
	started := time.Now()
	if err := o.create(ctx, func(w *writing) error { return w.writeAll(ctx, out) }); err != nil {
		return err
	}
	fmt.Fprintf(out, "Done in %.0f s. The tests are green, and all is in one commit.\n\n%s",
		time.Since(started).Seconds(), o.next())
	return nil
}

// next returns what to edit and what to do.
func (o *order) next() string {
	return fmt.Sprintf(`Make it yours in these files:
  pkg/apis/%s/%s/types.go: the fields of %s %s, and their rules
  pkg/plan/plan.go: what a sync reads, and the rules
  pkg/plan/children.go: the objects that it needs
  pkg/plan/status.go: what its status reports
  pkg/plan/walk_test.go: what others may do to them
  controller_test.go: a row for each promise
  players_test.go: the edits of users, and what an object must have; texts in scenarios

Next: cd '%s' && make run
That starts a Kubernetes on this machine and the controller, and the first %s becomes Ready.
%s`, o.groupDirectory, o.version, article(o.kind.one), o.kind.one, strings.ReplaceAll(o.shownDir, "'", `'\''`),
		o.kind.one, o.compiles())
}

// compiles returns a warning if the local Kubernetes has to be compiled first.
func (o *order) compiles() string {
	if _, err := os.Stat(filepath.Join(o.dir, clusterBinary)); err == nil {
		return ""
	}
	return "The first time, the Kubernetes is compiled, which takes minutes: it is not built in this repository either.\n"
}

// clusterBinary is the local Kubernetes.
const clusterBinary = "bin/localcluster"

// A writing writes the repository of an order to dir.
type writing struct {
	*order
	dir, temporary string
}

func (w *writing) steps() []step {
	return []step{
		{fmt.Sprintf("copy the starter, with %s for %s", w.kind.one, starterKind.one), w.copyStarter},
		{"go.mod", w.requireKit},
		{"generate the CustomResourceDefinition and clients", w.command("hack/generate.sh")},
		{"go mod tidy", w.command("go", "mod", "tidy")},
		{"make test", w.command("make", "test")},
		{"git init, and the first commit", w.commit},
		{"link bin/localcluster, if it is built here", w.linkCluster},
	}
}

func (w *writing) writeAll(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "Writing a controller for %s (%s.%s/%s) to %s\n",
		w.kind.many, w.kind.lower(true), w.group, w.version, w.shownDir)
	return printed(ctx, out, w.steps())
}

// printed does steps, and prints each of them.
func printed(ctx context.Context, out io.Writer, steps []step) error {
	for _, step := range steps {
		fmt.Fprintf(out, "  %-64s", step.what)
		began := time.Now()
		if err := step.do(ctx); err != nil {
			fmt.Fprintln(out, "failed")
			return errors.Join(ctx.Err(), err)
		}
		fmt.Fprintf(out, "%6.1f s\n", time.Since(began).Seconds())
	}
	return nil
}

var pluralGenerator = regexp.MustCompile(`go tool (client|lister|informer)-gen`)

func (w *writing) copyStarter(ctx context.Context) error {
	dir, names := filepath.Join(w.root, starter), w.starterNames()
	files, err := gitFiles(dir, ".")
	if err == nil && w.clusterScoped {
		dir = filepath.Join(w.temporary, "starter")
		files, err = w.withoutNamespaces(ctx, filepath.Join(w.root, starter), files, dir)
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		if isGenerated(file) {
			continue
		}
		if err := w.copy(filepath.Join(dir, file), names.text(file), names); err != nil {
			return err
		}
	}
	return w.exceptPlural()
}

// exceptPlural tells the generators of a plural that they would not form.
func (w *writing) exceptPlural() error {
	if w.kind.many == pluralOf(w.kind.one) {
		return nil
	}
	flag := fmt.Sprintf("$0 --plural-exceptions %s:%s", w.kind.one, w.kind.many)
	return w.edit("hack/generate.sh", func(text string) string { return pluralGenerator.ReplaceAllString(text, flag) })
}

// withoutNamespaces writes a starter whose kind has no namespaces to a directory, and returns its files.
func (w *writing) withoutNamespaces(ctx context.Context, from string, files []string, to string) ([]string, error) {
	for _, file := range files {
		if err := copyFile(filepath.Join(from, file), filepath.Join(to, file), unchanged); err != nil {
			return nil, err
		}
	}
	// In a repository around the directory, git would take the paths of the diff for those of that repository.
	git := []string{"-C", to, "-c", "core.autocrlf=false", "-c", "core.attributesFile=/dev/null"}
	for _, arguments := range [][]string{
		{"init", "--quiet"}, {"apply", "--whitespace=nowarn", filepath.Join(w.root, clusterDiff)},
	} {
		if _, err := w.output(ctx, "git", append(git, arguments...)...); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(files, func(file string) bool { // The diff adds no file.
		_, err := os.Stat(filepath.Join(to, file))
		return err != nil
	}), nil
}

func unchanged(text []byte) ([]byte, error) { return text, nil }

// copy copies a file into the new repository, with other names.
func (w *writing) copy(from, to string, names *renamer) error {
	return copyFile(from, filepath.Join(w.dir, to), func(src []byte) ([]byte, error) { return names.file(to, src) })
}

// copyFile copies a file after a change.
func copyFile(from, to string, change func([]byte) ([]byte, error)) error {
	if target, err := os.Readlink(from); err == nil { // It may lead to a folder, as those of artifacts/chart do.
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(target, to))
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	src, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if src, err = change(src); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, src, info.Mode().Perm()))
}

func (w *writing) edit(file string, change func(string) string) error {
	file = filepath.Join(w.dir, file)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(change(string(text))), 0o644) // An existing file keeps its mode.
}

// requireKit makes go.mod require the kit: a version of it or, without one, this checkout.
func (w *writing) requireKit(ctx context.Context) error {
	if w.kitVersion != "" {
		edits := []string{"mod", "edit", "-dropreplace=" + w.kit, "-require=" + w.kit + "@" + w.kitVersion}
		if _, err := w.output(ctx, "go", edits...); err != nil {
			return err
		}
		_, err := w.output(ctx, "go", "mod", "download", w.kit) // It adds the sum to go.sum.
		return err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(w.dir))
	if err != nil {
		return err
	}
	checkout, err := filepath.Rel(filepath.Join(parent, "here"), w.root)
	if err != nil {
		return err
	}
	_, err = w.output(ctx, "go", "mod", "edit", "-replace="+w.kit+"="+checkout)
	return err
}

// commit adds a line about the origin to README.md, and makes a repository of git.
func (w *writing) commit(ctx context.Context) error {
	version, err := w.output(ctx, "git", "-C", w.root, "describe", "--tags", "--always", "--dirty")
	if err != nil {
		return err
	}
	origin := fmt.Sprintf("\nMade with `make mine` of %s, version %s, under [Apache-2.0](LICENSE).\n", w.kit, version)
	if err := w.edit("README.md", func(text string) string { return text + origin }); err != nil {
		return err
	}
	git := func(arguments ...string) {
		if err == nil {
			_, err = w.output(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false",
				"-c", "core.excludesFile=/dev/null",
				"-c", "init.defaultBranch=main"}, arguments...)...)
		}
	}
	git("init", "--quiet")
	git("add", "--all")
	name, _ := w.output(ctx, "git", "config", "user.name") // It fails if git has none.
	if email, _ := w.output(ctx, "git", "config", "user.email"); name == "" || email == "" {
		git("-c", "user.name=maker", "-c", "user.email=maker@localhost", "commit", "--quiet", "--message", w.message())
		return err
	}
	git("commit", "--quiet", "--message", w.message())
	return err
}

func (w *writing) message() string { return fmt.Sprintf("A controller for %s", w.kind.many) }

// linkCluster gives the repository the local Kubernetes, which is large. If it is not here, or on another file system,
// make builds it there.
func (w *writing) linkCluster(context.Context) error {
	err := os.MkdirAll(filepath.Join(w.dir, "bin"), 0o755)
	_ = os.Link(filepath.Join(w.root, clusterBinary), filepath.Join(w.dir, clusterBinary))
	return err
}

func (w *writing) command(name string, arguments ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.output(ctx, name, arguments...)
		return err
	}
}

// output runs a command in the new repository, and returns what it prints. Its processes end with ctx.
func (w *writing) output(ctx context.Context, name string, arguments ...string) (string, error) {
	if strings.Contains(name, "/") {
		name = filepath.Join(w.dir, name)
	}
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = w.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), isOfMake), "GOWORK=off", "TMPDIR="+w.temporary)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if cmd.Process != nil { // Nothing may write to the directory when it is removed.
		for range 100 {
			if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err != nil && ctx.Err() == nil {
		command := strings.Join(append([]string{filepath.Base(name)}, arguments...), " ")
		return "", fmt.Errorf("%s: %w\n%s%s", command, err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String()), err
}

// isOfMake reports whether a variable is one of make's or git's, or an argument: those of the new repository must not
// see them.
func isOfMake(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return strings.HasPrefix(name, "GIT_") || slices.Contains([]string{
		"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "MAKEFILES", "KIND", "GROUP", "MODULE", "VERSION", "PLURAL",
		"DIR", "KIT", "SCOPE", "CLUSTER_DIR", "TMPDIR", "GOWORK"}, name)
}
