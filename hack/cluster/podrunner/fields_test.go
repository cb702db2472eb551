//go:build linux

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// A pod as the API server stores it: with defaults, and with the volume that admission adds.
const storedPod = `
spec:
  automountServiceAccountToken: true
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  nodeName: real-node
  nodeSelector: {foo-controller.example/pods: run}
  preemptionPolicy: PreemptLowerPriority
  priority: 0
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  serviceAccount: main
  serviceAccountName: main
  terminationGracePeriodSeconds: 30
  tolerations: [{effect: NoExecute, key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 300}]
  containers:
  - name: main
    image: main:1
    imagePullPolicy: IfNotPresent
    env: [{name: IP, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}]
    ports: [{containerPort: 8081, name: health, protocol: TCP}]
    livenessProbe:
      {failureThreshold: 3, httpGet: {path: /, port: health, scheme: HTTP}, periodSeconds: 10, successThreshold: 1}
    resources: {limits: {memory: 256Mi}}
    securityContext: {privileged: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    volumeMounts: [{mountPath: /var/run/secrets/kubernetes.io/serviceaccount, name: access, readOnly: true}]
  volumes:
  - name: access
    projected:
      defaultMode: 420
      sources:
      - serviceAccountToken: {expirationSeconds: 3607, path: token}
      - configMap: {items: [{key: ca.crt, path: ca.crt}], name: kube-root-ca.crt}
      - downwardAPI: {items: [{fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}, path: namespace}]}
`

func newStoredPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(storedPod), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestAFieldThatWouldBeIgnoredPreventsTheStart(t *testing.T) {
	if err := unsupported(newStoredPod(t)); err != nil {
		t.Errorf("a plain pod: %v", err)
	}
	for field, text := range map[string]string{
		"hostNetwork":                "spec: {hostNetwork: true}",
		"initContainers":             "spec: {initContainers: [{name: first}]}",
		"one container":              "spec: {containers: [{name: first}, {name: second}]}",
		"restartPolicy":              "spec: {restartPolicy: OnFailure}",
		"activeDeadlineSeconds":      "spec: {activeDeadlineSeconds: 5}",
		"hostAliases":                "spec: {hostAliases: [{ip: 10.0.0.1, hostnames: [name]}]}",
		"readinessGates":             "spec: {readinessGates: [{conditionType: example.com/Checked}]}",
		"securityContext.fsGroup":    "spec: {securityContext: {fsGroup: 2000}}",
		"supplementalGroups":         "spec: {securityContext: {supplementalGroups: [2000]}}",
		"volumes.emptyDir":           "spec: {volumes: [{name: empty, emptyDir: {}}]}",
		"volumes.configMap":          "spec: {volumes: [{name: config, configMap: {name: config}}]}",
		"projected.defaultMode":      "spec: {volumes: [{name: a, projected: {defaultMode: 256}}]}",
		"downwardAPI.items.mode":     "spec: {volumes: [{projected: {sources: [{downwardAPI: {items: [{mode: 256}]}}]}}]}",
		"sources.secret":             "spec: {volumes: [{projected: {sources: [{secret: {name: secret}}]}}]}",
		"containers.lifecycle":       "spec: {containers: [{lifecycle: {}}]}",
		"containers.livenessProbe":   "spec: {containers: [{livenessProbe: {tcpSocket: {port: 80}}}]}",
		"readinessProbe.exec":        "spec: {containers: [{readinessProbe: {exec: {command: [test]}}}]}",
		"ports.hostPort":             "spec: {containers: [{ports: [{containerPort: 80, hostPort: 80}]}]}",
		"ports.protocol":             "spec: {containers: [{ports: [{containerPort: 80, protocol: UDP}]}]}",
		"containers.envFrom":         "spec: {containers: [{envFrom: [{configMapRef: {name: config}}]}]}",
		"env.valueFrom.secretKeyRef": "spec: {containers: [{env: [{valueFrom: {secretKeyRef: {key: a}}}]}]}",
		"volumeMounts.subPath":       "spec: {containers: [{volumeMounts: [{subPath: a}]}]}",
		"securityContext.privileged": "spec: {containers: [{securityContext: {privileged: true}}]}",
		"capabilities.add":           "spec: {containers: [{securityContext: {capabilities: {add: [NET_ADMIN]}}}]}",
		"containers.stdin":           "spec: {containers: [{stdin: true}]}",
		"terminationMessagePath":     "spec: {containers: [{terminationMessagePath: /end}]}",
		"resourceFieldRef":           "spec: {containers: [{env: [{valueFrom: {resourceFieldRef: {resource: a}}}]}]}",
	} {
		pod := newStoredPod(t)
		if err := yaml.Unmarshal([]byte(text), pod); err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		if err := unsupported(pod); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
