//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// This file turns the spec of a pod into what a sandbox starts, as the kubelet does.

// containerSpecOf returns what to start for the container of a pod.
func containerSpecOf(pod *corev1.Pod, img *image, nodeIP, podIP string) (*containerSpec, error) {
	c := &pod.Spec.Containers[0]
	uid, gid, err := userOf(pod, img)
	if err != nil {
		return nil, err
	}
	env, err := environment(pod, img, nodeIP, podIP)
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
func environment(pod *corev1.Pod, img *image, nodeIP, podIP string) ([]corev1.EnvVar, error) {
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
		value, err := fieldOf(pod, variable.ValueFrom.FieldRef.FieldPath, nodeIP, podIP)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", variable.Name, err)
		}
		set(variable.Name, value)
	}
	return env, nil
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
