package kit

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if the tests leave a goroutine behind. The flags for logging start one that flushes the log, and that
// nothing ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
