package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// A media is a media type for a body.
type media string

const (
	mediaJSON   = media(runtime.ContentTypeJSON)
	mediaYAML   = media(runtime.ContentTypeYAML)
	mediaBinary = media(runtime.ContentTypeProtobuf)
)

// binaryPrefix is the beginning of every object in protobuf.
var binaryPrefix = []byte{0x6b, 0x38, 0x73, 0x00}

// marshaler is implemented by types that can be sent as protobuf.
type marshaler interface{ Marshal() ([]byte, error) }
type unmarshaler interface{ Unmarshal([]byte) error }

// stream returns the content type of a watch.
func (m media) stream() string {
	if m == mediaBinary {
		return string(m) + ";stream=watch"
	}
	return string(m)
}

func isUnstructured(obj runtime.Object) bool {
	_, is := obj.(runtime.Unstructured)
	return is
}

// supportsProtobuf reports whether the kind can be sent as protobuf.
func (r *resource) supportsProtobuf() bool {
	_, can := r.Object.(marshaler)
	return can && !r.custom
}

// medias returns the media types that the server accepts for the request.
func (c *call) medias() []string {
	types := []string{string(mediaJSON), string(mediaYAML)}
	if c.kind.supportsProtobuf() || c.request.Subresource == "scale" { // A Scale is no custom resource.
		types = append(types, string(mediaBinary))
	}
	return types
}

// An encoding is what a client accepts as a response.
type encoding struct {
	media
	// as is PartialObjectMetadata or PartialObjectMetadataList of meta.k8s.io if objects are to be reduced to their
	// metadata, and Table if they are to be the rows of a table.
	as       schema.GroupVersionKind
	include  metav1.IncludeObjectPolicy // What the rows have of the objects.
	noHeader bool                       // A table lacks the definitions of its columns.
}

// acceptedTypes yields the media types of the Accept header with their parameters.
func acceptedTypes(r *Request) iter.Seq2[media, map[string]string] {
	return func(yield func(media, map[string]string) bool) {
		header := cmp.Or(r.HTTP.Header.Get("Accept"), string(mediaJSON))
		for clause := range strings.SplitSeq(header, ",") {
			if name, params, err := mime.ParseMediaType(clause); err == nil && !yield(media(name), params) {
				return
			}
		}
	}
}

// known returns the media type that answers a request for name, "" if there is none.
func known(name media) media {
	switch name {
	case mediaJSON, mediaYAML, mediaBinary:
		return name
	case "*/*", "application/*":
		return mediaJSON
	}
	return ""
}

// accepts returns the encoding of the response. The kinds that come with Kubernetes have an error of their own for
// media types that no kind has.
func (c *call) accepts() (encoding, error) {
	for name, params := range acceptedTypes(c.request) {
		e := encoding{
			media:   known(name),
			as:      schema.GroupVersionKind{Group: params["g"], Version: params["v"], Kind: params["as"]},
			include: metav1.IncludeObjectPolicy(c.request.Query.Get("includeObject")),
		}
		if e.media != "" && c.has(e) {
			return e, nil
		}
	}
	have := []string{string(mediaJSON), string(mediaYAML), string(mediaBinary)}
	for name := range acceptedTypes(c.request) {
		if c.kind.custom || known(name) != "" {
			return encoding{}, notAcceptable(have)
		}
	}
	return encoding{}, noRepresentation(have, c.request.Verb)
}

// has reports whether the server has the response in an encoding.
func (c *call) has(e encoding) bool {
	switch version := e.as.GroupVersion(); {
	case e.as.Empty():
		return e.media != mediaBinary || c.kind.supportsProtobuf()
	case version != metav1.SchemeGroupVersion && version != metav1beta1.SchemeGroupVersion:
		return false
	case e.as.Kind == tableKind:
		return e.media != mediaBinary && c.request.Subresource != "scale"
	}
	return e.as.Kind == partialKind || e.as.Kind == partialListKind
}

// acceptsEvents returns the encoding of the events of a watch. There are none in YAML.
func (c *call) acceptsEvents() (encoding, error) {
	e, err := c.accepts()
	if err == nil {
		err = e.checkTable()
	}
	if err == nil && e.media == mediaYAML {
		err = notAcceptable([]string{string(mediaJSON) + ";stream=watch", string(mediaBinary) + ";stream=watch"})
	}
	return e, err
}

// errorMedia returns the media type for an error. It is JSON if the client accepts none that the server has.
func errorMedia(r *Request) media {
	for name, params := range acceptedTypes(r) {
		if m := known(name); m != "" && params["as"] == "" {
			return m
		}
	}
	return mediaJSON
}

// encode returns the body of an answer of a kind.
func (e encoding) encode(kind *resource, got *answer) ([]byte, error) {
	if got.page != nil {
		return got.page.encode(kind, e)
	}
	obj, rev := got.object, got.revision
	if rev != nil {
		shown, err := kind.shown(rev)
		if err != nil {
			return nil, err
		}
		got, obj, rev = &answer{revision: shown}, shown.Object, shown
	}
	if _, isStatus := obj.(*metav1.Status); isStatus {
		if err := e.checkTable(); err != nil { // The object is deleted all the same.
			return nil, err
		}
		return e.media.encode(got)
	}
	switch {
	case e.as.Empty():
		return e.media.encode(got)
	case e.as.Kind == partialListKind:
		return nil, notList(kind, obj)
	case e.as.Kind == tableKind:
		return e.encodeTable(kind, obj, rev)
	}
	return e.media.encode(&answer{object: partial(obj, e.as)})
}

// encode returns the body of an answer.
func (m media) encode(got *answer) ([]byte, error) {
	switch {
	case m == mediaBinary && got.revision != nil:
		return encodeBinary(got.revision.kind.gvk, got.revision.Object)
	case m == mediaBinary:
		return encodeBinary(got.object.GetObjectKind().GroupVersionKind(), got.object)
	case got.revision != nil:
		return m.text(got.revision.encoded)
	}
	encoded, err := json.Marshal(got.object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", got.object, err)
	}
	return m.text(encoded)
}

// text converts JSON to YAML if that is what the client accepts.
func (m media) text(encoded []byte) ([]byte, error) {
	if m != mediaYAML {
		return encoded, nil
	}
	var b bytes.Buffer
	raw := &runtime.Unknown{Raw: encoded, ContentType: runtime.ContentTypeJSON}
	if err := yamlSerializer.Encode(raw, &b); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return b.Bytes(), nil
}

var yamlSerializer = serializerjson.NewSerializerWithOptions(serializerjson.DefaultMetaFactory, nil, nil,
	serializerjson.SerializerOptions{Yaml: true})

// encodeBinary returns an object as protobuf in its envelope.
func encodeBinary(kind schema.GroupVersionKind, obj any) ([]byte, error) {
	m, ok := obj.(marshaler)
	if !ok {
		return nil, fmt.Errorf("%T cannot be sent as protobuf", obj)
	}
	raw, err := m.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %T as protobuf: %w", obj, err)
	}
	return envelope(kind, raw)
}

func envelope(kind schema.GroupVersionKind, raw []byte) ([]byte, error) {
	unknown := &runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, Raw: raw,
	}
	encoded, err := unknown.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode the envelope of a %s: %w", kind.Kind, err)
	}
	return append(bytes.Clone(binaryPrefix), encoded...), nil
}

// decodeBinary reads an object in its envelope.
func decodeBinary(body []byte, into runtime.Object) (schema.GroupVersionKind, error) {
	rest, found := bytes.CutPrefix(body, binaryPrefix)
	if !found {
		return schema.GroupVersionKind{}, fmt.Errorf("provided data does not appear to be a protobuf message, "+
			"expected prefix %v", binaryPrefix)
	}
	unknown := &runtime.Unknown{}
	if err := unknown.Unmarshal(rest); err != nil {
		return schema.GroupVersionKind{}, err
	}
	kind := schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind)
	message, ok := into.(unmarshaler)
	if !ok {
		return kind, fmt.Errorf("%T cannot be read from protobuf", into)
	}
	return kind, message.Unmarshal(unknown.Raw)
}

// Objects that are reduced to their metadata, which the metadata client of client-go reads.
const (
	partialKind     = "PartialObjectMetadata"
	partialListKind = "PartialObjectMetadataList"
)

// partial returns the metadata of an object as an object of its own. It shares data with obj.
func partial(obj runtime.Object, as schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	reduced := meta.AsPartialObjectMetadata(accessor(obj))
	reduced.SetGroupVersionKind(as.GroupVersion().WithKind(partialKind))
	return reduced
}

// partial returns the page with its objects reduced to their metadata. As in a real server, an empty page has null for
// its items.
func (p *page) partial(as schema.GroupVersionKind) runtime.Object {
	var items []metav1.PartialObjectMetadata
	for _, rev := range p.items {
		items = append(items, *partial(rev.Object, as))
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: p.meta, Items: items}
	list.SetGroupVersionKind(as)
	if as.GroupVersion() == metav1beta1.SchemeGroupVersion {
		return (*metav1beta1.PartialObjectMetadataList)(list)
	}
	return list
}

// notList is the error for a client that accepts only a list and gets an object.
func notList(kind *resource, obj runtime.Object) error {
	goType := kind.internalType("")
	switch _, scale := obj.(*autoscalingv1.Scale); {
	case scale && kind.custom:
		goType = "*v1.Scale"
	case scale:
		goType = "*autoscaling.Scale"
	case kind.custom:
		return errors.New("content is not a list")
	}
	return cannotReduce("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", goType)
}

// isList is the error for a client that accepts only an object and gets a list.
func isList(kind *resource) error {
	return cannotReduce("you requested PartialObjectMetadata, but the requested object is a list (%s)",
		kind.internalType("List"))
}

func cannotReduce(format, goType string) error {
	return statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(format, goType))
}

// internalType returns the Go type that a real server has for an object or a list of the kind.
func (r *resource) internalType(list string) string {
	if r.custom {
		return "*unstructured.Unstructured" + list
	}
	name, _, _ := strings.Cut(r.gr.Group, ".")
	if name == "" {
		name = "core"
	}
	return "*" + name + "." + r.gvk.Kind + list
}

// tableKind is what kubectl asks for instead of an object or a list.
const tableKind = "Table"

// A column is a column of a table. The value of a cell comes from a function for the kinds that come with Kubernetes,
// and from a path for custom resources.
type column struct {
	metav1.TableColumnDefinition
	value func(obj runtime.Object) any
	path  *jsonpath.JSONPath
}

var (
	nameColumn = column{
		TableColumnDefinition: metav1.TableColumnDefinition{
			Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
		},
		value: func(obj runtime.Object) any { return accessor(obj).GetName() },
	}
	ageColumn = columnOf("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], func(obj runtime.Object) any {
		return age(accessor(obj).GetCreationTimestamp())
	})
)

func age(since metav1.Time) string {
	return metatable.ConvertToHumanReadableDateType(since)
}

// setColumns sets the columns of the tables of a kind.
func (r *resource) setColumns() error {
	columns := r.Columns
	switch {
	case len(columns) > 0:
	case !r.custom:
		r.columns = builtInColumns[r.Resource]
		if r.columns == nil {
			r.columns = []column{nameColumn, ageColumn} // A real server has more for some kinds.
		}
		return nil
	default:
		columns = []Column{{
			Name: "Age", Type: "date", Description: ageColumn.Description, JSONPath: ".metadata.creationTimestamp",
		}}
	}
	r.columns = []column{nameColumn}
	for _, c := range columns {
		path := jsonpath.New(c.Name).AllowMissingKeys(true)
		if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
		r.columns = append(r.columns, column{path: path, TableColumnDefinition: metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority,
			Description: cmp.Or(c.Description, "Custom resource definition column (in JSONPath format): "+c.JSONPath),
		}})
	}
	return nil
}

// checkTable returns an error if the client asks for a table in a wrong way.
func (e encoding) checkTable() error {
	errs := validation.ValidateTableOptions(&metav1.TableOptions{IncludeObject: e.include})
	if e.as.Kind == tableKind && len(errs) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v", errs[0]))
	}
	return nil
}

// table returns the revisions as a table.
func (e encoding) table(r *resource, meta metav1.ListMeta, revisions ...*Revision) (*metav1.Table, error) {
	if err := e.checkTable(); err != nil {
		return nil, err
	}
	table := &metav1.Table{ListMeta: meta, Rows: []metav1.TableRow{}}
	table.SetGroupVersionKind(e.as)
	for _, c := range r.columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions, c.TableColumnDefinition)
	}
	if e.noHeader {
		table.ColumnDefinitions = nil
	}
	for _, rev := range revisions {
		row, err := e.row(r, rev)
		if err != nil {
			return nil, err
		}
		table.Rows = append(table.Rows, row)
	}
	return table, nil
}

// encodeTable returns an object as an encoded table. The object of a bookmark has no revision.
func (e encoding) encodeTable(r *resource, obj runtime.Object, rev *Revision) ([]byte, error) {
	if rev == nil {
		var err error
		if rev, err = r.newRevision("", obj, nil); err != nil {
			return nil, err
		}
	}
	table, err := e.table(r, metav1.ListMeta{ResourceVersion: accessor(obj).GetResourceVersion()}, rev)
	if err != nil {
		return nil, err
	}
	return e.media.encode(&answer{object: table})
}

// row returns the row of a revision.
func (e encoding) row(r *resource, rev *Revision) (row metav1.TableRow, err error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(rev.encoded, &content); err != nil {
		return row, fmt.Errorf("decode %s: %w", rev.Name, err)
	}
	for _, c := range r.columns {
		cell := c.value
		if cell == nil {
			row.Cells = append(row.Cells, c.find(content))
			continue
		}
		row.Cells = append(row.Cells, cell(rev.Object))
	}
	switch _, initialEventsEnd := accessor(rev.Object).GetAnnotations()[metav1.InitialEventsAnnotationKey]; {
	case e.include == metav1.IncludeObject:
		row.Object.Raw = rev.encoded
	case e.include != metav1.IncludeNone || initialEventsEnd:
		row.Object.Object = partial(rev.Object, e.as)
	}
	return row, nil
}

// find returns the cell of an object with this content. nil is an empty cell.
func (c column) find(content map[string]any) any {
	results, err := c.path.FindResults(content)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	if c.Type != "string" {
		return typed(c.Type, value)
	}
	var b strings.Builder
	if c.path.PrintResults(&b, []reflect.Value{reflect.ValueOf(value)}) != nil {
		return nil
	}
	return b.String()
}

// typed returns the cell for a value in a column of another type than string, nil if the value has another type.
func typed(columnType string, value any) any {
	number, isNumber := value.(float64)
	if n, is := value.(int64); is {
		number, isNumber = float64(n), true
	}
	switch columnType {
	case "integer":
		if isNumber {
			return int64(number)
		}
	case "number":
		if isNumber {
			return number
		}
	case "boolean":
		if _, is := value.(bool); is {
			return value
		}
	case "date":
		if text, is := value.(string); is {
			return date(text)
		}
	}
	return nil
}

func date(value string) string {
	var at metav1.Time
	if at.UnmarshalQueryParameter(value) != nil {
		return "<invalid>"
	}
	return age(at)
}
