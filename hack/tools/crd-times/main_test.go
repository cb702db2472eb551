package main

import (
	"fmt"
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

func TestATimeInAListWithoutALimitIsAnError(t *testing.T) {
	const crd = `spec:
  versions:
  - schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              windows:
                %s
                items:
                  properties:
                    from: {type: string, format: date-time}
              days:
                type: object
                maxProperties: 7
                additionalProperties: {type: string, format: date-time}
              created: {type: string, format: date-time}
`
	if err := checkLimits(fmt.Appendf(nil, crd, "maxItems: 32")); err != nil {
		t.Errorf("with a limit: %v", err)
	}
	err := checkLimits(fmt.Appendf(nil, crd, "type: array"))
	if err == nil || !strings.HasPrefix(err.Error(), ".spec.windows[].from is a time") ||
		!strings.HasSuffix(err.Error(), "add // +kubebuilder:validation:MaxItems=32 to .spec.windows") {
		t.Errorf("without a limit: %v", err)
	}
	err = checkLimits([]byte(strings.Replace(fmt.Sprintf(crd, "maxItems: 32"), "maxProperties", "minProperties", 1)))
	if err == nil || !strings.Contains(err.Error(), "MaxProperties=32 to .spec.days") {
		t.Errorf("without a limit of a map: %v", err)
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

func TestTheRuleIsOneString(t *testing.T) {
	if got, want := quote("it's $1"), "'it''s $$1'"; got != want {
		t.Errorf("quote returns %s, want %s", got, want)
	}
}
