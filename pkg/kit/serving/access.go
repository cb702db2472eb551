package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// reviewTimeout is how long the API server may take for both reviews of a request, retries included. It is shorter than
// the 10 s after which Prometheus gives up, so that Prometheus shows the response.
const reviewTimeout = 8 * time.Second

// How long an answer is reused. A token or permission that was withdrawn works for that long. The durations are those
// of controller-runtime, which an administrator may know.
const (
	tokenTTL   = time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
)

// access passes a request on if it has a bearer token of the cluster and the user of the token may get /metrics. The
// API server decides both: who the user is in a TokenReview, and the permission in a SubjectAccessReview.
//
// It answers 401 without a valid token, 403 without the permission, and 500 if the API server does not answer a review:
// then every request is refused, and the response does not blame the token.
type access struct {
	authn authenticator.Request
	authz authorizer.Authorizer
	next  http.Handler
}

// newAccess returns an access that asks the API server of config, with the authenticator and the authorizer of
// k8s.io/apiserver. Both retry with backoff, log reviews that fail, and keep the answers in caches.
func newAccess(config *rest.Config, backoff wait.Backoff, next http.Handler) (*access, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil // The API server's flow control limits the reviews.
	reviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for reviews: %w", err)
	}
	// Anonymous is nil: a request without a token is refused, whatever anonymous users may do. There is no CA for client
	// certificates: they cannot be withdrawn.
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:  reviews.AuthenticationV1(),
		TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff:      &backoff,
		CacheTTL:                 tokenTTL,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authenticator: %w", err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: reviews.AuthorizationV1(),
		AllowCacheTTL:             allowedTTL,
		DenyCacheTTL:              deniedTTL,
		WebhookRetryBackoff:       &backoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authorizer: %w", err)
	}
	return &access{authn: authn, authz: authz, next: next}, nil
}

func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, text := a.check(r)
	if code == http.StatusOK {
		a.next.ServeHTTP(w, r)
		return
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	respond(w, code, text)
}

// check returns 200, or the code and the text of the refusal. The text of a 500 does not have the error, which may name
// the ServiceAccount of this process and the address of the API server: nobody has authenticated yet.
func (a *access) check(r *http.Request) (code int, text string) {
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	response, known, err := a.authn.AuthenticateRequest(r.WithContext(ctx))
	if notReviewed(err) {
		return http.StatusInternalServerError, "cannot check the token; the log of the controller has the reason\n"
	}
	if err != nil || !known {
		return http.StatusUnauthorized, "send a valid token of this cluster in the header Authorization: Bearer TOKEN\n"
	}
	// The verb and the path are constants: a permission for another path must not open this one by its spelling.
	request := authorizer.AttributesRecord{User: response.User, Verb: "get", Path: metricsPath}
	decision, _, err := a.authz.Authorize(ctx, request)
	if err != nil {
		return http.StatusInternalServerError, "cannot check the permission; the log of the controller has the reason\n"
	}
	if decision != authorizer.DecisionAllow {
		return http.StatusForbidden, fmt.Sprintf("user %q may not get %s; a ClusterRole with nonResourceURLs: [%q] "+
			"and verbs: [get] would permit it\n", response.User.GetName(), metricsPath, metricsPath)
	}
	return http.StatusOK, ""
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
