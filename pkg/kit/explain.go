package kit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/syncs"
)

// everything is a name that asks for all objects. After each logEvery of them, a line of the log shows the progress.
const everything, logEvery = "*", 1000

// ErrWouldWrite is what Explain returns if the controller would send a write.
var ErrWouldWrite = errors.New("the controller would send a write")

// A Question is what the flags --explain and --explain-format ask for.
type Question struct {
	// Kind is that of the object, and ClusterScoped is true if its objects have no namespace.
	Kind          string
	ClusterScoped bool
	// Object is empty if nothing is asked. The name * asks for all objects of the namespace, and without a namespace for
	// all that the controller sees.
	Object cache.ObjectName
	format format
	others []Question
}

// Also adds a further kind of the process. Then an object is asked for as KIND/NAMESPACE/NAME, and Kind is the one that
// is asked for.
func (q *Question) Also(kind string, clusterScoped bool) {
	q.others = append(q.others, Question{Kind: kind, ClusterScoped: clusterScoped})
}

// A format is how a Report is printed: text is for people, json for scripts. It is a flag.Value.
type format string

const (
	text   format = "text"
	asJSON format = "json"
)

// Set sets f to the value of a flag.
func (f *format) Set(value string) error {
	*f = format(value)
	if *f != text && *f != asJSON {
		return errors.New("give text or json")
	}
	return nil
}

func (f *format) String() string { return string(*f) }

// AddFlags adds the flags that set q.
func (q *Question) AddFlags(fs *flag.FlagSet) {
	fs.Func("explain", "print what the controller would do with the "+q.Kind+" `"+q.form()+"` now, and why; "+
		"* means all, with a line for each that it would write; "+q.formsOfOthers()+
		"nothing is written, and the exit code is 2 if the controller would write something, else 0", q.set)
	q.format = text
	fs.Var(&q.format, "explain-format", "`format` of what --explain prints: text or json")
}

// set takes the value of the flag.
func (q *Question) set(value string) error {
	named, rest, _ := strings.Cut(value, "/")
	for _, kind := range append([]Question{*q}, q.others...) {
		if object, err := kind.parse(rest); strings.EqualFold(named, kind.Kind) && err == nil {
			q.Kind, q.ClusterScoped, q.Object = kind.Kind, kind.ClusterScoped, object
			return nil
		}
	}
	object, err := q.parse(value)
	q.Object = object
	return err
}

func (q *Question) parse(value string) (object cache.ObjectName, err error) {
	object.Namespace, object.Name, err = cache.SplitMetaNamespaceKey(value)
	if err != nil || q.ClusterScoped != (object.Namespace == "") || object.Name == "" ||
		object.Namespace == everything && object.Name != everything {
		return cache.ObjectName{}, fmt.Errorf("give %s of a %s", strings.ToUpper(q.form()), q.Kind)
	}
	object.Namespace = strings.TrimPrefix(object.Namespace, everything)
	return object, nil
}

func (q *Question) formsOfOthers() (forms string) {
	for _, kind := range q.others {
		forms += "for a " + kind.Kind + ", " + strings.ToLower(kind.Kind) + "/" + kind.form() + "; "
	}
	return forms
}

// form is how an object is named.
func (q *Question) form() string {
	if q.ClusterScoped {
		return "name"
	}
	return "namespace/name"
}

// Check returns whether something is asked of a controller, and limits the options to the namespace of the object. An
// error is a mistake in the flags.
func (q *Question) Check(options *Options) (asked bool, err error) {
	if q.Object.Name == everything && !q.ClusterScoped {
		q.Object.Namespace = cmp.Or(q.Object.Namespace, options.Namespace)
	}
	switch {
	case q.Object.Name == "" && q.format == asJSON:
		return false, fmt.Errorf("--explain-format needs --explain=%s", strings.ToUpper(q.form()))
	case q.Object.Name != "" && options.Namespace != "" && options.Namespace != q.Object.Namespace:
		return false, fmt.Errorf("--namespace=%s: this controller does not see the %s %s",
			options.Namespace, q.Kind, q.Object)
	case q.Object.Name != "":
		options.Namespace = q.Object.Namespace
	}
	return q.Object.Name != "", nil
}

// A Report is what a controller would do with an object.
type Report struct {
	// Object is its kind and namespace/name.
	Object     string `json:"object"`
	Generation int64  `json:"generation"`
	// Desired is the spec of the object.
	Desired map[string]any `json:"desired,omitempty"`
	// WouldSend means that the controller would send a write. Write is the first one, such as "patch Deployment web",
	// Body what it would send, and Fields what it would change. A status is in Status.
	WouldSend bool              `json:"wouldSend"`
	Write     string            `json:"write,omitempty"`
	Body      any               `json:"body,omitempty"`
	Fields    []reconcile.Field `json:"fields,omitempty"`
	// Rules are the answers of all rules. An object that is being deleted has none.
	Rules []reconcile.Explanation `json:"rules,omitempty"`
	// Status is what the controller would write when all requests before are done, nil if it would write none.
	Status map[string]any `json:"status,omitempty"`
	// Then is how the sync would end, Reported the stored status in one line if it would stay, and Unknown what could not
	// be taken into account.
	Then     string `json:"then"`
	Reported string `json:"reported,omitempty"`
	Unknown  string `json:"unknown"`
	// Error is why one of many objects could not be explained. Then nothing is known of what the controller would do.
	Error string `json:"error,omitempty"`
	line  string // The write and what it changes, or why it is sent.
}

// newReport returns the Report of an object without its sync.
func newReport(kind string, obj metav1.Object) *Report {
	return &Report{
		Object: kind + " " + cache.MetaObjectToName(obj).String(), Generation: obj.GetGeneration(),
		Desired: member(obj, "spec"),
		Unknown: "backoffs and recent writes: only the running controller has them, see its /debug/syncs",
	}
}

// member returns a field of an object.
func member(obj any, name string) map[string]any {
	var fields map[string]any
	encoded, err := json.Marshal(obj)
	if err != nil || json.Unmarshal(encoded, &fields) != nil {
		return nil // All objects of the API can be encoded.
	}
	value, _ := fields[name].(map[string]any)
	return value
}

// Explain answers q: it lists what the informers, which do not run, would have, in pages. Then it plays the sync that
// begin returns for the object, nil if there is nothing to do for it, and prints a Report. If q is about all objects,
// it does so for each, prints a line for each that would be written, and last how many these are. The connection should
// be that of Options.ReadOnly. The writes get the answers that are expected of the API server, so nothing is written;
// each patch costs a read. It returns ErrWouldWrite if there would be a write, and another error if one has no Report.
func (r *Reconciler) Explain(ctx context.Context, q *Question, begin func(cache.ObjectName) *reconcile.Sync,
	out io.Writer) error {
	for _, informer := range r.Informers() {
		if err := r.fill(ctx, informer, q.Object.Namespace); err != nil {
			return fmt.Errorf("list %s: %w", informer.Resource.Resource, err)
		}
	}
	if q.Object.Name == everything {
		return r.explainAll(ctx, q, begin, out)
	}
	obj, found, err := r.kind(q.Kind).Store.GetByKey(q.Object.String())
	if !found && err == nil {
		err = fmt.Errorf("the %s %s does not exist", q.Kind, q.Object)
	}
	if err != nil {
		return err
	}
	report, err := r.reportOf(ctx, q.Kind, obj.(metav1.Object), begin)
	if err != nil {
		return err
	}
	if err := report.print(out, q.format); err != nil {
		return err
	}
	if report.WouldSend {
		return ErrWouldWrite
	}
	return nil
}

// explainAll prints a line for each object in the caches that the controller would write, or that cannot be explained,
// in the order of namespaces and names.
func (r *Reconciler) explainAll(ctx context.Context, q *Question, begin func(cache.ObjectName) *reconcile.Sync,
	out io.Writer) error {
	objects, resource := r.kind(q.Kind).Informer.GetIndexer().List(), r.kind(q.Kind).Informer.Resource.Resource
	slices.SortFunc(objects, func(a, b any) int {
		x, y := a.(metav1.Object), b.(metav1.Object)
		return cmp.Or(strings.Compare(x.GetNamespace(), y.GetNamespace()), strings.Compare(x.GetName(), y.GetName()))
	})
	writes, failed := 0, 0
	logProgress := func(n int) {
		klog.FromContext(ctx).Info("Explained", "objects", n, "of", len(objects), "wouldBeWritten", writes, "failed", failed)
	}
	for i, obj := range objects {
		report, err := r.reportOf(ctx, q.Kind, obj.(metav1.Object), begin)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("stopped after %d of %d %s: %w", i, len(objects), resource, ctx.Err())
		case err != nil:
			failed++
			report = newReport(q.Kind, obj.(metav1.Object))
			report.Error, _, _ = strings.Cut(err.Error(), "\n\n") // A stack follows.
			report.line = "error: " + report.Error
		case report.WouldSend:
			writes++
		}
		if line := report.inOneLine(q.format); line != "" {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return err
			}
		}
		if n := i + 1; n%logEvery == 0 {
			logProgress(n)
		}
	}
	counts := fmt.Sprintf("%d %s: %d would be written, %d could not be explained", len(objects), resource, writes, failed)
	switch q.format {
	case asJSON: // Each line of out is a Report.
		logProgress(len(objects))
	default:
		if _, err := fmt.Fprintln(out, counts); err != nil {
			return err
		}
	}
	switch {
	case len(objects) == 0 && q.Object.Namespace != "": // Perhaps its name is wrong.
		return fmt.Errorf("there are no %s in the namespace %s", resource, q.Object.Namespace)
	case failed > 0:
		return errors.New(counts)
	case writes > 0:
		return ErrWouldWrite
	}
	return nil
}

// inOneLine returns r for a list of many, or "" if nothing would be written.
func (r *Report) inOneLine(as format) string {
	switch {
	case r.line == "":
		return ""
	case as == asJSON:
		return syncs.Printable(short(r))
	}
	return syncs.Printable(r.Object + ": " + reconcile.Clip(r.line, reconcile.NoteLimit))
}

// reportOf returns the Report of obj, of which begin returns the sync. A panic is an error: it must not hide the other
// objects, nor end the program with the exit code of a write.
func (r *Reconciler) reportOf(ctx context.Context, kind string, obj metav1.Object,
	begin func(cache.ObjectName) *reconcile.Sync) (report *Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n\n%s", ErrPanic, p, debug.Stack())
		}
	}()
	if sync := begin(cache.MetaObjectToName(obj)); sync != nil {
		return r.Report(ctx, kind, sync)
	}
	report = newReport(kind, obj)
	report.Then = "done: the " + kind + " is being deleted, and the garbage collector deletes or orphans its children"
	return report, nil
}

// fill puts what an informer would list into its cache.
func (r *Reconciler) fill(ctx context.Context, informer Informer, namespace string) error {
	listed := 0
	return informer.each(ctx, namespace, func(obj runtime.Object) error {
		if listed++; listed%logEvery == 0 {
			klog.FromContext(ctx).Info("Listed", "resource", informer.Resource.Resource, "objects", listed)
		}
		trimmed, err := r.Trim(obj.DeepCopyObject()) // A copy lets the page be freed.
		if err != nil {
			return err
		}
		return informer.GetIndexer().Add(trimmed)
	})
}

// Report plays a sync of an object of this kind, which has not begun, with the answers that are expected.
func (r *Reconciler) Report(ctx context.Context, kind string, sync *reconcile.Sync) (*Report, error) {
	report, now := newReport(kind, sync.Object()), time.Now()
	_, report.Reported = sync.Describe()
	sync.Begin(reconcile.Memory{}, now, 0)
	for step := sync.Next(); step != nil; step = sync.Next() {
		if !step.IsRead() && report.Write == "" {
			report.WouldSend, report.Write, report.Rules = true, step.Request()+" "+sync.NameOf(step.Op), sync.Explain()
			report.line = report.Write + ": " + cmp.Or(step.FieldList(), step.Why)
			switch step.Verb {
			case reconcile.Create:
				report.Body = step.Body
			case reconcile.Patch:
				report.Body, report.Fields = json.RawMessage(step.Patch), step.Fields
			case reconcile.Delete:
				report.Body = map[string]any{"uid": step.UID, "resourceVersion": step.ResourceVersion}
			}
		}
		if step.Verb == reconcile.UpdateStatus {
			report.Status, report.Reported = member(step.Body, "status"), ""
		}
		obj, err := r.expected(ctx, step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.Op, err)
		}
		sync.Record(step, reconcile.Reply{Object: obj}, now)
	}
	if !report.WouldSend {
		report.Rules = sync.Explain()
	}
	outcome, _ := sync.End()
	report.Then = endOf(outcome, kind)
	return report, nil
}

// expected returns the answer that step would probably get.
func (r *Reconciler) expected(ctx context.Context, step *reconcile.Step) (metav1.Object, error) {
	kind := r.kind(step.Kind)
	if kind.Expect == nil {
		return step.Body, nil
	}
	return r.trim(kind)(kind.Expect(ctx, step))
}

func endOf(outcome Outcome, kind string) string {
	switch outcome.Kind {
	case reconcile.Done:
		return "done: the next event of an object brings the " + kind + " back"
	case reconcile.Terminal:
		return "terminal: only a change of an object can help"
	}
	return fmt.Sprintf("%s: the %s comes back in %v and waits for %s",
		outcome.Kind, kind, outcome.After.Round(time.Millisecond), outcome.For)
}

// print prints r. Characters of users' texts that could control a terminal are escaped.
func (r *Report) print(w io.Writer, as format) error {
	p := &printer{}
	if as == asJSON {
		p.json("", r)
		return p.write(w)
	}
	p.line("%s, generation %d: the controller would send %s", r.Object, r.Generation, cmp.Or(r.Write, "nothing"))
	p.title("Desired")
	p.rows(r.Desired)
	if len(r.Fields) > 0 {
		p.title("Fields that it would change")
	}
	for _, field := range r.Fields {
		values := "have " + field.Have + ", want " + field.Want
		if field.Have == "" && field.Want == "" {
			values = "see the patch"
		}
		p.row(field.Path, values)
	}
	if len(r.Rules) > 0 {
		p.title("Rules")
	}
	for _, rule := range r.Rules {
		p.row(rule.Rule, rule.Answer)
	}
	if r.Body != nil {
		p.title("First write: " + r.Write)
		p.json("  ", r.Body)
	}
	if r.Status != nil {
		p.title("Status that it would write")
		p.rows(r.Status)
	}
	p.title("Then")
	p.row("sync", r.Then)
	if r.Reported != "" {
		p.row("status", r.Reported)
	}
	p.row("not known", r.Unknown)
	return p.write(w)
}

// A printer collects lines.
type printer struct {
	strings.Builder
	err error
}

func (p *printer) line(format string, args ...any) {
	p.WriteString(syncs.Printable(fmt.Sprintf(format, args...)) + "\n")
}

func (p *printer) title(title string) {
	p.WriteByte('\n')
	p.line("%s", title)
}

func (p *printer) row(name, text string) { p.line("  %-17s  %s", name, text) }

// rows prints fields in the order of their names, and of conditions each.
func (p *printer) rows(fields map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		conditions, found := fields[name].([]any)
		if name != "conditions" || !found {
			p.row(name, short(fields[name]))
			continue
		}
		for _, one := range conditions {
			if c, ok := one.(map[string]any); ok {
				p.row(fmt.Sprint(c["type"]), fmt.Sprintf("%v %v: %v", c["status"], c["reason"], c["message"]))
			}
		}
	}
}

// short returns a value in one line.
func short(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

func (p *printer) json(indent string, value any) {
	encoded, err := json.MarshalIndent(value, indent, "  ")
	p.err = errors.Join(p.err, err)
	for line := range strings.Lines(indent + string(encoded)) {
		p.line("%s", strings.TrimSuffix(line, "\n"))
	}
}

func (p *printer) write(w io.Writer) error {
	if p.err != nil {
		return p.err
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// expect returns the function Expect of a Kind with this client.
func expect[T metav1.Object, L runtime.Object, C Client[T, L]](
	client func(namespace string) C) func(context.Context, *reconcile.Step) (metav1.Object, error) {
	return func(ctx context.Context, step *reconcile.Step) (metav1.Object, error) {
		switch step.Verb {
		case reconcile.Delete:
			return nil, nil
		case reconcile.UpdateStatus:
			return step.Body, nil
		case reconcile.Get:
			return step.Have(), nil // All was read live.
		case reconcile.Create:
			return created(step.Body), nil
		}
		live, err := client(step.Namespace).Get(ctx, step.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return patched(live, step)
	}
}

// created returns obj as an API server would store it.
func created(obj metav1.Object) metav1.Object {
	stored := obj.(runtime.Object).DeepCopyObject().(metav1.Object)
	stored.SetUID("new")
	stored.SetResourceVersion("new")
	stored.SetGeneration(1)
	return stored
}

// patched returns obj after a patch. A change of its spec is a new generation.
func patched(obj metav1.Object, step *reconcile.Step) (metav1.Object, error) {
	before, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	apply := func() ([]byte, error) { return strategicpatch.StrategicMergePatch(before, step.Patch, obj) }
	if step.JSONMerge {
		apply = func() ([]byte, error) { return jsonpatch.MergePatch(before, step.Patch) }
	}
	after, err := apply()
	if err != nil {
		return nil, err
	}
	result := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(metav1.Object)
	if err := json.Unmarshal(after, result); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(member(obj, "spec"), member(result, "spec")) {
		result.SetGeneration(result.GetGeneration() + 1)
	}
	return result, nil
}
