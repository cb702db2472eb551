package logging

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// maxWarnings is the number of warnings that are remembered. When one more comes, all of them are forgotten, so they
	// may be logged once more. That is simpler than to drop the oldest one, and the memory is bounded as well.
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
	mu sync.Mutex
	// seen has the hashes of the warnings that were logged.
	seen map[uint64]struct{}
}

// HandleWarningHeaderWithContext logs a warning.
func (w *Warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != miscellaneous || text == "" {
		return
	}
	logger := klog.FromContext(ctx)
	if !w.isNew(hash(withoutNames(text))) {
		logger = logger.V(4)
	}
	logger.Info("API server warned", "warning", text)
}

func (w *Warnings) isNew(warning uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.seen[warning]; known {
		return false
	}
	if w.seen == nil || len(w.seen) >= maxWarnings {
		w.seen = map[uint64]struct{}{}
	}
	w.seen[warning] = struct{}{}
	return true
}
