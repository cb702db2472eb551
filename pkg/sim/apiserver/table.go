package apiserver

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

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
	ageColumn = column{
		TableColumnDefinition: metav1.TableColumnDefinition{
			Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		},
		value: func(obj runtime.Object) any { return age(accessor(obj).GetCreationTimestamp()) },
	}
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
		r.columns = builtInColumns(r.Resource)
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
