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

// kwokConfig is what KWOK does to nodes and pods: it makes both Ready, ends the pods of Jobs, and
// lets deleted pods go. Its heartbeat is the one made for nodes with leases: every ten minutes is
// enough for the grace period we give, and a cluster that does nothing stays quiet. With a file of
// options KWOK has no defaults: a parallelism left out is 0, and refused.
func kwokConfig() string {
	return strings.Join([]string{
		`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  enableDebuggingHandlers: false # Only health is asked of it.
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

// podNeverReady keeps pods waiting for an image that cannot be pulled, so that one can see what becomes
// of a rollout that is stuck. Its weight puts it before DefaultPodReady, which matches these pods too and
// has none. KWOK plays it at each change of such a pod; without a time in it there is nothing to write then.
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

// makeUsable makes the nodes and returns when a Pod that is created now gets to run.
func (c *cluster) makeUsable(ctx context.Context, nodes int) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.file("kubeconfig"))
	if err != nil {
		return fmt.Errorf("load our own kubeconfig: %w", err)
	}
	config.QPS = -1 // We are alone with this server.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	for i := range nodes {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(nodeName(i)), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", nodeName(i), err)
		}
	}
	say("nodes: created %d, waiting for them to become Ready", nodes)

	missing, err := await(ctx, func() error { return missingForPods(ctx, client, nodes) })
	if missing != nil {
		return fmt.Errorf("no Pod could run after %s: %w; see the logs of %s and %s",
			startDeadline, missing, c.log(controllerManager), c.log(kwok))
	}
	if err != nil {
		return err
	}
	say("nodes: Ready")
	return nil
}

// missingForPods says what a Pod would have to wait for, or nil.
func missingForPods(ctx context.Context, client kubernetes.Interface, nodes int) error {
	// Made by the controller manager. Admission refuses Pods until it is there.
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
		// Admission taints each new node; the controller manager takes the taint away.
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", node.Name, node.Spec.Taints[0].Key)
		}
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: "amd64", // What KWOK reports in the node's status.
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
