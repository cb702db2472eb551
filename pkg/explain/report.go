package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/syncs"
	"example.com/foo-controller/pkg/plan"
)

// A Format is how a Report is printed: Text is for people, JSON for scripts. It is a flag.Value.
type Format string

const (
	Text Format = "text"
	JSON Format = "json"
)

// Set sets f to the value of a flag.
func (f *Format) Set(value string) error {
	*f = Format(value)
	if *f != Text && *f != JSON {
		return errors.New("give text or json")
	}
	return nil
}

func (f *Format) String() string { return string(*f) }

// A Report is what the controller would do with a Foo.
type Report struct {
	// Foo is its namespace/name.
	Foo        string `json:"foo"`
	Generation int64  `json:"generation"`
	// WouldSend means that the controller would send a write.
	WouldSend bool `json:"wouldSend"`
	// Desired is what the Foo asks for, Differences the fields of its Deployment that have other values.
	Desired     v1alpha1.FooSpec `json:"desired"`
	Differences []plan.Field     `json:"differences,omitempty"`
	// Rules are the answers of all rules. A Foo that is being deleted has none.
	Rules []plan.Explanation `json:"rules,omitempty"`
	// Write is the first write, such as "patch Deployment web", and Body what it would send: the Deployment to create,
	// the strategic merge patch, or the version to delete. A status is in Status.
	Write string `json:"write,omitempty"`
	Body  any    `json:"body,omitempty"`
	// Status is what the controller would write when all requests before are done, nil if it would write none.
	Status *v1alpha1.FooStatus `json:"status,omitempty"`
	// Then is how the sync would end, NotReady what the status then reports of a Foo that is not ready, and Unknown what
	// could not be taken into account.
	Then     string `json:"then"`
	NotReady string `json:"notReady,omitempty"`
	Unknown  string `json:"unknown"`
}

func newReport(foo *v1alpha1.Foo) *Report {
	return &Report{
		Foo: cache.MetaObjectToName(foo).String(), Generation: foo.Generation, Desired: foo.Spec,
		NotReady: notReady(&foo.Status),
		Unknown:  "Backoffs and recent writes: only the running controller has them, see its /debug/syncs",
	}
}

// setWrite adds the first write.
func (r *Report) setWrite(step *plan.Step) {
	r.WouldSend, r.Write = true, step.Op.String()
	switch step.Verb {
	case plan.CreateDeployment:
		r.Body = step.Create
	case plan.PatchDeployment:
		r.Body = json.RawMessage(step.Patch.Body)
	case plan.DeleteDeployment:
		r.Body = map[string]any{"uid": step.Deployment.UID, "resourceVersion": step.Deployment.ResourceVersion}
	}
}

// notReady returns what status reports about a Foo that is not ready, else "".
func notReady(status *v1alpha1.FooStatus) string {
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		return ""
	}
	reason, message := plan.ReadyReason(&v1alpha1.Foo{Status: *status})
	return reason + ": " + message
}

func endOf(outcome plan.Outcome) string {
	switch outcome.Kind {
	case plan.Done:
		return "done: the next event of an object brings the Foo back"
	case plan.Terminal:
		return "terminal: only a change of an object can help"
	}
	return fmt.Sprintf("%s: the Foo comes back in %v and waits for %s",
		outcome.Kind, outcome.After.Round(time.Millisecond), outcome.Reason)
}

// Print writes r in the given format. Characters of users' texts that could control a terminal are escaped.
func (r *Report) Print(w io.Writer, format Format) error {
	p := &printer{}
	switch format {
	case JSON:
		p.json("", r)
	default:
		r.text(p)
	}
	if p.err != nil {
		return p.err
	}
	_, err := io.WriteString(w, p.String())
	return err
}

func (r *Report) text(p *printer) {
	p.line("Foo %s, generation %d: the controller would send %s", r.Foo, r.Generation, cmp.Or(r.Write, "nothing"))
	replicas := "not set"
	if r.Desired.Replicas != nil {
		replicas = strconv.Itoa(int(*r.Desired.Replicas))
	}
	p.title("Desired")
	p.row("Deployment", cmp.Or(r.Desired.DeploymentName, "not set"))
	p.row("replicas", replicas)
	p.row("image", cmp.Or(r.Desired.Image, "not set"))
	if len(r.Differences) > 0 {
		p.title("Fields that differ")
	}
	for _, field := range r.Differences {
		p.row(field.Path, "have "+field.Have+", want "+field.Want)
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
		p.row("replicas", fmt.Sprintf("%d, %d available", r.Status.Replicas, r.Status.AvailableReplicas))
		for _, condition := range r.Status.Conditions {
			p.row(condition.Type, fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message))
		}
	}
	p.title("Then")
	p.row("sync", r.Then)
	if r.NotReady != "" && r.Status == nil { // The conditions have it, too.
		p.row("not ready", r.NotReady)
	}
	p.row("not known", r.Unknown)
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

func (p *printer) json(indent string, value any) {
	encoded, err := json.MarshalIndent(value, indent, "  ")
	p.err = errors.Join(p.err, err)
	for line := range strings.Lines(indent + string(encoded)) {
		p.line("%s", strings.TrimSuffix(line, "\n"))
	}
}
