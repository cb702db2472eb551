// Package conversion converts objects between the versions of their kind, and loses nothing on the way back.
//
// A maker writes two pure functions for each version besides one, the hub. The webhook of package webhook serves them.
//
// # What the other version lacks
//
// A client of an old version reads an object, changes it and writes it back. What only the newer version has must
// survive that. So Convert converts the object, converts the result back, and compares. Each field that differs goes
// into an annotation, such as acme.example.com/only-in-v1, with its value before and after. The next conversion to v1
// restores the first value, if the field still has the second one. That holds for fields that the types of this program
// do not know, too. A list is one value. These values are lost if a client replaces the object without reading it, or
// removes the annotation, or if all annotations would have more than 256 KiB.
//
// The status is not carried: the controller makes it again. Everybody who may write an object may write that
// annotation. A value in it passes the types, and not the rules of the schema, and does not change metadata.generation:
// the plan of a controller must not rely on them.
//
// The annotation follows cluster-api, where the maker writes what is restored from it.
package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// A Conversion converts the objects of a kind between its versions. It may be used concurrently.
type Conversion struct {
	hub      schema.GroupVersionKind
	versions map[string]functions // By the name of the version, with that of the hub.
}

// functions convert the JSON of an object of one version, without its metadata. For the hub there are none.
type functions struct {
	toHub, fromHub func(encoded []byte) (any, error)
	empty          func() any // Returns an object of the version.
}

// A Version is a version of a kind besides its hub, which has the type H.
type Version[H any] struct {
	name      string
	functions functions
}

// New returns the conversion of a kind. hub is the version to and from which all others are converted, and has the type
// H.
func New[H any](hub schema.GroupVersionKind, others ...Version[H]) *Conversion {
	c := &Conversion{hub: hub, versions: map[string]functions{hub.Version: {empty: func() any { return new(H) }}}}
	for _, other := range others {
		c.versions[other.name] = other.functions
	}
	return c
}

// VersionOf returns a version whose objects have the type T. The functions are pure, and convert everything but the
// metadata, which stays as it is. They should take every object that can be stored, and the types should read it, also
// a text that the schema admits for a metav1.Duration: if one of a list cannot be converted, the API server refuses the
// list. What one of the types lacks is kept, as the package comment has it.
func VersionOf[T, H any](version string, toHub func(*T) (*H, error), fromHub func(*H) (*T, error)) Version[H] {
	return Version[H]{version, functions{
		toHub:   func(encoded []byte) (any, error) { return through(encoded, toHub) },
		fromHub: func(encoded []byte) (any, error) { return through(encoded, fromHub) },
		empty:   func() any { return new(T) },
	}}
}

// Kind returns the group and kind of the objects.
func (c *Conversion) Kind() schema.GroupKind { return c.hub.GroupKind() }

// Empty returns a new empty object of each version, a pointer to its Go type, by the name of the version. It is for
// tests.
func (c *Conversion) Empty() map[string]any {
	objects := map[string]any{}
	for version, functions := range c.versions {
		objects[version] = functions.empty()
	}
	return objects
}

func through[From, To any](encoded []byte, convert func(*From) (*To, error)) (any, error) {
	from := new(From)
	if err := utiljson.Unmarshal(encoded, from); err != nil {
		return nil, err
	}
	return convert(from)
}

// A tree is JSON in Go's types, with int64 and float64 for numbers.
type tree = map[string]any

// Convert returns the object in JSON as an object of another version of its kind. The error is for the user. If a
// function of the maker panicked, it is a *PanicError.
func (c *Conversion) Convert(encoded []byte, apiVersion string) ([]byte, error) {
	obj := tree{}
	if err := utiljson.Unmarshal(encoded, &obj); err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	have, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	from, err := c.version(have, kind)
	if err != nil {
		return nil, err
	}
	to, err := c.version(apiVersion, kind)
	if err != nil {
		return nil, err
	}
	switch hub := c.hub.Version; {
	case from == to:
		return encoded, nil
	case from != hub && to != hub: // What is carried is that of the hub, so that all versions have the same.
		if encoded, err = c.Convert(encoded, c.hub.GroupVersion().String()); err != nil {
			return nil, err
		}
		return c.Convert(encoded, apiVersion)
	}
	metadata, _ := obj["metadata"].(tree)
	converted, lost, err := c.between(content(obj), take(metadata, c.carrier(to)), from, to)
	if err != nil {
		return nil, err
	}
	carry(metadata, c.carrier(from), lost)
	converted["apiVersion"], converted["kind"] = apiVersion, kind
	if metadata != nil {
		converted["metadata"] = metadata
	}
	return utiljson.Marshal(converted)
}

// between converts the content of an object, and gives fields the values that were carried. It also returns what the
// way back would lose.
func (c *Conversion) between(have tree, carried []loss, from, to string) (want tree, lost []loss, err error) {
	if want, err = c.convert(have, from, to); err != nil {
		return nil, nil, err
	}
	if carried != nil {
		restored := runtime.DeepCopyJSON(want)
		restore(restored, carried)
		if back, err := c.convert(restored, to, from); err == nil { // Otherwise somebody has made it up.
			return restored, losses(back, have, nil), nil
		}
	}
	back, err := c.convert(want, to, from)
	if err != nil {
		return nil, nil, fmt.Errorf("convert back: %w", err)
	}
	return want, losses(back, have, nil), nil
}

// version returns the version of this kind, without the group.
func (c *Conversion) version(apiVersion, kind string) (string, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group != c.hub.Group || kind != c.hub.Kind || c.versions[gv.Version].empty == nil {
		return "", fmt.Errorf("cannot convert %s of %s", kind, apiVersion)
	}
	return gv.Version, nil
}

// A PanicError is the error of a conversion that panicked. Its text has neither field, because users see it.
type PanicError struct {
	Value any    // What was passed to panic.
	Stack string // That of the goroutine, for the log.
}

func (e *PanicError) Error() string { return "the conversion panicked, see the log of the controller" }

// content returns a copy of obj without what the API server cares for itself.
func content(obj tree) tree {
	result := tree{}
	for field, value := range obj {
		if field != "apiVersion" && field != "kind" && field != "metadata" {
			result[field] = value
		}
	}
	return result
}

// convert converts the content of an object. One of the versions is the hub.
func (c *Conversion) convert(content tree, from, to string) (result tree, err error) {
	defer func() {
		if r := recover(); r != nil { // It is the error of this object, so the others are still converted.
			err = &PanicError{Value: r, Stack: string(debug.Stack())}
		}
	}()
	function := c.versions[from].toHub
	if from == c.hub.Version {
		function = c.versions[to].fromHub
	}
	encoded, err := utiljson.Marshal(content)
	if err != nil {
		return nil, err
	}
	converted, err := function(encoded)
	if err != nil {
		return nil, err
	}
	return treeOf(converted)
}

// treeOf returns the content of an object of a Go type.
func treeOf(obj any) (tree, error) {
	encoded, err := utiljson.Marshal(obj)
	if err != nil {
		return nil, err
	}
	result := tree{}
	if err := utiljson.Unmarshal(encoded, &result); err != nil {
		return nil, err
	}
	return content(result), nil
}

// carrier is the annotation for what other versions lack of version.
func (c *Conversion) carrier(version string) string { return c.hub.Group + "/only-in-" + version }

// maxAnnotations is how many bytes the keys and values of all annotations of an object may have.
const maxAnnotations = 256 << 10

// A loss is a field that a conversion and the way back change: Is the value that it had, Was the one that it has after
// that. Nil is no value. A list is one value.
type loss struct {
	Path []string        `json:"path"`
	Was  json.RawMessage `json:"was,omitempty"`
	Is   json.RawMessage `json:"is,omitempty"`
}

// status is not carried: who may write the annotation may not write the status.
const status = "status"

// losses returns what back lacks of have, or has in another way. path is where both are.
func losses(back, have tree, path []string) (found []loss) {
	fields := maps.Clone(have)
	maps.Copy(fields, back)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if field == status && len(path) == 0 {
			continue
		}
		path := append(path, field) // The fields beside it may use the same memory, so a loss has a copy.
		inBack, backIsTree := back[field].(tree)
		inHave, haveIsTree := have[field].(tree)
		if backIsTree && haveIsTree {
			found = append(found, losses(inBack, inHave, path)...)
			continue
		}
		_, foundInBack := back[field]
		_, foundInHave := have[field]
		if foundInBack != foundInHave || !reflect.DeepEqual(back[field], have[field]) {
			found = append(found, loss{slices.Clone(path), valueOf(back, field), valueOf(have, field)})
		}
	}
	return found
}

// valueOf returns the value of a field, or nil.
func valueOf(t tree, field string) json.RawMessage {
	value, found := t[field]
	if !found {
		return nil
	}
	return encode(value)
}

// encode returns the JSON of what came from JSON, so there is no error. It does not escape the characters of HTML, each
// of which would need six bytes.
func encode(value any) []byte {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return bytes.TrimSpace(encoded.Bytes())
}

// same reports whether two values are equal.
func same(a, b json.RawMessage) bool {
	var x, y any
	if a == nil || b == nil || utiljson.Unmarshal(a, &x) != nil || utiljson.Unmarshal(b, &y) != nil {
		return a == nil && b == nil
	}
	return reflect.DeepEqual(x, y)
}

// restore gives fields of t the value that they had, unless somebody has changed the one it has after the way back.
func restore(t tree, lost []loss) {
	for _, l := range lost {
		parent, found := t, len(l.Path) > 0 && l.Path[0] != status
		for i := 0; found && i < len(l.Path)-1; i++ {
			parent, found = parent[l.Path[i]].(tree)
		}
		if !found {
			continue
		}
		field := l.Path[len(l.Path)-1]
		if !same(valueOf(parent, field), l.Was) {
			continue
		}
		delete(parent, field)
		var value any
		if l.Is != nil && utiljson.Unmarshal(l.Is, &value) == nil {
			parent[field] = value
		}
	}
}

// take removes an annotation from metadata, and returns what it has. Who may write the object may write anything there:
// what no conversion has written counts as nothing.
func take(metadata tree, key string) (lost []loss) {
	text, _ := setAnnotation(metadata, key, "").(string)
	if json.Unmarshal([]byte(text), &lost) != nil || slices.ContainsFunc(lost, loss.isDeep) {
		return nil
	}
	for i := range lost[min(1, len(lost)):] { // In order, and none is a part of another one: one pass compares all.
		path, next := lost[i].Path, lost[i+1].Path
		if slices.Compare(path, next) >= 0 || slices.Equal(path, next[:min(len(path), len(next))]) {
			return nil
		}
	}
	return lost
}

// isDeep reports whether the value has so many levels that the API server could refuse the answer that has it. A
// decoder takes 10,000 levels. A shorter text has fewer than the 1,000 that a value may have.
func (l loss) isDeep() bool {
	const around = 9000
	return len(l.Is) > 1000 && !json.Valid(slices.Concat(bytes.Repeat([]byte("["), around), l.Is,
		bytes.Repeat([]byte("]"), around)))
}

// carry puts losses into an annotation. If there is no room for it, they are lost with the next write: if the
// conversion failed, so would each list that has the object.
func carry(metadata tree, key string, lost []loss) {
	setAnnotation(metadata, key, "")
	encoded := encode(lost)
	size := len(key) + len(encoded)
	annotations, _ := metadata["annotations"].(tree)
	for other, value := range annotations {
		text, _ := value.(string)
		size += len(other) + len(text)
	}
	if len(lost) > 0 && metadata != nil && size <= maxAnnotations {
		setAnnotation(metadata, key, string(encoded))
	}
}

// setAnnotation sets an annotation, or removes it if text is "". It returns what it was.
func setAnnotation(metadata tree, key, text string) (was any) {
	annotations, _ := metadata["annotations"].(tree)
	was = annotations[key]
	delete(annotations, key)
	switch {
	case text != "" && annotations == nil:
		metadata["annotations"] = tree{key: text}
	case text != "":
		annotations[key] = text
	case len(annotations) == 0:
		delete(metadata, "annotations")
	}
	return was
}
