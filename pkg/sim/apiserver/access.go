package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// asksForPermission reports whether a client asks whether it may do something.
func (r *Request) asksForPermission() bool {
	return r.Verb == "create" && r.Name == "" &&
		r.Resource == authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
}

// permit answers that the client may do what it asks for, because the server refuses nobody anything.
func permit(r *Request) (*http.Response, string) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	var err error
	if strings.HasPrefix(r.HTTP.Header.Get("Content-Type"), string(mediaBinary)) {
		_, err = decodeBinary(r.Body, review)
	} else {
		err = json.Unmarshal(r.Body, review)
	}
	if err != nil {
		return respondError(r, apierrors.NewBadRequest(err.Error()), nil)
	}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "the server is simulated"}
	media := errorMedia(r)
	body, err := media.encode(&answer{object: review})
	if err != nil {
		return respondError(r, err, nil)
	}
	return encoded(r, http.StatusCreated, media, body, nil), outcome(http.StatusCreated, "", "")
}
