package apiserver

import utilruntime "k8s.io/apimachinery/pkg/util/runtime"

// The second handler of errors of package runtime delays its caller by real time. In a bubble, an informer that is
// refused would sleep for years. The first one logs, and stays.
func init() {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:min(1, len(utilruntime.ErrorHandlers))]
}
