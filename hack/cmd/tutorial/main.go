// Command tutorial plays a step of docs/tutorial. `make tutorial STEP=2` runs it.
//
// The page of each step has the transcript of a terminal: commands, and their output. The command tutorial starts a
// local control plane, runs these commands, and prints the output that they really have. The tests of this package do
// the same and compare. So the transcripts in the pages are the plays, and cannot be wrong.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/foo-controller/hack/tools/controlplane"
	"example.com/foo-controller/hack/tools/pages"
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

// stepsDir has a folder for each step, such as 1-ask-again.
const stepsDir = "docs/tutorial"

// A step is a step of the tutorial.
type step struct {
	number int
	// dir is its folder, from the root of the repository, and program the name of its program: the folder's name without
	// the number.
	dir, program string
	page         string // The text of its README.md.
	hasProgram   bool   // False for a step that has only commands.
	needsCluster bool   // False for the step that reads the controller, which has faults.
}

// readSteps returns all steps in their order.
func readSteps(root string) ([]step, error) {
	pages, err := filepath.Glob(filepath.Join(root, stepsDir, "[1-9]*-*/README.md"))
	var steps []step
	for _, file := range pages {
		page, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		folder := filepath.Base(filepath.Dir(file))
		number, program, _ := strings.Cut(folder, "-")
		s := step{dir: stepsDir + "/" + folder, program: program, page: string(page)}
		if s.number, err = strconv.Atoi(number); err != nil {
			return nil, err
		}
		_, noProgram := os.Stat(filepath.Join(filepath.Dir(file), "main.go"))
		_, noFaults := os.Stat(filepath.Join(filepath.Dir(file), "faults.txt"))
		s.hasProgram, s.needsCluster = noProgram == nil, noFaults != nil
		steps = append(steps, s)
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.number, b.number) })
	return steps, err
}

// scenes returns the scenes of the page: the test TestPlays plays them, too.
func (s step) scenes() []pages.Scene { return pages.Scenes(s.page, "TestPlays") }

// A stage is where the steps are played: a shell and, after startCluster, a control plane.
type stage struct {
	pages.Stage
	plane *controlplane.ControlPlane
	dir   string // The directory of the control plane. Its bin has the commands of the pages.
}

func newStage(root string, out io.Writer) (*stage, error) {
	root, err := filepath.Abs(root)
	return &stage{Stage: pages.Stage{Root: root, Out: out}}, err
}

// startCluster starts a control plane with the kind Foo. It writes the file env, which makes the commands of the pages
// known: to the play, and to a person in another terminal.
func (s *stage) startCluster() (err error) {
	if s.plane, err = controlplane.Start(s.Root); err != nil {
		return err
	}
	s.dir = filepath.Dir(s.plane.Kubeconfig())
	shop, err := freeAddress()
	if err != nil {
		return err
	}
	hook, err := freeAddress()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o700); err != nil {
		return err
	}
	bin := filepath.Join(s.Root, "bin")
	for name, text := range map[string]string{
		"bin/kubectl":      fmt.Sprintf("#!/bin/sh\nexec '%s/localcluster' kubectl --dir '%s' -- \"$@\"\n", bin, s.dir),
		"bin/localcluster": fmt.Sprintf("#!/bin/sh\nexec '%s/localcluster' \"$@\" --dir '%s'\n", bin, s.dir),
		"env": fmt.Sprintf("# source this file: the commands of the pages work, and k is kubectl.\n"+
			"unalias k 2>/dev/null || true\nk() { kubectl \"$@\"; }\n"+
			"export KUBECONFIG='%s' SHOP=%s HOOK=%s PATH='%s/bin:%s':\"$PATH\"\n", s.plane.Kubeconfig(), shop, hook, s.dir, bin),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o700); err != nil {
			return err
		}
	}
	s.Prelude = fmt.Sprintf("source '%s/env'", s.dir)
	return s.plane.Install(filepath.Join(s.Root, "artifacts/crd"))
}

// freeAddress returns an address on which nothing listens, for the shop of step 6 and the webhook of step 10. Its port
// is below those that systems take for outgoing connections: these programs are started later, and twice.
func freeAddress() (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(10000))
		if listener, err := net.Listen("tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("no port is free")
}

// close ends all programs and the control plane, and removes their files.
func (s *stage) close() {
	s.Close()
	if s.plane != nil {
		s.plane.Stop()
	}
}

// build builds the programs of a step, so that the shell finds them: main.go, and those in folders below it. Each has
// the name of its folder, without the number. The program of the step is also there as "second": a play has one program
// of a name.
func (s *stage) build(ctx context.Context, step step) error {
	if !step.hasProgram {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.Root, step.dir, "*/main.go"))
	if err != nil {
		return err
	}
	for _, dir := range append(files, filepath.Join(s.Root, step.dir, "main.go")) {
		dir = filepath.Dir(dir)
		name := strings.TrimLeft(filepath.Base(dir), "0123456789-")
		cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(s.dir, "bin", name), ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", dir, err, out)
		}
	}
	second := filepath.Join(s.dir, "bin", "second")
	if err := os.Remove(second); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(step.program, second)
}
