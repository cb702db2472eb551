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
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
)

// retryAfter is how long to wait after a failure that has no other delay, such as a status that cannot be written.
const retryAfter = time.Second

// How long to wait before the next attempt if a container cannot start, for instance without an image. The delay
// doubles from the first to the longest.
const firstStartDelay, maxStartDelay = 500 * time.Millisecond, 15 * time.Second

// A podWorker runs one pod, in a goroutine of its own. Everything that happens to the pod comes to this goroutine: a
// change of the object, the end of the container, the result of a probe, a time that has come.
type podWorker struct {
	runner *runner
	// changed has an element when the pod has changed. results has those of the probes.
	changed chan struct{}
	results chan probeResult

	mu  sync.Mutex
	pod *corev1.Pod // guarded by mu; the latest version
	// gone means that the object does not exist any more.
	gone bool // guarded by mu

	// The fields below belong to the goroutine.

	ip      string
	volumes volumes
	sandbox *podSandbox
	// outside are the sockets of the machine at which the ports of the pod are reached.
	outside []net.Listener
	state   containerState
	// final means that somebody else has reported that the pod has ended, so it is neither started nor reported.
	final      bool
	probes     map[probeKind]*probeState
	stopProbes context.CancelFunc
	logFile    string
	// stopping means that the container was asked to stop. killAt is when it is killed, startAt when it may start.
	stopping, signalled bool
	killAt, startAt     time.Time
	// startFailures and startFailed are how often in a row no container could start, and the last reason.
	startFailures int
	startFailed   string
	// retryAt is when to try again what has failed; zero if nothing has.
	retryAt time.Time
	// reported is the status that was written last.
	reported *corev1.PodStatus
}

// update gives the worker the latest version of the pod, or nil when the object is gone.
func (w *podWorker) update(pod *corev1.Pod) {
	w.mu.Lock()
	w.gone = pod == nil
	if pod != nil {
		w.pod = pod
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *podWorker) latest() (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

// run runs the pod until it is deleted or ctx ends. Then it stops the container.
func (w *podWorker) run(ctx context.Context) {
	defer w.tearDown()
	pod, _ := w.latest()
	w.resume(pod)
	for {
		pod, gone := w.latest()
		end := gone || pod.DeletionTimestamp != nil || ctx.Err() != nil
		if !w.step(context.WithoutCancel(ctx), pod, end) {
			w.finish(ctx, pod, gone)
			return
		}
		w.await(ctx, end)
	}
}

// resume continues the counts of a pod that an earlier runner has run.
func (w *podWorker) resume(pod *corev1.Pod) {
	w.final = pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for _, before := range pod.Status.ContainerStatuses {
		if before.ContainerID == "" {
			continue
		}
		w.state.number = before.RestartCount + 1
		w.state.ended = before.LastTerminationState.Terminated
		switch {
		case before.State.Terminated != nil:
			w.state.ended = before.State.Terminated
		case before.State.Running != nil: // It ended with the runner.
			w.state.ended = &corev1.ContainerStateTerminated{
				ExitCode: killed.Code, Reason: "ContainerStatusUnknown", StartedAt: before.State.Running.StartedAt,
				FinishedAt: metav1.Now(), ContainerID: before.ContainerID,
				Message: "The container could not be located: its node was started again",
			}
		}
	}
}

// step does what is due. It returns false when the pod has ended.
func (w *podWorker) step(ctx context.Context, pod *corev1.Pod, end bool) (goOn bool) {
	now := time.Now()
	w.retryAt = time.Time{}
	switch {
	case w.state.running:
		w.stepRunning(ctx, pod, end, now)
	case end:
		return false
	case !w.final && !now.Before(w.startAt):
		w.start(ctx, pod)
	}
	w.report(ctx, pod)
	return true
}

func (w *podWorker) stepRunning(ctx context.Context, pod *corev1.Pod, end bool, now time.Time) {
	if end && !w.stopping {
		w.stop(ctx, pod, "Stopping container "+pod.Spec.Containers[0].Name, gracePeriod(pod))
	}
	// A second deletion, or one after a failed probe, may leave less time.
	if sooner := now.Add(gracePeriod(pod)); end && sooner.Before(w.killAt) {
		w.killAt = sooner
	}
	if w.stopping && !w.signalled && !now.Before(w.killAt) {
		w.signalled = true
		w.runner.log("%s: still runs after its grace period: SIGKILL", key(pod))
		_ = w.sandbox.signal(ctx, syscall.SIGKILL) // It may have ended just now.
	}
	if !w.volumes.refreshAt.IsZero() && !now.Before(w.volumes.refreshAt) {
		if err := w.volumes.write(ctx, pod, now); err != nil {
			w.runner.log("%s: refresh the token: %v", key(pod), err)
			w.volumes.refreshAt = now.Add(10 * retryAfter)
		}
	}
}

// gracePeriod returns how long the container of a pod may take to stop.
func gracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.DeletionGracePeriodSeconds != nil {
		seconds = *pod.DeletionGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// stop asks the container to stop. After the grace period it is killed.
func (w *podWorker) stop(ctx context.Context, pod *corev1.Pod, why string, grace time.Duration) {
	w.stopping, w.signalled = true, false
	w.killAt = time.Now().Add(grace)
	w.runner.log("%s: %s: SIGTERM, and SIGKILL after %s", key(pod), why, grace)
	w.runner.event(pod, corev1.EventTypeNormal, "Killing", why)
	_ = w.sandbox.signal(ctx, syscall.SIGTERM) // It may have ended just now.
}

// await returns when something has happened, and records it.
func (w *podWorker) await(ctx context.Context, ending bool) {
	timer := time.NewTimer(w.nextDue())
	defer timer.Stop()
	var exits <-chan exitStatus
	if w.sandbox != nil {
		exits = w.sandbox.exits
	}
	done := ctx.Done()
	if ending {
		done = nil
	}
	select {
	case <-w.changed:
	case <-timer.C:
	case <-done:
	case result := <-w.results:
		w.probed(ctx, result)
	case exit, ok := <-exits:
		pod, _ := w.latest()
		if !ok {
			exit = killed
			w.removeSandbox()
		}
		if w.state.running {
			w.ended(pod, exit)
		}
	}
}

// nextDue returns the time until something is due.
func (w *podWorker) nextDue() time.Duration {
	next := time.Now().Add(time.Hour)
	consider := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	consider(w.retryAt)
	if !w.state.running && !w.final {
		consider(w.startAt)
	}
	if w.state.running {
		consider(w.volumes.refreshAt)
	}
	if w.stopping && !w.signalled {
		consider(w.killAt)
	}
	return max(0, time.Until(next))
}

// ended records the end of the container, and decides about the next one.
func (w *podWorker) ended(pod *corev1.Pod, exit exitStatus) {
	w.endProbes()
	w.stopping = false
	message, policy := "", pod.Spec.Containers[0].TerminationMessagePolicy
	if exit.Code != 0 && policy == corev1.TerminationMessageFallbackToLogsOnError {
		message = tail(w.logFile, 2048)
	}
	delay := w.state.end(containerID(pod, w.state.number), exit, message, time.Now())
	w.runner.log("%s: container %d ended with %d", key(pod), w.state.number, exit.Code)
	w.backOff(pod, delay)
}

func (w *podWorker) backOff(pod *corev1.Pod, delay time.Duration) {
	w.startAt = time.Now().Add(delay)
	if delay == 0 {
		return
	}
	container := pod.Spec.Containers[0].Name
	message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, container, key(pod))
	w.state.wait("CrashLoopBackOff", message)
	w.runner.event(pod, corev1.EventTypeWarning, "BackOff", message)
}

// A startError is why a container cannot start, with the reason that the status shows.
type startError struct {
	reason string
	err    error
}

func (e *startError) Error() string { return e.err.Error() }

// start starts a container, or records why it cannot. It tries again with a delay.
func (w *podWorker) start(ctx context.Context, pod *corev1.Pod) {
	err := w.startContainer(ctx, pod)
	if err == nil {
		w.startFailures, w.startFailed = 0, ""
		return
	}
	w.startAt = time.Now().Add(min(maxStartDelay, firstStartDelay<<min(w.startFailures, 10)))
	w.startFailures++
	failed := &startError{reason: "ContainerCreating", err: err}
	errors.As(err, &failed)
	w.state.wait(failed.reason, err.Error())
	if w.startFailed == err.Error() {
		return // It is in the log and in the events.
	}
	w.startFailed = err.Error()
	w.runner.log("%s: %s: %v", key(pod), failed.reason, err)
	w.runner.event(pod, corev1.EventTypeWarning, "Failed", err.Error())
}

func (w *podWorker) startContainer(ctx context.Context, pod *corev1.Pod) error {
	if err := unsupported(pod); err != nil {
		return &startError{"CreateContainerConfigError", err}
	}
	c := &pod.Spec.Containers[0]
	img, err := w.runner.images.get(c.Image)
	if err != nil {
		return &startError{pullReason(c.ImagePullPolicy), err}
	}
	w.state.imageID = img.id
	spec, err := containerSpecOf(pod, img, w.runner.ip, w.ip)
	if err != nil {
		return &startError{"CreateContainerConfigError", err}
	}
	if err := w.makeSandbox(ctx, pod, img, spec); err != nil {
		return err
	}
	w.logFile = w.runner.logFile(pod, w.state.number) // The restart count of the next container.
	log, err := os.OpenFile(w.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	w.state.number++
	w.state.startedAt = time.Now()
	if err := w.sandbox.start(ctx, spec, log); err != nil {
		w.runner.event(pod, corev1.EventTypeWarning, "Failed", err.Error())
		delay := w.state.end(containerID(pod, w.state.number), exitStatus{Code: 128}, err.Error(), time.Now())
		w.state.ended.Reason = "StartError"
		w.backOff(pod, max(firstBackoff, delay))
		return nil
	}
	w.state.running, w.state.waiting = true, ""
	w.runner.log("%s: container %d started, log %s", key(pod), w.state.number, w.logFile)
	w.runner.event(pod, corev1.EventTypeNormal, "Started", "Started container "+c.Name)
	w.beginProbes(ctx, pod)
	return nil
}

// pullReason is what the status shows when the layout has no such image.
func pullReason(policy corev1.PullPolicy) string {
	if policy == corev1.PullNever {
		return "ErrImageNeverPull"
	}
	return "ImagePullBackOff"
}

// makeSandbox writes the volumes and starts the sandbox of the pod, unless it has one.
func (w *podWorker) makeSandbox(ctx context.Context, pod *corev1.Pod, img *image, spec *containerSpec) error {
	w.volumes.client, w.volumes.uid, w.volumes.gid = w.runner.client, spec.UID, spec.GID
	w.volumes.dir = filepath.Join(w.runner.podDir(pod), "volumes")
	if err := w.volumes.write(ctx, pod, time.Now()); err != nil {
		return err
	}
	if w.sandbox != nil {
		return nil
	}
	sandbox, err := startSandbox(sandboxSpec{
		Dir: w.runner.podDir(pod), Image: img.dir, Volumes: w.volumes.dirs(pod), PodIP: w.ip, Hostname: hostname(pod),
	}, spec.UID, spec.GID)
	if err != nil {
		return fmt.Errorf("make the sandbox of the pod: %w", err)
	}
	w.sandbox = sandbox
	go forward(sandbox.api, w.runner.dialAPI)
	for _, port := range pod.Spec.Containers[0].Ports {
		w.expose(pod, int(port.ContainerPort))
	}
	return nil
}

// expose makes a port of the pod available on the machine.
func (w *podWorker) expose(pod *corev1.Pod, port int) {
	l, err := net.Listen("tcp", net.JoinHostPort(w.runner.outside(w.ip), strconv.Itoa(port)))
	if err != nil {
		w.runner.log("%s: its port %d cannot be reached from this machine: %v", key(pod), port, err)
		return
	}
	sandbox, address := w.sandbox, net.JoinHostPort(w.ip, strconv.Itoa(port))
	w.outside = append(w.outside, l)
	go forward(l, func(ctx context.Context) (net.Conn, error) { return sandbox.dial(ctx, address) })
}

// report writes the status of the pod if it has changed.
func (w *podWorker) report(ctx context.Context, pod *corev1.Pod) {
	if w.final {
		return
	}
	before := pod.Status
	if w.reported != nil {
		before = *w.reported
	}
	pod = pod.DeepCopy()
	pod.Status = *before.DeepCopy()
	now := w.state.podStatus(pod, w.runner.ip, w.ip, w.sandbox != nil, time.Now())
	if equality.Semantic.DeepEqual(before, now) {
		return
	}
	if err := w.patchStatus(ctx, pod, &before, &now); err != nil {
		w.runner.log("%s: report its status: %v", key(pod), err)
		w.retryAt = time.Now().Add(retryAfter)
		return
	}
	w.reported = &now
}

// patchStatus writes only the differences, because others write conditions too.
func (w *podWorker) patchStatus(ctx context.Context, pod *corev1.Pod, before, after *corev1.PodStatus) error {
	old, err := json.Marshal(corev1.Pod{Status: *before})
	if err != nil {
		return err
	}
	changed, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *after})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, changed, corev1.Pod{})
	if err != nil {
		return err
	}
	_, err = w.runner.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // The pod is gone, or another one has its name.
	}
	return err
}

// finish reports the end of the container. If the pod is being deleted, it deletes the object.
func (w *podWorker) finish(ctx context.Context, pod *corev1.Pod, gone bool) {
	w.removeSandbox()
	w.state.waiting = ""
	if gone {
		return
	}
	if ctx.Err() != nil { // The runner ends. The API server may have ended already.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
	}
	w.report(ctx, pod)
	if pod.DeletionTimestamp == nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) {
		err := w.runner.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return true, nil
		}
		w.runner.log("%s: delete the object: %v", key(pod), err)
		return false, nil
	})
}

// removeSandbox ends everything of the pod.
func (w *podWorker) removeSandbox() {
	w.endProbes()
	for _, l := range w.outside {
		l.Close()
	}
	w.outside = nil
	if w.sandbox != nil {
		w.sandbox.stop()
		w.sandbox = nil
	}
}

func (w *podWorker) tearDown() {
	w.removeSandbox()
	pod, _ := w.latest()
	if err := os.RemoveAll(w.runner.podDir(pod)); err != nil {
		w.runner.log("%s: remove its files: %v", key(pod), err)
	}
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// tail returns the end of a file.
func tail(name string, limit int64) string {
	file, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(0, size-limit), io.SeekStart) // Otherwise it is the beginning.
	}
	data, _ := io.ReadAll(io.LimitReader(file, limit))
	return string(data)
}
