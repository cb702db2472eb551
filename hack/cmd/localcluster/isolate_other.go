//go:build !linux

package main

import "errors"

// Real nodes need Linux.
const (
	isolateCommand   = "isolated"
	isolatedDir      = "/run/cluster"
	isolatedPrograms = "/run/programs"
)

var errLinux = errors.New("real nodes need Linux; without --node-programs they are simulated")

func isolate(string, string) (int, error) { return 0, errLinux }
func runIsolated([]string) (int, error)   { return 0, errLinux }
func startBridge(string, string) error    { return errLinux }
func makeCgroups(string) error            { return errLinux }
func removeCgroups(string)                {}
func killCgroup(string, string)           {}
func isolated() bool                      { return false }
func outside(func() error) error          { return errLinux }
