package apiserver

import utilruntime "k8s.io/apimachinery/pkg/util/runtime"

// The handlers of errors, except the first one, which logs, delay who calls them. They compare real times with the
// virtual ones of a test: in a bubble, an informer that is refused would sleep for years.
func init() {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:min(1, len(utilruntime.ErrorHandlers))]
}
