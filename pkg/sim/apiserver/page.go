package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A page is a list, or a part of one.
type page struct {
	meta  metav1.ListMeta
	items []*Revision
}

// cut returns a page with the first selected revisions.
func (r *resource) cut(revisions []*Revision, selected *selection, limit, version int64) (*page, error) {
	p := &page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(version, 10)}}
	var more int64
	for _, rev := range revisions {
		if selected.namespace != "" && rev.Namespace != selected.namespace {
			continue
		}
		if limit > 0 && int64(len(p.items)) == limit {
			more++ // Whether selected or not, because a real server does not read beyond the limit.
			continue
		}
		if selected.matches(rev.Object) {
			p.items = append(p.items, rev)
		}
	}
	if more == 0 {
		return p, nil
	}
	last := p.items[len(p.items)-1]
	key := last.Name
	if selected.namespace == "" {
		key = r.key(last.Namespace, last.Name)
	}
	p.meta.Continue = encodeContinue(key+"\x00", version)
	if selected.everything() {
		p.meta.RemainingItemCount = &more
	}
	return p, nil
}

// encode returns the encoded list.
func (p *page) encode(r *resource, e encoding) ([]byte, error) {
	items := make([]*Revision, len(p.items))
	for i, rev := range p.items {
		var err error
		if items[i], err = r.shown(rev); err != nil {
			return nil, err
		}
	}
	p = &page{meta: p.meta, items: items}
	switch {
	case e.as.Kind == partialKind:
		return nil, isList(r)
	case e.as.Kind == tableKind:
		table, err := e.table(r, p.meta, p.items...)
		if err != nil {
			return nil, err
		}
		return e.media.encode(&answer{object: table})
	case e.as.Kind == partialListKind:
		return e.media.encode(&answer{object: p.partial(e.as)})
	case e.media == mediaBinary:
		return p.encodeBinary(r.list)
	}
	encoded, err := p.encodeJSON(r)
	if err != nil {
		return nil, err
	}
	return e.text(encoded)
}

func (p *page) encodeJSON(r *resource) ([]byte, error) {
	var metadata any = p.meta
	if r.custom && p.meta.Continue == "" {
		metadata = lastPage{p.meta, ""}
	}
	head, err := json.Marshal(struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
	}{r.list.Kind, r.list.GroupVersion().String(), metadata})
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of a list: %w", err)
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("}")))
	b.WriteString(`,"items":[`)
	for i, rev := range p.items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(r.listed(rev.encoded))
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}

// lastPage is the metadata of the last page of custom resources. It has an empty continue token, where other lists have
// none.
type lastPage struct {
	metav1.ListMeta
	Continue string `json:"continue"`
}

// encodeBinary returns the list in protobuf. Every list has its metadata in field 1 and its items in field 2.
func (p *page) encodeBinary(kind schema.GroupVersionKind) ([]byte, error) {
	metadata, err := p.meta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of a list: %w", err)
	}
	raw := appendField(nil, 1, metadata)
	for _, rev := range p.items {
		item, err := rev.Object.(marshaler).Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", rev.Name, err)
		}
		raw = appendField(raw, 2, item)
	}
	return envelope(kind, raw)
}

// appendField appends a length-delimited field of protobuf.
func appendField(raw []byte, number int, value []byte) []byte {
	const lengthDelimited = 2
	raw = binary.AppendUvarint(raw, uint64(number<<3|lengthDelimited))
	raw = binary.AppendUvarint(raw, uint64(len(value)))
	return append(raw, value...)
}

// A continueToken is the position where a list continues, in the format of a real server.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

func encodeContinue(start string, version int64) string {
	encoded, err := json.Marshal(continueToken{"meta.k8s.io/v1", version, start})
	if err != nil {
		panic("apiserver: " + err.Error()) // Impossible: it has only strings and numbers.
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

func decodeContinue(token string) (start string, version int64, err error) {
	const bad = "continue key is not valid"
	encoded, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", bad, err)
	}
	var t continueToken
	if err := json.Unmarshal(encoded, &t); err != nil {
		return "", 0, fmt.Errorf("%s: %w", bad, err)
	}
	rooted := "/" + strings.TrimPrefix(t.StartKey, "/")
	switch {
	case t.APIVersion != "meta.k8s.io/v1":
		return "", 0, fmt.Errorf("%s: server does not recognize this encoded version %s", bad, t.APIVersion)
	case t.ResourceVersion == 0:
		return "", 0, errors.New(bad + ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return "", 0, errors.New(bad + ": encoded start key empty (version meta.k8s.io/v1)")
	case path.Clean(rooted) != rooted:
		return "", 0, fmt.Errorf("%s: %s", bad, t.StartKey)
	}
	return rooted[1:], t.ResourceVersion, nil
}
