//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// This file starts the probes of a pod, and acts on their results.

// beginProbes starts the startup probe, or the others if the container has no startup probe.
func (w *podWorker) beginProbes(ctx context.Context, pod *corev1.Pod) {
	c := &pod.Spec.Containers[0]
	ctx, w.stopProbes = context.WithCancel(ctx)
	w.probes = map[probeKind]*probeState{}
	if c.StartupProbe != nil {
		w.begin(ctx, c, startup, c.StartupProbe)
		return
	}
	w.beginOtherProbes(ctx, c)
}

// beginOtherProbes is called when the container has started.
func (w *podWorker) beginOtherProbes(ctx context.Context, c *corev1.Container) {
	w.state.started = true
	w.state.ready = c.ReadinessProbe == nil
	if c.LivenessProbe != nil {
		w.begin(ctx, c, liveness, c.LivenessProbe)
	}
	if c.ReadinessProbe != nil {
		w.begin(ctx, c, readiness, c.ReadinessProbe)
	}
}

func (w *podWorker) begin(ctx context.Context, c *corev1.Container, kind probeKind, spec *corev1.Probe) {
	w.probes[kind] = &probeState{spec: spec}
	number := w.state.number
	p := &prober{kind: kind, spec: spec, container: c, podIP: w.ip, dial: w.sandbox.dial}
	go p.run(ctx, func(err error) {
		select {
		case w.results <- probeResult{kind: kind, container: number, err: err}:
		case <-ctx.Done():
		}
	})
}

func (w *podWorker) endProbes() {
	if w.stopProbes != nil {
		w.stopProbes()
	}
}

// probed records the result of a probe, and acts on it when its threshold is reached.
func (w *podWorker) probed(ctx context.Context, result probeResult) {
	pod, _ := w.latest()
	state := w.probes[result.kind]
	if !w.state.running || result.container != w.state.number || state == nil {
		return
	}
	if result.err != nil {
		w.runner.event(pod, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %v", result.kind, result.err))
	}
	if !state.add(result.err == nil) {
		return
	}
	switch {
	case result.kind == readiness:
		w.state.ready = state.passes
	case !state.passes && !w.stopping:
		c := &pod.Spec.Containers[0]
		why := fmt.Sprintf("Container %s failed %s probe, will be restarted", c.Name, strings.ToLower(string(result.kind)))
		grace := gracePeriod(pod)
		if seconds := state.spec.TerminationGracePeriodSeconds; seconds != nil {
			grace = time.Duration(*seconds) * time.Second
		}
		w.stop(context.WithoutCancel(ctx), pod, why, grace)
	case result.kind == startup && !w.state.started:
		delete(w.probes, startup)
		w.endProbes()
		ctx, w.stopProbes = context.WithCancel(context.WithoutCancel(ctx))
		w.beginOtherProbes(ctx, &pod.Spec.Containers[0])
	}
}
