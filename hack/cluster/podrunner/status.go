//go:build linux

package main

import (
	"fmt"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file decides the status of a pod. It is pure.

const (
	// A container that ended is started again at once the first time. Then it waits, and longer each time, as with the
	// kubelet.
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	// backoffReset is how long a container must run until its next failure counts as the first.
	backoffReset = 10 * time.Minute
)

// A containerState is what is known about the container of a pod.
type containerState struct {
	// number is that of the last container, from 1. 0 before the first.
	number  int32
	imageID string
	// running is set between start and end.
	running            bool
	startedAt          time.Time
	started, ready     bool // As the probes answer.
	waiting, waitingIs string
	// ended is the end of the last container, nil if no container has ended.
	ended *corev1.ContainerStateTerminated
	// failures counts the containers that ended since the last one that ran for long.
	failures int
}

// restarts is what the status reports.
func (s *containerState) restarts() int32 { return max(0, s.number-1) }

// end records how a container has ended, and returns how long to wait before the next one.
func (s *containerState) end(id string, exit exitStatus, message string, now time.Time) time.Duration {
	reason := "Completed"
	if exit.Code != 0 {
		reason = "Error"
	}
	s.ended = &corev1.ContainerStateTerminated{
		ExitCode: exit.Code, Signal: exit.Signal, Reason: reason, Message: message,
		StartedAt: metav1.NewTime(s.startedAt), FinishedAt: metav1.NewTime(now), ContainerID: id,
	}
	ran := now.Sub(s.startedAt)
	s.running, s.started, s.ready = false, false, false
	if ran > backoffReset {
		s.failures = 0
	}
	s.failures++
	return backoff(s.failures)
}

// backoff returns how long to wait after so many failures.
func backoff(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	delay := firstBackoff
	for range failures - 2 {
		delay = min(2*delay, maxBackoff)
	}
	return delay
}

// wait records why there is no container at present.
func (s *containerState) wait(reason, message string) { s.waiting, s.waitingIs = reason, message }

// podStatus returns the status of a pod. hasSandbox means that it has its network.
func (s *containerState) podStatus(pod *corev1.Pod, nodeIP, podIP string, hasSandbox bool,
	now time.Time) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	status.Phase = s.phase()
	status.HostIP, status.HostIPs = nodeIP, []corev1.HostIP{{IP: nodeIP}}
	if status.StartTime == nil {
		status.StartTime = new(metav1.NewTime(now))
	}
	if podIP != "" {
		status.PodIP, status.PodIPs = podIP, []corev1.PodIP{{IP: podIP}}
	}
	status.ContainerStatuses = []corev1.ContainerStatus{s.containerStatus(pod)}

	reason, message := "", ""
	if !s.ready {
		reason = "ContainersNotReady"
		message = fmt.Sprintf("containers with unready status: [%s]", pod.Spec.Containers[0].Name)
	}
	set := func(kind corev1.PodConditionType, is bool, reason, message string) {
		setCondition(&status, corev1.PodCondition{
			Type: kind, Status: statusOf(is), Reason: reason, Message: message, ObservedGeneration: pod.Generation,
			LastTransitionTime: metav1.NewTime(now),
		})
	}
	set(corev1.PodReadyToStartContainers, hasSandbox, "", "")
	set(corev1.PodInitialized, true, "", "")
	set(corev1.ContainersReady, s.ready, reason, message)
	set(corev1.PodReady, s.ready, reason, message)
	return status
}

func (s *containerState) phase() corev1.PodPhase {
	if s.number == 0 {
		return corev1.PodPending
	}
	return corev1.PodRunning // Also between two containers, because the restart policy is Always.
}

func (s *containerState) containerStatus(pod *corev1.Pod) corev1.ContainerStatus {
	c := corev1.ContainerStatus{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, ImageID: s.imageID,
		RestartCount: s.restarts(), Ready: s.ready, Started: new(s.started),
	}
	if s.number > 0 {
		c.ContainerID = containerID(pod, s.number)
	}
	switch {
	case s.running:
		c.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.startedAt)}
		c.LastTerminationState.Terminated = s.ended
	case s.waiting != "":
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: s.waiting, Message: s.waitingIs}
		c.LastTerminationState.Terminated = s.ended
	case s.ended != nil:
		c.State.Terminated = s.ended
	default:
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return c
}

func containerID(pod *corev1.Pod, number int32) string {
	return fmt.Sprintf("podrunner://%s-%d", pod.UID, number)
}

// setCondition sets a condition. Its time changes only with its status.
func setCondition(status *corev1.PodStatus, cond corev1.PodCondition) {
	for i, have := range status.Conditions {
		if have.Type != cond.Type {
			continue
		}
		if have.Status == cond.Status {
			cond.LastTransitionTime = have.LastTransitionTime
		}
		status.Conditions[i] = cond
		return
	}
	status.Conditions = append(status.Conditions, cond)
}

func statusOf(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// killed is the exit of a container whose sandbox was killed.
var killed = exitStatus{Code: 128 + int32(syscall.SIGKILL), Signal: int32(syscall.SIGKILL)}
