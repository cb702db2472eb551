package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPublish writes a copy of the small checkout. The path of its module is another one everywhere, and in a file of
// Go the imports are in their order.
func TestPublish(t *testing.T) {
	const imports = "package a\n\nimport (\n\t_ \"%s/pkg/kit\"\n\t_ \"fmt\"\n)\n"
	root := checkout(t, map[string]string{
		"a/a.go": strings.ReplaceAll(imports, "%s", thisModule),
		"hack/cmd/localcluster/x/go.mod": "module " + thisModule + "/hack/cmd/localcluster/x\n\nreplace " +
			thisModule + " => ../../..\n",
		"README.md": "`go get " + thisModule + "@v1`, see acme." + thisModule + " and " +
			thisModule + "s\n",
		"logo.png": "\x00" + thisModule,
	})
	err := os.Symlink("../hack", filepath.Join(root, "a/link"))
	commitAll(t, root)
	out, err2 := command(t, root, "publish", "MODULE=zoo.example.org/team/kit").CombinedOutput()
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if next := "cd '../kit' && make test\n"; !strings.Contains(string(out), next) ||
		!strings.Contains(string(out), "KIT=zoo.example.org/team/kit@v0.1.0") {
		t.Errorf("it prints %q", out)
	}
	dir := filepath.Join(filepath.Dir(root), "kit")
	for file, want := range map[string]string{
		"go.mod": "module zoo.example.org/team/kit\n\ngo 1.26.0\n",
		"a/a.go": "package a\n\nimport (\n\t_ \"fmt\"\n\t_ \"zoo.example.org/team/kit/pkg/kit\"\n)\n",
		"hack/cmd/localcluster/x/go.mod": "module zoo.example.org/team/kit/hack/cmd/localcluster/x\n\nreplace " +
			"zoo.example.org/team/kit => " +
			"../../..\n",
		"README.md": "`go get zoo.example.org/team/kit@v1`, see acme." + thisModule + " and " +
			thisModule + "s\n",
		"logo.png": "\x00" + thisModule,
	} {
		if diff := cmp.Diff(want, read(t, dir, file)); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "hack/starter/hack/generate.sh")); err != nil ||
		info.Mode().Perm() != 0o755 {
		t.Errorf("a script is not executable: %v", err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "a/link")); target != "../hack" {
		t.Errorf("a link leads to %q: %v", target, err)
	}
	if have, want := strings.Fields(git(t, root, "ls-files")), filesBelow(t, dir); len(have) != len(want) {
		t.Errorf("it has the files %q, want %q", want, have)
	}
}

// filesBelow returns the files in a directory.
func filesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return files
}

// TestRefusalsToPublish has those that TestRefusals does not have.
func TestRefusalsToPublish(t *testing.T) {
	const module = "MODULE=git.example.org/team/kit"
	root := checkout(t, map[string]string{"wrong.go": "package p\n\nvar a int = \"\"\n"})
	if have := refusal(t, root, "publish"); !strings.HasPrefix(have, "make publish: MODULE is missing: make publish ") {
		t.Errorf("without a module it prints %q", have)
	}
	if have := refusal(t, root, "publish", module); !strings.Contains(have, "go build ./...: exit status 1\n") {
		t.Errorf("with a copy that does not build it prints %q", have)
	}
	if err := os.WriteFile(filepath.Join(root, "new.go"), []byte("package p"), 0o644); err != nil {
		t.Fatal(err)
	}
	if have := refusal(t, root, "publish", module); !strings.Contains(have, "this checkout has changes: commit them") {
		t.Errorf("with a file that is not committed it prints %q", have)
	}
}

// A published kit is a copy of this repository under another module path, with a module proxy that has its versions.
// The path is a new one for each test: the module cache must have no such version.
type published struct {
	module, dir, proxy string
}

// publishThis publishes this checkout, as it is, as version v0.1.0.
func publishThis(t *testing.T) *published {
	t.Helper()
	root := filepath.Join(t.TempDir(), "foo-controller")
	files, err := gitFiles(thisRoot, ".")
	if err != nil {
		t.Fatal(err)
	}
	copies := &writing{order: &order{root: thisRoot, module: thisModule}, dir: root}
	for _, file := range files {
		if err := copies.publishFile(file); err != nil {
			t.Fatal(err)
		}
	}
	commitAll(t, root)
	p := &published{
		module: strings.ToLower(rand.Text()) + ".example.org/platform/kit", dir: filepath.Join(filepath.Dir(root), "kit"),
		proxy: t.TempDir(),
	}
	if out, err := command(t, root, "publish", "MODULE="+p.module).CombinedOutput(); err != nil {
		t.Fatalf("make publish: %v\n%s", err, out)
	}
	cached := strings.TrimSpace(string(runIn(t, p.dir, "go", "env", "GOMODCACHE")))
	others := strings.TrimSpace(string(runIn(t, p.dir, "go", "env", "GOPROXY"))) // For what the module cache lacks.
	t.Setenv("GOPROXY", "file://"+p.proxy+",file://"+cached+"/cache/download,"+others)
	t.Setenv("GONOSUMDB", p.module+","+p.module+"/*")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Cleanup(func() {
		host, _, _ := strings.Cut(p.module, "/")
		err := errors.Join(os.RemoveAll(filepath.Join(cached, host)),
			os.RemoveAll(filepath.Join(cached, "cache/download", host)))
		if err != nil {
			t.Error(err)
		}
	})
	p.release(t, "v0.1.0")
	return p
}

// runIn runs a command in a directory, and returns what it prints.
func runIn(t *testing.T, dir, name string, arguments ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, arguments...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, arguments, err, out, &stderr)
	}
	return out
}

// release puts the kit, the local Kubernetes and the starter into the proxy.
func (p *published) release(t *testing.T, version string) {
	t.Helper()
	commitAll(t, p.dir)
	for _, dir := range []string{"", "hack/cmd/localcluster", starter} {
		path, from := p.module, filepath.Join(p.dir, dir)
		if dir != "" {
			path += "/" + dir
		}
		to := filepath.Join(p.proxy, path, "@v")
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		info := []byte(`{"Version":"` + version + `","Time":"` + time.Now().UTC().Format(time.RFC3339) + `"}`)
		infoErr := os.WriteFile(filepath.Join(to, version+".info"), info, 0o644)
		modErr := os.WriteFile(filepath.Join(to, version+".mod"), []byte(read(t, from, "go.mod")), 0o644)
		if err := errors.Join(infoErr, modErr); err != nil {
			t.Fatal(err)
		}
		archive := []string{"archive", "--prefix=" + path + "@" + version + "/",
			"--output=" + filepath.Join(to, version+".zip"),
			"HEAD", "--", "."}
		for nested := range strings.FieldsSeq(git(t, from, "ls-files", "*/go.mod")) {
			archive = append(archive, ":(exclude)"+filepath.Dir(nested)) // A module of its own.
		}
		git(t, from, archive...)
	}
}

// TestAPublishedKit publishes the kit, makes two controllers on it, publishes a newer one, and upgrades both. It needs
// no network once the modules that the kit needs are in the module cache.
func TestAPublishedKit(t *testing.T) {
	if !*manyKinds {
		t.Skip("takes minutes; run with -kinds")
	}
	p := publishThis(t)
	var controllers []string
	for _, kind := range []string{"Gateway", "Site"} {
		dir := writeKind(t, "KIND="+kind, "GROUP=shop.example.org",
			"MODULE=github.com/shop/"+strings.ToLower(kind)+"-controller",
			"KIT="+p.module+"@v0.1.0")
		if text := read(t, dir, "go.mod"); strings.Contains(text, "replace") || strings.Contains(text, thisModule) {
			t.Errorf("go.mod is not that of a user of a library:\n%s", text)
		}
		controllers = append(controllers, dir)
	}

	const fix = "what this test calls a fix of the leader"
	leader, outcome := filepath.Join(p.dir, "pkg/kit/leader/gate.go"), filepath.Join(p.dir, "pkg/kit/queue.go")
	for file, text := range map[string]string{
		leader:  strings.Replace(read(t, leader), `errors.New("`, `errors.New("`+fix+`: `, 1),
		outcome: read(t, outcome) + "\n// Soon is a new function.\nfunc Soon() Outcome { return Wait(1) }\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.release(t, "v0.1.1")
	for _, dir := range controllers {
		before := read(t, dir, "go.mod")
		runIn(t, dir, "go", "get", p.module+"@v0.1.1")
		if diff := cmp.Diff(strings.ReplaceAll(before, p.module+" v0.1.0", p.module+" v0.1.1"),
			read(t, dir, "go.mod")); diff != "" {
			t.Errorf("more of go.mod has changed than the version of the kit:\n%s", diff)
		}
		uses := "package main\n\nimport \"" + p.module + "/pkg/kit\"\n\nvar _ = kit.Soon\n"
		if err := os.WriteFile(filepath.Join(dir, "soon_test.go"), []byte(uses), 0o644); err != nil {
			t.Fatal(err)
		}
		runIn(t, dir, "make", "build", "test")
		binaries, err := filepath.Glob(filepath.Join(dir, "bin/*-controller"))
		if err != nil || len(binaries) != 1 {
			t.Fatal(binaries, err)
		}
		if !strings.Contains(read(t, binaries[0]), fix) {
			t.Errorf("%s does not have the fix", binaries[0])
		}
	}

	runIn(t, controllers[0], "go", "mod", "vendor")
	t.Setenv("GOPROXY", "off")
	runIn(t, controllers[0], "go", "build", "./...")
	t.Setenv("GOPROXY", "file://"+p.proxy)
	runIn(t, controllers[0], "make", "bin/localcluster") // From the module cache.
}

// TestRefusalsOfASecondKind: each is one line, and nothing has changed then. The kit of this repository is not there,
// so what is not refused fails at the end, when it looks for it.
func TestRefusalsOfASecondKind(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.net/x\n\ngo 1.26.0\n",
		"main.go": "package main\n\nvar program = kit.Program{Kind: \"Site\", Kinds: " +
			"\"Sites\"}\n\nvar events = 1\n",
		"pkg/apis/acme/v1/doc.go":        "// +groupName=acme.example.com\n// +groupGoName=Acme\npackage v1\n",
		"pkg/apis/acme/v1/site_types.go": "package v1\n\ntype Site struct{}\n",
		"docs/page.md":                   "",
		"artifacts/deploy/rbac.yaml":     "subjects:\n- kind: ServiceAccount\n  name: site\n",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commitAll(t, dir)
	for _, test := range []struct{ arguments, want string }{
		{"", "KIND is missing: make kind KIND=Gadget"},
		{"KIND=Gadget GROUP=a.b", "GROUP=a.b: there is no such argument"},
		{"KIND=gadget", "a kind is one word"},
		{"KIND=Site", "pkg/apis/acme/v1/site_types.go has it"},
		{"KIND=Docs", "there is a directory docs"},
		{"KIND=Vendor", "Go or git does not take vendor for an ordinary directory"},
		{"KIND=Place PLURAL=sites", "PLURAL=sites: Site has this plural; choose another, such as places"},
		{"KIND=Event", "KIND=Event: main.go has the name events for something else"},
		{"KIND=Gadget SCOPE=all", "SCOPE=all: it is Namespaced or Cluster"},
		{"KIND=Gadget", "module example.com/foo-controller: not a known dependency"},
	} {
		have := refusal(t, dir, append([]string{"kind"}, strings.Fields(test.arguments)...)...)
		if !strings.HasPrefix(have, "make kind: ") || !strings.Contains(have, test.want) {
			t.Errorf("%s: it prints %q, want a line with %q", test.arguments, have, test.want)
		}
		if status := git(t, dir, "status", "--porcelain"); status != "" {
			t.Errorf("%s: it has changed %s", test.arguments, status)
		}
	}
	git(t, dir, "config", "status.showUntrackedFiles", "no") // Files that git does not show are the user's, too.
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if have := refusal(t, dir, "kind", "KIND=Gadget"); !strings.Contains(have, "this checkout has changes") {
		t.Errorf("with changes it prints %q", have)
	}
	if have := refusal(t, t.TempDir(), "kind", "KIND=Gadget"); !strings.Contains(have, "needs a checkout of git") {
		t.Errorf("elsewhere it prints %q", have)
	}
}
