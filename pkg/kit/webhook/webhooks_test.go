package webhook

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
)

// client-go logs the bodies of requests at V(8) and later.
func TestPrivateKeysAreNotLogged(t *testing.T) {
	var log strings.Builder
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(&log)))
	ctx := klog.NewContext(t.Context(), logger)
	clientGo := func(ctx context.Context, _ string, _ *reconcile.Step) (metav1.Object, error) {
		klog.FromContext(ctx).V(8).Info("Request Body", "body", "the key")
		return nil, nil
	}
	for _, test := range []struct {
		kind   kit.Kind
		logged bool
	}{{kit.Kind{Send: clientGo}, true}, {withoutLog(kit.Kind{Send: clientGo}), false}} {
		log.Reset()
		if _, err := test.kind.Send(ctx, "", nil); err != nil || strings.Contains(log.String(), "the key") != test.logged {
			t.Errorf("logged: %q, %v", log.String(), err)
		}
	}
}
