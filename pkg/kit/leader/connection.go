package leader

import (
	"cmp"
	"fmt"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// leaseConnection returns a copy of config for the Lease alone: a connection on which nothing can delay a renewal, and
// which no gate closes.
func leaseConnection(config *rest.Config, timeout time.Duration) *rest.Config {
	c := rest.CopyConfig(config)
	c.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent()) + "/leader-election"
	c.Timeout = timeout
	// HTTP/1.1 closes a connection on which a request has timed out, so that the second one uses another connection. With
	// HTTP/2, both would use the dead connection, which client-go notices only after 45 seconds. client-go shares
	// connections between configs that are equal, so this is also why the Lease has one of its own.
	c.NextProtos = []string{"http/1.1"}
	c.QPS, c.RateLimiter = -1, nil // One request every two seconds needs no limit, and must not wait for others.
	return c
}

// leaseClient returns the client for the Leases of a namespace.
func leaseClient(config *rest.Config, c Config) (coordinationv1client.LeaseInterface, error) {
	client, err := coordinationv1client.NewForConfig(leaseConnection(config, c.requestTimeout()))
	if err != nil {
		return nil, fmt.Errorf("make client for the Lease: %w", err)
	}
	return client.Leases(c.Namespace), nil
}
