package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// controlFile has the address on which the running "up" listens for "localcluster kill" and "start", and a
// token that proves that the client may read the directory of the cluster. It uses loopback TCP, because
// the path of a Unix socket is limited to about a hundred bytes, and directories of tests have long paths.
const controlFile = "control.json"

type controlAccess struct {
	Address string `json:"address"`
	Token   string `json:"token"`
}

// serveControl serves requests to kill and start components until the returned function is called.
func (c *cluster) serveControl(ctx context.Context) (func(), error) {
	listener, err := listen("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for kill and start: %w", err)
	}
	access := controlAccess{Address: listener.Addr().String(), Token: rand.Text()}
	data, err := json.Marshal(access)
	if err != nil {
		return nil, err
	}
	if err := writeFile(c.file(controlFile), data); err != nil {
		return nil, fmt.Errorf("write %s: %w", controlFile, err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill/{component}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, c.kill(r.PathValue("component")))
	})
	mux.HandleFunc("POST /start/{component}", func(w http.ResponseWriter, r *http.Request) {
		// Not r.Context(), because a start continues when its client has gone away.
		answer(w, c.startAgain(ctx, r.PathValue("component")))
	})
	mux.HandleFunc("POST /load", c.serveLoad)
	server := &http.Server{Handler: authorized(access.Token, mux), ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener) // Until closed.
	return func() {
		// Running requests still get a response, above all the one that the component died.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ctx)
	}, nil
}

func authorized(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1 {
			http.Error(w, "this is not your cluster", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// kill ends a component with SIGKILL.
func (c *cluster) kill(name string) error {
	if i := slices.IndexFunc(c.nodes, func(n realNode) bool { return n.name() == name }); i >= 0 {
		return c.nodes[i].kill(c)
	}
	p := c.children.process(name)
	if p == nil {
		return c.notRunning(name)
	}
	p.kill()
	printLine("%s: killed, as asked", name)
	return nil
}

func (c *cluster) notRunning(name string) error {
	if !isComponent(c.components, name) {
		return fmt.Errorf("this cluster has no %s, only %s", name, strings.Join(componentNames(c.components), ", "))
	}
	return fmt.Errorf("%s is not running", name)
}

// startAgain starts a component that was killed, with its former port and data. It returns when all running
// components are healthy, because an API server needs a moment after etcd is back.
func (c *cluster) startAgain(ctx context.Context, name string) error {
	isNode := slices.ContainsFunc(c.nodes, func(n realNode) bool { return n.name() == name })
	if !isNode && !isComponent(c.components, name) {
		return c.notRunning(name)
	}
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	var err error
	for _, comp := range c.components {
		if comp.name == name || err == nil && strings.HasSuffix(comp.name, "-"+name) { // The components of a node.
			err = c.run(ctx, comp)
		}
	}
	var death *deathError
	if errors.As(err, &death) {
		c.end(err) // The death of any component ends the cluster.
	}
	if err != nil {
		return err
	}
	for _, comp := range c.components {
		p := c.children.process(comp.name)
		if p == nil {
			continue // This component was killed too.
		}
		if err := c.awaitHealthy(ctx, comp, p); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a request to the "up" that runs in dir. what describes it.
func ask(dir, what, path string) error {
	notUp := fmt.Errorf("no cluster is running in %s (start one with: bin/localcluster up --dir %s)", dir, quoted(dir))
	data, err := os.ReadFile(filepath.Join(dir, controlFile))
	if errors.Is(err, fs.ErrNotExist) || !isLocked(dir) {
		return notUp
	}
	if err != nil {
		return fmt.Errorf("find the running cluster: %w", err)
	}
	var access controlAccess
	if err := json.Unmarshal(data, &access); err != nil {
		return fmt.Errorf("read %s: %w", controlFile, err)
	}
	req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://%s/%s", access.Address, path), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+access.Token)
	resp, err := (&http.Client{Timeout: startDeadline + 10*time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("ask the running cluster to %s: %w", what, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask the running cluster to %s: %w", what, err)
	}
	return errors.New(strings.TrimSpace(string(body)))
}

// isLocked reports whether an "up" runs in dir. The control file proves nothing: an "up" that was killed
// leaves it behind, and another process may use the address now.
func isLocked(dir string) bool {
	lock, err := lockDir(dir)
	if err != nil {
		return true
	}
	lock.Close()
	return false
}

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
func (c *cluster) forwardPorts() error {
	service, err := net.Listen("tcp", serviceAddress+":443")
	if err != nil {
		return err
	}
	dialServer := func() (net.Conn, error) { return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.port(apiServer))) }
	go forward(c.machine, dialServer)
	go forward(service, dialServer)
	if c.registryPort == 0 {
		return nil
	}
	address := fmt.Sprintf("127.0.0.1:%d", c.registryPort)
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
