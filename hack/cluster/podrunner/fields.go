//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// This file has the fields of a pod that the runner knows. A pod with another field is not started. Otherwise a test
// could pass only because the runner ignores what a kubelet does.

// knownFields are fields in the spec of a pod, each with all fields below it. If a field has values here, the runner
// does not support others.
var knownFields = map[string][]any{
	// For the scheduler, for admission, and for who pulls images.
	"affinity": nil, "nodeName": nil, "nodeSelector": nil, "preemptionPolicy": nil, "priority": nil,
	"priorityClassName": nil, "schedulerName": nil, "tolerations": nil, "topologySpreadConstraints": nil,
	"imagePullSecrets": nil, "automountServiceAccountToken": nil, "serviceAccount": nil,

	// Without effect, as the package comment explains.
	"dnsPolicy": nil, "enableServiceLinks": nil, "resources": nil, "securityContext.seccompProfile": nil,
	"containers.resources": nil, "containers.securityContext.seccompProfile": nil,
	"containers.terminationMessagePath": {corev1.TerminationMessagePathDefault},

	"hostname": nil, "serviceAccountName": nil, "terminationGracePeriodSeconds": nil,
	"restartPolicy":             {string(corev1.RestartPolicyAlways)},
	"securityContext.runAsUser": nil, "securityContext.runAsGroup": nil, "securityContext.runAsNonRoot": nil,

	"containers.name": nil, "containers.image": nil, "containers.imagePullPolicy": nil, "containers.command": nil,
	"containers.args": nil, "containers.workingDir": nil, "containers.terminationMessagePolicy": nil,
	"containers.env.name": nil, "containers.env.value": nil, "containers.env.valueFrom.fieldRef": nil,
	"containers.ports.name": nil, "containers.ports.containerPort": nil,
	"containers.ports.protocol":    {string(corev1.ProtocolTCP)},
	"containers.volumeMounts.name": nil, "containers.volumeMounts.mountPath": nil,
	"containers.volumeMounts.readOnly": nil,

	"containers.probe.httpGet": nil, "containers.probe.initialDelaySeconds": nil, "containers.probe.periodSeconds": nil,
	"containers.probe.timeoutSeconds": nil, "containers.probe.successThreshold": nil,
	"containers.probe.failureThreshold": nil, "containers.probe.terminationGracePeriodSeconds": nil,

	"containers.securityContext.runAsUser": nil, "containers.securityContext.runAsGroup": nil,
	"containers.securityContext.runAsNonRoot": nil, "containers.securityContext.readOnlyRootFilesystem": nil,
	"containers.securityContext.allowPrivilegeEscalation": nil, "containers.securityContext.capabilities.drop": nil,

	"volumes.name": nil, "volumes.projected.defaultMode": {int64(corev1.ProjectedVolumeSourceDefaultMode)},
	"volumes.projected.sources.serviceAccountToken":    nil,
	"volumes.projected.sources.configMap.name":         nil,
	"volumes.projected.sources.configMap.items.key":    nil,
	"volumes.projected.sources.configMap.items.path":   nil,
	"volumes.projected.sources.downwardAPI.items.path": nil, "volumes.projected.sources.downwardAPI.items.fieldRef": nil,
}

// anyProbe replaces the fields of the three probes by one name: the runner knows the same fields in each.
var anyProbe = strings.NewReplacer("startupProbe", "probe", "livenessProbe", "probe", "readinessProbe", "probe")

// unsupported returns an error for the first field of a pod that the runner would have to ignore.
func unsupported(pod *corev1.Pod) error {
	if len(pod.Spec.Containers) != 1 {
		return errors.New("the pod runner runs pods with one container")
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	if err != nil {
		return err
	}
	if field := unknownField("", spec); field != "" {
		return fmt.Errorf("the pod runner does not support this value of the field %s", field)
	}
	return nil
}

// unknownField returns the path of the first field at or below a path that is not in knownFields, or "". The path of an
// element of a list is that of the list.
func unknownField(path string, value any) string {
	values, isKnown := knownFields[anyProbe.Replace(path)]
	if isKnown && (values == nil || slices.Contains(values, value)) || value == false {
		return ""
	}
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			if field := unknownField(path, element); field != "" {
				return field
			}
		}
		return ""
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if field := unknownField(strings.TrimPrefix(path+"."+name, "."), value[name]); field != "" {
				return field
			}
		}
		if len(value) > 0 || hasKnownFields(path) {
			return ""
		}
	}
	return path
}

// hasKnownFields reports whether there is a known field below a path. Otherwise an empty struct is itself what the pod
// asks for, as in "emptyDir: {}".
func hasKnownFields(path string) bool {
	for known := range knownFields {
		if strings.HasPrefix(known, anyProbe.Replace(path)+".") {
			return true
		}
	}
	return false
}
