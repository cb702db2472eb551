package leader

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
)

// The durations that Kubernetes' own components use.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// namespaceFile has the namespace of the pod, wherever a ServiceAccount is mounted.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ErrNoNamespace means that no namespace was given, and the process does not run in a pod.
var ErrNoNamespace = errors.New("the process does not run in a pod, so there is no default for the namespace")

// Config describes an election. All processes that take part must have the same Name, Namespace and durations.
type Config struct {
	// Connection is how to reach the API server. New copies it, and opens a connection of its own for the Lease. So
	// it may be changed afterwards, and it must not have the gate.
	Connection *rest.Config
	// Name and Namespace are those of the Lease. Without a namespace it is that of the pod in which the process runs.
	Name, Namespace string
	// LeaseDuration is how long others wait after the last renewal that they have seen. Whole seconds, as in the Lease.
	LeaseDuration time.Duration
	// RenewDeadline is how long a renewal allows to write. The difference to LeaseDuration is the margin for clocks that
	// do not run at the same speed.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals, and at most 2.2 times of it is the time between two attempts of a
	// standby to take the Lease.
	RetryPeriod time.Duration
}

// complete returns the configuration with its default namespace, or what is wrong with it.
func (c Config) complete(namespaceFile string) (Config, error) {
	if c.Namespace == "" {
		var err error
		if c.Namespace, err = podNamespace(namespaceFile); err != nil {
			return c, err
		}
	}
	return c, errors.Join(c.checkNames(), c.checkDurations())
}

// PodNamespace returns the namespace of the pod in which the process runs, ErrNoNamespace outside of a pod, or an error
// if it cannot be read.
func PodNamespace() (string, error) { return podNamespace(namespaceFile) }

func podNamespace(file string) (string, error) {
	namespace, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", ErrNoNamespace
	case err != nil:
		return "", fmt.Errorf("read the namespace of the pod: %w", err)
	}
	return strings.TrimSpace(string(namespace)), nil
}

func (c Config) checkNames() error {
	if wrong := validation.NameIsDNSSubdomain(c.Name, false); len(wrong) > 0 {
		return fmt.Errorf("name of the Lease %q: %s", c.Name, strings.Join(wrong, "; "))
	}
	if wrong := validation.ValidateNamespaceName(c.Namespace, false); len(wrong) > 0 {
		return fmt.Errorf("namespace of the Lease %q: %s", c.Namespace, strings.Join(wrong, "; "))
	}
	return nil
}

// checkDurations has the rules of client-go, in words for people, and two of its own: a Lease has whole seconds, and
// client-go would cut the rest off, so that others wait for less time than they should.
func (c Config) checkDurations() error {
	const jitter = leaderelection.JitterFactor
	switch {
	case c.RetryPeriod <= 0:
		return fmt.Errorf("retry period %v: it must be positive", c.RetryPeriod)
	case c.LeaseDuration%time.Second != 0:
		return fmt.Errorf("lease duration %v: it must be a number of whole seconds", c.LeaseDuration)
	case c.LeaseDuration <= time.Second:
		return fmt.Errorf("lease duration %v: it must be longer than a second, which is the duration of a released Lease",
			c.LeaseDuration)
	case c.RenewDeadline >= c.LeaseDuration:
		return fmt.Errorf("renew deadline %v: it must be shorter than the lease duration, %v; the difference is how much "+
			"faster the clock of another machine may run", c.RenewDeadline, c.LeaseDuration)
	case float64(c.RenewDeadline) <= jitter*float64(c.RetryPeriod):
		return fmt.Errorf("renew deadline %v: it must be longer than %v times the retry period, %v, "+
			"to have time for a second attempt", c.RenewDeadline, jitter, c.RetryPeriod)
	}
	return nil
}

// requestTimeout returns how long a request for the Lease may take. A renewal is sent a retry period after the answer
// to the last one, and must be answered before the gate closes: two slow answers in a row fit. With slower ones, each
// copy would become leader for a moment, lose the leadership and exit, one after the other. With this limit nobody
// becomes leader then, and nobody exits. It also leaves time for a second attempt if a renewal hangs.
func (c Config) requestTimeout() time.Duration { return (c.RenewDeadline - c.RetryPeriod) / 2 }

// newIdentity returns a name for this process that no other process has or will have.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("identity for the election: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}
