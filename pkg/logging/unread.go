package logging

import (
	"sync"

	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// maxUnread is how many fields are remembered. When there are more, all are forgotten, and those that come again are
// logged once more.
const maxUnread = 10_000

// Unread logs which stored fields of Foos could not be decoded: each field of a Foo once, whatever its value is, as
// long as there are at most 10,000 of them. The zero value is ready to use. It may be used concurrently.
type Unread struct {
	mu sync.Mutex
	// seen has the hashes of the fields that were logged, with the uids of their Foos.
	seen map[uint64]struct{}
}

// Observed logs the fields of foo that could not be decoded, unless they were logged before.
func (u *Unread) Observed(logger klog.Logger, foo *v1alpha1.Foo) {
	for _, field := range foo.Unread {
		if u.isNew(hash(string(foo.UID) + " " + field.Path)) {
			logger.Info("Foo has a field that cannot be read", "field", field.Path, "value", field.Value, "want", field.Want)
		}
	}
}

func (u *Unread) isNew(field uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.seen[field]; known {
		return false
	}
	if u.seen == nil || len(u.seen) >= maxUnread {
		u.seen = map[uint64]struct{}{}
	}
	u.seen[field] = struct{}{}
	return true
}
