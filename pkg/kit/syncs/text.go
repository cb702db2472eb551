package syncs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// String returns the state as text for a terminal.
func (s State) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(Printable(fmt.Sprintf(format, args...)) + "\n") }
	line("%s: syncs since %s, the newest first; it is %s", s.Kind, clock(s.Started), clock(s.Now))
	line("queue: %d tokens left for retries", s.Queue.Tokens)
	for _, n := range s.Queue.Namespaces {
		line("  namespace %s: %d waiting, %d in work, %d backing off", n.Namespace, n.Waiting, n.InWork, n.BackingOff)
	}
	if s.Queue.NamespacesLeftOut > 0 {
		line("  and %d other namespaces", s.Queue.NamespacesLeftOut)
	}
	explained := map[string]bool{} // Only the newest sync of an object is printed with its rules: they are long.
	for i := range s.Syncs {
		r := &s.Syncs[i]
		key := r.Namespace + "/" + r.Name
		r.print(line, !explained[key])
		explained[key] = true
	}
	if len(s.Syncs) == 0 {
		line("")
		line("No sync was found. %d older ones were dropped.", s.Dropped)
	}
	return b.String()
}

// print prints the Record as a conversation, with the answers of the rules if they are wanted.
func (r *Record) print(line func(string, ...any), withRules bool) {
	line("")
	line("%s  %s/%s", clock(r.Began), r.Namespace, r.Name)
	waited := ""
	if !r.Queued.IsZero() {
		waited = fmt.Sprintf("; waited %s", seconds(r.WaitedSeconds))
	}
	line("  queued    %s%s", r.Why, waited)
	if r.Observed != "" {
		line("  observed  %s", r.Observed)
	}
	for i := range r.Requests {
		r.Requests[i].print(line)
	}
	if r.RequestsLeftOut > 0 {
		line("            and %d more requests", r.RequestsLeftOut)
	}
	for _, rule := range r.Rules {
		if withRules {
			line("  rule      %s: %s", rule.Rule, rule.Answer)
		}
	}
	if r.StatusBefore != "" {
		line("  status    %s", r.StatusBefore)
	}
	if r.StatusAfter != r.StatusBefore {
		line("         -> %s", r.StatusAfter)
	}
	r.printOutcome(line)
}

func (r *Record) printOutcome(line func(string, ...any)) {
	if r.Ended.IsZero() {
		line("  outcome   none: the sync is running")
		return
	}
	outcome := fmt.Sprintf("%s, the sync took %s", r.Outcome, r.Ended.Sub(r.Began).Round(time.Microsecond))
	if r.For != "" {
		outcome += ", waits for " + r.For
	}
	if !r.Until.IsZero() {
		outcome += ", comes back at " + clock(r.Until)
	}
	line("  outcome   %s", outcome)
	if r.Error != "" {
		line("  error     %s", r.Error)
	}
}

func (r *Request) print(line func(string, ...any)) {
	reason := strings.Trim(r.Rule+": "+r.Why, ": ")
	if reason != "" {
		reason = " (" + reason + ")"
	}
	line("  request   %s %s%s", r.Request, r.Name, reason)
	for _, f := range r.Fields {
		values := ""
		if f.Have != "" || f.Want != "" {
			values = fmt.Sprintf(" %s -> %s", f.Have, f.Want)
		}
		line("            %s%s", f.Path, values)
	}
	took := ""
	if r.TookSeconds > 0 {
		took = fmt.Sprintf(", after %s", seconds(r.TookSeconds))
	}
	line("            %s%s", r.Answer, took)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

func clock(t time.Time) string { return t.Format("15:04:05.000Z") }

// Printable returns text without characters that a terminal would interpret. They are escaped as in JSON.
func Printable(text string) string {
	var b strings.Builder
	for _, char := range text {
		if strconv.IsPrint(char) {
			b.WriteRune(char)
			continue
		}
		for _, unit := range utf16.Encode([]rune{char}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
