//go:build !linux

package main

import (
	"errors"
	"net"
)

// Real nodes need Linux.
const (
	isolateCommand    = "isolated"
	isolatedDir       = "/run/cluster"
	isolatedPrograms  = "/run/programs"
	controlListenerFD = 4
)

var errLinux = errors.New("real nodes need Linux; without --node-programs they are simulated")

func isolate(string, string) (int, error)     { return 0, errLinux }
func runIsolated([]string) (int, error)       { return 0, errLinux }
func startBridge(string, string) error        { return errLinux }
func makeCgroups(string) error                { return errLinux }
func removeCgroups(string)                    {}
func inherited(uintptr) (net.Listener, error) { return nil, errLinux }
func isolated() (port int, inside bool)       { return 0, false }
func (c *cluster) forwardAPI() error          { return errLinux }
