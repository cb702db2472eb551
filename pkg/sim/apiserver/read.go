package apiserver

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// versionTimeout is how long a real server waits for a resourceVersion that does not exist yet.
const versionTimeout = 3 * time.Second

func (c *call) get() (*answer, error) {
	opts, err := options(c, &metav1.GetOptions{}, "GetOptions", func(*metav1.GetOptions) field.ErrorList { return nil })
	if err != nil {
		return nil, err
	}
	version, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if err := c.server.waitForVersion(c.request.Context(), version); err != nil {
		return nil, err
	}
	rev := c.server.find(c.kind, c.kind.key(c.request.Namespace, c.request.Name))
	if rev == nil {
		return nil, apierrors.NewNotFound(c.kind.gr, c.request.Name)
	}
	return &answer{code: http.StatusOK, revision: rev}, nil
}

// waitForVersion waits until the server has a version, but not longer than a real server does.
func (s *Server) waitForVersion(ctx context.Context, version int64) error {
	var timeout <-chan time.Time
	for {
		s.mu.Lock()
		current := s.version
		if current >= version {
			s.mu.Unlock()
			return nil
		}
		wake := nextChange(&s.wake)
		s.mu.Unlock()
		if timeout == nil {
			timer := time.NewTimer(versionTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-wake:
		case <-timeout:
			return tooLarge(version, current)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
