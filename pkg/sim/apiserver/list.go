package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// versionTimeout is how long a real server waits for a resourceVersion that does not exist yet.
const versionTimeout = 3 * time.Second

func (c *call) get() (*answer, error) {
	opts, err := options(c, &metav1.GetOptions{}, "GetOptions", nil)
	if err != nil {
		return nil, err
	}
	version, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if err := c.server.waitForVersion(c.request.Context(), version); err != nil {
		return nil, err
	}
	rev := c.server.find(c.kind, c.kind.key(c.request.Namespace, c.request.Name))
	if rev == nil {
		return nil, apierrors.NewNotFound(c.kind.gr, c.request.Name)
	}
	return &answer{code: http.StatusOK, revision: rev}, nil
}

// waitForVersion waits until the server has a version, but not longer than a real server does.
func (s *Server) waitForVersion(ctx context.Context, version int64) error {
	deadline := time.Now().Add(versionTimeout)
	for {
		s.mu.Lock()
		current, wake := s.version, nextChange(&s.wake)
		s.mu.Unlock()
		switch {
		case current >= version:
			return nil
		case !time.Now().Before(deadline):
			return tooLarge(version, current)
		}
		if err := waitForChange(ctx, deadline, wake); err != nil {
			return err
		}
	}
}

// listOptions reads the options of a list or a watch.
func (c *call) listOptions() (*internalversion.ListOptions, *selection, error) {
	opts := &internalversion.ListOptions{}
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.request.Query, metav1.SchemeGroupVersion, opts)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(opts, true)
	if errs := internalvalidation.ValidateListOptions(opts, true); len(errs) > 0 {
		kind := schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}
		return nil, nil, apierrors.NewInvalid(kind, "", errs)
	}
	selected, err := c.selection(opts)
	return opts, selected, err
}

func (c *call) list() (*answer, error) {
	opts, selected, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	page, err := c.page(opts, selected)
	return &answer{code: http.StatusOK, page: page}, err
}

// page returns the requested page of a list.
func (c *call) page(opts *internalversion.ListOptions, selected *selection) (*page, error) {
	if _, single := selected.fields.RequiresExactMatch("metadata.name"); single && opts.Continue == "" {
		opts.Limit = 0 // A real server gets the one object by its name and ignores the limit.
	}
	at, exact, after, err := listVersion(opts)
	if err != nil {
		return nil, err
	}
	if err := c.server.waitForVersion(c.request.Context(), at); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if exact && at < s.compacted {
		return nil, c.listTooOld(opts, after)
	}
	version, revisions := s.version, []*Revision(nil)
	if exact {
		version, revisions = at, c.kind.revisionsAt(at)
	} else {
		revisions = c.kind.sorted()
	}
	limit := opts.Limit
	if opts.ResourceVersion == "0" {
		limit = 0 // A real server answers from its cache and ignores the limit.
	}
	if after != "" {
		if c.request.Namespace != "" && !c.kind.ClusterScoped {
			after = c.request.Namespace + "/" + after
		}
		first := sort.Search(len(revisions), func(i int) bool {
			return c.kind.key(revisions[i].Namespace, revisions[i].Name) >= after
		})
		revisions = revisions[first:]
	}
	return c.kind.cut(revisions, selected, limit, version)
}

// listVersion returns the version to list at, whether it must be exact or may be newer, and the key to continue after.
func listVersion(opts *internalversion.ListOptions) (at int64, exact bool, after string, err error) {
	if opts.Continue != "" {
		after, at, err = decodeContinue(opts.Continue)
		if err != nil {
			why := fmt.Sprintf("invalid continue token: continue key is not valid: %v", err)
			return 0, false, "", apierrors.NewBadRequest(why)
		}
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return 0, false, "",
				apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		return max(at, 0), at > 0, after, nil
	}
	at, err = parseVersion(opts.ResourceVersion)
	if err != nil {
		return 0, false, "", apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	exact = opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		opts.ResourceVersionMatch == "" && opts.Limit > 0 && at > 0
	return at, exact, "", nil
}

// listTooOld returns the error for a version that was compacted. Its continue token lets a client continue a list with
// the current objects.
func (c *call) listTooOld(opts *internalversion.ListOptions, after string) error {
	if opts.Continue == "" {
		return apierrors.NewResourceExpired(listExpired)
	}
	err := apierrors.NewResourceExpired(continueExpired)
	err.ErrStatus.ListMeta.Continue = encodeContinue(after, -1)
	return err
}

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
	items := make([]json.RawMessage, len(p.items))
	for i, rev := range p.items {
		items[i] = r.listed(rev.encoded)
	}
	encoded, err := json.Marshal(struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   any               `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}{r.list.Kind, r.list.GroupVersion().String(), metadata, items})
	if err != nil {
		return nil, fmt.Errorf("encode a list: %w", err)
	}
	return encoded, nil
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
	encoded, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", 0, err
	}
	var t continueToken
	if err := json.Unmarshal(encoded, &t); err != nil {
		return "", 0, err
	}
	rooted := "/" + strings.TrimPrefix(t.StartKey, "/")
	switch {
	case t.APIVersion != "meta.k8s.io/v1":
		return "", 0, fmt.Errorf("server does not recognize this encoded version %s", t.APIVersion)
	case t.ResourceVersion == 0:
		return "", 0, errors.New("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return "", 0, errors.New("encoded start key empty (version meta.k8s.io/v1)")
	case path.Clean(rooted) != rooted:
		return "", 0, errors.New(t.StartKey)
	}
	return rooted[1:], t.ResourceVersion, nil
}

// A selection selects the objects of a list or a watch.
type selection struct {
	kind      *resource
	namespace string // Empty for all.
	labels    labels.Selector
	fields    fields.Selector
}

// selection returns the selection of the request.
func (c *call) selection(opts *internalversion.ListOptions) (*selection, error) {
	s := &selection{
		kind: c.kind, namespace: c.request.Namespace, labels: opts.LabelSelector, fields: opts.FieldSelector,
	}
	if s.labels == nil {
		s.labels = labels.Everything()
	}
	if s.fields == nil {
		s.fields = fields.Everything()
	}
	for _, term := range s.fields.Requirements() {
		if err := c.kind.checkField(term.Field); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return s, nil
}

func (r *resource) checkField(name string) error {
	own := r.custom || r.Fields != nil
	switch {
	case name == "metadata.name", r.Fields[name] != nil, name == "metadata.namespace" && !(own && r.ClusterScoped):
		return nil
	case own:
		return fmt.Errorf("field label not supported: %s", name)
	}
	return fmt.Errorf(`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, name)
}

// everything reports whether all objects of the namespace are selected.
func (s *selection) everything() bool {
	return s.labels.Empty() && s.fields.Empty()
}

// matches reports whether obj is selected. A nil obj is not.
func (s *selection) matches(obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	m := accessor(obj)
	if s.namespace != "" && m.GetNamespace() != s.namespace || !s.labels.Matches(labels.Set(m.GetLabels())) {
		return false
	}
	selectable := fields.Set{}
	for _, term := range s.fields.Requirements() {
		selectable[term.Field] = s.kind.field(obj, term.Field)
	}
	return s.fields.Matches(selectable)
}

// field returns the field of an object that a field selector names.
func (r *resource) field(obj runtime.Object, name string) string {
	switch name {
	case "metadata.name":
		return accessor(obj).GetName()
	case "metadata.namespace":
		return accessor(obj).GetNamespace()
	}
	return r.Fields[name](obj) // checkField has checked that it exists.
}
