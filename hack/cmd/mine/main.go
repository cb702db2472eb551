// Command mine writes a new repository with a controller for a kind of your own. `make mine` runs it. With the argument
// publish it writes a copy of this repository under another module path, for `make publish`. With the argument kind it
// adds a second kind to a new repository, where `make kind` runs it.
//
// It copies the controller in hack/starter with another name for its kind, which imports the kit. Then it
// generates, tests and commits. The starter is a program that is compiled and tested here, so there are no templates:
// names in Go files are found by Go's scanner, and in other files by their spelling.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

const help = `Writes a new repository with a controller for a kind of your own: complete, generated, tested, committed.

  ` + example + `

  KIND     the kind, in CamelCase: Gateway, CacheCluster
  GROUP    its API group, a domain of yours: acme.example.com
  MODULE   the Go module of the repository: github.com/acme/gateway-controller
  VERSION  the version of the API; else v1alpha1
  PLURAL   the name of the resource, if the generators form another plural: people for Person
  SCOPE    Cluster for a kind without namespaces, whose children are in the one that its spec names; else Namespaced
  DIR      where to; else a directory beside this one, named after MODULE. It must be empty, or not exist
  KIT      the module and version of the kit, as make publish has made it: git.example.org/team/kit@v0.1.0; else
           go.mod has a replace directive with the path to this directory

The directory has all of it, or, after a failure or Ctrl-C, nothing. It takes a minute; the first time is longer,
because Go downloads and compiles.`

// An action does something in the directory in which it is called.
type action struct {
	name, help string
	do         do
	stopped    string // What is so after Ctrl-C.
}

const nothingLeft = "nothing is left behind"

type do = func(ctx context.Context, root string, arguments []string, out io.Writer) error

// actions are by the first argument. Without one of these, it is make mine.
var actions = map[string]action{
	"publish": {"make publish", publishHelp, atTheRoot(publish), nothingLeft},
	"kind":    {"make kind", kindHelp, addKind, putAway},
}

func main() {
	arguments, called := os.Args[1:], action{"make mine", help, atTheRoot(mine), nothingLeft}
	if len(arguments) > 0 {
		if other, found := actions[arguments[0]]; found {
			called, arguments = other, arguments[1:]
		}
	}
	if slices.ContainsFunc(arguments, func(a string) bool { return a == "--help" || a == "-help" || a == "-h" }) {
		fmt.Println(called.help)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	root, err := filepath.Abs(".")
	if err == nil {
		err = called.do(ctx, root, arguments, os.Stdout)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		fmt.Fprintln(os.Stderr, called.name+": stopped;", called.stopped)
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, called.name+":", err)
		os.Exit(1)
	}
}

// atTheRoot returns a command of this checkout.
func atTheRoot(do do) do {
	return func(ctx context.Context, root string, arguments []string, out io.Writer) error {
		if _, err := os.Stat(filepath.Join(root, starter, "go.mod")); err != nil {
			return fmt.Errorf("%s is not here: run it at the root of the repository", starter)
		}
		return do(ctx, root, arguments, out)
	}
}

func mine(ctx context.Context, root string, arguments []string, out io.Writer) error {
	o, err := newOrder(root, arguments)
	if err != nil {
		return err
	}
	return o.write(ctx, out)
}
