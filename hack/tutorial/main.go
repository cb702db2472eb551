// Command tutorial plays a step of docs/tutorial. `make tutorial STEP=2` runs it.
//
// The page of each step has the transcript of a terminal: commands, and their output. The command tutorial starts a
// local control plane, runs these commands, and prints the output that they really have. The tests of this package do
// the same and compare. So the transcripts in the pages are the plays, and cannot be wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	number := flag.Int("step", 1, "`number` of the step")
	fault := flag.String("fault", "", "`number` of a fault of step 9: plant it, and play its scenario")
	pace := flag.Duration("pace", time.Second, "`time` before each command; with 0, the output must be that of the page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *fault != "" {
		err = plant(ctx, ".", *fault, os.Stdout)
	} else {
		err = run(ctx, *number, *pace)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "tutorial:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, number int, pace time.Duration) error {
	steps, err := readSteps(".")
	if err != nil {
		return err
	}
	if number < 1 || number > len(steps) {
		return fmt.Errorf("there are steps 1 to %d: choose one with `make tutorial STEP=1`", len(steps))
	}
	step := steps[number-1]
	fmt.Printf("Step %d. Read %s/README.md along with it.\n", number, step.dir)
	stage, err := newStage(".", os.Stdout)
	if err != nil {
		return err
	}
	stage.Pace = pace
	if !step.needsCluster {
		return stage.Play(ctx, step.scenes())
	}
	defer fmt.Println("\nEverything is stopped and removed.")
	defer stage.close()
	fmt.Println("Starting Kubernetes on this machine ...")
	if err := stage.startCluster(); err != nil {
		return err
	}
	if err := stage.build(ctx, step); err != nil {
		return err
	}
	usage := fmt.Sprintf("In another terminal, in this directory, this makes the commands of the page work:\n"+
		"  source %s/env\n", stage.dir)
	fmt.Print(usage)
	if err := stage.Play(ctx, step.scenes()); err != nil {
		return err
	}
	fmt.Print("\n# This was the last command. The cluster, and what else still runs, continues. Ctrl-C stops it.\n", usage)
	stage.Forward(ctx)
	return nil
}
