// Verdict says what other tools make of the state of Kubernetes objects: whether kstatus, by which kpt, Flux
// and Helm 4 wait, calls them Current, and whether Argo CD with a given health check calls them Healthy.
//
// It asks kstatus itself, and runs health checks in the Lua interpreter that Argo CD links in. It needs no
// cluster, so that a test can ask about objects in every state.
//
// It is a module of its own for the sake of these two dependencies, which the controller has no use for.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

const usage = `What other tools make of the state of Kubernetes objects.

Usage:
  verdict kstatus           Current, InProgress, Failed, Terminating or Unknown, as kstatus says
  verdict argocd HEALTH.lua Healthy, Progressing, Degraded, Suspended, Missing or Unknown, as Argo CD
                            says with this health check in its ConfigMap

Objects are read from standard input, as JSON, one after another; a List counts as its items. For each
of them a line is written as soon as it has been read: the verdict, a tab, the message. After the first
object that has no verdict nothing more is read; one line on standard error says why, exit code 1.

A health check has what Argo CD gives it by default: Lua's basic functions and the library table, but
neither string nor math, and a second. Other than there, it cannot read files and has no require, not
even of os; print writes to standard error; an error is not called Unknown but ends the command.

Examples:
  kubectl get foo example-foo -o json | verdict kstatus
  kubectl get foos -o json | verdict argocd artifacts/argocd/health.lua
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "verdict: %s\n", oneLine(err.Error()))
		os.Exit(1)
	}
}

// A judge says in one word what a tool makes of an object's state, and why.
type judge func(obj *unstructured.Unstructured) (word, message string, err error)

func run(args []string, in io.Reader, out io.Writer) error {
	for _, arg := range args {
		if arg == "-h" || arg == "-help" || arg == "--help" {
			_, err := io.WriteString(out, usage)
			return err
		}
	}
	verdict, err := judgeFor(args)
	if err != nil {
		return err
	}
	return eachObject(in, func(obj *unstructured.Unstructured) error {
		word, message, err := verdict(obj)
		if err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		_, err = fmt.Fprintf(out, "%s\t%s\n", word, oneLine(message))
		return err
	})
}

func judgeFor(args []string) (judge, error) {
	switch {
	case len(args) == 1 && args[0] == "kstatus":
		return kstatus, nil
	case len(args) == 2 && args[0] == "argocd":
		return argocd(args[1])
	default:
		return nil, errors.New(`say "verdict kstatus" or "verdict argocd HEALTH.lua"; --help says more`)
	}
}

func kstatus(obj *unstructured.Unstructured) (word, message string, err error) {
	result, err := status.Compute(obj)
	if err != nil {
		return "", "", err
	}
	return result.Status.String(), result.Message, nil
}

// eachObject calls do for the objects that in consists of, and stops at the first error.
func eachObject(in io.Reader, do func(*unstructured.Unstructured) error) error {
	decoder := json.NewDecoder(in)
	for n := 1; ; n++ {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			if n == 1 { // Most likely the command before the pipe has failed.
				return errors.New("no object on standard input")
			}
			return nil
		}
		obj := &unstructured.Unstructured{}
		if err == nil {
			err = obj.UnmarshalJSON(raw) // Unlike encoding/json's, whole numbers become int64, as kstatus wants them.
		}
		if err != nil {
			return fmt.Errorf("object %d on standard input: %w", n, err)
		}
		if err := eachItem(obj, do); err != nil {
			return err
		}
	}
}

// eachItem calls do for obj, or for its items when it is a list, of which kstatus would say that it is Current.
func eachItem(obj *unstructured.Unstructured, do func(*unstructured.Unstructured) error) error {
	if !obj.IsList() {
		return do(obj)
	}
	return obj.EachListItem(func(item runtime.Object) error {
		return do(item.(*unstructured.Unstructured))
	})
}

// oneLine makes one line of text that may have several.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}
