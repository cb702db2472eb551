package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/reconcile"
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

const serverName = "hooks.system.svc"

// A world has the objects of a rotation, copies of a controller that keep them, and an API server that asks each copy.
// In a step of time, everybody hears of what the steps before have written.
type world struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	version int
	stored  objects
	copies  []*member
	// asks is what the API server has heard of.
	asks objects
	// changed is when something was written, and trusted whether the first certificates are made.
	changed time.Time
	trusted bool
}

// objects are replaced, and never changed.
type objects struct {
	secret        *corev1.Secret
	crd           *apiextensionsv1.CustomResourceDefinition
	configuration *admissionregistrationv1.ValidatingWebhookConfiguration
}

// A member is a copy of the controller.
type member struct {
	skew         time.Duration // How much its clock is ahead.
	cached       objects
	serves       *x509.Certificate
	trustedSince time.Time
	memory       reconcile.Memory
}

func newWorld(t *testing.T, seed uint64, skews ...time.Duration) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1", ResourceVersion: "0"}
	}
	client := apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "system",
		Name: "hooks"}}
	w.stored = objects{
		&corev1.Secret{ObjectMeta: meta("system", "hooks")},
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: meta("", "widgets.acme.example.com"),
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &client},
			}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: meta("", "widgets"),
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a.acme.example.com"}, {Name: "b.acme.example.com"}},
		},
	}
	for _, skew := range skews {
		w.copies = append(w.copies, &member{skew: skew})
	}
	return w
}

// step lets time pass, and everybody hear and work.
func (w *world) step(length time.Duration) {
	w.now = w.now.Add(length)
	w.asks = w.stored
	for _, i := range w.random.Perm(len(w.copies)) {
		w.copies[i].hear(w)
	}
	w.check("after everybody has heard")
	for _, i := range w.random.Perm(len(w.copies)) {
		w.copies[i].sync(w)
	}
}

// hear fills the caches of a copy.
func (m *member) hear(w *world) {
	m.cached = w.stored
	if served := readKeys(m.cached.secret.Data, w.now.Add(m.skew)).served; served != nil {
		m.serves = served.Leaf
	}
}

// sync plays a sync of a copy, which may die after each request.
func (m *member) sync(w *world) {
	now := w.now.Add(m.skew)
	in := &input{
		secret: m.cached.secret, crds: []*apiextensionsv1.CustomResourceDefinition{m.cached.crd},
		configurations: []*admissionregistrationv1.ValidatingWebhookConfiguration{m.cached.configuration},
		names:          []string{serverName, "127.0.0.1"}, now: now,
	}
	m.trustedSince = since(m.trustedSince, in)
	in.settled = !m.trustedSince.IsZero() && now.Sub(m.trustedSince) >= settling
	sync := rotation.Sync(in)
	sync.Begin(m.memory, now, w.random.Float64())
	for step := sync.Next(); step != nil; step = sync.Next() {
		sync.Record(step, step.Answered(w.do(step)), now)
		w.check(fmt.Sprint("after ", step.Op))
		if w.random.IntN(3) == 0 { // Another process takes its place.
			*m = member{skew: m.skew}
			m.hear(w)
			return
		}
	}
	_, m.memory = sync.End()
}

// do does a request.
func (w *world) do(step *reconcile.Step) (metav1.Object, error) {
	var secret corev1.Secret
	if step.Kind == secretKind.Kind && json.Unmarshal(step.Patch, &secret) == nil {
		shown := fmt.Sprintf("%+v %v %s %s", step.Fields, step.Log, step.Why, step.Op)
		for _, key := range []string{privateKey, authorityPrivateKey} {
			if value := secret.Data[key]; value != nil && (strings.Contains(shown, string(value)) ||
				strings.Contains(shown, base64.StdEncoding.EncodeToString(value))) {
				w.t.Errorf("what is logged has %s: %s", key, shown)
			}
		}
	}
	if (step.Namespace != "") != (step.Kind == secretKind.Kind) {
		w.t.Errorf("%s has the namespace %q", step.Op, step.Namespace)
	}
	switch step.Kind {
	case secretKind.Kind:
		return do(w, step, &w.stored.secret)
	case crdKind.Kind:
		return do(w, step, &w.stored.crd)
	case configurationKind.Kind:
		return do(w, step, &w.stored.configuration)
	}
	w.t.Fatalf("there is no kind of %s", step.Op)
	return nil, nil
}

func do[T interface {
	*O
	metav1.Object
}, O any](w *world, step *reconcile.Step, stored *T) (metav1.Object, error) {
	have := *stored
	if step.IsRead() {
		return have, nil
	}
	var sent struct{ Metadata metav1.ObjectMeta }
	encoded, err := json.Marshal(have)
	if err := errors.Join(err, json.Unmarshal(step.Patch, &sent)); err != nil {
		w.t.Fatal(err)
	}
	if sent.Metadata.UID != have.GetUID() || sent.Metadata.ResourceVersion != have.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: step.Kind}, step.Name, errors.New("another version"))
	}
	patched, err := strategicpatch.StrategicMergePatch(encoded, step.Patch, have)
	if step.JSONMerge {
		patched, err = jsonpatch.MergePatch(encoded, step.Patch)
	}
	obj := T(new(O))
	if err := errors.Join(err, json.Unmarshal(patched, obj)); err != nil {
		w.t.Fatal(err)
	}
	w.version++
	obj.SetResourceVersion(fmt.Sprint(w.version))
	*stored, w.changed = obj, w.now
	return obj, nil
}

// check fails unless each copy serves a certificate that the API server takes.
func (w *world) check(when string) {
	w.t.Helper()
	bundles := [][]byte{w.asks.crd.Spec.Conversion.Webhook.ClientConfig.CABundle}
	for _, webhook := range w.asks.configuration.Webhooks {
		bundles = append(bundles, webhook.ClientConfig.CABundle)
	}
	for _, bundle := range bundles {
		pool := x509.NewCertPool()
		if bundle == nil && !w.trusted {
			return // The first certificates are just made.
		}
		pool.AppendCertsFromPEM(bundle)
		for i, m := range w.copies {
			if m.serves == nil {
				w.t.Fatalf("%v, %s: copy %d serves nothing", w.now, when, i)
			}
			_, err := m.serves.Verify(x509.VerifyOptions{DNSName: serverName, Roots: pool, CurrentTime: w.now})
			if err != nil {
				w.t.Fatalf("%v, %s: the API server does not take the certificate of copy %d: %v", w.now, when, i, err)
			}
		}
	}
	w.trusted = true
}

// Over ten years, no request fails, whatever the copies of the controller do and however their clocks differ.
func TestYearsOfRotations(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed, 0, 23*time.Hour, -23*time.Hour)
			authorities, certificates := map[string]bool{}, map[string]bool{}
			for end := w.now.AddDate(10, 0, 0); w.now.Before(end); {
				pause := 5 * time.Minute
				if w.now.Sub(w.changed) > time.Hour {
					pause = 2 * day
				}
				w.step(pause)
				data := w.stored.secret.Data
				authorities[string(data[authorityPrivateKey])], certificates[string(data[privateKey])] = true, true
			}
			// An authority each year, and a certificate each 60 days.
			if n := len(authorities); n < 10 || n > 12 {
				t.Errorf("%d authorities in ten years", n)
			}
			if n := len(certificates); n < 55 || n > 75 {
				t.Errorf("%d certificates in ten years", n)
			}
			if size := len(w.stored.secret.Data[authoritiesKey]); size > 4<<10 {
				t.Errorf("the authorities have %d bytes", size)
			}
		})
	}
}

// client-go logs the bodies of requests at V(8) and later.
func TestPrivateKeysAreNotLogged(t *testing.T) {
	var log strings.Builder
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(&log)))
	ctx := klog.NewContext(t.Context(), logger)
	clientGo := func(ctx context.Context, _ string, _ *reconcile.Step) (metav1.Object, error) {
		klog.FromContext(ctx).V(8).Info("Request Body", "body", "the key")
		return nil, nil
	}
	for _, test := range []struct {
		kind   kit.Kind
		logged bool
	}{{kit.Kind{Send: clientGo}, true}, {withoutLog(kit.Kind{Send: clientGo}), false}} {
		log.Reset()
		if _, err := test.kind.Send(ctx, "", nil); err != nil || strings.Contains(log.String(), "the key") != test.logged {
			t.Errorf("logged: %q, %v", log.String(), err)
		}
	}
}
