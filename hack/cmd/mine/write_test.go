package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// manyKinds makes TestKinds write repositories for all kinds of its list.
var manyKinds = flag.Bool("kinds", false,
	"publish the kit, and write, verify and test repositories on it, which takes minutes")

// TestMain is the command itself, if a test starts it again.
func TestMain(m *testing.M) {
	if os.Getenv("MINE_IS_THE_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// checkout writes the files of testdata/starter.txt to a new directory, with other texts of some, and returns it. It is
// called foo-controller, and there is nothing beside it.
func checkout(t *testing.T, others map[string]string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/starter.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	headers := regexp.MustCompile(`(?m)^-- (\S+) --\n`).FindAllSubmatchIndex(text, -1)
	for i, at := range headers {
		end := len(text)
		if i+1 < len(headers) {
			end = headers[i+1][0]
		}
		files[string(text[at[2]:at[3]])] = string(text[at[1]:end])
	}
	for name, content := range others {
		files[name] = content
	}
	root := filepath.Join(t.TempDir(), "foo-controller")
	for name, content := range files {
		name = filepath.Join(root, name)
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), mode)); err != nil {
			t.Fatal(err)
		}
	}
	commitAll(t, root)
	return root
}

func commitAll(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "init", "--quiet")
	git(t, dir, "add", "--all")
	git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message", "m")
}

func git(t *testing.T, dir string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", arguments, err, out)
	}
	return strings.TrimSpace(string(out))
}

// beside returns the names in the directory of a checkout.
func beside(t *testing.T, root string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(root))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestRefusals gives the command wrong arguments. Each time it prints one line, and leaves the files as they are.
func TestRefusals(t *testing.T) {
	root := checkout(t, nil)
	full := filepath.Join(filepath.Dir(root), "full")
	link := os.Symlink(t.TempDir(), filepath.Join(filepath.Dir(root), "link"))
	if err := errors.Join(link, os.Mkdir(full, 0o755), os.WriteFile(filepath.Join(full, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	const kind, group, module = "KIND=Gateway", "GROUP=acme.example.com", "MODULE=github.com/acme/gateway-controller"
	for _, test := range []struct{ name, arguments, want string }{
		{name: "nothing", want: "KIND is missing: make mine KIND=Gateway GROUP="},
		{name: "an empty kind", arguments: "KIND= " + group + " " + module, want: "KIND is missing"},
		{name: "an unknown argument", arguments: "KIN=Gateway", want: "KIN=Gateway: there is no such argument"},

		{name: "a kind in lower case", arguments: "KIND=gateway", want: "KIND=gateway: a kind is one word"},
		{name: "a kind of two words", arguments: "KIND=Cache-Cluster", want: "a kind is one word"},
		{name: "a long kind", arguments: "KIND=G" + strings.Repeat("a", 40), want: "a kind is one word"},
		{name: "a keyword", arguments: "KIND=Map",
			want: "KIND=Map: Go uses the name map; choose a longer one, such as MyMap"},
		{name: "a name of the starter", arguments: "KIND=Kit",
			want: "KIND=Kit: its code has the name kit for something else"},
		{name: "a generated name", arguments: "KIND=Resource", want: "its code has the name Resource for something else"},
		{name: "a plural like the singular", arguments: "KIND=Sheep PLURAL=sheep", want: "choose another, such as sheeps"},
		{name: "tests", arguments: "KIND=Test", want: "Go uses the name test"},

		{name: "a group without a dot", arguments: "GROUP=acme", want: "GROUP=acme: a group is a domain of yours"},
		{name: "a reserved group", arguments: "GROUP=gateway.networking.k8s.io", want: "reserved for Kubernetes"},
		{name: "not a version", arguments: "VERSION=1", want: "VERSION=1: a version is like v1, v1beta1 or v1alpha1"},

		{name: "no scope", arguments: "SCOPE=cluster", want: "SCOPE=cluster: it is Namespaced or Cluster"},

		{name: "a module without a host", arguments: "MODULE=gateway", want: "MODULE=gateway: a module begins with a domain"},
		{name: "a module with a semicolon", arguments: "MODULE=github.com/a;b",
			want: "MODULE=github.com/a;b: a module begins with a domain"},
		{name: "a kit without a version", arguments: "KIT=git.example.org/kit",
			want: "KIT=git.example.org/kit: it is a module and its version, such as example.com/foo-controller@v0.1.0"},
		{name: "a module of another version", arguments: "MODULE=github.com/a/b/v1",
			want: "a module begins with a domain, and may end with /v2 or more"},
		{name: "a full directory", arguments: "DIR=../full",
			want: "DIR=../full: it exists and is not an empty directory; nothing was changed there"},
		{name: "a link to an empty directory", arguments: "DIR=../link", want: "it exists and is not an empty directory"},
		{name: "no parent", arguments: "DIR=../none/gateway", want: "there is no directory"},
		{name: "here", arguments: "DIR=gateway", want: "DIR=gateway: it is inside of this repository"},
	} {
		t.Run(test.name, func(t *testing.T) {
			arguments := strings.Fields(test.arguments)
			for _, argument := range []string{kind, group, module} {
				name, _, _ := strings.Cut(argument, "=")
				if test.arguments != "" && !strings.Contains(test.want, "missing: ") &&
					!strings.Contains(test.arguments, name+"=") {
					arguments = append(arguments, argument)
				}
			}
			have := refusal(t, root, arguments...)
			if !strings.HasPrefix(have, "make mine: ") || !strings.Contains(have, test.want) || strings.Count(have, "\n") != 1 {
				t.Errorf("it prints %q, want a line with %q", have, test.want)
			}
		})
	}
	t.Run("elsewhere", func(t *testing.T) {
		if have := refusal(t, full, kind, group, module); !strings.Contains(have, "run it at the root of the repository") {
			t.Error(have)
		}
	})
}

// command returns the command with these arguments, at the root of a checkout.
func command(t *testing.T, root string, arguments ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, arguments...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "MINE_IS_THE_COMMAND=yes")
	return cmd
}

// refusal returns what the command prints as it fails. It leaves nothing.
func refusal(t *testing.T, root string, arguments ...string) string {
	t.Helper()
	before := beside(t, root)
	cmd := command(t, root, arguments...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit status 1", err)
	}
	if after := beside(t, root); after != before {
		t.Errorf("it leaves %s, want %s", after, before)
	}
	return stderr.String()
}

func TestHelp(t *testing.T) {
	out, err := command(t, t.TempDir(), "--help").Output()
	if err != nil || !strings.Contains(string(out), "PLURAL") || !strings.Contains(string(out), example) {
		t.Errorf("%v\n%s", err, out)
	}
}

// newTestOrder returns an order with the arguments, or the usual ones.
func newTestOrder(t *testing.T, root string, arguments ...string) *order {
	t.Helper()
	if len(arguments) == 0 {
		arguments = []string{"KIND=ElasticIndex", "PLURAL=elasticindices", "GROUP=my-db.example.org", "VERSION=v1beta2",
			"MODULE=github.com/widget/index-controller"}
	}
	o, err := newOrder(root, arguments)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFreeNames: the small starter has Errorf only after a dot, Size as a field and a key, and Grow as a method. The
// name of a group is in paths and after dots only.
func TestFreeNames(t *testing.T) {
	root := checkout(t, nil)
	for _, kind := range []string{"Errorf", "Size", "Grow"} {
		newTestOrder(t, root, "KIND="+kind, "GROUP=acme.example.com", "MODULE=github.com/acme/x")
	}
	root, err := filepath.Abs(thisRoot)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"apps", "cache", "config", "core", "kit", "web"} { // Names of the real starter.
		newTestOrder(t, root, "KIND=Site", "GROUP="+group+".example.com", "MODULE=github.com/acme/x", "DIR="+t.TempDir())
	}
	newTestOrder(t, root, "KIND=App", "GROUP=apps.example.com", "MODULE=github.com/acme/x", "DIR="+t.TempDir())
}

// TestASmallStarter writes a repository of the small starter, and looks at its files.
func TestASmallStarter(t *testing.T) {
	t.Setenv("MAKEFLAGS", "-- VERSION=v1beta2") // As make sets it for `make mine VERSION=v1beta2`.
	t.Setenv("VERSION", "v1beta2")
	root := checkout(t, map[string]string{"bin/localcluster": "the local Kubernetes"})
	o := newTestOrder(t, root)
	if err := os.Mkdir(o.dir, 0o755); err != nil { // An empty directory is replaced.
		t.Fatal(err)
	}
	var out strings.Builder
	if err := o.write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Writing a controller for ElasticIndices (elasticindices.my-db.example.org/v1beta2) to ../index-controller\n",
		"make test ", "  pkg/apis/mydb/v1beta2/types.go: the fields of an ElasticIndex, and their rules\n",
		"cd '../index-controller' && make run\n", "the first ElasticIndex becomes Ready.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it prints\n%swant %q", &out, want)
		}
	}
	if diff := cmp.Diff("foo-controller index-controller", beside(t, root)); diff != "" {
		t.Error(diff)
	}
	const files = `.gitignore LICENSE Makefile README.md artifacts/examples/elasticindex.yaml controller.go
		controller_test.go go.mod go.sum hack/fault.sh hack/generate.sh pkg/apis/mydb/v1beta2/types.go
		pkg/generated/generated.go`
	if diff := cmp.Diff(strings.Fields(files), strings.Fields(git(t, o.dir, "ls-files"))); diff != "" {
		t.Error(diff)
	}
	if status := git(t, o.dir, "status", "--porcelain"); status != "" {
		t.Errorf("not in the commit: %s", status)
	}
	if subject := git(t, o.dir, "log", "--format=%s"); subject != "A controller for ElasticIndices" {
		t.Error(subject)
	}
	version := git(t, root, "rev-parse", "--short", "HEAD")
	for file, want := range map[string]string{
		"go.mod": "module github.com/widget/index-controller\n\ngo 1.26.0\n\n" +
			"replace example.com/foo-controller => ../foo-controller\n\n" +
			"tool example.com/foo-controller/hack/tools/check\n\nrequire example.com/foo-controller v0.0.0\n",
		"README.md": "# ElasticIndex controller\n\nAn ElasticIndex is an example, and an example of an elasticindex is in " +
			"[examples](artifacts/examples/elasticindex.yaml). Its parts are in\n" +
			"the kit: `go doc example.com/foo-controller/pkg/kit`.\n\n" +
			"```sh\nkubectl get elasticindices.my-db.example.org\n```" +
			"\n\nMade with `make mine` of example.com/foo-controller, version " + version + ", under [Apache-2.0](LICENSE).\n",
		"bin/localcluster": "the local Kubernetes",
	} {
		have := read(t, o.dir, file)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
	}
	checkWords(t, o.dir)
}

// TestAKindWithoutNamespaces applies a small recipe to the small starter, below the directory of another repository.
func TestAKindWithoutNamespaces(t *testing.T) {
	root := checkout(t, map[string]string{clusterDiff: `--- a/artifacts/examples/widget.yaml
+++ b/artifacts/examples/widget.yaml
@@ -6,2 +6,3 @@
 spec:
+  namespace: default
   widgetName: "a widget"
--- a/README.md
+++ /dev/null
@@ -1,8 +0,0 @@
-# Widget controller
-
-A Widget is an example, and an example of a widget is in [examples](artifacts/examples/widget.yaml). Its parts are in
-the kit: ` + "`go doc example.com/foo-controller/pkg/kit`." + `
-
-` + "```sh" + `
-kubectl get widgets.acme.example.com
-` + "```" + `
`})
	commitAll(t, filepath.Dir(root))
	home := t.TempDir() // What git is told to do elsewhere does not count.
	settings := "[core]\n\tautocrlf = true\n\twhitespace = tab-in-indent\n\texcludesFile = " + home + "/ignored\n" +
		"[apply]\n\twhitespace = error\n"
	if err := errors.Join(os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(settings), 0o644),
		os.WriteFile(filepath.Join(home, "ignored"), []byte("LICENSE\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	o := newTestOrder(t, root, "KIND=Tenant", "GROUP=my.example.org", "MODULE=github.com/widget/x", "SCOPE=Cluster")
	err := o.create(t.Context(), func(w *writing) error { return w.copyStarter(t.Context()) })
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, o.dir, "artifacts/examples/tenant.yaml"); !strings.Contains(text,
		"  namespace: default\n  tenantName:") {
		t.Errorf("it is\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(o.dir, "README.md")); err == nil {
		t.Error("the recipe removes README.md, and it is there")
	}
	if have := read(t, o.dir, "LICENSE"); have != read(t, root, "LICENSE") {
		t.Errorf("LICENSE is %q", have)
	}
}

// ofThisProject finds its words, in any case.
var ofThisProject = regexp.MustCompile(`(?i)\bfoos?\b|footest|foo[-_/]|/foo|sample-?controller|nginx-controller`)

// allowed finds what is neither: the kit's module and checkout, modules of these tests, and a comment of
// k8s.io/apimachinery.
var allowed = regexp.MustCompile(regexp.QuoteMeta(thisModule) + `|=> ../.*|github\.com/widget|` +
	`(com\.github\.|example\.net/|net\.example\.)widget|foo\.example\.com/CamelCase`)

var inPages = regexp.MustCompile(`\]\(([^)#:]+)\)`)

// checkWords looks for words of this project and of the starter in a new repository, and for links to files that it
// does not have. One line of README.md has its origin.
func checkWords(t *testing.T, dir string) {
	t.Helper()
	origins := 0
	for file := range strings.SplitSeq(git(t, dir, "ls-files"), "\n") {
		if strings.HasSuffix(file, ".md") {
			for _, link := range inPages.FindAllStringSubmatch(read(t, dir, file), -1) {
				if _, err := os.Stat(filepath.Join(dir, filepath.Dir(file), link[1])); err != nil {
					t.Errorf("%s: a link leads nowhere: %v", file, err)
				}
			}
		}
		for line := range strings.SplitSeq(read(t, dir, file), "\n") {
			if strings.HasPrefix(line, "Made with `make mine` of ") {
				origins++
			}
			line := allowed.ReplaceAllString(line, "")
			ofStarter := strings.ToLower(line)
			switch {
			case ofThisProject.MatchString(line):
				t.Errorf("%s: %q is about this project", file, line)
			case strings.Contains(ofStarter, "widget") || strings.Contains(ofStarter, "acme"):
				t.Errorf("%s: %q is about the starter", file, line)
			}
		}
	}
	if origins != 1 {
		t.Errorf("%d lines say where it comes from, want 1", origins)
	}
}

// interrupter calls stop when something is printed that contains text.
type interrupter struct {
	strings.Builder
	text string
	stop func()
}

func (i *interrupter) Write(p []byte) (int, error) {
	if i.text != "" && strings.Contains(string(p), i.text) {
		i.stop()
	}
	return i.Builder.Write(p)
}

// TestFailuresLeaveNothing interrupts and breaks each step.
func TestFailuresLeaveNothing(t *testing.T) {
	for _, test := range []struct {
		name, interrupt string
		files           map[string]string // In place of others.
		want            string
	}{
		{name: "stopped as it copies", interrupt: "copy the starter", want: "context canceled"},
		{name: "stopped at the commit", interrupt: "git init", want: "context canceled"},
		{name: "stopped at the end", interrupt: "link bin/localcluster, if it is built here", want: "context canceled"},
		{name: "a generator that fails", want: "generate.sh: exit status 3\nit is broken\n",
			files: map[string]string{"hack/starter/hack/fault.sh": "echo it is broken >&2; exit 3\n"}},
		{name: "a module that is not there", want: "go mod tidy: exit status 1",
			files: map[string]string{"hack/starter/pkg/x/x.go": "package x\n\nimport _ " +
				"\"example.com/foo-controller/pkg/none\"\n"}},
		{name: "a test that fails", want: "make test: exit status 2",
			files: map[string]string{"hack/starter/controller_test.go": "package main\n\nimport \"testing\"\n\n" +
				"func Test(t *testing.T) { t.Error() }\n"}},
		{name: "a directory that somebody else fills", want: "file exists",
			files: map[string]string{"hack/starter/hack/fault.sh": "mkdir -p ../index-controller/theirs\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := checkout(t, test.files)
			o := newTestOrder(t, root)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			err := o.write(ctx, &interrupter{text: test.interrupt, stop: stop})
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "directory not empty", "file exists"),
				test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
			want := "foo-controller"
			if strings.Contains(test.name, "somebody else") {
				want += " index-controller"
			}
			if diff := cmp.Diff(want, beside(t, root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSignals ends the command while programs run that ignore signals. They end, too.
func TestSignals(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGPIPE} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			root := checkout(t, map[string]string{
				"hack/starter/hack/fault.sh": "trap '' INT TERM HUP\nexec 9>\"$RUNNING\"\nsleep 60 &\necho >&9\nsleep 60\n",
			})
			running := filepath.Join(t.TempDir(), "running")
			if err := syscall.Mkfifo(running, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := command(t, root, "KIND=Gateway", "GROUP=acme.example.com", "MODULE=github.com/acme/gateway-controller")
			cmd.Env = append(cmd.Env, "RUNNING="+running)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pipe, err := os.Open(running) // Waits for the script.
			if err != nil {
				t.Fatal(err)
			}
			defer pipe.Close()
			if _, err := pipe.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
			err = cmd.Wait()
			if cmd.ProcessState.ExitCode() != 130 || stderr.String() != "make mine: stopped; nothing is left behind\n" {
				t.Errorf("%v: %s", err, &stderr)
			}
			if err := pipe.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadAll(pipe); err != nil {
				t.Errorf("something still runs: %v", err)
			}
			if diff := cmp.Diff("foo-controller", beside(t, root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// thisRoot is the root of this repository.
const thisRoot = "../../.."

// writeKind writes a repository of the real starter for a kind, and looks at it. Its tests have passed then.
func writeKind(t *testing.T, arguments ...string) string {
	t.Helper()
	root, err := filepath.Abs(thisRoot)
	if err != nil {
		t.Fatal(err)
	}
	o := newTestOrder(t, root, append(arguments, "DIR="+filepath.Join(t.TempDir(), "new"))...)
	if err := o.write(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	checkWords(t, o.dir)
	if status := git(t, o.dir, "status", "--porcelain"); status != "" {
		t.Errorf("not in the commit: %s", status)
	}
	for _, match := range regexp.MustCompile(`(?m)^  (\S+): `).FindAllStringSubmatch(o.next(), -1) {
		if _, err := os.Stat(filepath.Join(o.dir, match[1])); err != nil {
			t.Error(err)
		}
	}
	for _, file := range []string{"LICENSE", "hack/boilerplate.go.txt"} {
		if read(t, o.dir, file) != read(t, root, file) {
			t.Errorf("%s is not that of this repository", file)
		}
	}
	return o.dir
}

// TestAnOddKind writes a repository for a kind of two words with a plural of its own, another version, and a group
// with a dash.
func TestAnOddKind(t *testing.T) {
	if testing.Short() {
		t.Skip("generates and tests a repository; run without -short")
	}
	dir := writeKind(t, "KIND=CacheIndex", "PLURAL=cacheindices", "GROUP=my-db.example.org", "VERSION=v1beta2",
		"MODULE=github.com/widget/index-controller")
	for file, want := range map[string]string{
		"artifacts/crd/my-db.example.org_cacheindices.yaml":                  "    name: v1beta2\n",
		"pkg/generated/clientset/versioned/typed/mydb/v1beta2/cacheindex.go": "\"cacheindices\",",
	} {
		if text := read(t, dir, file); !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%s", file, want, text)
		}
	}
}

// TestKinds builds and checks repositories for other kinds, which import a published kit, and runs each controller
// until its example is Ready.
func TestKinds(t *testing.T) {
	if !*manyKinds {
		t.Skip("takes minutes; run with -kinds")
	}
	p := publishThis(t)
	for _, arguments := range []string{
		"KIND=DNSRecord GROUP=dns.example.com VERSION=v1",
		"KIND=Proxy GROUP=type.example.com",
		"KIND=Shelf GROUP=internal.example.com",
		"KIND=VM GROUP=3d-print.example.com VERSION=v2alpha1",
		"KIND=Person PLURAL=people GROUP=v1.example.com",
		"KIND=App GROUP=apps.example.com",
		"KIND=Tenant GROUP=tenants.example.com SCOPE=Cluster",
		"KIND=ReplicatedHighAvailabilityDatabase GROUP=db.example.com VERSION=v1beta1",
	} {
		t.Run(arguments, func(t *testing.T) {
			dir := writeKind(t, append(strings.Fields(arguments), "MODULE=example.net/widget/v2", "KIT="+p.module+"@v0.1.0")...)
			runIn(t, dir, "make", "build", "verify", "test", "test-e2e")
			if status := git(t, dir, "status", "--porcelain"); status != "" {
				t.Errorf("make has changed %s", status)
			}
			if strings.HasPrefix(arguments, "KIND=DNSRecord ") { // Three kinds of both scopes in one process.
				runIn(t, dir, "make", "kind", "KIND=Gadget")
				commitAll(t, dir)
				runIn(t, dir, "make", "kind", "KIND=Ox", "PLURAL=oxen", "SCOPE=Cluster")
				runIn(t, dir, "make", "build", "verify", "test", "test-e2e")
			}
		})
	}
}
