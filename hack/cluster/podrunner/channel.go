//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A channel connects the runner with the sandbox of a pod. Each message is a packet of JSON, with open files if the
// receiver needs them.
type channel struct{ conn *net.UnixConn }

// A message is a request of the runner, the answer to one, or a report that the container has ended. Exactly one field
// except ID and Error is set in a request.
type message struct {
	// ID is that of the request, and the same in its answer. 0 is for what is not an answer.
	ID int `json:"id,omitempty"`
	// Error is the answer to a request that failed.
	Error string `json:"error,omitempty"`

	// Start starts the container. The file is its log.
	Start *containerSpec `json:"start,omitempty"`
	// Signal sends the container a signal.
	Signal int `json:"signal,omitempty"`
	// Dial asks for a connection to an address in the network namespace of the pod. The answer has it as a file.
	Dial string `json:"dial,omitempty"`

	// Exit is a report: the container has ended.
	Exit *exitStatus `json:"exit,omitempty"`
}

// An exitStatus is how a container has ended.
type exitStatus struct {
	// Code is as a shell reports it: 128 and the number of the signal, if a signal ended the process.
	Code int32 `json:"code"`
	// Signal is the signal that ended the process, or 0.
	Signal int32 `json:"signal,omitempty"`
}

// maxMessage is the size of the largest message.
const maxMessage = 256 << 10

// newChannel returns the channel to a new sandbox, and the file that the sandbox gets.
func newChannel() (*channel, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "channel")
	ours, err := channelOf(os.NewFile(uintptr(fds[0]), "channel"))
	if err != nil {
		return nil, nil, err
	}
	// With the default, a large message does not fit.
	if err := unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUF, maxMessage); err != nil {
		return nil, nil, err
	}
	return ours, theirs, nil
}

// channelOf returns the channel whose socket is file. It closes file.
func channelOf(file *os.File) (*channel, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.UnixConn).SetWriteBuffer(maxMessage)
	return &channel{conn: conn.(*net.UnixConn)}, nil
}

// send may be called by several goroutines.
func (c *channel) send(m message, files ...*os.File) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxMessage {
		return fmt.Errorf("a message of %d bytes is too large", len(data))
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.conn.WriteMsgUnix(data, rights, nil)
	return err
}

// receive returns the next message. The caller closes the files.
func (c *channel) receive() (m message, files []*os.File, err error) {
	data, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(data, rights)
	if err != nil {
		return m, nil, err
	}
	controls, err := unix.ParseSocketControlMessage(rights[:oobn])
	if err != nil {
		return m, nil, err
	}
	for i := range controls {
		fds, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			return m, files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return m, files, json.Unmarshal(data[:n], &m)
}
