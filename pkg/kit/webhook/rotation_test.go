package webhook

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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

	"example.com/foo-controller/pkg/kit/reconcile"
)

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
	client := apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "system", Name: "hooks"}}
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
