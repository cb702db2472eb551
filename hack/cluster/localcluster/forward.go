package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// listen makes a listener on loopback of this machine, which is outside of the namespaces of real nodes.
func listen(address string) (listener net.Listener, err error) {
	makeSocket := func() error {
		listener, err = net.Listen("tcp", address)
		return err
	}
	if isolated() {
		err = outside(makeSocket)
	} else {
		err = makeSocket()
	}
	return listener, err
}

// forwardPorts lets this machine and pods reach the API server, and the nodes a registry of this machine.
func (c *cluster) forwardPorts(machine net.Listener, registryPort int) error {
	service, err := net.Listen("tcp", serviceAddress+":443")
	if err != nil {
		return err
	}
	dialServer := func() (net.Conn, error) { return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.port(apiServer))) }
	go forward(machine, dialServer)
	go forward(service, dialServer)
	if registryPort == 0 {
		return nil
	}
	address := fmt.Sprintf("127.0.0.1:%d", registryPort)
	registry, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go forward(registry, func() (server net.Conn, err error) {
		err = outside(func() error {
			server, err = net.Dial("tcp", address)
			return err
		})
		return server, err
	})
	return nil
}

// forward connects each connection of a listener with one that dial makes, until the listener is closed.
func forward(listener net.Listener, dial func() (net.Conn, error)) {
	for {
		from, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // For example, there are no file descriptors left.
			printLine("forward %s: %v", listener.Addr(), err)
			time.Sleep(pollInterval)
			continue
		}
		go func() {
			defer from.Close()
			server, err := dial()
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				io.Copy(server, from)
				server.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(from, server)
		}()
	}
}
