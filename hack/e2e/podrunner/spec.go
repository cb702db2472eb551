//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// This file turns the spec of a pod into what a sandbox starts, as the kubelet does.

// unsupported returns an error for the first field of a pod that the runner would have to ignore although it matters.
// Not enforced, and without an error, are resource limits, seccomp profiles and network policies.
func unsupported(pod *corev1.Pod) error {
	spec := &pod.Spec
	if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 {
		return errors.New("the pod runner runs pods with one container and no init containers")
	}
	c := &spec.Containers[0]
	security := c.SecurityContext
	if security == nil {
		security = &corev1.SecurityContext{}
	}
	for _, field := range []struct {
		name string
		used bool
	}{
		{"hostNetwork", spec.HostNetwork},
		{"hostPID", spec.HostPID},
		{"hostIPC", spec.HostIPC},
		{"privileged", security.Privileged != nil && *security.Privileged},
		{"capabilities.add", security.Capabilities != nil && len(security.Capabilities.Add) > 0},
		{"lifecycle", c.Lifecycle != nil},
		{"envFrom", len(c.EnvFrom) > 0},
		{"volumeDevices", len(c.VolumeDevices) > 0},
		{"stdin and tty", c.Stdin || c.TTY},
		{"subPath", slices.ContainsFunc(c.VolumeMounts, hasSubPath)},
		{"exec and grpc of probes", isForeignProbe(c.StartupProbe) || isForeignProbe(c.LivenessProbe) ||
			isForeignProbe(c.ReadinessProbe)},
	} {
		if field.used {
			return fmt.Errorf("the pod runner does not support the field %s", field.name)
		}
	}
	return nil
}

func hasSubPath(m corev1.VolumeMount) bool { return m.SubPath != "" || m.SubPathExpr != "" }

func isForeignProbe(p *corev1.Probe) bool { return p != nil && p.HTTPGet == nil && p.TCPSocket == nil }

// containerSpecOf returns what to start for the container of a pod.
func containerSpecOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, img *image,
	nodeIP, podIP string) (*containerSpec, error) {
	c := &pod.Spec.Containers[0]
	uid, gid, err := userOf(pod, img)
	if err != nil {
		return nil, err
	}
	env, err := environment(ctx, client, pod, img, nodeIP, podIP)
	if err != nil {
		return nil, err
	}
	spec := &containerSpec{
		Dir: "/", UID: uid, GID: gid, HostUID: hostID(uid), HostGID: hostID(gid), Capabilities: capabilities(nil),
	}
	command, args := c.Command, c.Args
	if len(command) == 0 {
		command = img.config.Entrypoint
		if len(args) == 0 {
			args = img.config.Cmd
		}
	}
	for _, arg := range slices.Concat(command, args) {
		spec.Args = append(spec.Args, expand(arg, env))
	}
	if len(spec.Args) == 0 {
		return nil, errors.New("neither the pod nor the image has a command")
	}
	for _, variable := range env {
		spec.Env = append(spec.Env, variable.Name+"="+variable.Value)
	}
	for _, dir := range []string{img.config.WorkingDir, c.WorkingDir} {
		if dir != "" {
			spec.Dir = dir
		}
	}
	if s := c.SecurityContext; s != nil {
		spec.ReadOnly = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
		spec.NoNewPrivileges = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
		spec.Capabilities = capabilities(s.Capabilities)
	}
	for _, m := range c.VolumeMounts {
		spec.Mounts = append(spec.Mounts, mount{Volume: m.Name, Path: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return spec, nil
}

// defaultCapabilities are those that containerd gives to a container.
var defaultCapabilities = map[corev1.Capability]uintptr{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "FOWNER": unix.CAP_FOWNER,
	"FSETID": unix.CAP_FSETID, "KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID,
	"SETPCAP": unix.CAP_SETPCAP, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "NET_RAW": unix.CAP_NET_RAW,
	"SYS_CHROOT": unix.CAP_SYS_CHROOT, "MKNOD": unix.CAP_MKNOD, "AUDIT_WRITE": unix.CAP_AUDIT_WRITE,
	"SETFCAP": unix.CAP_SETFCAP,
}

// capabilities returns the default capabilities without those that the container drops.
func capabilities(c *corev1.Capabilities) []uintptr {
	remaining := maps.Clone(defaultCapabilities)
	if c != nil {
		for _, dropped := range c.Drop {
			delete(remaining, dropped)
			if dropped == "ALL" {
				clear(remaining)
			}
		}
	}
	return slices.Sorted(maps.Values(remaining))
}

// userOf returns the user and group of the container: those of the container, the pod or the image.
func userOf(pod *corev1.Pod, img *image) (uid, gid int, err error) {
	uid, gid, err = img.user()
	nonRoot, isSet := false, false
	apply := func(user, group *int64, mustBeOther *bool) {
		if user != nil {
			uid, isSet = int(*user), true
		}
		if group != nil {
			gid = int(*group)
		}
		if mustBeOther != nil {
			nonRoot = *mustBeOther
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		apply(s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot)
	}
	if s := pod.Spec.Containers[0].SecurityContext; s != nil {
		apply(s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot)
	}
	if err != nil && !isSet {
		return 0, 0, err
	}
	if nonRoot && uid == 0 {
		return 0, 0, errors.New("container has runAsNonRoot and image will run as root")
	}
	return uid, gid, nil
}

// environment returns the variables of the container, in the order in which they may refer to each other.
func environment(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, img *image,
	nodeIP, podIP string) ([]corev1.EnvVar, error) {
	env := []corev1.EnvVar{
		{Name: "PATH", Value: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{Name: "HOSTNAME", Value: hostname(pod)},
	}
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(v corev1.EnvVar) bool { return v.Name == name })
		env = append(env, corev1.EnvVar{Name: name, Value: value})
	}
	for _, variable := range img.config.Env {
		name, value, _ := strings.Cut(variable, "=")
		set(name, value)
	}
	set("KUBERNETES_SERVICE_HOST", apiHost)
	set("KUBERNETES_SERVICE_PORT", apiPort)
	set("KUBERNETES_SERVICE_PORT_HTTPS", apiPort)
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.ValueFrom == nil {
			set(variable.Name, expand(variable.Value, env))
			continue
		}
		value, err := valueFrom(ctx, client, pod, variable.ValueFrom, nodeIP, podIP)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", variable.Name, err)
		}
		if value != nil {
			set(variable.Name, *value)
		}
	}
	return env, nil
}

// valueFrom returns the value of a variable, or nil if it is optional and has none.
func valueFrom(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, from *corev1.EnvVarSource, nodeIP,
	podIP string) (*string, error) {
	switch {
	case from.FieldRef != nil:
		value, err := fieldOf(pod, from.FieldRef.FieldPath, nodeIP, podIP)
		return &value, err
	case from.ResourceFieldRef != nil:
		value, err := resourceOf(&pod.Spec.Containers[0], from.ResourceFieldRef)
		return &value, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		object, err := client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err == nil {
			if value, ok := object.Data[ref.Key]; ok {
				return &value, nil
			}
			err = fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, pod.Namespace, ref.Name)
		}
		return nil, unlessOptional(err, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		object, err := client.CoreV1().Secrets(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err == nil {
			if value, ok := object.Data[ref.Key]; ok {
				return new(string(value)), nil
			}
			err = fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, pod.Namespace, ref.Name)
		}
		return nil, unlessOptional(err, ref.Optional)
	}
	return nil, errors.New("the pod runner does not support this source")
}

func unlessOptional(err error, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return err
}

// fieldOf returns a field of the pod for the downward API.
func fieldOf(pod *corev1.Pod, path, nodeIP, podIP string) (string, error) {
	if key, ok := keyOf(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := keyOf(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	value, ok := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"spec.nodeName": pod.Spec.NodeName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.hostIP": nodeIP, "status.hostIPs": nodeIP, "status.podIP": podIP, "status.podIPs": podIP,
	}[path]
	if !ok {
		return "", fmt.Errorf("the pod runner does not support the field path %s", path)
	}
	return value, nil
}

// keyOf returns KEY for a path such as metadata.labels['KEY'].
func keyOf(path, of string) (string, bool) {
	rest, ok := strings.CutPrefix(path, of+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// resourceOf returns a request or limit of the container, rounded up to a multiple of the divisor.
func resourceOf(c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	quantity, ok := c.Resources.Limits[corev1.ResourceName(name)]
	if kind == "requests" {
		quantity, ok = c.Resources.Requests[corev1.ResourceName(name)]
	}
	switch {
	case !ok && name == string(corev1.ResourceCPU): // Without a limit, it is what the node has.
		quantity = *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
	case !ok && name == string(corev1.ResourceMemory):
		quantity = *resource.NewQuantity(machineMemory(), resource.BinarySI)
	case !ok:
		return "", fmt.Errorf("the container has no %s", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return fmt.Sprint(int64(math.Ceil(float64(quantity.MilliValue()) / float64(divisor.MilliValue())))), nil
	}
	return fmt.Sprint(int64(math.Ceil(float64(quantity.Value()) / float64(divisor.Value())))), nil
}

// machineMemory returns the memory of the machine in bytes.
func machineMemory() int64 {
	const standard = 4 << 30
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return standard
	}
	kilobytes := int64(0)
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kilobytes); err != nil {
		return standard
	}
	return kilobytes << 10
}

// expand replaces $(NAME) by the value of that variable. $$ is a dollar sign, and an unknown name stays as it is.
func expand(text string, env []corev1.EnvVar) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		i := slices.IndexFunc(env, func(v corev1.EnvVar) bool { return v.Name == name })
		switch {
		case strings.HasPrefix(after, "$"):
			out.WriteString("$")
			text = after[1:]
		case strings.HasPrefix(after, "(") && closed && i >= 0:
			out.WriteString(env[i].Value)
			text = rest
		default:
			out.WriteString("$")
			text = after
		}
	}
}

func hostname(pod *corev1.Pod) string {
	if pod.Spec.Hostname != "" {
		return pod.Spec.Hostname
	}
	return pod.Name[:min(len(pod.Name), 63)]
}
