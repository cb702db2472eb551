package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An order is what to write: a repository for a kind.
type order struct {
	root                      string // Of this repository.
	kind                      noun
	clusterScoped             bool
	group, version            string
	groupDirectory, groupName string // Of the group's packages, and in names of Go.
	module                    string
	kit, kitVersion           string // The kit's module. Without a version it is replaced by this checkout.
	dir, shownDir             string // The second one is as it was given.
}

const example = "make mine KIND=Gateway GROUP=acme.example.com MODULE=github.com/acme/gateway-controller"

var (
	kindSyntax    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{1,39}$`)
	pluralSyntax  = regexp.MustCompile(`^[a-z][a-z0-9]{0,59}$`)
	groupSyntax   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$`)
	reservedGroup = regexp.MustCompile(`(^|\.)(k8s|kubernetes)\.io$`)
	// Go checks modules and versions again when the repository is built; these find what people mistype.
	moduleSyntax  = regexp.MustCompile(`^[-a-z0-9]+(\.[-a-z0-9]+)+(/[A-Za-z0-9_~][-.A-Za-z0-9_~]*)*$`)
	majorSyntax   = regexp.MustCompile(`/v[0-9]+$`)
	releaseSyntax = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+][-+.0-9A-Za-z]+)?$`)
	versionSyntax = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

// parse returns the values of arguments such as KIND=Gateway. Those that are needed must have one.
func parse(arguments []string, example string, needed []string, others ...string) (map[string]string, error) {
	given := map[string]string{}
	for _, argument := range arguments {
		name, value, _ := strings.Cut(argument, "=")
		if !slices.Contains(needed, name) && !slices.Contains(others, name) {
			return nil, fmt.Errorf("%s: there is no such argument: %s", argument, example)
		}
		given[name] = strings.TrimSpace(value)
	}
	for _, name := range needed {
		if given[name] == "" {
			return nil, fmt.Errorf("%s is missing: %s", name, example)
		}
	}
	return given, nil
}

// newOrder returns the order of the arguments, or what is wrong with them.
func newOrder(root string, arguments []string) (*order, error) {
	others := []string{"VERSION", "PLURAL", "SCOPE", "DIR", "KIT"}
	given, err := parse(arguments, example, []string{"KIND", "GROUP", "MODULE"}, others...)
	if err != nil {
		return nil, err
	}
	if _, found := given["VERSION"]; !found {
		given["VERSION"] = starterVersion
	}
	o := &order{root: root, group: given["GROUP"], version: given["VERSION"], module: given["MODULE"]}
	for _, check := range []func() error{
		func() error { return o.setKind(given["KIND"], given["PLURAL"]) }, o.setGroup,
		func() error { return o.setScope(given["SCOPE"]) },
		func() error { return o.setKit(given["KIT"]) },
		func() error { return o.setDirectory(given["DIR"]) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(root, starter)
	files, err := gitFiles(dir, ".")
	if err != nil {
		return nil, err
	}
	return o, o.findClash(dir, files)
}

func (o *order) setKind(kind, plural string) error {
	if !kindSyntax.MatchString(kind) {
		return fmt.Errorf("KIND=%s: a kind is one word of at most 40 letters and digits: Gateway, CacheCluster", kind)
	}
	if plural != "" && !pluralSyntax.MatchString(plural) {
		return fmt.Errorf("PLURAL=%s: it is the name of the resource in lower case, such as gateways", plural)
	}
	o.kind = newNoun(kind, plural)
	for _, name := range []string{o.kind.camel(false), o.kind.lower(false), o.kind.camel(true)} {
		// Go takes the generated file fake_test.go for a test.
		if token.IsKeyword(name) || types.Universe.Lookup(name) != nil || name == "test" || name == "init" {
			return o.kind.refused("Go uses the name "+name, name == o.kind.camel(true))
		}
	}
	return nil
}

func (o *order) setGroup() error {
	switch {
	case !groupSyntax.MatchString(o.group) || len(o.group) > 180:
		return fmt.Errorf("GROUP=%s: a group is a domain of yours with a dot, in lower case: acme.example.com", o.group)
	case reservedGroup.MatchString(o.group):
		return fmt.Errorf("GROUP=%s: k8s.io and kubernetes.io are reserved for Kubernetes; use a domain of yours", o.group)
	case !versionSyntax.MatchString(o.version):
		return fmt.Errorf("VERSION=%s: a version is like v1, v1beta1 or v1alpha1", o.version)
	}
	first, _, _ := strings.Cut(o.group, ".")
	if first[0] <= '9' {
		first = "g" + first // No name in Go begins with a digit.
	}
	for word := range strings.SplitSeq(first, "-") {
		o.groupDirectory += word
		o.groupName += strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):]
	}
	// The generated clients have packages of the last two names.
	taken := slices.Contains(append(special, "fake", "scheme"), o.groupDirectory)
	if taken || token.IsKeyword(o.groupDirectory) || versionSyntax.MatchString(first) {
		o.groupDirectory += "group"
	}
	return nil
}

// special are names that mean something to Go as that of a directory or of a package.
var special = []string{"internal", "vendor", "testdata", "main"}

// setScope takes the words that a CustomResourceDefinition has.
func (o *order) setScope(scope string) error {
	o.clusterScoped = scope == "Cluster"
	if !o.clusterScoped && scope != "Namespaced" && scope != "" {
		return fmt.Errorf("SCOPE=%s: it is Namespaced or Cluster", scope)
	}
	return nil
}

func (o *order) setKit(kit string) error {
	o.kit = thisModule
	if kit == "" {
		return nil
	}
	o.kit, o.kitVersion, _ = strings.Cut(kit, "@")
	if !moduleSyntax.MatchString(o.kit) || !releaseSyntax.MatchString(o.kitVersion) {
		return fmt.Errorf("KIT=%s: it is a module and its version, such as %s@v0.1.0", kit, thisModule)
	}
	return nil
}

// checkModule finds what is wrong with the path of a module.
func checkModule(module string) error {
	if major := majorSyntax.FindString(module); !moduleSyntax.MatchString(module) || major == "/v0" || major == "/v1" {
		return fmt.Errorf("MODULE=%s: a module begins with a domain, and may end with /v2 or more: "+
			"github.com/acme/gateway-controller", module)
	}
	return nil
}

func (o *order) setDirectory(dir string) error {
	if err := checkModule(o.module); err != nil {
		return err
	}
	prefix := majorSyntax.ReplaceAllString(o.module, "")
	if dir == "" {
		dir = "../" + path.Base(prefix)
	}
	o.shownDir, o.dir = dir, filepath.Join(o.root, dir)
	if filepath.IsAbs(dir) {
		o.dir = filepath.Clean(dir)
	}
	relative, err := filepath.Rel(o.root, o.dir)
	if err != nil || relative != ".." && !strings.HasPrefix(relative, "../") {
		return fmt.Errorf("DIR=%s: it is inside of this repository; choose a directory beside it", dir)
	}
	if info, err := os.Stat(filepath.Dir(o.dir)); err != nil || !info.IsDir() {
		return fmt.Errorf("DIR=%s: there is no directory %s", dir, filepath.Dir(o.dir))
	}
	info, err := os.Lstat(o.dir) // A link to an empty directory is refused, too: the last rename could not replace it.
	entries, readErr := os.ReadDir(o.dir)
	if err == nil && (!info.IsDir() || readErr != nil || len(entries) > 0) {
		return fmt.Errorf("DIR=%s: it exists and is not an empty directory; nothing was changed there", dir)
	}
	return nil
}

// generatedNames are those that the generators give to something else, beside the kind.
var generatedNames = []string{
	"AddToScheme", "GroupName", "GroupVersion", "Install", "Resource", "SchemeBuilder", "SchemeGroupVersion",
}

// findClash returns an error if the kind would get a name that the starter in dir uses for something else.
func (o *order) findClash(dir string, files []string) error {
	words := o.starterNames()
	before := map[string]string{} // By the new names.
	for _, name := range generatedNames {
		before[name] = name
	}
	for _, file := range files {
		if !strings.HasSuffix(file, ".go") || isGenerated(file) {
			continue
		}
		names, err := namesIn(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		for _, name := range names {
			renamed := words.name(name)
			if old, found := before[renamed]; found && old != name {
				isPlural := strings.Contains(strings.ToLower(old+" "+name), starterKind.lower(true))
				return o.kind.refused("its code has the name "+renamed+" for something else", isPlural)
			}
			before[renamed] = name
		}
	}
	return nil
}

// namesIn returns the names in a Go file, without those of other packages, of fields and of methods: they clash with
// nothing here.
func namesIn(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	var names []string
	free := map[ast.Node]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.SelectorExpr:
			free[n.Sel] = true
		case *ast.KeyValueExpr:
			free[n.Key] = true // If it is a variable, its declaration counts.
		case *ast.StructType:
			for _, field := range n.Fields.List {
				for _, name := range field.Names {
					free[name] = true
				}
			}
		case *ast.FuncDecl:
			free[n.Name] = n.Recv != nil
		case *ast.Ident:
			if !free[n] {
				names = append(names, n.Name)
			}
		}
		return true
	})
	return names, err
}
