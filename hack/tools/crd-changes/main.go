// Command crd-changes compares CustomResourceDefinitions with what has been promised, as sigs.k8s.io/crdify does.
//
// api/crd.yaml has them as users know them. What breaks stored objects or clients, such as a field that is removed or a
// tighter rule, must have a line in api/except.txt, and the reason in a comment above it. The command prints lines that
// are missing, and fails. With -update, it writes the definitions to api/crd.yaml, unless lines are missing:
//
//	crd-changes [-update] artifacts/crd/*.yaml
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

const promisedFile, exceptFile = "api/crd.yaml", "api/except.txt"

func main() {
	update := flag.Bool("update", false, "make the definitions the promise, in "+promisedFile)
	flag.Parse()
	if err := run(*update, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "crd-changes:", err)
		os.Exit(1)
	}
}

func run(update bool, files []string) error {
	var current []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		current = fmt.Appendf(current, "---\n%s", bytes.TrimPrefix(text, []byte("---\n")))
	}
	promised, promisedErr := os.ReadFile(promisedFile)
	if errors.Is(promisedErr, fs.ErrNotExist) && !update {
		fmt.Println("Nothing is promised yet. When others use your kinds: crd-changes -update", strings.Join(files, " "))
		return nil
	}
	except, err := os.ReadFile(exceptFile)
	if err := cmp.Or(promisedErr, err); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	changes, err := compare(promised, current)
	if err != nil {
		return err
	}
	known := strings.Split(string(except), "\n")
	missing := slices.DeleteFunc(changes, func(change string) bool { return slices.Contains(known, change) })
	switch {
	case len(missing) > 0:
		return fmt.Errorf("this breaks stored objects or clients: undo it, or add this to %s:\n# THE REASON\n%s",
			exceptFile, strings.Join(missing, "\n"))
	case update:
		return errors.Join(os.MkdirAll("api", 0o755), os.WriteFile(promisedFile, current, 0o644))
	case !bytes.Equal(promised, current):
		return fmt.Errorf("%s has other definitions: run crd-changes -update %s", promisedFile, strings.Join(files, " "))
	}
	return nil
}

type tree = map[string]any // A part of a definition.
type changes []string      // Lines about what breaks something.

// compare returns a line for each change of definitions that breaks something.
func compare(promised, current []byte) (c changes, err error) {
	before, errBefore := definitions(promised)
	after, errAfter := definitions(current)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		c.definition(name, before[name], after[name])
	}
	return c, errors.Join(errBefore, errAfter)
}

// definitions returns the specs of the definitions in a text of YAML, by name.
func definitions(text []byte) (map[string]tree, error) {
	found := map[string]tree{}
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if err == io.EOF {
			return found, nil
		}
		var crd struct {
			Kind           string
			Metadata, Spec tree
		}
		if err := errors.Join(err, yaml.Unmarshal(document, &crd)); err != nil {
			return nil, err
		}
		if crd.Kind == "CustomResourceDefinition" {
			found[fmt.Sprint(crd.Metadata["name"])] = crd.Spec
		}
	}
}

func (c *changes) add(place, format string, args ...any) {
	*c = append(*c, place+": "+fmt.Sprintf(format, args...))
}

func (c *changes) definition(place string, was, is tree) {
	if is == nil {
		c.add(place, "the definition is gone")
		return
	}
	c.fields(place, was, is, "scope")
	c.fields(place+" conversion", treeIn(was, "conversion"), treeIn(is, "conversion"), "strategy")
	c.fields(place, treeIn(was, "names"), treeIn(is, "names"), "kind", "listKind", "plural", "singular", "shortNames",
		"categories")
	versions := map[any]tree{}
	for _, version := range list(is["versions"]) {
		versions[version.(tree)["name"]] = version.(tree)
	}
	for _, version := range list(was["versions"]) {
		was, place := version.(tree), place+" "+fmt.Sprint(version.(tree)["name"])
		is := versions[was["name"]]
		if is == nil {
			c.add(place, "the version is gone")
			continue
		}
		c.fields(place, was, is, "served", "storage", "selectableFields")
		c.fields(place+" the subresource", treeIn(was, "subresources"), treeIn(is, "subresources"), "status", "scale")
		c.schema(place+" ", treeIn(was, "schema", "openAPIV3Schema"), treeIn(is, "schema", "openAPIV3Schema"))
	}
}

// schema compares the schemas of one value: what was valid must be valid, and mean the same.
func (c *changes) schema(place string, was, is tree) {
	fields := maps.Clone(was)
	maps.Copy(fields, is)
	c.fields(place, was, is, slices.Sorted(maps.Keys(fields))...)
	properties := treeIn(is, "properties")
	for _, name := range slices.Sorted(maps.Keys(treeIn(was, "properties"))) {
		if properties[name] == nil {
			c.add(place+"."+name, "the field is gone")
			continue
		}
		c.schema(place+"."+name, treeIn(was, "properties", name), treeIn(properties, name))
	}
	for field, suffix := range map[string]string{"items": "[]", "additionalProperties": "{}"} {
		if was, both := was[field].(tree); both {
			c.schema(place+suffix, was, treeIn(is, field))
		}
	}
}

// fields compares fields of a definition. Those without a rule must not change.
func (c *changes) fields(place string, was, is tree, fields ...string) {
	for _, field := range fields {
		breaks, found := rules[field]
		if !found {
			breaks = differs
		}
		more, isList := lists[field]
		switch {
		case isList && more, field == "enum" && was[field] == nil: // The first values exclude all others.
			c.elements(place+": "+field+" has more", list(is[field]), list(was[field]))
		case isList && (field != "enum" || is[field] != nil):
			c.elements(place+": "+field+" lacks", list(was[field]), list(is[field]))
		case !isList && breaks != nil && breaks(was[field], is[field]):
			c.add(place, "%s is %s, was %s", field, text(is[field]), text(was[field]))
		}
	}
}

// elements adds a line for each element of a list that another one lacks.
func (c *changes) elements(what string, of, values []any) {
	for _, element := range of {
		equal := func(value any) bool { return !differs(essence(value), essence(element)) }
		if !slices.ContainsFunc(values, equal) {
			*c = append(*c, what+" "+text(essence(element)))
		}
	}
}

// lists are fields whose elements are compared. Of some, more of them permit less.
var lists = map[string]bool{
	"required": true, "x-kubernetes-validations": true,
	"enum": false, "shortNames": false, "categories": false, "selectableFields": false,
}

// rules report whether a field of a schema permits less than before.
var rules = map[string]func(was, is any) bool{
	"maximum": atMost, "maxLength": atMost, "maxItems": atMost, "maxProperties": atMost,
	"minimum": atLeast, "minLength": atLeast, "minItems": atLeast, "minProperties": atLeast,
	"format": limits, "pattern": limits, "multipleOf": limits, "not": limits, "allOf": limits, "anyOf": limits,
	"oneOf": limits, "exclusiveMaximum": limits, "exclusiveMinimum": limits, "uniqueItems": limits,
	"served": permits, "storage": permits, "nullable": permits, "x-kubernetes-int-or-string": permits,
	"x-kubernetes-preserve-unknown-fields": permits,
	"status":                               func(was, is any) bool { return (was == nil) != (is == nil) },
	"strategy":                             func(was, is any) bool { return was == "Webhook" && is != was },
	"scale":                                func(was, is any) bool { return was != nil && differs(was, is) },
	"description":                          nil, "title": nil, "example": nil, "externalDocs": nil, "properties": nil,
	"items": func(was, is any) bool { return was != nil && is == nil },
	"additionalProperties": func(was, is any) bool {
		return was != nil && differs(was, is) && (was == true || is == nil || is == false)
	},
}

func differs(was, is any) bool { return !reflect.DeepEqual(was, is) }
func permits(was, is any) bool { return was == true && is != true }
func limits(was, is any) bool  { return is != nil && is != false && differs(was, is) }
func atMost(was, is any) bool  { return is != nil && (was == nil || number(is) < number(was)) }
func atLeast(was, is any) bool { return is != nil && number(is) > number(was) }
func number(value any) float64 { n, _ := value.(float64); return n }
func list(value any) []any     { values, _ := value.([]any); return values }

// essence is a rule without the texts for people, or the value.
func essence(value any) any {
	rule, is := value.(tree)
	if !is {
		return value
	}
	rule = maps.Clone(rule)
	maps.DeleteFunc(rule, func(field string, _ any) bool { return strings.HasPrefix(field, "message") })
	return rule
}

// treeIn returns the tree at a path, or nil.
func treeIn(t tree, path ...string) tree {
	for _, field := range path {
		t, _ = t[field].(tree)
	}
	return t
}

// text is a value in one line.
func text(value any) string {
	if value == nil {
		return "nothing"
	}
	var line strings.Builder
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // It has been decoded from JSON.
	return strings.TrimSpace(line.String())
}
