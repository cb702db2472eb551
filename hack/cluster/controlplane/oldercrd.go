package controlplane

import (
	"errors"
	"os"
	"regexp"
	"strings"
)

// timeRule matches the type of a time in a CRD with the rule that hack/tools/crd-times adds. Its first group is the
// indentation.
var timeRule = regexp.MustCompile(
	`( +)maxLength: 64\n +type: string\n +x-kubernetes-validations:\n +- message: .*\n +rule: .*\n`)

// OlderCRD returns the CRD in a file as it was before it had a rule for times: with the format date-time in place of
// it. An API server with that CRD stores times that Go cannot read.
func OlderCRD(file string) (string, error) {
	crd, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	older := timeRule.ReplaceAllString(string(crd), "${1}format: date-time\n${1}type: string\n")
	if strings.Count(older, "format: date-time") != 1 {
		return "", errors.New(file + " has not one rule for times")
	}
	return older, nil
}
