//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// A logServer answers `kubectl logs`, for which the API server connects to the node. It needs no permission, so it
// listens on loopback only.
type logServer struct {
	listener net.Listener
	server   *http.Server
	runner   *runner
}

func newLogServer(l net.Listener, r *runner) (*logServer, error) {
	certificate, private, err := cert.GenerateSelfSignedCertKey(nodeName, []net.IP{net.ParseIP(r.ip)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return nil, err
	}
	s := &logServer{runner: r}
	s.listener = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.logs)
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return s, nil
}

func (s *logServer) serve() { _ = s.server.Serve(s.listener) } // It ends with close.

func (s *logServer) close() { _ = s.server.Close() }

// logs writes the log of a container. Of the options, it knows follow, previous, limitBytes and tailLines.
func (s *logServer) logs(w http.ResponseWriter, req *http.Request) {
	pod, restarts, ok := s.find(req)
	if ok && req.FormValue("previous") == "true" {
		restarts--
	}
	file, err := os.Open(s.runner.logFile(pod, restarts))
	if !ok || err != nil {
		http.Error(w, "no such container has run", http.StatusNotFound)
		return
	}
	defer file.Close()
	if lines, err := strconv.Atoi(req.FormValue("tailLines")); err == nil {
		if err := seekLines(file, lines); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.WriteHeader(http.StatusOK)
	follow := req.FormValue("follow") == "true"
	content := io.Reader(file)
	if limit, err := strconv.ParseInt(req.FormValue("limitBytes"), 10, 64); err == nil {
		content = io.LimitReader(file, limit)
	}
	for {
		if _, err := io.Copy(w, content); err != nil || !follow {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-req.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		_, now, ok := s.find(req)
		follow = ok && now == restarts // After the container has ended, the rest is copied once more.
	}
}

// find returns the pod of a request, and the number of the last restart.
func (s *logServer) find(req *http.Request) (pod *corev1.Pod, restarts int32, ok bool) {
	s.runner.mu.Lock()
	defer s.runner.mu.Unlock()
	pod = &corev1.Pod{}
	for _, worker := range s.runner.workers {
		latest, _ := worker.latest()
		if key(latest) != req.PathValue("namespace")+"/"+req.PathValue("pod") || len(latest.Status.ContainerStatuses) == 0 {
			continue
		}
		return latest, latest.Status.ContainerStatuses[0].RestartCount, true
	}
	return pod, 0, false
}

// seekLines moves to the last lines of a file.
func seekLines(file *os.File, lines int) error {
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	begin := len(data)
	for range lines + 1 {
		begin = bytes.LastIndexByte(data[:max(begin, 0)], '\n')
		if begin < 0 {
			break
		}
	}
	_, err = file.Seek(int64(begin+1), io.SeekStart)
	return err
}
