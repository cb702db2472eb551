package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

// simulatedNode is the annotation of the nodes that KWOK manages. It leaves other nodes and their pods alone.
const simulatedNode = "kwok.x-k8s.io/node"

// kwokConfig configures KWOK: it makes nodes and pods Ready, completes the pods of Jobs, and removes deleted
// pods. The heartbeat every ten minutes is KWOK's heartbeat for nodes with leases. It is frequent enough for
// our grace period, and an idle cluster stays quiet. With a configuration file KWOK has no defaults: without
// a parallelism it would refuse the value 0.
func kwokConfig() string {
	return strings.Join([]string{
		`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableDebuggingHandlers: false # It serves only health checks.
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 1
  podsOnNodeSyncParallelism: 4
  enablePodsOnNodeSyncListPager: true
  enablePodsOnNodeSyncStreamWatch: false
`,
		nodefast.DefaultNodeInit,
		nodeheartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
		podNeverReady,
	}, "\n---\n")
}

// podNeverReady keeps pods waiting for an image that cannot be pulled, so that tests can have a rollout that
// does not progress. Its weight gives it priority over DefaultPodReady, which matches these pods too. KWOK
// applies it at each change of such a pod. It has no time, so that applying it again changes nothing.
const podNeverReady = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-never-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: .metadata.deletionTimestamp
      operator: DoesNotExist
    - key: .status.phase
      operator: In
      values: [Pending]
    - key: .spec.containers.[].image | select(endswith(":never-ready"))
      operator: Exists
  weight: 1
  next:
    statusTemplate: |
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        imageID: ""
        name: {{ .name | Quote }}
        ready: false
        restartCount: 0
        started: false
        state:
          waiting:
            reason: ImagePullBackOff
            message: The tag never-ready stands for an image that cannot be pulled
      {{ end }}
`

// makeUsable creates the nodes, and returns when new Pods can run.
func (c *cluster) makeUsable(ctx context.Context, nodes int) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.file("kubeconfig"))
	if err != nil {
		return fmt.Errorf("load our own kubeconfig: %w", err)
	}
	config.QPS = -1 // No limit, because the server has no other clients.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	simulated := nodes
	if len(c.nodes) > 0 {
		simulated = 0 // Kubelets create their nodes.
	}
	for i := range simulated {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(nodeName(i)), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", nodeName(i), err)
		}
	}
	printLine("nodes: waiting for %d to become Ready", nodes)

	missing, err := await(ctx, "nodes", func() error { return podBlocker(ctx, client, nodes) })
	if missing != nil {
		return fmt.Errorf("no Pod could run after %s: %w; see the logs of %s and %s",
			startDeadline, missing, c.log(controllerManager), c.log(kwok))
	}
	if err != nil {
		return err
	}
	printLine("nodes: Ready")
	return nil
}

// podBlocker returns an error that describes why a new Pod could not run, or nil if it could.
func podBlocker(ctx context.Context, client kubernetes.Interface, nodes int) error {
	// The controller manager creates it. Admission refuses Pods until it exists.
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	for i := range nodes {
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !isReady(node) {
			return fmt.Errorf("node %s is not Ready", node.Name)
		}
		// Admission taints each new node. The controller manager removes the taint.
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", node.Name, node.Spec.Taints[0].Key)
		}
	}
	return nil
}

const nodePrefix = "node-"

func nodeName(i int) string { return fmt.Sprint(nodePrefix, i) }

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{simulatedNode: "fake"},
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64", // As KWOK reports it in the status of the node.
		},
	}}
}

func isReady(node *corev1.Node) bool {
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}
