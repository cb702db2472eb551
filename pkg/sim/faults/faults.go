// Package faults injects faults between a controller and the simulated API server: requests that are lost, refused or
// late, watches that break, lists that are stale, restarts of the API server, and its clock.
//
// A [Fault] is plain data, and so is a [Schedule], which has the faults of one run. [Random] makes a Schedule from a
// seed. A test injects it before its controller starts, or later:
//
//	schedule := faults.Random(seed, true)
//	injected := schedule.Inject(server, "my-controller")
//
// Everything that a schedule adds to a run depends on its seed and on what the clients send, and not on which of two
// goroutines comes first, unless both send the same. So a seed replays exactly if the rest of the test does, see
// [Schedule.Latency]. The backoffs of client-go are random, too: with this package in the program, they depend on the
// time alone, see [Float64].
package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Kind is a kind of fault.
type Kind string

const (
	// LostBefore: the API server does not get the request, and the client gets no answer.
	LostBefore Kind = "LostBefore"
	// LostAfter: the API server executes the request, and its answer is lost.
	LostAfter Kind = "LostAfter"
	// Refused: the request is answered with the error Code. client-go repeats a request after 429, and no other.
	Refused Kind = "Refused"
	// Page: a proxy before the API server answers the request with the status Code and an HTML page of its own. With 200,
	// client-go takes that for the success of a deletion.
	Page Kind = "Page"
	// LateAnswer: the API server executes the request, and its answer comes For later. Events may overtake it.
	LateAnswer Kind = "LateAnswer"
	// Restart: the API server restarts before the request, which takes For. The user gets no answer meanwhile, unless
	// the answer was late already, and no events from before afterwards. Other users notice nothing.
	Restart Kind = "Restart"
	// ClockSkew: from the request on, the clock of the API server is For ahead or, if that is negative, behind.
	ClockSkew Kind = "ClockSkew"

	// LateEvent: a watch sends the event For later. Later events of the watch wait for it.
	LateEvent Kind = "LateEvent"
	// WatchBroken: the watch breaks before the event. For the duration For, its resource can be neither watched nor
	// listed. Then the watch continues at its version.
	WatchBroken Kind = "WatchBroken"
	// Expired is WatchBroken, but in the end all older versions of the resource are too old. Clients must list, and get
	// no events of what came and went meanwhile. The list of an informer is a watch that begins with all objects.
	Expired Kind = "Expired"

	// StaleList: the list has the objects of For ago, but none older than the version that the client asks for. A client
	// that asks for the latest version gets it. Watch lists are refused meanwhile, because they are never stale.
	StaleList Kind = "StaleList"
)

// A Fault is one fault.
type Fault struct {
	Kind Kind
	// Verb and Resource select the requests, events or lists that are counted. Without a Verb, these are all requests
	// except lists and watches. Events have none. A Resource may have a subresource: "deployments/status".
	Verb, Resource string
	// Nth is the number of the request, event or list of these at which the fault happens, from 1. While the API server
	// is down, requests count only for Restart and ClockSkew.
	//
	// With 0 the fault begins when it is injected. The watches of the Resource break, or all if there is none. Requests
	// are lost or refused for the duration For, or for ever if that is 0. Each answer or event is late, and each list
	// is stale.
	Nth int
	// For is a duration. Its meaning depends on the Kind.
	For time.Duration
	// Code is the HTTP status of Refused and Page.
	Code int
}

// What a fault happens to.
const (
	server  = "server" // Before a request.
	request = "request"
	event   = "event"
	list    = "list"
)

// kinds has what a fault of a kind happens to, and what it does, with FOR and CODE for those of the fault.
var kinds = map[Kind]struct{ subject, effect string }{
	LostBefore:  {request, "lost before the API server gets it"},
	LostAfter:   {request, "executed, but the answer is lost"},
	Refused:     {request, "refused with CODE"},
	Page:        {request, "answered by a proxy with a page, code CODE"},
	LateAnswer:  {request, "executed, but the answer comes FOR later"},
	Restart:     {server, "before it, the API server restarts, which takes FOR"},
	ClockSkew:   {server, "from here on, the clock of the API server is FOR"},
	LateEvent:   {event, "sent FOR late"},
	WatchBroken: {event, "the watch breaks before it, and continues after FOR"},
	Expired:     {event, "the watch breaks before it, and its version is too old after FOR"},
	StaleList:   {list, "has the objects of FOR ago"},
}

func (k Kind) subject() string { return kinds[k].subject }

var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// validate returns an error for a fault that cannot happen.
func (f Fault) validate() error {
	switch {
	case f.Kind.subject() == "":
		return fmt.Errorf("unknown kind %q", f.Kind)
	case f.Nth < 0:
		return fmt.Errorf("%s: Nth is negative", f)
	case (f.Kind == Refused || f.Kind == Page) && f.Code == 0:
		return fmt.Errorf("a fault of kind %s has no Code", f.Kind)
	case f.Verb != "" && !slices.Contains(verbs, f.Verb):
		return fmt.Errorf("%s: unknown verb %q", f, f.Verb)
	case f.Kind.subject() == event && f.Verb != "":
		return fmt.Errorf("%s: a watch fault has no Verb", f)
	}
	return nil
}

// String describes the fault in a line: "request 17: executed, but the answer is lost".
func (f Fault) String() string {
	subject := cmp.Or(f.Verb, request)
	if of := f.Kind.subject(); of == event || of == list {
		subject = of
	}
	subject = strings.TrimSpace(subject + " " + f.Resource)
	if f.Nth > 0 {
		return fmt.Sprintf("%s %d: %s", subject, f.Nth, f.effect())
	}
	switch f.Kind {
	case Restart, ClockSkew, WatchBroken, Expired:
		return f.atOnce()
	case LostBefore, LostAfter, Refused, Page:
		if f.For > 0 {
			return fmt.Sprintf("for %s, each %s: %s", f.For, subject, f.effect())
		}
	}
	return "each " + subject + ": " + f.effect()
}

// atOnce describes a fault that happens when it is injected.
func (f Fault) atOnce() string {
	watch := "each watch"
	if f.Resource != "" {
		watch = "the watch of " + f.Resource
	}
	return strings.NewReplacer(
		"before it, the API", "at once: the API",
		"from here on", "from the beginning",
		"the watch breaks before it", "at once: "+watch+" breaks",
	).Replace(f.effect())
}

func (f Fault) effect() string {
	d, code := f.For.Round(time.Millisecond).String(), strconv.Itoa(f.Code)
	switch {
	case f.Kind == Refused:
		code += " " + http.StatusText(f.Code)
	case f.Kind == ClockSkew && f.For < 0:
		d = strings.TrimPrefix(d, "-") + " behind"
	case f.Kind == ClockSkew:
		d += " ahead"
	}
	return strings.NewReplacer("FOR", d, "CODE", code).Replace(kinds[f.Kind].effect)
}

// A Schedule has the faults of one run.
type Schedule struct {
	Seed int64
	// Latency is the longest time that a request, an event, or the answer to neither a list nor a watch takes without
	// a fault. Each one takes a random part of it, which depends on the seed, the time, and what is sent. So two
	// requests of the same moment are executed one after the other, in an order that the seed decides. Without it,
	// nothing takes time.
	Latency time.Duration
	Faults  []Fault
}

// String returns a line for each fault.
func (s Schedule) String() string {
	var b strings.Builder
	for _, f := range s.Faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// Random returns the schedule of a seed. One request in four fails, on average, until 20 have; one event in twenty
// breaks its watch, which is down for seconds, or once in ten times for up to three minutes. In a dense schedule up to
// 60 requests fail, one event in three breaks its watch, and one outage in three takes up to three minutes. Only the
// first 240 requests, 400 events and 20 lists have faults. Some events are late by seconds, some lists are old, the
// API server restarts once, and its clock may be wrong.
func Random(seed int64, dense bool) Schedule {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	failures, breaks, minutes := 20, 20, 10
	if dense {
		failures, breaks, minutes = 60, 3, 3
	}
	upTo := func(most time.Duration) time.Duration {
		return time.Duration(random.Int64N(int64(most))) + time.Millisecond
	}
	down := func() time.Duration {
		if random.IntN(minutes) == 0 {
			return upTo(3 * time.Minute)
		}
		return upTo(6 * time.Second)
	}
	const requests, events, lists = 240, 400, 20
	s := Schedule{Seed: seed, Latency: 30 * time.Millisecond}
	for nth := 1; nth <= requests && failures > 0; nth++ {
		if random.IntN(4) == 0 {
			failures--
			s.Faults = append(s.Faults, failure(random.IntN(7), nth, upTo(3*time.Second)))
		}
	}
	for nth := 1; nth <= events; nth++ {
		if random.IntN(10) == 0 {
			s.Faults = append(s.Faults, Fault{Kind: LateEvent, Nth: nth, For: upTo(3 * time.Second)})
		}
		if random.IntN(breaks) == 0 {
			kind := []Kind{WatchBroken, Expired}[random.IntN(2)]
			s.Faults = append(s.Faults, Fault{Kind: kind, Nth: nth, For: down()})
		}
	}
	for nth := 1; nth <= lists; nth++ {
		if random.IntN(4) == 0 {
			s.Faults = append(s.Faults, Fault{Kind: StaleList, Nth: nth, For: upTo(10 * time.Second)})
		}
	}
	s.Faults = append(s.Faults, Fault{Kind: Restart, Nth: 1 + random.IntN(60), For: down()})
	if random.IntN(4) == 0 {
		skew := upTo(2*time.Hour) - time.Hour
		s.Faults = append(s.Faults, Fault{Kind: ClockSkew, Nth: 1 + random.IntN(60), For: skew})
	}
	return s
}

// failure returns one of the ways in which a request fails.
func failure(way, nth int, late time.Duration) Fault {
	return []Fault{
		{Kind: LostBefore, Nth: nth},
		{Kind: LostAfter, Nth: nth},
		{Kind: Refused, Nth: nth, Code: http.StatusTooManyRequests},
		{Kind: Refused, Nth: nth, Code: http.StatusInternalServerError},
		{Kind: LateAnswer, Nth: nth, For: late},
		{Kind: Page, Nth: nth, Code: http.StatusNotFound},
		{Kind: Page, Nth: nth, Code: http.StatusOK},
	}[way]
}
