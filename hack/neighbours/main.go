// Command neighbours measures how long the users of one namespace wait while something is wrong in another one. It
// starts a local control plane and a controller for each problem, and prints a table in Markdown. Run it in the root of
// the repository, after `make build`:
//
//	go run ./hack/neighbours                          measure bin/foo-controller
//	go run ./hack/neighbours --controller PATH        measure another version of it
//	go run ./hack/neighbours --only 'webhook|cold'    only the problems whose names match
//
// The load is bounded in time and number. Everything that the command starts ends with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// options are the values of the flags.
type options struct {
	controller string
	only       *regexp.Regexp
	duration   time.Duration
	coldStart  int
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "neighbours:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	fmt.Println(tableHead)
	for _, p := range problems(opts) {
		if !opts.only.MatchString(p.name) {
			continue
		}
		progress("%s", p.name)
		rows, err := measureProblem(ctx, opts, p)
		for _, r := range rows {
			fmt.Println(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func parse(args []string) (opts options, err error) {
	flags := flag.NewFlagSet("neighbours", flag.ContinueOnError)
	flags.StringVar(&opts.controller, "controller", "bin/foo-controller", "`path` of the controller to measure")
	only := flags.String("only", "", "`regexp` of the names of the problems to measure")
	flags.DurationVar(&opts.duration, "duration", 45*time.Second, "how long each problem is measured, at most 10m")
	flags.IntVar(&opts.coldStart, "cold-start", 3000, "`number` of Foos that exist at a cold start, at most 20000")
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	opts.duration = min(opts.duration, 10*time.Minute)
	opts.coldStart = min(opts.coldStart, 20000)
	opts.only, err = regexp.Compile(*only)
	return opts, err
}

// progress reports on standard error what is being done.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
