package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// reviewTimeout is how long the API server may take for both reviews of a request, retries included. It is shorter than
// the 10 s after which Prometheus gives up, so that Prometheus shows the response.
const reviewTimeout = 8 * time.Second

// access passes a request on if it has a bearer token of the cluster and the user of the token may get path. The API
// server decides both: who the user is in a TokenReview, and the permission in a SubjectAccessReview.
//
// It answers 401 without a valid token, 403 without the permission, 429 to an address that sends too many requests, and
// 500 if the API server does not answer a review: then every request is refused, and the response does not blame the
// token. All of these close the connection, so that only clients with the permission can keep one open.
type access struct {
	path   string
	rates  *requestRates
	authn  authenticator.Request
	authz  authorizer.Authorizer
	next   http.Handler
	logger klog.Logger
	failed rate.Sometimes // Limits the log lines about reviews that failed: each request to the port could cause one.
}

func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code, text := a.check(r); code != http.StatusOK {
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Connection", "close")
		respond(w, code, text)
		return
	}
	a.next.ServeHTTP(w, r)
}

// check returns 200, or the code and the text of the refusal. The text of a 500 does not have the error, which may name
// the ServiceAccount of this process and the address of the API server: nobody has authenticated yet.
func (a *access) check(r *http.Request) (code int, text string) {
	if !a.rates.allow(r.RemoteAddr) {
		return http.StatusTooManyRequests, "too many requests from your address\n"
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	response, known, err := a.authn.AuthenticateRequest(r.WithContext(ctx))
	if notReviewed(err) {
		a.report(err)
		return http.StatusInternalServerError, "cannot check the token; the log of the controller has the reason\n"
	}
	if err != nil || !known {
		return http.StatusUnauthorized, "send a valid token of this cluster in the header Authorization: Bearer TOKEN\n"
	}
	name := response.User.GetName()
	// The verb and the path are constants: a permission for another path must not open this one by its spelling.
	request := authorizer.AttributesRecord{User: response.User, Verb: "get", Path: a.path}
	decision, reason, err := a.authz.Authorize(ctx, request)
	if err != nil {
		a.report(err)
		return http.StatusInternalServerError, "cannot check the permission; the log of the controller has the reason\n"
	}
	if decision != authorizer.DecisionAllow {
		a.logger.V(4).Info("Refused a request", "user", name, "reason", reason)
		return http.StatusForbidden, fmt.Sprintf("user %q may not get %s; a ClusterRole with nonResourceURLs: [%q] "+
			"and verbs: [get] would permit it\n", name, a.path, a.path)
	}
	return http.StatusOK, ""
}

// report logs why a review failed.
func (a *access) report(err error) {
	a.failed.Do(func() { a.logger.Error(err, "Cannot check who reads the metrics") })
}

// notReviewed reports whether err means that the API server has not answered the review. For an invalid token the
// authenticator returns an error too, so it is not enough that there is one. An error that is not recognized here is
// taken for an invalid token. It only decides between two refusals.
func notReviewed(err error) bool {
	var all utilerrors.Aggregate // The errors of several authenticators. It does not support errors.As itself.
	if errors.As(err, &all) {
		return slices.ContainsFunc(all.Errors(), notReviewed)
	}
	var refused apierrors.APIStatus // The review was answered with an error.
	var noAnswer *url.Error         // It was not answered, or could not be sent.
	return errors.As(err, &refused) || errors.As(err, &noAnswer) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
