package serving

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// metricsPath is the path of the metrics, and the nonResourceURL of the permission to read them.
const metricsPath = "/metrics"

// MetricsConfig is what NewMetrics needs.
type MetricsConfig struct {
	// Address is HOST:PORT or :PORT. "0" turns the endpoint off; then nothing else of the config is used.
	Address string
	// Handler serves the metrics, after all checks.
	Handler http.Handler
	// API is the API server that checks tokens and permissions. Its credentials need the permissions of the ClusterRole
	// system:auth-delegator: create tokenreviews and subjectaccessreviews. The config is copied; its rate limits are
	// not used.
	API *rest.Config
	// CertFile and KeyFile have the certificate and its key in PEM. They may be replaced at any time: the next
	// connection gets the new certificate. If both are empty, the certificate is self-signed and only in memory.
	CertFile, KeyFile string
	// Plain serves without TLS, and so without authentication, since a token must not be sent over a plain connection.
	// Then Address must be a loopback address, and there may be no certificate. API is not used.
	Plain bool
	// TLS limits what clients may use.
	TLS TLS
}

// NewMetrics returns a Server for /metrics over TLS. A client needs a bearer token of the cluster, and its user the
// permission to get the nonResourceURL /metrics. It gets 401 without a valid token, 403 without the permission, and 500
// if the API server cannot be asked. The Server listens when NewMetrics returns. An error means that the address is
// invalid, in use or not allowed, or that the certificate or API cannot be used. The Server logs to the logger of ctx.
func NewMetrics(ctx context.Context, config MetricsConfig) (*Server, error) {
	if config.Address == off {
		return &Server{}, nil
	}
	handler, certificate, err := config.protect(klog.FromContext(ctx))
	if err != nil {
		return nil, err
	}
	listener, err := listen(config.Address, config.Plain)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, handler)
	return newServer(ctx, "metrics", listener, certificate, config.TLS, mux), nil
}

// protect returns the handler with all checks, and the certificate to serve it with. The certificate is nil for Plain.
func (c *MetricsConfig) protect(logger klog.Logger) (http.Handler, getCertificate, error) {
	if c.Plain {
		if c.CertFile != "" || c.KeyFile != "" {
			return nil, nil, errors.New("metrics are plain and have a certificate; give only one of the two")
		}
		return localOnly(c.Handler), nil, nil
	}
	certificate, err := certificateOf(c.CertFile, c.KeyFile, logger, nil)
	if err == nil && certificate == nil {
		certificate, err = selfSigned()
	}
	if err != nil {
		return nil, nil, err
	}
	handler, err := newAccess(logger, c.API, c.Handler)
	return handler, certificate, err
}

// reviewTimeout is how long the API server may take for both reviews of a request, retries included. It is shorter than
// the 10 s after which Prometheus gives up, so that Prometheus shows the response.
const reviewTimeout = 8 * time.Second

// reviewBackoff has the delays after which a review is sent again, when an error may go away. They are those of
// k8s.io/apiserver.
var reviewBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// How long an answer is reused. A token or permission that was withdrawn works for that long. The durations are those
// of controller-runtime, which an administrator may know.
const (
	tokenTTL   = time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
)

// maxReviews is how many users of tokens are remembered, and how many permissions. Whoever sends more tokens makes the
// others wait for reviews.
const maxReviews = 1000

// anonymous is the user that an API server may see in a token which it reads as none.
const anonymous = "system:anonymous"

// access passes a request on if it has a bearer token of the cluster and the user of the token may get /metrics. The
// API server decides both: who the user is in a TokenReview, and the permission in a SubjectAccessReview. There is no
// CA for client certificates: they cannot be withdrawn. Anonymous users are refused, whatever they may do.
//
// It answers 401 without a valid token, 403 without the permission, and 500 if the API server does not answer a review.
// The response then does not blame the token.
type access struct {
	logger  klog.Logger
	reviews kubernetes.Interface
	// users has the user of each token that was reviewed, nil if it is invalid, by the hash of the token. permissions has
	// whether a user may get the metrics, by the hash of the review. A review without an answer is in neither.
	users, permissions *utilcache.LRUExpireCache
	next               http.Handler
}

// newAccess returns an access that asks the API server of config. It logs reviews that fail.
func newAccess(logger klog.Logger, config *rest.Config, next http.Handler) (*access, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil // The API server's flow control limits the reviews.
	reviews, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for reviews: %w", err)
	}
	return &access{
		logger: logger, reviews: reviews, next: next,
		users: utilcache.NewLRUExpireCache(maxReviews), permissions: utilcache.NewLRUExpireCache(maxReviews),
	}, nil
}

func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, text := a.check(r)
	if code == http.StatusOK {
		r.Header.Del("Authorization") // What follows must not use it.
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
	// A review goes on when the client has left: its answer is there for the next request, and nobody fills the log.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reviewTimeout)
	defer cancel()
	user, err := a.user(ctx, bearerToken(r))
	switch {
	case err != nil:
		a.logger.Error(err, "Cannot check the token of a reader of metrics")
		return http.StatusInternalServerError, "cannot check the token; the log of the controller has the reason\n"
	case user == nil:
		return http.StatusUnauthorized, "send a valid token of this cluster in the header Authorization: Bearer TOKEN\n"
	}
	permitted, err := a.mayGetMetrics(ctx, user)
	switch {
	case err != nil:
		a.logger.Error(err, "Cannot check the permission of a reader of metrics", "user", user.Username)
		return http.StatusInternalServerError, "cannot check the permission; the log of the controller has the reason\n"
	case !permitted:
		return http.StatusForbidden, fmt.Sprintf("user %q may not get %s; a ClusterRole with nonResourceURLs: [%q] "+
			"and verbs: [get] would permit it\n", user.Username, metricsPath, metricsPath)
	}
	return http.StatusOK, ""
}

// bearerToken returns the token of a request, or "". A token has no spaces: an API server reads only what is
// before the first.
func bearerToken(r *http.Request) string {
	words := strings.Split(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if len(words) != 2 || !strings.EqualFold(words[0], "bearer") {
		return ""
	}
	return words[1]
}

// user returns the user of a token, or nil if it is invalid. If the review has an error, nothing is remembered: the
// token may be valid a moment later.
func (a *access) user(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if token == "" {
		return nil, nil
	}
	key := sha256.Sum256([]byte(token))
	if user, found := a.users.Get(key); found {
		return user.(*authenticationv1.UserInfo), nil
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := ask(ctx, a.reviews.AuthenticationV1().TokenReviews().Create, review)
	if err != nil {
		return nil, err
	}
	var user *authenticationv1.UserInfo
	if review.Status.Authenticated && review.Status.User.Username != anonymous {
		user = review.Status.User.DeepCopy() // Without the token, which is in the review.
	}
	if review.Status.Error == "" {
		a.users.Add(key, user, tokenTTL)
	}
	return user, nil
}

// mayGetMetrics reports whether the user may get the metrics. The verb and the path are constants: a permission for
// another path must not open this one by its spelling.
func (a *access) mayGetMetrics(ctx context.Context, user *authenticationv1.UserInfo) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: metricsPath, Verb: "get"},
	}}
	for name, values := range user.Extra {
		review.Spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	text, err := json.Marshal(review.Spec)
	if err != nil {
		return false, err
	}
	key := sha256.Sum256(text)
	if permitted, found := a.permissions.Get(key); found {
		return permitted.(bool), nil
	}
	review, err = ask(ctx, a.reviews.AuthorizationV1().SubjectAccessReviews().Create, review)
	if err != nil {
		return false, err
	}
	permitted, ttl := review.Status.Allowed && !review.Status.Denied, deniedTTL
	if permitted {
		ttl = allowedTTL
	}
	a.permissions.Add(key, permitted, ttl)
	return permitted, nil
}

// ask sends a review with create, again with backoff while an error may go away, and returns the answer.
func ask[T any](
	ctx context.Context, create func(context.Context, T, metav1.CreateOptions) (T, error), review T,
) (answer T, err error) {
	ended := wait.ExponentialBackoffWithContext(ctx, reviewBackoff, func(ctx context.Context) (bool, error) {
		answer, err = create(ctx, review, metav1.CreateOptions{})
		return err == nil || !mayGoAway(err), nil
	})
	return answer, cmp.Or(err, ended)
}

// mayGoAway reports whether the API server may answer the same review later. These are the errors after which
// k8s.io/apiserver sends a review again.
func mayGoAway(err error) bool {
	_, asksToWait := apierrors.SuggestsClientDelay(err)
	return asksToWait || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}
