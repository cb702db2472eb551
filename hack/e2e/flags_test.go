package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the real tables of flags and of the chart's values into their pages")

const operationsPage = "docs/operations.md"

// The table of flags in docs/operations.md is that of --help, which prints the definitions in pkg/kit.
func TestOperationsHasTheFlags(t *testing.T) {
	if testing.Short() {
		t.Skip(skipped)
	}
	help, err := exec.Command(controllerBinary, "--help").Output()
	if err != nil {
		t.Fatalf("%v: `make %s` builds it", err, controllerBinary)
	}
	want := flagsTable(string(help))
	if flags, rows := strings.Count(string(help), "\n  --"), strings.Count(want, "\n| `--"); rows != flags || rows == 0 {
		t.Fatalf("--help has %d flags, and the table %d", flags, rows)
	}
	checkTable(t, operationsPage, "flag", want)
}

// checkTable compares the table of a page that begins with a word. With -rewrite, it writes the table.
func checkTable(t *testing.T, file, first, want string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?m)^\| ` + first + ` \| default \| meaning \|\n(?:\|.*\n)+`)
	have := table.FindString(string(page))
	if *rewrite {
		rewritten := strings.Replace(string(page), have, want, 1)
		if err := os.WriteFile(file, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s has another table: run this test with -rewrite (-want +have):\n%s", file, diff)
	}
}

// flagsTable returns the flags that --help prints as a table.
func flagsTable(help string) string {
	var table strings.Builder
	table.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
	// A flag has two lines: its name with the kind of its value, and its meaning with its default.
	lines := regexp.MustCompile(`(?m)^  --(\S+)(?: (\S+))?\n      (.*?)(?: \(default (\S+)\))?$`)
	for _, found := range lines.FindAllStringSubmatch(help, -1) {
		name, kind, meaning, value := found[1], found[2], found[3], found[4]
		if kind != "" {
			name += "=" + strings.ToUpper(kind)
		}
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", name, value, meaning)
	}
	return table.String()
}
