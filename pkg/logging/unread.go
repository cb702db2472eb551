package logging

import (
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// maxUnread is how many fields are remembered.
const maxUnread = 10_000

// Unread logs which stored fields of Foos could not be decoded: each field of a Foo once, whatever its value is, as
// long as there are at most 10,000 of them. The zero value is ready to use. It may be used concurrently.
type Unread struct {
	// logged has the hashes of the fields, with the uids of their Foos.
	logged onceSet
}

// Observed logs the fields of foo that could not be decoded, unless they were logged before.
func (u *Unread) Observed(logger klog.Logger, foo *v1alpha1.Foo) {
	for _, field := range foo.Unread {
		if u.logged.isNew(hash(string(foo.UID)+" "+field.Path), maxUnread) {
			logger.Info("Foo has a field that cannot be read", "field", field.Path, "value", field.Value, "want", field.Want)
		}
	}
}
