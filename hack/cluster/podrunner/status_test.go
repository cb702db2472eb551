//go:build linux

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u", Generation: 3},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
	}
}

func TestTheFirstRestartIsAtOnceAndTheNextOnesWaitLonger(t *testing.T) {
	state := containerState{}
	var delays []time.Duration
	for range 9 {
		state.number++
		state.startedAt = testTime
		delays = append(delays, state.end("id", exitStatus{Code: 1}, "", testTime.Add(time.Second)))
	}
	const s, m = time.Second, time.Minute
	want := []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 5 * m, 5 * m, 5 * m}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	state.startedAt = testTime
	if delay := state.end("id", exitStatus{Code: 1}, "", testTime.Add(11*m)); delay != 0 {
		t.Errorf("after a container that ran for eleven minutes, the delay is %s, want 0", delay)
	}
}

func TestTheStatusFollowsTheContainer(t *testing.T) {
	state := containerState{}
	status := func() corev1.PodStatus { return state.podStatus(newPod(), "127.0.1.1", "10.245.1.2", true, testTime) }
	check := func(what string, phase corev1.PodPhase, ready bool, restarts int32, reason string) {
		t.Helper()
		got := status()
		c := got.ContainerStatuses[0]
		if got.Phase != phase || c.Ready != ready || c.RestartCount != restarts || stateOf(c.State) != reason {
			t.Errorf("%s: %s, ready %t, %d restarts, %s; want %s, %t, %d, %s", what, got.Phase, c.Ready, c.RestartCount,
				stateOf(c.State), phase, ready, restarts, reason)
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			if cond := conditionOf(got, kind); cond.Status != statusOf(ready) || cond.ObservedGeneration != 3 {
				t.Errorf("%s: %s is %+v, want %t of generation 3", what, kind, cond, ready)
			}
		}
	}
	check("before the start", corev1.PodPending, false, 0, "ContainerCreating")
	state.wait("ImagePullBackOff", "not found")
	check("without an image", corev1.PodPending, false, 0, "ImagePullBackOff")
	state.number, state.running, state.startedAt, state.waiting = 1, true, testTime, ""
	check("started", corev1.PodRunning, false, 0, "running")
	state.ready = true
	check("ready", corev1.PodRunning, true, 0, "running")
	state.end("id", exitStatus{Code: 1}, "a reason", testTime)
	check("ended", corev1.PodRunning, false, 0, "Error")
	state.wait("CrashLoopBackOff", "")
	check("waiting for the restart", corev1.PodRunning, false, 0, "CrashLoopBackOff")
	if last := status().ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Message != "a reason" {
		t.Errorf("the last state is %+v, want the end of the first container", last)
	}
	state.number, state.running, state.waiting = 2, true, ""
	check("started again", corev1.PodRunning, false, 1, "running")
	state.end("id", exitStatus{}, "", testTime)
	check("ended with success", corev1.PodRunning, false, 1, "Completed")
}

func stateOf(state corev1.ContainerState) string {
	switch {
	case state.Waiting != nil:
		return state.Waiting.Reason
	case state.Terminated != nil:
		return state.Terminated.Reason
	}
	return "running"
}

func conditionOf(status corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	return status.Conditions[i]
}

func TestTheTimeOfAConditionChangesOnlyWithItsStatusAndConditionsOfOthersStay(t *testing.T) {
	pod := newPod()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	state := containerState{number: 1, running: true}
	pod.Status = state.podStatus(pod, "127.0.1.1", "10.245.1.2", true, testTime)
	pod.Status = state.podStatus(pod, "127.0.1.1", "10.245.1.2", true, testTime.Add(time.Minute))
	if cond := conditionOf(pod.Status, corev1.PodReady); !cond.LastTransitionTime.Time.Equal(testTime) {
		t.Errorf("the condition did not change, and its time is %s", cond.LastTransitionTime)
	}
	state.ready = true
	changed := testTime.Add(2 * time.Minute)
	pod.Status = state.podStatus(pod, "127.0.1.1", "10.245.1.2", true, changed)
	if cond := conditionOf(pod.Status, corev1.PodReady); !cond.LastTransitionTime.Time.Equal(changed) {
		t.Errorf("the condition changed, and its time is %s", cond.LastTransitionTime)
	}
	if cond := conditionOf(pod.Status, corev1.DisruptionTarget); cond.Status != corev1.ConditionTrue {
		t.Errorf("a condition of somebody else is %+v", cond)
	}
}

func TestAnEarlierRunnerIsContinued(t *testing.T) {
	pod := newPod()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		ContainerID: "podrunner://u-3", RestartCount: 2,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(testTime)}},
	}}}
	worker := podWorker{}
	worker.resume(pod)
	if state := worker.state; state.restarts() != 2 || worker.final || state.ended == nil || state.ended.ExitCode != 137 {
		t.Errorf("the state is %+v, want two restarts and an end that nobody has seen", state)
	}
	pod.Status.Phase = corev1.PodSucceeded
	worker = podWorker{}
	worker.resume(pod)
	if !worker.final {
		t.Error("a pod that has completed would be started again")
	}
}
