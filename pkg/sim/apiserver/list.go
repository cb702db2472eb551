package apiserver

import (
	"fmt"
	"net/http"
	"sort"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// listOptions reads the options of a list or a watch.
func (c *call) listOptions() (*internalversion.ListOptions, *selection, error) {
	opts := &internalversion.ListOptions{}
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.request.Query, metav1.SchemeGroupVersion, opts)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(opts, true)
	if errs := internalvalidation.ValidateListOptions(opts, true); len(errs) > 0 {
		kind := schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}
		return nil, nil, apierrors.NewInvalid(kind, "", errs)
	}
	selected, err := c.selection(opts)
	return opts, selected, err
}

func (c *call) list() (*answer, error) {
	opts, selected, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	page, err := c.page(opts, selected)
	if err != nil {
		return nil, err
	}
	accepts, err := c.accepts()
	if err != nil {
		return nil, err
	}
	encoded, err := page.encode(c.kind, accepts)
	return &answer{code: http.StatusOK, encoded: encoded, version: page.meta.ResourceVersion}, err
}

// page returns the requested page of a list.
func (c *call) page(opts *internalversion.ListOptions, selected *selection) (*page, error) {
	if _, single := selected.fields.RequiresExactMatch("metadata.name"); single && opts.Continue == "" {
		opts.Limit = 0 // A real server gets the one object by its name and ignores the limit.
	}
	at, exact, after, err := listVersion(opts)
	if err != nil {
		return nil, err
	}
	if err := c.server.waitForVersion(c.request.Context(), at); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if exact && at < s.compacted {
		return nil, c.listTooOld(opts, after)
	}
	version, revisions := s.version, []*Revision(nil)
	if exact {
		version, revisions = at, c.kind.revisionsAt(at)
	} else {
		revisions = c.kind.sorted()
	}
	limit := opts.Limit
	if opts.ResourceVersion == "0" {
		limit = 0 // A real server answers from its cache and ignores the limit.
	}
	if after != "" {
		if c.request.Namespace != "" && !c.kind.ClusterScoped {
			after = c.request.Namespace + "/" + after
		}
		first := sort.Search(len(revisions), func(i int) bool {
			return c.kind.key(revisions[i].Namespace, revisions[i].Name) >= after
		})
		revisions = revisions[first:]
	}
	return c.kind.cut(revisions, selected, limit, version)
}

// listVersion returns the version to list at, whether it must be exact or may be newer, and the key to continue after.
func listVersion(opts *internalversion.ListOptions) (at int64, exact bool, after string, err error) {
	if opts.Continue != "" {
		after, at, err = decodeContinue(opts.Continue)
		if err != nil {
			return 0, false, "", apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return 0, false, "",
				apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		return max(at, 0), at > 0, after, nil
	}
	at, err = parseVersion(opts.ResourceVersion)
	if err != nil {
		return 0, false, "", apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	exact = opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		opts.ResourceVersionMatch == "" && opts.Limit > 0 && at > 0
	return at, exact, "", nil
}

// listTooOld returns the error for a version that was compacted. Its continue token lets a client continue a list with
// the current objects.
func (c *call) listTooOld(opts *internalversion.ListOptions, after string) error {
	if opts.Continue == "" {
		return apierrors.NewResourceExpired(listExpired)
	}
	err := apierrors.NewResourceExpired(continueExpired)
	err.ErrStatus.ListMeta.Continue = encodeContinue(after, -1)
	return err
}
