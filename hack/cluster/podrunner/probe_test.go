//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestAProbeChangesItsResultAtItsThresholds(t *testing.T) {
	state := probeState{spec: &corev1.Probe{FailureThreshold: 3, SuccessThreshold: 2}}
	for i, step := range []struct{ ok, decided, passes bool }{
		{true, false, false}, {true, true, true}, // Two successes in a row.
		{false, false, true}, {false, false, true}, {true, false, true}, // Two failures are too few.
		{false, false, true}, {false, false, true}, {false, true, false},
		{true, false, false}, {false, false, false}, {true, false, false}, {true, true, true},
	} {
		if decided := state.add(step.ok); decided != step.decided || state.passes != step.passes {
			t.Errorf("result %d, %t: decided %t, passes %t; want %t, %t", i, step.ok, decided, state.passes, step.decided,
				step.passes)
		}
	}
}

func TestAProbeIsCalledAfterItsDelayAndThenInEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin, errRefused := time.Now(), errors.New("refused")
		var calls []time.Duration
		p := &prober{
			spec: &corev1.Probe{
				InitialDelaySeconds: 3, PeriodSeconds: 10,
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80), Scheme: "HTTP"}},
			},
			podIP: "10.245.1.2",
			dial: func(_ context.Context, address string) (net.Conn, error) {
				calls = append(calls, time.Since(begin))
				if address != "10.245.1.2:80" {
					t.Errorf("it connects to %s", address)
				}
				return nil, errRefused
			},
		}
		go p.run(ctx, func(err error) {
			if !errors.Is(err, errRefused) {
				t.Errorf("the result is %v, want %v", err, errRefused)
			}
		})
		time.Sleep(25 * time.Second)
		cancel()
		synctest.Wait()
		if len(calls) != 3 || calls[0] != 3*time.Second || calls[1] != 13*time.Second || calls[2] != 23*time.Second {
			t.Errorf("calls at %v, want 3, 13 and 23 s", calls)
		}
	})
}

func TestAnHTTPProbeUsesPortNamesHeadersAndStatusCodes(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.String() != "/healthz?full=1" || req.Header.Get("X-Probe") != "yes" || req.Host != "name.example" {
			t.Errorf("request of %s, %v for %s", req.URL, req.Header, req.Host)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("the reason"))
	}))
	defer server.Close()
	p := &prober{
		spec: &corev1.Probe{TimeoutSeconds: 30, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/healthz?full=1", Port: intstr.FromString("health"), Scheme: corev1.URISchemeHTTPS,
			HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Probe", Value: "yes"}, {Name: "Host", Value: "name.example"}},
		}}},
		container: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: 8081}}},
		podIP:     "10.245.1.2",
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			if address != "10.245.1.2:8081" {
				t.Errorf("it connects to %s", address)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}
	for code, ok := range map[int]bool{200: true, 302: true, 399: true, 400: false, 500: false} {
		status = code
		err := p.call(t.Context())
		if (err == nil) != ok {
			t.Errorf("status %d: %v", code, err)
		}
		if !ok && !strings.Contains(err.Error(), "the reason") {
			t.Errorf("status %d: the error has no reason: %v", code, err)
		}
	}
	p.spec.HTTPGet.Port = intstr.FromString("other")
	if err := p.call(t.Context()); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a port that does not exist: %v", err)
	}
}
