//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A podSandbox is the runner's side of a sandbox.
type podSandbox struct {
	process *exec.Cmd
	channel *channel
	// api is the socket at which the pod reaches the API server.
	api net.Listener
	// exits gets the end of each container. It is closed when the sandbox has ended.
	exits chan exitStatus

	mu      sync.Mutex
	next    int                     // guarded by mu
	pending map[int]chan<- received // guarded by mu; nil when the sandbox has ended
}

// A received is an answer of the sandbox.
type received struct {
	message
	files []*os.File
}

var errSandboxEnded = errors.New("the sandbox of the pod has ended")

// startSandbox starts a sandbox for a container with these IDs, and waits until it can start the container.
func startSandbox(spec sandboxSpec, uid, gid int) (_ *podSandbox, err error) {
	ch, theirs, err := newChannel()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ch.conn.Close()
		}
	}()
	cmd := newSandboxProcess(theirs, uid, gid)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	s := &podSandbox{process: cmd, channel: ch, exits: make(chan exitStatus, 1), pending: map[int]chan<- received{}}
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	if err := json.NewEncoder(stdin).Encode(spec); err != nil {
		return nil, err
	}
	stdin.Close()
	ready, files, err := ch.receive()
	if err != nil {
		return nil, errSandboxEnded
	}
	if ready.Error != "" {
		return nil, errors.New(ready.Error)
	}
	defer files[0].Close()
	if s.api, err = net.FileListener(files[0]); err != nil {
		return nil, err
	}
	go s.receive()
	return s, nil
}

// receive passes on what the sandbox sends, until it ends.
func (s *podSandbox) receive() {
	defer close(s.exits)
	for {
		m, files, err := s.channel.receive()
		if err != nil {
			break
		}
		if m.Exit != nil {
			s.exits <- *m.Exit
			continue
		}
		s.mu.Lock()
		answer := s.pending[m.ID]
		delete(s.pending, m.ID)
		s.mu.Unlock()
		if answer == nil { // The request was given up.
			closeAll(files)
			continue
		}
		answer <- received{message: m, files: files}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, answer := range s.pending {
		close(answer)
	}
	s.pending = nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// ask sends a request and waits for the answer.
func (s *podSandbox) ask(ctx context.Context, m message, files ...*os.File) ([]*os.File, error) {
	answer := make(chan received, 1)
	s.mu.Lock()
	if s.pending == nil {
		s.mu.Unlock()
		return nil, errSandboxEnded
	}
	s.next++
	m.ID = s.next
	s.pending[m.ID] = answer
	s.mu.Unlock()
	if err := s.channel.send(m, files...); err != nil {
		return nil, err
	}
	select {
	case r, ok := <-answer:
		if !ok {
			return nil, errSandboxEnded
		}
		if r.Error != "" {
			return nil, errors.New(r.Error)
		}
		return r.files, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.pending, m.ID)
		s.mu.Unlock()
		select {
		case r := <-answer: // It came just now.
			closeAll(r.files)
		default:
		}
		return nil, ctx.Err()
	}
}

// start starts a container that writes its output to log.
func (s *podSandbox) start(ctx context.Context, spec *containerSpec, log *os.File) error {
	_, err := s.ask(ctx, message{Start: spec}, log)
	return err
}

// signal sends the container a signal.
func (s *podSandbox) signal(ctx context.Context, signal syscall.Signal) error {
	_, err := s.ask(ctx, message{Signal: int(signal)})
	return err
}

// dial connects to an address in the network of the pod.
func (s *podSandbox) dial(ctx context.Context, address string) (net.Conn, error) {
	files, err := s.ask(ctx, message{Dial: address})
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	return net.FileConn(files[0])
}

// stop ends the sandbox and all that runs in it.
func (s *podSandbox) stop() {
	s.api.Close()
	_ = s.process.Process.Kill() // The kernel ends all other processes of the pod.
	_ = s.process.Wait()
	s.channel.conn.Close()
}

// forward accepts connections at l, and connects each with one that dial returns, until l is closed.
func forward(l net.Listener, dial func(context.Context) (net.Conn, error)) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := dial(context.Background())
			if err != nil {
				return
			}
			defer to.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				copyHalf(from, to)
			}()
			copyHalf(to, from)
			<-done
		}()
	}
}

// copyHalf copies one direction of a connection, including its end.
func copyHalf(to, from net.Conn) {
	_, _ = io.Copy(to, from) // An error ends the connection, which both ends notice.
	_ = to.(interface{ CloseWrite() error }).CloseWrite()
}
