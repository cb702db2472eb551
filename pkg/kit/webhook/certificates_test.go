package webhook

import (
	"bytes"
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"
)

var names = []string{"hooks.system.svc", "localhost", "127.0.0.1"}

// after returns data with a change.
func after(data, change map[string][]byte) map[string][]byte {
	result := maps.Clone(data)
	if result == nil {
		result = map[string][]byte{}
	}
	maps.Copy(result, change)
	return result
}

// fresh returns the data of a Secret that was empty.
func fresh(t *testing.T, now time.Time) map[string][]byte {
	t.Helper()
	change, _, err := renewal(nil, names, false, now)
	if err != nil {
		t.Fatal(err)
	}
	return after(nil, change)
}

// Whatever somebody does to the Secret, one write makes certificates of it that are right, and there is no second one.
func TestABrokenSecretIsRepaired(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	good, other := fresh(t, now), fresh(t, now)
	for _, test := range []struct {
		name   string
		change map[string][]byte
		age    time.Duration
		names  []string
		// why is "" if nothing is to be repaired.
		why             string
		sameAuthorities bool // The authorities stay, so that clients trust the new certificate at once.
	}{
		{name: "nothing"},
		{name: "all is gone", change: map[string][]byte{
			certificateKey: nil, privateKey: nil, authoritiesKey: nil, authorityPrivateKey: nil,
		}, why: "there is no certificate, or it has another key"},
		{name: "the certificate is gone", change: map[string][]byte{certificateKey: nil},
			why: "there is no certificate, or it has another key", sameAuthorities: true},
		{name: "the key of another certificate", change: map[string][]byte{privateKey: other[privateKey]},
			why: "there is no certificate, or it has another key", sameAuthorities: true},
		{name: "text", change: map[string][]byte{certificateKey: []byte("x"), privateKey: []byte("y")},
			why: "there is no certificate, or it has another key", sameAuthorities: true},
		{name: "a pair of another authority", change: map[string][]byte{
			certificateKey: other[certificateKey], privateKey: other[privateKey],
		}, why: "x509: certificate signed by unknown authority", sameAuthorities: true},
		{name: "the key of the authority is gone", change: map[string][]byte{authorityPrivateKey: nil},
			why: "there is no valid authority whose key is known"},
		{name: "other authorities", change: map[string][]byte{authoritiesKey: other[authoritiesKey]},
			why: "x509: certificate signed by unknown authority"},
		{name: "one more authority", change: map[string][]byte{
			authoritiesKey: append(bytes.Clone(other[authoritiesKey]), good[authoritiesKey]...),
		}},
		{name: "another name", names: []string{"hooks.other.svc"},
			why: "x509: certificate is valid for hooks.system.svc, localhost, not hooks.other.svc", sameAuthorities: true},
		{name: "after 59 days", age: 59 * day},
		{name: "after 61 days", age: 61 * day, why: "the certificate ends in less than a third of its time",
			sameAuthorities: true},
		{name: "after all has ended", age: 3 * 365 * day, why: "x509: certificate has expired or is not yet valid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			now, wanted := now.Add(test.age), test.names
			if wanted == nil {
				wanted = names
			}
			broken := after(good, test.change)
			change, why, err := renewal(broken, wanted, false, now)
			if err != nil || !strings.HasPrefix(why, test.why) || (why == "") != (test.why == "") {
				t.Fatalf("why: %q, %v; want %q", why, err, test.why)
			}
			_, changed := change[authoritiesKey]
			if changed == test.sameAuthorities && test.why != "" {
				t.Errorf("the authorities have changed: %t", changed)
			}
			repaired := after(broken, change)
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(repaired[authoritiesKey])
			served := readKeys(repaired, now).served
			for _, name := range wanted {
				_, err := served.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: now})
				if err != nil {
					t.Errorf("for %s: %v", name, err)
				}
			}
			if change, why, err := renewal(repaired, wanted, false, now); len(change) > 0 || err != nil {
				t.Errorf("changed again: %q, %v", why, err)
			}
			if test.names == nil {
				return
			}
			if change, why, err := renewal(repaired, names, false, now); len(change) > 0 || err != nil {
				t.Errorf("a copy with the previous names changes it again: %q, %v", why, err)
			}
		})
	}
}
