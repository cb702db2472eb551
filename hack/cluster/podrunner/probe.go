//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A probeKind is one of the three probes.
type probeKind string

const (
	startup   probeKind = "Startup"
	liveness  probeKind = "Liveness"
	readiness probeKind = "Readiness"
)

// A probeState counts the results of one probe. The probe succeeds or fails when it has its threshold of equal results.
type probeState struct {
	spec *corev1.Probe
	// passes is the result at the last threshold that was reached, false before the first one.
	passes    bool
	last      bool
	sameSoFar int32
}

// add counts a result and reports whether its threshold is reached; passes is then that result.
func (p *probeState) add(ok bool) (decided bool) {
	if p.sameSoFar == 0 || p.last != ok {
		p.last, p.sameSoFar = ok, 0
	}
	p.sameSoFar++
	threshold := max(1, p.spec.FailureThreshold)
	if ok {
		threshold = max(1, p.spec.SuccessThreshold)
	}
	if p.sameSoFar < threshold {
		return false
	}
	p.passes = ok
	return true
}

// A probeResult is the result of one call. err is nil if it succeeded.
type probeResult struct {
	kind probeKind
	// container is the number of the container that was probed: a result may come after the container has ended.
	container int32
	err       error
}

// A prober calls one probe until ctx ends.
type prober struct {
	kind      probeKind
	spec      *corev1.Probe
	container *corev1.Container
	podIP     string
	dial      func(ctx context.Context, address string) (net.Conn, error)
}

// run calls the probe, first after its initial delay, and then in each period. send gets the results.
func (p *prober) run(ctx context.Context, send func(error)) {
	delay := time.NewTimer(time.Duration(p.spec.InitialDelaySeconds) * time.Second)
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return
	case <-delay.C:
	}
	ticker := time.NewTicker(time.Duration(max(1, p.spec.PeriodSeconds)) * time.Second)
	defer ticker.Stop()
	for {
		send(p.call(ctx))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// call calls the probe once.
func (p *prober) call(ctx context.Context) error {
	timeout := time.Duration(max(1, p.spec.TimeoutSeconds)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p.get(ctx)
}

// get makes the request of an HTTP probe. A status from 200 to 399 is a success.
func (p *prober) get(ctx context.Context) error {
	spec := p.spec.HTTPGet
	address, err := p.address(spec.Host, spec.Port)
	if err != nil {
		return err
	}
	target, err := url.Parse(spec.Path)
	if err != nil {
		return err
	}
	target.Scheme, target.Host = strings.ToLower(string(spec.Scheme)), address
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/podrunner")
	for _, header := range spec.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
		}
	}
	resp, err := p.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 10<<10))
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("HTTP probe failed with statuscode: %d: %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

// client returns a client for one request, through the network of the pod.
func (p *prober) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return p.dial(ctx, address) },
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // As the kubelet does.
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// address returns the address of a probe. Without a host, it is the pod.
func (p *prober) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = p.podIP
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, named := range p.container.Ports {
		if named.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(named.ContainerPort))), nil
		}
	}
	return "", fmt.Errorf("the container has no port named %s", port.StrVal)
}
