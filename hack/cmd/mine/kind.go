package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const kindExample = "make kind KIND=Gadget"

const kindHelp = `Adds a second kind to a repository of make mine: a controller of its own, in the same process.

  ` + kindExample + `

  KIND     the kind, in CamelCase. Its group and version are those of the first one
  PLURAL   the name of the resource, if the generators form another plural: people for Person
  SCOPE    Cluster for a kind without namespaces, whose children are in the one that its spec names; else Namespaced

All changes must be committed, so that git shows what this adds.
After a failure or Ctrl-C, ` + putAway + `.`

// putAway is what to do with half a kind. The files of the user that were written meanwhile are in the stash, too.
const putAway = "git stash --include-untracked puts away what it has written"

// A second is a second kind for a repository.
type second struct {
	writing
	first     noun   // The first kind.
	directory string // Of the kind, and the name of its package.
	starter   string // The directory of the starter.
	account   []byte // The subjects of the roles of the first kind.
}

// addKind adds a second kind to the repository of a maker.
func addKind(ctx context.Context, root string, arguments []string, out io.Writer) error {
	given, err := parse(arguments, kindExample, []string{"KIND"}, "PLURAL", "SCOPE")
	if err != nil {
		return err
	}
	if _, err := committed(root); err != nil {
		return err
	}
	s := &second{writing: writing{order: &order{dir: root, kit: thisModule}, dir: root}}
	for _, check := range []func() error{
		s.readModule, s.readGroup, s.readFirst,
		func() error { return s.setKind(given["KIND"], given["PLURAL"]) },
		func() error { return s.setScope(given["SCOPE"]) },
		s.checkNames, func() error { return s.findKit(ctx) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return s.add(ctx, out)
}

// add adds the kind, and prints each step.
func (s *second) add(ctx context.Context, out io.Writer) (err error) {
	if s.temporary, err = os.MkdirTemp("", "kind-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.temporary)) }()
	files, err := filesIn(s.starter)
	if err := errors.Join(err, s.findClash(s.starter, files)); err != nil {
		return err
	}
	edits, err := s.edits()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Adding %s (%s.%s/%s)\n", s.kind.many, s.kind.lower(true), s.group, s.version)
	if err := printed(ctx, out, []step{
		{"write the directory " + s.directory, func(ctx context.Context) error { return s.copyKind(ctx, files) }},
		{"edit what both kinds share", func(context.Context) error { return s.writeEdits(edits) }},
		{"generate the CustomResourceDefinition and clients", s.command("hack/generate.sh")},
		{"make test", s.command("make", "test")},
	}); err != nil {
		return fmt.Errorf("%w\n%s", err, putAway)
	}
	fmt.Fprintf(out, secondNext, s.kind.many, s.directory)
	return nil
}

const secondNext = `Done. The tests are green, and nothing is committed.

git status shows what is new, and git diff what has changed. The fields of %s and their rules are in a file beside those
of the first kind, and all else is in %[2]s. Next: make run, and the examples of all kinds become Ready.
`

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)

// readModule reads go.mod.
func (s *second) readModule() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "go.mod"))
	if err != nil {
		return fmt.Errorf("run it at the root of a repository of make mine: %w", err)
	}
	found := moduleLine.FindSubmatch(text)
	if found == nil {
		return errors.New("go.mod has no line with the module")
	}
	s.module = string(found[1])
	return nil
}

var groupMarkers = regexp.MustCompile(`(?m)^// \+groupName=(\S+)\n// \+groupGoName=(\S+)$`)

// readGroup finds the group and version of the first kind.
func (s *second) readGroup() error {
	docs, err := filepath.Glob(filepath.Join(s.dir, "pkg/apis/*/*/doc.go"))
	if err != nil || len(docs) != 1 {
		return fmt.Errorf("pkg/apis has %d versions with a doc.go, and must have one", len(docs))
	}
	text, err := os.ReadFile(docs[0])
	if err != nil {
		return err
	}
	markers := groupMarkers.FindSubmatch(text)
	if markers == nil {
		return fmt.Errorf("%s lacks the lines // +groupName= and // +groupGoName=", docs[0])
	}
	version := filepath.Dir(docs[0])
	s.group, s.groupName = string(markers[1]), string(markers[2])
	s.version, s.groupDirectory = filepath.Base(version), filepath.Base(filepath.Dir(version))
	return nil
}

var programKind = regexp.MustCompile(`\bKind: "(\w+)", Kinds: "(\w+)"`)

// readFirst finds the first kind.
func (s *second) readFirst() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "main.go"))
	if err != nil {
		return err
	}
	kind := programKind.FindSubmatch(text)
	if kind == nil {
		return errors.New(`main.go: no kit.Program with Kind: "...", Kinds: "..."`)
	}
	s.first = noun{string(kind[1]), string(kind[2])}
	const roles = "artifacts/deploy/rbac.yaml"
	text, err = os.ReadFile(filepath.Join(s.dir, roles))
	if s.account = subjects.Find(text); err == nil && s.account == nil {
		err = errors.New(roles + ": no subjects of a binding")
	}
	return err
}

// checkNames checks that nothing has the names of the kind.
func (s *second) checkNames() error {
	s.directory = s.kind.lower(false)
	if slices.Contains(append(special, "bin"), s.directory) {
		return s.kind.refused("Go or git does not take "+s.directory+" for an ordinary directory", false)
	}
	if s.kind.one != s.first.one && s.kind.lower(true) == s.first.lower(true) {
		return s.kind.refused(s.first.one+" has this plural", true)
	}
	if _, err := os.Stat(filepath.Join(s.dir, s.directory)); err == nil {
		return fmt.Errorf("KIND=%s: there is a directory %s", s.kind.one, s.directory)
	}
	names, err := namesIn(filepath.Join(s.dir, "main.go"))
	if err != nil {
		return err
	}
	for _, name := range []string{s.directory, s.kind.camel(true)} {
		if slices.Contains(names, name) {
			return s.kind.refused("main.go has the name "+name+" for something else", name != s.directory)
		}
	}
	files, err := filepath.Glob(filepath.Join(s.dir, s.api(), "*.go"))
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		if bytes.Contains(text, []byte("\ntype "+s.kind.one+" ")) {
			err = fmt.Errorf("KIND=%s: %s has it", s.kind.one, file)
		}
	}
	return err
}

// api is the directory of the types.
func (s *second) api() string { return filepath.Join("pkg/apis", s.groupDirectory, s.version) }

// findKit finds the kit, and in it the starter, which is a module of its own: in a checkout, or in the module cache.
func (s *second) findKit(ctx context.Context) error {
	version, err := s.output(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Version}} {{.Dir}}", s.kit)
	if err != nil {
		return err
	}
	version, s.root, _ = strings.Cut(version, " ")
	s.starter = filepath.Join(s.root, starter)
	if _, err := os.Stat(s.starter); err == nil {
		return nil
	}
	answer, err := s.output(ctx, "go", "mod", "download", "-json", s.kit+"/"+starter+"@"+version)
	if err != nil {
		return err
	}
	var module struct{ Dir string }
	err = json.Unmarshal([]byte(answer), &module)
	s.starter = module.Dir
	return err
}

// exported are the functions that main.go calls.
var exported = regexp.MustCompile(`\b(newController|needs|syncOf)(\(|,| returns )`)

// subjects are those of a binding of a role.
var subjects = regexp.MustCompile(`(?m)^subjects:\n(?:[- ] .*\n)+`)

// reasons are the constants that the types of the first kind have already.
var reasons = regexp.MustCompile(`(?ms)^// Reasons of the condition Ready\.\nconst \(\n.*?^\)\n`)

// destination returns where a file of the starter goes, and "" for one that the repository has already.
func (s *second) destination(file string) string {
	base := filepath.Base(file)
	switch {
	case file == "pkg/apis/acme/v1alpha1/types.go":
		return filepath.Join(s.api(), s.directory+"_types.go")
	case file == "main.go" || isGenerated(file) || strings.HasPrefix(file, "pkg/apis/"):
		return ""
	case strings.HasPrefix(file, "pkg/plan/"):
		return filepath.Join(s.directory, "plan", base)
	case file == base && strings.HasSuffix(file, ".go"), strings.HasPrefix(file, "scenarios/"):
		return filepath.Join(s.directory, file)
	case strings.HasPrefix(file, "artifacts/examples/"):
		return filepath.Join("artifacts/examples", s.directory+".yaml")
	case file == "artifacts/deploy/rbac.yaml" || file == "artifacts/deploy/roles.yaml":
		return filepath.Join("artifacts/deploy", s.directory+"-"+base)
	}
	return ""
}

// copyKind writes the files of the kind.
func (s *second) copyKind(ctx context.Context, files []string) (err error) {
	from, exact := s.starter, s.starterNames().exact
	exact[starterModule+"/pkg/plan"] = s.module + "/" + s.directory + "/plan"
	names := newRenamer(starterKind, s.kind, exact)
	if s.clusterScoped {
		from = filepath.Join(s.temporary, "starter")
		if files, err = s.withoutNamespaces(ctx, s.starter, files, from); err != nil {
			return err
		}
	}
	for _, file := range files {
		to := s.destination(file)
		if to == "" {
			continue
		}
		if err := copyFile(filepath.Join(from, file), filepath.Join(s.dir, to), func(text []byte) ([]byte, error) {
			text, err := names.file(to, text)
			return s.adapt(to, text), err
		}); err != nil {
			return err
		}
	}
	return nil
}

// adapt changes what differs from the first kind.
func (s *second) adapt(file string, text []byte) []byte {
	switch first := s.first.lower(false); {
	case strings.HasSuffix(file, "_types.go"):
		text = bytes.ReplaceAll(text, []byte(s.directory+"-controller"), []byte(first+"-controller"))
		text = append(bytes.TrimRight(reasons.ReplaceAll(text, nil), "\n"), '\n')
	case strings.HasSuffix(file, ".go"):
		text = exported.ReplaceAllFunc(text, func(match []byte) []byte {
			return append(bytes.ToUpper(match[:1]), match[1:]...)
		})
		text = bytes.Replace(text, []byte("package main\n"), []byte("package "+s.directory+"\n"), 1)
		text = bytes.ReplaceAll(text, []byte(`"artifacts/`), []byte(`"../artifacts/`))
		text = bytes.ReplaceAll(text, []byte("deploy/rbac.yaml"), []byte("deploy/"+s.directory+"-rbac.yaml"))
	case strings.HasSuffix(file, "-rbac.yaml"): // Its role, for the account that exists.
		documents := bytes.Split(text, []byte("---\n"))
		roles := slices.DeleteFunc(documents, func(document []byte) bool {
			return !bytes.Contains(document, []byte("\nkind: ClusterRole\n")) &&
				!bytes.Contains(document, []byte("  kind: ClusterRole\n  name: "+s.directory+"-controller\n"))
		})
		text = subjects.ReplaceAll(bytes.Join(roles, []byte("---\n")), s.account)
		text = append(fmt.Appendf(nil, "# What the controller may do for %s. A test compares it with the requests.\n",
			s.kind.many), text...)
	case strings.HasSuffix(file, "-roles.yaml"): // Without the one for metrics.
		text = text[:bytes.Index(text, []byte("---\n# Who reads the metrics"))]
	case strings.HasPrefix(file, "artifacts/examples/"): // Its children have its name, which the first kind needs.
		text = bytes.Replace(text, []byte("  name: example\n"), []byte("  name: "+s.directory+"\n"), 1)
	}
	return text
}

// filesIn returns the files in a directory and below.
func filesIn(dir string) (files []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, file)
		}
		return err
	})
	return files, err
}

// A change of a file that the repository has.
type change struct {
	file    string
	find    string // A regular expression.
	replace string
}

// changes are those of files that both kinds share. A third kind finds some of them changed by the second one.
func (s *second) changes(mainGo, policies string) []change {
	r := strings.NewReplacer("KIND", s.kind.one, "MODULE", s.module, "SCOPED", fmt.Sprint(s.clusterScoped),
		"resources", s.kind.lower(true), "gadgets", s.kind.camel(true), "gadget", s.directory)
	changes := []change{
		{"main.go", `(?m)^\t".*/pkg/apis/.*"\n`, "$0\t\"MODULE/gadget\"\n"},
		{"main.go", `artifacts/deploy/rbac\.yaml`, "$0 -f artifacts/deploy/gadget-rbac.yaml"},
		{"main.go", `(?m)^\tquestion := .*\n`, "$0\tquestion.Also(\"KIND\", SCOPED)\n"},
		{"main.go", `(?m)^\tprocess\.Show\(controller\.queue\)\n`,
			"\tgadgets, err := gadget.NewController(ctx, process.Watch, process.Write, options, events)\n" +
				"\tif err != nil {\n\t\treturn err\n\t}\n$0\tprocess.Show(gadgets.Queue)\n"},
		{"main.go", `(?m)^\tcontroller\.queue\.Metrics = .*\n`, "$0\tgadgets.Queue.Metrics = controller.queue.Metrics\n"},
		{"main.go", `(?m)^\tneeds, informers := .*\n`, "$0\tneeds = needs.And(gadget.Needs(options.Namespace))\n" +
			"\tinformers = append(informers, gadgets.Informers()...)\n"},
		{"main.go", `process\.Serve\(.*controller\.queue\.Check\(\)`, "$0, gadgets.Queue.Check()"},
		{"main.go", `(?m)^\tcontroller, err := newController\(ctx, connection, .*\n`, "\tif question.Kind == \"KIND\" {\n" +
			"\t\tgadgets, err := gadget.NewController(ctx, connection, connection, options, nil)\n" +
			"\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\tdefer gadgets.Queue.ShutDown()\n" +
			"\t\treturn gadgets.Explain(ctx, question, gadgets.SyncOf, stdout)\n\t}\n$0"},
		{"artifacts/crd/Kustomization", `(?m)^resources:\n`, "$0- " + s.group + "_resources.yaml\n"},
		{"artifacts/deploy/kustomization.yaml", `(?m)^- rbac\.yaml\n`, "$0- gadget-rbac.yaml\n- gadget-roles.yaml\n"},
		{"artifacts/deploy/admission.yaml", `resources: \[` + s.first.lower(true) + `, [^\]]*`,
			"$0, resources, resources/scale"},
	}
	if strings.Contains(mainGo, "running.Wait()") {
		changes = append(changes, change{"main.go", `(?m)^\t\trunning\.Wait\(\)\n`,
			"\t\trunning.Go(func() { gadgets.Run(ctx) })\n$0"})
	} else {
		changes = append(changes, change{"main.go", `(?m)^\t"os"\n`, "$0\t\"sync\"\n"},
			change{"main.go", `(?m)^\t\tcontroller\.Run\(ctx\)\n`, "\t\tvar running sync.WaitGroup\n" +
				"\t\trunning.Go(func() { controller.Run(ctx) })\n\t\trunning.Go(func() { gadgets.Run(ctx) })\n" +
				"\t\trunning.Wait()\n"})
	}
	owners := change{"artifacts/deploy/admission.yaml", `r\.kind == ('\w+')`, "r.kind in [$1, 'KIND']"}
	if strings.Contains(policies, "r.kind in [") {
		owners.find, owners.replace = `r\.kind in \[[^\]]*`, "$0, 'KIND'"
	}
	changes = append(changes, owners)
	for i := range changes {
		changes[i].replace = r.Replace(changes[i].replace)
	}
	return changes
}

// edits returns the new texts of the files that both kinds share.
func (s *second) edits() (map[string]string, error) {
	texts := map[string]string{}
	read := func(file string) (err error) {
		if texts[file] != "" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(s.dir, file))
		texts[file] = string(text)
		return err
	}
	if err := errors.Join(read("main.go"), read("artifacts/deploy/admission.yaml")); err != nil {
		return nil, err
	}
	for _, c := range s.changes(texts["main.go"], texts["artifacts/deploy/admission.yaml"]) {
		if err := read(c.file); err != nil {
			return nil, err
		}
		text, find := texts[c.file], regexp.MustCompile(c.find)
		at := find.FindStringSubmatchIndex(text)
		if at == nil {
			return nil, fmt.Errorf("%s has nothing like %s, which make mine has written and this changes to\n%s\n"+
				"Nothing was changed. Bring that line back, run this, and take it away again", c.file, c.find, c.replace)
		}
		texts[c.file] = text[:at[0]] + string(find.ExpandString(nil, c.replace, text, at)) + text[at[1]:]
	}
	formatted, err := format.Source([]byte(texts["main.go"]))
	texts["main.go"] = string(formatted)
	return texts, err
}

func (s *second) writeEdits(texts map[string]string) (err error) {
	for file, text := range texts {
		err = errors.Join(err, s.edit(file, func(string) string { return text }))
	}
	return errors.Join(err, s.exceptPlural())
}
