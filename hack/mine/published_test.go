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
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

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
		err := errors.Join(os.RemoveAll(filepath.Join(cached, host)), os.RemoveAll(filepath.Join(cached, "cache/download", host)))
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
	for _, dir := range []string{"", "hack/cluster/localcluster", starter} {
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
		file, err := os.Create(filepath.Join(to, version+".zip"))
		if err := errors.Join(infoErr, modErr, err); err != nil {
			t.Fatal(err)
		}
		err = zip.CreateFromDir(file, module.Version{Path: path, Version: version}, from)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
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
		dir := writeKind(t, "KIND="+kind, "GROUP=shop.example.org", "MODULE=github.com/shop/"+strings.ToLower(kind)+"-controller",
			"KIT="+p.module+"@v0.1.0")
		if text := read(t, dir, "go.mod"); strings.Contains(text, "replace") || strings.Contains(text, thisModule) {
			t.Errorf("go.mod is not that of a user of a library:\n%s", text)
		}
		controllers = append(controllers, dir)
	}

	const fix = "what this test calls a fix of the leader"
	leader, outcome := filepath.Join(p.dir, "pkg/kit/leader/gate.go"), filepath.Join(p.dir, "pkg/kit/outcome.go")
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
		if diff := cmp.Diff(strings.ReplaceAll(before, p.module+" v0.1.0", p.module+" v0.1.1"), read(t, dir, "go.mod")); diff != "" {
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
