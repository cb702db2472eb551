package conversion

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

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

// isDeep reports whether the value has so many levels that the API server could refuse the answer.
func (l loss) isDeep() bool {
	const levels = 1000
	level := len(l.Path)
	for decoder := json.NewDecoder(bytes.NewReader(l.Is)); level <= levels; {
		switch token, err := decoder.Token(); {
		case err != nil:
			return false // The end.
		case token == json.Delim('{'), token == json.Delim('['):
			level++
		case token == json.Delim('}'), token == json.Delim(']'):
			level--
		}
	}
	return true
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
