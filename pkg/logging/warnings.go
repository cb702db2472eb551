package logging

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// maxWarnings is how many warnings are remembered. When there are more, all are forgotten, and those that come
	// again are logged once more: simpler than to find the oldest, and as bounded.
	maxWarnings = 500
	// miscellaneous is the only code of the Warning header that API servers use.
	miscellaneous = 299
)

var _ rest.WarningHandlerWithContext = (*Warnings)(nil)

// Warnings logs what API servers warn of in their answers, for rest.Config.WarningHandlerWithContext. It logs with the
// logger of the request's context, so the line names the object that was synced. The zero value is ready to use. It
// may be used concurrently.
//
// A warning is logged once, and then only at V(4): an API server repeats it with every write. Warnings that differ only
// in what is quoted and in words with a digit are one: otherwise a policy that warns with the name of the object would
// cost a line for each object. The handler of client-go that deduplicates knows no context, compares the whole text,
// and never forgets one.
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
