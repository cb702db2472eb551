package serving

import (
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
)

// How long an answer is reused. A token or permission that was withdrawn works for that long. The durations are those
// of controller-runtime, which an administrator may know.
const (
	tokenTTL   = time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
)

// A token that is not valid is not in the cache, so each request with one costs a review. This rate keeps a client that
// sends many of them from spending what the API server grants this process. A valid token needs one review in a minute.
const (
	reviewQPS   = 5
	reviewBurst = 10
	// tryTimeout is how long one attempt of a review may take.
	tryTimeout = 5 * time.Second
)

// newReviews returns the authenticator and the authorizer of k8s.io/apiserver, which send TokenReviews and
// SubjectAccessReviews to the API server of config and keep the answers in caches. Both retry with backoff.
func newReviews(config *rest.Config, backoff wait.Backoff) (authenticator.Request, authorizer.Authorizer, error) {
	config = rest.CopyConfig(config)
	config.Timeout = tryTimeout
	config.QPS, config.Burst, config.RateLimiter = reviewQPS, reviewBurst, nil
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make connection for reviews: %w", err)
	}
	tokens, err := authenticationclient.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, nil, fmt.Errorf("make client for TokenReviews: %w", err)
	}
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
