package serving

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// How long an answer is reused. A token or permission that was withdrawn works for that long. The durations are those
// of controller-runtime, which an administrator may know.
const (
	tokenTTL   = time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
)

// The cache does not keep a token that the API server has an error for, so each request with one costs a review. These
// limits, for a second and at once, keep a client that sends many of them from spending what the API server grants this
// process. A valid token needs one review in a minute. Those of tokens and those of permissions have a limit each, so
// that strangers, who have no valid token, cannot delay the second one. requestRates limits each client to a part.
const (
	reviewQPS   = 10
	reviewBurst = 40
)

// tryTimeout is how long one attempt of a review may take.
const tryTimeout = 5 * time.Second

// newReviews returns the authenticator and the authorizer of k8s.io/apiserver, which send TokenReviews and
// SubjectAccessReviews to the API server of config and keep the answers in caches. Both retry with backoff.
func newReviews(config *rest.Config, backoff wait.Backoff) (authenticator.Request, authorizer.Authorizer, error) {
	config = rest.CopyConfig(config)
	config.Timeout = tryTimeout
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make connection for reviews: %w", err)
	}
	config.RateLimiter = newReviewLimiter()
	tokens, err := authenticationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("make client for TokenReviews: %w", err)
	}
	config.RateLimiter = newReviewLimiter()
	permissions, err := authorizationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("make client for SubjectAccessReviews: %w", err)
	}
	// Anonymous is nil: a request without a token is refused, whatever anonymous users may do. There is no CA for client
	// certificates: they cannot be withdrawn.
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:  tokens,
		TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff:      &backoff,
		CacheTTL:                 tokenTTL,
	}.New()
	if err != nil {
		return nil, nil, fmt.Errorf("make authenticator: %w", err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: permissions,
		AllowCacheTTL:             allowedTTL,
		DenyCacheTTL:              deniedTTL,
		WebhookRetryBackoff:       &backoff,
	}.New()
	if err != nil {
		return nil, nil, fmt.Errorf("make authorizer: %w", err)
	}
	return authn, authz, nil
}

// reviewLimiter limits the rate of reviews. When a review would have to wait for longer than ctx lasts, its error is a
// context.DeadlineExceeded, so that it is recognized as a review that was not made. That of the limiter inside is not.
type reviewLimiter struct{ flowcontrol.RateLimiter }

func newReviewLimiter() reviewLimiter {
	return reviewLimiter{flowcontrol.NewTokenBucketRateLimiter(reviewQPS, reviewBurst)}
}

// Wait implements flowcontrol.RateLimiter.
func (l reviewLimiter) Wait(ctx context.Context) error {
	if err := l.RateLimiter.Wait(ctx); err != nil {
		return fmt.Errorf("too many reviews: %w: %w", err, context.DeadlineExceeded)
	}
	return nil
}
