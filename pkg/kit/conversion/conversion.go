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
	"fmt"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
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
	if err := json.Unmarshal(encoded, from); err != nil {
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
	if err := json.Unmarshal(encoded, &obj); err != nil {
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
	return json.Marshal(converted)
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
	encoded, err := json.Marshal(content)
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
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	result := tree{}
	if err := json.Unmarshal(encoded, &result); err != nil {
		return nil, err
	}
	return content(result), nil
}

// carrier is the annotation for what other versions lack of version.
func (c *Conversion) carrier(version string) string { return c.hub.Group + "/only-in-" + version }
