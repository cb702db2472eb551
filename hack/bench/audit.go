package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A request is a line of the audit log.
type request struct {
	Verb                                     string
	ObjectRef                                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus                           struct{ Code int }
	ImpersonatedUser                         *struct{}        // For the contender only.
	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime // The second is when the answer was complete.
}

// An auditLog is the audit log of an API server, as far as it has been read.
type auditLog struct {
	file *bufio.Reader
	line []byte // The beginning of a line whose rest is not written yet.
	// requests is how many the contender has sent since the last reset, without watches, and writes has the answers to
	// those of them that ask to change what is stored.
	requests int
	writes   []time.Time
	// accepted is when a request was accepted last, by "VERB RESOURCE/SUBRESOURCE NAMESPACE/NAME". Those of the
	// benchmark count from their arrival, those of the contender from their answer.
	accepted map[string]time.Time
	// reported is of how many Foos the contender has written the status.
	reported int
}

// reset reads what is new, and forgets all requests.
func (a *auditLog) reset() error {
	a.accepted = map[string]time.Time{}
	err := a.update()
	*a = auditLog{file: a.file, line: a.line, accepted: map[string]time.Time{}}
	return err
}

// update reads what is new.
func (a *auditLog) update() error {
	for {
		text, err := a.file.ReadBytes('\n')
		a.line = append(a.line, text...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		r := &request{}
		if err := errors.Join(err, json.Unmarshal(a.line, r)); err != nil {
			return err
		}
		a.line = a.line[:0]
		a.add(r)
	}
}

func (a *auditLog) add(r *request) {
	if r.Verb == "watch" { // client-go renews it after some minutes. Its line comes when it ends.
		return
	}
	at := r.RequestReceivedTimestamp.Time
	if r.ImpersonatedUser != nil {
		at = r.StageTimestamp.Time
		a.requests++
		if r.Verb != "get" && r.Verb != "list" && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			a.writes = append(a.writes, at)
		}
	}
	if r.ResponseStatus.Code >= 300 {
		return
	}
	what := r.Verb + " " + r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	if strings.HasSuffix(what, " foos/status") { // The contenders update or patch it.
		what = statusUpdate
	}
	key := what + " " + r.ObjectRef.Namespace + "/" + r.ObjectRef.Name
	if what == statusUpdate && a.accepted[key].IsZero() {
		a.reported++
	}
	a.accepted[key] = at
}

const fooCreation, deploymentCreation = "create foos/", "create deployments/"
const rollout, statusUpdate = "patch deployments/status", "update foos/status"

// latencies returns the milliseconds from one request to another for the same object, in ascending order.
func (a *auditLog) latencies(from, to string) (latencies []float64) {
	for key, begun := range a.accepted {
		if object, ok := strings.CutPrefix(key, from+" "); ok && a.accepted[to+" "+object].After(begun) {
			latencies = append(latencies, 1000*a.accepted[to+" "+object].Sub(begun).Seconds())
		}
	}
	slices.Sort(latencies)
	return latencies
}
