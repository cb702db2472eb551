package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// deleteCollection deletes the selected objects one after the other, and returns them. As in a real server, an error
// may occur after some of them are deleted.
func (c *call) deleteCollection() (*answer, error) {
	listOpts, selected, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return nil, err
	}
	page, err := c.page(listOpts, selected)
	if err != nil {
		return nil, err
	}
	for _, rev := range page.items {
		// Each object has its own call, because the collection may contain several namespaces.
		one := *c.request
		one.Namespace = rev.Namespace
		single := &call{server: c.server, request: &one, kind: c.kind, dryRun: c.dryRun}
		_, _, err := single.deleteObject(rev.Name, opts.DeepCopy())
		c.request.committed, c.request.entry = one.committed, one.entry
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	accepts, err := c.accepts()
	if err != nil {
		return nil, err
	}
	encoded, err := page.encode(c.kind, accepts)
	return &answer{code: http.StatusOK, encoded: encoded}, err
}
