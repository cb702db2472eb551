package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachTimeGetsTheRule(t *testing.T) {
	const crd = `properties:
  at:
    description: at is when.
    format: date-time
    type: string
  count:
    format: int64
    type: integer
  until:
      format: date-time
      type: string
`
	got, err := replaceTimes(crd)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "date-time") || strings.Count(got, "    - message: '"+message+"'\n      rule: '") != 1 ||
		strings.Count(got, "      - message: '"+message+"'\n        rule: '"+rule+"'\n") != 1 ||
		!strings.Contains(got, "    format: int64\n") {
		t.Errorf("replaced:\n%s", got)
	}
}

func TestADefinitionWithoutTimesIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, []byte("spec: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := edit(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one with the name of the file", err)
	}
}
