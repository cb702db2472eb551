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
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	number := flag.Int("step", 1, "`number` of the step")
	fault := flag.String("fault", "", "`number` of a fault of the last step: plant it, and play its scenario")
	pace := flag.Duration("pace", time.Second, "`time` before each command")
	end := flag.Bool("end", false, "end after the play instead of waiting for Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *fault != "" {
		err = plant(ctx, ".", *fault, os.Stdout)
	} else {
		err = run(ctx, *number, *pace, *end)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "tutorial:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, number int, pace time.Duration, end bool) error {
	steps, err := readSteps(".")
	if err != nil {
		return err
	}
	if number < 1 || number > len(steps) {
		return fmt.Errorf("there are steps 1 to %d: choose one with `make tutorial STEP=1`", len(steps))
	}
	step := steps[number-1]
	scenes, err := parsePlay(step.page)
	if err != nil {
		return fmt.Errorf("%s: %w", step.dir, err)
	}
	fmt.Printf("Step %d. Read %s/README.md along with it.\n", number, step.dir)
	stage, err := newStage(".", os.Stdout)
	if err != nil {
		return err
	}
	if step.hasProgram {
		defer fmt.Println("\nEverything is stopped and removed.")
	}
	defer stage.close()
	stage.pace = pace
	if step.hasProgram {
		err = prepare(ctx, stage, step)
	}
	if err == nil {
		err = stage.play(ctx, scenes)
	}
	if err != nil || end || !step.hasProgram {
		return err
	}
	fmt.Println("\n# This was the last command. The cluster, and what else still runs, continues. Ctrl-C stops it.")
	fmt.Print(stage.inAnotherTerminal())
	stage.forward(ctx)
	return nil
}

// prepare starts the cluster and builds the programs of a step.
func prepare(ctx context.Context, stage *stage, step step) error {
	fmt.Println("Starting Kubernetes on this machine ...")
	if err := stage.startCluster(); err != nil {
		return err
	}
	if err := stage.build(ctx, step); err != nil {
		return err
	}
	fmt.Print(stage.inAnotherTerminal())
	return nil
}

// inAnotherTerminal returns the lines with which a reader uses the cluster, and the shop of step 5.
func (s *stage) inAnotherTerminal() string {
	return fmt.Sprintf("In another terminal, in this directory, you can use this cluster:\n"+
		"  alias k='bin/localcluster kubectl --dir %s --'\n  export KUBECONFIG=%s SHOP=%s\n",
		filepath.Dir(s.plane.Kubeconfig()), s.plane.Kubeconfig(), s.shop)
}
