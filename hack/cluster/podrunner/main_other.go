//go:build !linux

// Podrunner needs Linux. On other systems it only reports that.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "podrunner: it needs Linux, for namespaces")
	os.Exit(1)
}
