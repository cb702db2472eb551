// Command api-docs writes the reference of the Foo API. The fields and the validation come from the
// CustomResourceDefinition, the comments of types and constants from the Go files. The text is in page.md.tmpl. A
// validation rule that the template does not handle is an error, so that the page has all rules.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed page.md.tmpl
var page string

// definition is the part of a CustomResourceDefinition that the template handles. Decoding fails for other fields.
type definition struct {
	APIVersion, Kind string
	Metadata         any
	Spec             struct {
		Group, Scope string
		Names        struct {
			Kind, ListKind, Plural, Singular string
			ShortNames, Categories           []string
		}
		Versions []struct {
			Name                     string
			Served, Storage          bool
			Schema                   struct{ OpenAPIV3Schema schema }
			SelectableFields         []struct{ JSONPath string }
			AdditionalPrinterColumns []struct {
				Name, Type, JSONPath, Description string
				Priority                          int
			}
			Subresources struct {
				Status *struct{}
				Scale  *struct{ SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string }
			}
		}
	}
}

type schema struct {
	Type, Format, Description, Pattern                         string
	Default                                                    json.RawMessage
	Properties                                                 map[string]schema
	Required, Enum                                             []string
	Items                                                      *schema
	Minimum, Maximum, MinLength, MaxLength, MinItems, MaxItems *int64
	ListType                                                   string   `json:"x-kubernetes-list-type"`
	ListMapKeys                                                []string `json:"x-kubernetes-list-map-keys"`
	Validations                                                []struct {
		Rule, Message, FieldPath, Reason string
		OptionalOldSelf                  bool
	} `json:"x-kubernetes-validations"`
}

type field struct {
	Path, Presence string
	schema
}

// Own returns the fields of s, which is at path. For a list, it returns the fields of its items.
func (s schema) Own(path string) []field {
	if s.Items != nil {
		return []field{{path + "[]", "item of the list", *s.Items}}
	}
	var own []field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		presence := map[bool]string{true: "required", false: "optional"}[slices.Contains(s.Required, name)]
		own = append(own, field{strings.TrimPrefix(path+"."+name, "."), presence, s.Properties[name]})
	}
	return own
}

// Fields returns all fields below s, which is at path: first the fields of s, then their fields.
func (s schema) Fields(path string) []field {
	all := s.Own(path)
	for _, f := range all {
		all = append(all, f.Fields(f.Path)...)
	}
	return all
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: go run ./hack/tools/api-docs API_DIRECTORY CRD EXAMPLE OUTPUT")
		os.Exit(2)
	}
	text, err := render(os.Args[1], os.Args[2], os.Args[3])
	if err == nil {
		err = os.WriteFile(os.Args[4], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "api-docs:", err)
		os.Exit(1)
	}
}

// render returns the page. The paths of the files are relative to the root of the repository, because the page links to
// the files.
func render(apiDir, crdFile, exampleFile string) ([]byte, error) {
	types, groups, err := comments(apiDir)
	if err != nil {
		return nil, err
	}
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(crdFile)
	if err != nil {
		return nil, err
	}
	var crd definition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, fmt.Errorf("%s has something that hack/tools/api-docs cannot describe: %w", crdFile, err)
	}
	if len(crd.Spec.Versions) != 1 {
		return nil, fmt.Errorf("%s has %d versions, and the page is about one", crdFile, len(crd.Spec.Versions))
	}

	funcs := template.FuncMap{"join": strings.Join, "lower": strings.ToLower, "replace": strings.ReplaceAll,
		"title": func(s string) string { return strings.ToUpper(s[:1]) + s[1:] }}
	var out bytes.Buffer
	err = template.Must(template.New("page").Funcs(funcs).Parse(page)).Execute(&out, map[string]any{
		"APIDir": apiDir, "CRDFile": crdFile, "ExampleFile": exampleFile, "Example": string(example),
		"Spec": crd.Spec, "Version": crd.Spec.Versions[0], "Types": types, "Groups": groups,
	})
	return out.Bytes(), err
}

// A group is a block of exported constants: its comment, split after the first sentence, and the comments of the
// constants, in which values replace names.
type group struct {
	Title, Text string
	Constants   []string
}

var word = regexp.MustCompile(`\w+`)

// comments returns the comments of the types in dir, by name, and the groups of constants.
func comments(dir string) (map[string]string, []group, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "[^z]*.go")) // The page needs nothing from zz_generated files.
	if err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, dir)
	if err != nil {
		return nil, nil, err
	}

	types, values := map[string]string{}, map[string]string{}
	blocks := pkg.Consts
	for _, t := range pkg.Types {
		text, _, _ := strings.Cut(t.Doc, "\n+") // The comment ends where the markers begin.
		types[t.Name] = strings.TrimSpace(text)
		blocks = append(blocks, t.Consts...)
	}
	var groups []group
	for _, block := range blocks {
		title, text, _ := strings.Cut(strings.Join(strings.Fields(block.Doc), " "), ". ")
		g := group{Title: strings.TrimSuffix(title, "."), Text: text}
		for _, spec := range block.Decl.Specs {
			constant := spec.(*ast.ValueSpec)
			name := constant.Names[0].Name
			if g.Title == "" || constant.Doc == nil || len(constant.Values) != 1 {
				return nil, nil,
					fmt.Errorf("%s: constant %s needs a value, a comment and a group with a comment", dir, name)
			}
			if literal, ok := constant.Values[0].(*ast.BasicLit); ok {
				values[name] = "`" + strings.Trim(literal.Value, `"`) + "`"
			}
			g.Constants = append(g.Constants, strings.TrimSpace(constant.Doc.Text()))
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		for i, text := range g.Constants {
			g.Constants[i] = word.ReplaceAllStringFunc(text, func(w string) string { return cmp.Or(values[w], w) })
		}
	}
	return types, groups, nil
}
