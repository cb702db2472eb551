package plan

import (
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// This file is about why a Deployment cannot create pods: the message of its own condition, made stable. The names of
// pods that it may have differ from try to try, and each would cost a write.

// causeLimit is how many bytes of a Deployment's message are reported.
const causeLimit = 1024

const (
	// randomLength is the length of the random end of a pod's name.
	randomLength = 5
	// randomAlphabet has the characters of that end, and of the hash before it.
	randomAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	// longestPodName is the length to which the API server cuts a pod's name.
	longestPodName = 63
)

var (
	quotedPod  = regexp.MustCompile(`\b([Pp]ods?) "[^"]*"`)
	objectName = regexp.MustCompile(`[a-z0-9][-.a-z0-9]*[a-z0-9]`)
)

// isFailure reports whether the message of cond is reported: it has the cause of a ReplicaFailure.
func isFailure(cond *appsv1.DeploymentCondition) bool {
	return cond.Type == appsv1.DeploymentReplicaFailure && cond.Status == corev1.ConditionTrue ||
		cond.Reason == "ReplicaSetCreateError"
}

// causeIn returns the message of cond, a failing condition of the Deployment, as the end of a sentence: "" when it has
// none.
func causeIn(cond *appsv1.DeploymentCondition, deployment string) string {
	message := strings.TrimRight(clip(withoutPodNames(cond.Message, deployment), causeLimit), ". ")
	if message == "" {
		return ""
	}
	return ": " + message
}

// withoutPodNames returns message without the names of pods of the Deployment.
func withoutPodNames(message, deployment string) string {
	message = quotedPod.ReplaceAllString(message, "$1")
	return objectName.ReplaceAllStringFunc(message, func(name string) string {
		if isPodName(name, deployment) {
			return deployment + "-*"
		}
		return name
	})
}

// isPodName reports whether name can be that of a pod of the Deployment: its name, a hash, and a random end. The API
// server cuts what is too long before it appends the random end.
func isPodName(name, deployment string) bool {
	end := len(name) - randomLength
	if end <= 0 || strings.Trim(name[end:], randomAlphabet) != "" {
		return false
	}
	base, prefix := name[:end], deployment+"-"
	if len(name) == longestPodName && len(prefix) >= len(base) {
		return strings.HasPrefix(prefix, base)
	}
	hash, isPrefixed := strings.CutPrefix(base, prefix)
	hash, isWhole := strings.CutSuffix(hash, "-")
	return isPrefixed && (isWhole || len(name) == longestPodName) && hash != "" && strings.Trim(hash, randomAlphabet) == ""
}
