// Command mine writes a new repository with a controller for a kind of your own. `make mine` runs it.
//
// It copies the controller in hack/mine/starter with another name for its kind, and the packages for any controller
// with other import paths. Then it generates, tests and commits. The starter is a program that is compiled and tested
// here, so there are no templates: names in Go files are found by Go's scanner, and in other files by their spelling.
package main

import (
	"context"
	"fmt"
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
  DIR      where to; else a directory beside this one, named after MODULE. It must be empty, or not exist

The directory has all of it, or, after a failure or Ctrl-C, nothing. It takes a minute; the first time is longer,
because Go downloads and compiles.`

func main() {
	arguments := os.Args[1:]
	if slices.ContainsFunc(arguments, func(a string) bool { return a == "--help" || a == "-help" || a == "-h" }) {
		fmt.Println(help)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	err := run(ctx, arguments)
	switch {
	case ctx.Err() != nil && err != nil:
		fmt.Fprintln(os.Stderr, "make mine: stopped; nothing is left behind")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "make mine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, starter, "go.mod")); err != nil {
		return fmt.Errorf("%s is not here: run it at the root of the repository", starter)
	}
	o, err := newOrder(root, arguments)
	if err != nil {
		return err
	}
	return o.write(ctx, os.Stdout)
}
