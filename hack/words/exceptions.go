package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// An exception allows a phrase in one file.
type exception struct {
	line   int // Of exceptionsFile.
	file   string
	phrase string
	reason string
	used   bool // It has allowed a phrase that a rule forbids.
}

// readExceptions reads exceptionsFile. Each exception is a line "file | phrase", with the reason in indented lines
// below. A line that begins with # is a comment.
func readExceptions(root fs.FS) ([]*exception, error) {
	text, err := fs.ReadFile(root, exceptionsFile)
	if err != nil {
		return nil, err
	}
	var exceptions []*exception
	number := 0
	for line := range bytes.Lines(text) {
		number++
		trimmed := strings.TrimSpace(string(line))
		isReason := line[0] == ' ' || line[0] == '\t'
		switch {
		case trimmed == "" || line[0] == '#':
			continue
		case isReason && len(exceptions) == 0:
			return nil, fmt.Errorf("%s:%d: a reason, but no exception above it", exceptionsFile, number)
		case isReason:
			last := exceptions[len(exceptions)-1]
			last.reason = strings.TrimSpace(last.reason + " " + trimmed)
			continue
		}
		file, phrase, ok := strings.Cut(trimmed, " | ")
		if !ok {
			return nil, fmt.Errorf("%s:%d: want \"file | phrase\"", exceptionsFile, number)
		}
		exceptions = append(exceptions, &exception{line: number, file: file, phrase: phrase})
	}
	return exceptions, missingReasons(exceptions)
}

func missingReasons(exceptions []*exception) error {
	var errs []error
	for _, e := range exceptions {
		if e.reason == "" {
			errs = append(errs, fmt.Errorf("%s:%d: no reason in indented lines below", exceptionsFile, e.line))
		}
	}
	return errors.Join(errs...)
}

// unused returns a line for each exception that matches nothing any more.
func unused(exceptions []*exception) []string {
	var findings []string
	for _, e := range exceptions {
		if !e.used {
			findings = append(findings, fmt.Sprintf("%s:%d: %s has no such phrase any more -> remove the exception",
				exceptionsFile, e.line, e.file))
		}
	}
	return findings
}

// A span is a place in a text where an exception allows forbidden phrases.
type span struct {
	start, end int
	by         *exception
}

type spans []span

// allowedSpans returns where in text the exceptions for file have their phrases.
func allowedSpans(file, text string, exceptions []*exception) spans {
	var found spans
	for _, e := range exceptions {
		if e.file != file {
			continue
		}
		for start := 0; ; {
			at := strings.Index(text[start:], e.phrase)
			if at < 0 {
				break
			}
			start += at + len(e.phrase)
			found = append(found, span{start: start - len(e.phrase), end: start, by: e})
		}
	}
	return found
}

// contain reports whether the phrase at an interval of the text is allowed, and marks the exception as used.
func (s spans) contain(phrase []int) bool {
	allowed := false
	for _, span := range s {
		if span.start <= phrase[0] && phrase[1] <= span.end {
			span.by.used = true
			allowed = true
		}
	}
	return allowed
}
