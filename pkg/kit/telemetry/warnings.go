package telemetry

import (
	"context"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// maxWarnings is the number of warnings that are remembered.
	maxWarnings = 500
	// miscellaneous is the only code of the Warning header that API servers use.
	miscellaneous = 299
)

var _ rest.WarningHandlerWithContext = (*Warnings)(nil)

// Warnings logs the warnings in the responses of API servers. It is for rest.Config.WarningHandlerWithContext. It logs
// with the logger of the request's context, so each line has the object that was synced. The zero value is ready to
// use. It may be used concurrently.
//
// A warning is logged once, and later only at V(4), because an API server repeats it with every write. Warnings that
// differ only in quoted text and in words with a digit count as one. Otherwise a policy whose warning has the name of
// the object would add a line for each object. The deduplicating handler of client-go gets no context, compares the
// whole text, and never forgets a warning.
type Warnings struct {
	logged Once
}

// HandleWarningHeaderWithContext logs a warning.
func (w *Warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != miscellaneous || text == "" {
		return
	}
	logger := klog.FromContext(ctx)
	if !w.logged.IsNew(withoutNames(text), maxWarnings) {
		logger = logger.V(4)
	}
	logger.Info("API server warned", "warning", text)
}
