package leader

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestWhatIsWrongWithAConfigurationIsReported(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string // Empty if nothing is wrong.
	}{
		{name: "the defaults", change: func(*Config) {}},
		{name: "the shortest", change: func(c *Config) {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 2*time.Second, 1999*time.Millisecond, time.Millisecond
		}},
		{name: "no retry period", change: func(c *Config) { c.RetryPeriod = 0 },
			want: "retry period 0s: it must be positive"},
		{name: "a fraction of a second", change: func(c *Config) { c.LeaseDuration = 15500 * time.Millisecond },
			want: "lease duration 15.5s: it must be a number of whole seconds"},
		{name: "a second", change: func(c *Config) {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = time.Second, 500*time.Millisecond, 100*time.Millisecond
		}, want: "lease duration 1s: it must be longer than a second"},
		{name: "a negative lease duration", change: func(c *Config) { c.LeaseDuration = -time.Second },
			want: "lease duration -1s: it must be longer than a second"},
		{name: "a deadline without a margin", change: func(c *Config) { c.RenewDeadline = c.LeaseDuration },
			want: "renew deadline 15s: it must be shorter than the lease duration, 15s"},
		{name: "no time for a second attempt", change: func(c *Config) { c.RenewDeadline = 2400 * time.Millisecond },
			want: "renew deadline 2.4s: it must be longer than 1.2 times the retry period, 2s"},
		{name: "no name", change: func(c *Config) { c.Name = "" }, want: `name of the Lease ""`},
		{name: "a name that is not allowed", change: func(c *Config) { c.Name = "A" }, want: `name of the Lease "A"`},
		{name: "a namespace that is not allowed", change: func(c *Config) { c.Namespace = "a.b" },
			want: `namespace of the Lease "a.b"`},
	} {
		c := defaultSettings
		c.Connection = &rest.Config{Host: "http://server"}
		test.change(&c)
		_, err := New(c)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestTheNamespaceOfThePodIsTheDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte("foo-system\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaultSettings
	c.Connection, c.Namespace = &rest.Config{Host: "http://server"}, ""
	e, err := newElector(c, file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.lock.Describe(), "foo-system/foo-controller"; got != want {
		t.Errorf("got the Lease %s, want %s", got, want)
	}
	if _, err := newElector(c, file+"-that-does-not-exist"); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("outside of a pod: got %v, want %v", err, ErrNoNamespace)
	}
	if _, err := newElector(c, filepath.Dir(file)); err == nil || errors.Is(err, ErrNoNamespace) {
		t.Errorf("a file that cannot be read: got %v, want its error", err)
	}
}

func TestEveryElectorHasAnIdentityOfItsOwn(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 10 {
		c := defaultSettings
		c.Connection = &rest.Config{Host: "http://server"}
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.lock.identity] || !strings.HasPrefix(e.lock.identity, host+"_") {
			t.Errorf("got the identity %q, want a new one that begins with the name of the host", e.lock.identity)
		}
		seen[e.lock.identity] = true
	}
}
