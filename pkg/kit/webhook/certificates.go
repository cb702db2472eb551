package webhook

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// What the Secret has: the certificate and its key, the authorities that clients are to trust, the newest first, and
// the key of the newest one. Keys of others are not kept.
const (
	certificateKey, privateKey = corev1.TLSCertKey, corev1.TLSPrivateKeyKey
	authoritiesKey             = "ca.crt"
	authorityPrivateKey        = "ca.key"
)

const (
	day = 24 * time.Hour
	// authorityAge is how long an authority is valid. After half of it there is a new one, and clients trust both until
	// the old one ends.
	authorityAge = 2 * 365 * day
	// certificateAge is how long a certificate is valid. After two thirds of it there is a new one.
	certificateAge = 90 * day
	// backdated is how long before now both become valid: a clock may be so late.
	backdated = day
	// settling is how long all have trusted an authority before it signs the certificate that is served: each API server
	// hears of it a bit later.
	settling = 10 * time.Minute
)

// keys are the content of the Secret that can be used.
type keys struct {
	authorities []*x509.Certificate // Those that have not ended, the newest first.
	// newest is the authority whose key is known, which is signer. Both may be nil.
	newest *x509.Certificate
	signer crypto.Signer
	served *tls.Certificate // Nil without one, or if it has another key. It may have ended.
}

// readKeys returns what can be used of a Secret. Somebody may have put anything into it.
func readKeys(data map[string][]byte, now time.Time) (k keys) {
	found, _ := certutil.ParseCertsPEM(data[authoritiesKey])
	for _, authority := range found {
		if authority.IsCA && now.Before(authority.NotAfter) && begun(authority, now) {
			k.authorities = append(k.authorities, authority)
		}
	}
	parsed, _ := keyutil.ParsePrivateKeyPEM(data[authorityPrivateKey])
	if key, isKey := parsed.(*ecdsa.PrivateKey); isKey {
		for _, authority := range k.authorities {
			if key.PublicKey.Equal(authority.PublicKey) {
				k.newest, k.signer = authority, key
			}
		}
	}
	if pair, err := tls.X509KeyPair(data[certificateKey], data[privateKey]); err == nil {
		k.served = &pair
	}
	return k
}

// begun reports whether a certificate is valid by now, or is by a clock that is ahead of this one by as much as clocks
// may differ.
func begun(certificate *x509.Certificate, now time.Time) bool {
	return certificate.NotBefore.Sub(now) <= backdated
}

// later returns now, or when a certificate begins to be valid, if a clock that is ahead of this one has made it.
func later(now time.Time, certificate *x509.Certificate) time.Time {
	if now.Before(certificate.NotBefore) && begun(certificate, now) {
		return certificate.NotBefore
	}
	return now
}

// lifetime is how long a certificate is valid. The one of another version of this package may be longer or shorter.
func lifetime(certificate *x509.Certificate) time.Duration {
	return certificate.NotAfter.Sub(certificate.NotBefore)
}

// trusts reports whether clients that trust a bundle trust an authority.
func trusts(bundle []byte, authority *x509.Certificate) bool {
	found, _ := certutil.ParseCertsPEM(bundle)
	return slices.ContainsFunc(found, authority.Equal)
}

// renewal returns what is to be changed in the data of the Secret, and why, or nothing. settled means that all clients
// have trusted the newest authority for long enough.
func renewal(data map[string][]byte, names []string, settled bool, now time.Time) (change map[string][]byte, why string,
	err error) {
	k := readKeys(data, now)
	change = map[string][]byte{}
	if why = k.needsAuthority(now); why != "" {
		settled = false
		if err = k.addAuthority(now, change); err != nil {
			return nil, "", err
		}
	}
	reason := k.needsCertificate(settled, now)
	if reason == "" {
		// The names that it has stay, so that another version of the controller with other names does not sign again.
		reason = k.lacksName(names)
		names = sets.List(sets.New(names...).Union(sets.New(k.names()...)))
	}
	if reason != "" {
		why = reason
		err = k.sign(names, now, change)
	}
	return change, why, err
}

// needsAuthority returns why a new authority is needed, or "".
func (k *keys) needsAuthority(now time.Time) string {
	switch {
	case k.newest == nil:
		return "there is no valid authority whose key is known"
	case now.After(k.newest.NotAfter.Add(-lifetime(k.newest) / 2)):
		return "the authority ends in less than half of its time"
	}
	return ""
}

// needsCertificate returns why a new certificate is needed, or "". The newest authority signs it, so one that clients
// still take is replaced only when they trust that.
func (k *keys) needsCertificate(settled bool, now time.Time) string {
	if k.served == nil {
		return "there is no certificate, or it has another key"
	}
	served, pool, at := k.served.Leaf, x509.NewCertPool(), now
	for _, authority := range k.authorities {
		pool.AddCert(authority)
		at = later(at, authority)
	}
	if _, err := served.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: later(at, served)}); err != nil {
		return err.Error()
	}
	ofNewest := served.CheckSignatureFrom(k.newest) == nil
	switch {
	case !ofNewest && settled:
		return "there is a newer authority"
	case ofNewest && now.After(served.NotAfter.Add(-lifetime(served)/3)):
		return "the certificate ends in less than a third of its time"
	}
	return ""
}

// lacksName returns which name the certificate lacks, or "".
func (k *keys) lacksName(names []string) string {
	for _, name := range names {
		if err := k.served.Leaf.VerifyHostname(name); err != nil {
			return err.Error()
		}
	}
	return ""
}

// names are those of the certificate.
func (k *keys) names() []string {
	names := slices.Clone(k.served.Leaf.DNSNames)
	for _, ip := range k.served.Leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// addAuthority makes an authority, and puts what is to be stored into change.
func (k *keys) addAuthority(now time.Time, change map[string][]byte) error {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "webhooks"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotAfter: now.Add(authorityAge),
	}
	key, encoded, err := newKey()
	if err != nil {
		return err
	}
	authority, err := issue(template, template, key, key, now)
	if err != nil {
		return err
	}
	k.authorities, k.newest, k.signer = append([]*x509.Certificate{authority}, k.authorities...), authority, key
	change[authorityPrivateKey] = encoded
	change[authoritiesKey], err = certutil.EncodeCertificates(k.authorities...)
	return err
}

// sign makes a certificate of the newest authority, and puts what is to be stored into change.
func (k *keys) sign(names []string, now time.Time, change map[string][]byte) error {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage: x509.KeyUsageDigitalSignature, NotAfter: now.Add(certificateAge),
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	key, encoded, err := newKey()
	if err != nil {
		return err
	}
	certificate, err := issue(template, k.newest, key, k.signer, now)
	if err != nil {
		return err
	}
	change[privateKey] = encoded
	change[certificateKey], err = certutil.EncodeCertificates(certificate)
	return err
}

// issue returns a certificate for the public part of key.
func issue(template, parent *x509.Certificate, key, signer crypto.Signer, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	template.SerialNumber, template.NotBefore = serial, now.Add(-backdated)
	encoded, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return x509.ParseCertificate(encoded)
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, encoded, err
}

// The kinds of the objects that are written.
var (
	secretKind = reconcile.KindOf[*corev1.Secret](corev1.SchemeGroupVersion.WithKind("Secret"))
	crdKind    = reconcile.KindOf[*apiextensionsv1.CustomResourceDefinition](
		apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	configurationKind = reconcile.KindOf[*admissionregistrationv1.ValidatingWebhookConfiguration](
		admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
)

// An input is what a sync of the certificates reads.
type input struct {
	secret         *corev1.Secret
	crds           []*apiextensionsv1.CustomResourceDefinition
	configurations []*admissionregistrationv1.ValidatingWebhookConfiguration
	// names are the host names in the certificate, the first of them is for people.
	names []string
	// settled means that all have trusted the newest authority for long enough.
	settled bool
	now     time.Time
}

// rotation keeps the certificates in a Secret, and makes the API server trust them. A new authority is trusted before
// it signs.
var rotation = reconcile.New(reconcile.Plan[input]{
	Object:             func(in *input) reconcile.Ref { return reconcile.RefTo(secretKind, &in.secret) },
	ObservedGeneration: func(in *input) int64 { return in.secret.Generation }, // It has none.
	Rules: []reconcile.Rule[input]{
		{Name: "renew certificates", Ask: (*input).renew},
		{Name: "trust for conversion", Ask: (*input).trustForConversion},
		{Name: "trust for validation", Ask: (*input).trustForValidation},
	},
	Status: func(*input, *reconcile.Sync) *reconcile.Step { return nil },
})

func (in *input) renew() reconcile.Answer {
	change, why, err := renewal(in.secret.Data, in.names, in.settled, in.now)
	if err != nil {
		return reconcile.Answer{Final: true, Why: err.Error()}
	}
	if len(change) == 0 {
		return reconcile.Answer{Why: "the certificates are valid"}
	}
	step := reconcile.PatchStep(secretKind, &in.secret, patchOf(in.secret, "data", change), fieldsOf(change))
	step.Spec = true
	return reconcile.Answer{Steps: []*reconcile.Step{step}, Why: why}
}

// patchOf returns a patch of a field of an object in this version.
func patchOf(obj metav1.Object, field string, value any) []byte {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion()}, field: value,
	})
	if err != nil {
		panic(err) // Texts and bytes can always be encoded.
	}
	return patch
}

// fieldsOf returns what is changed in the Secret, without the values.
func fieldsOf(change map[string][]byte) (fields []reconcile.Field) {
	for _, key := range slices.Sorted(maps.Keys(change)) {
		fields = append(fields, reconcile.Field{Path: "data[" + key + "]"})
	}
	return fields
}

// bundle are the authorities that the API server is to trust.
func (in *input) bundle() []byte { return in.secret.Data[authoritiesKey] }

// trustForConversion makes the API server trust the authorities when it asks for conversions.
func (in *input) trustForConversion() (a reconcile.Answer) {
	for i, crd := range in.crds {
		client := clientOf(crd)
		if client == nil || bytes.Equal(client.CABundle, in.bundle()) {
			continue
		}
		patch := patchOf(crd, "spec", map[string]any{"conversion": map[string]any{"webhook": map[string]any{
			"clientConfig": map[string]any{"caBundle": in.bundle()},
		}}})
		step := reconcile.PatchStep(crdKind, &in.crds[i], patch, bundleField)
		step.JSONMerge, step.Spec = true, true
		a.Steps = append(a.Steps, step)
	}
	return explained(a)
}

// trustForValidation makes the API server trust the authorities when it asks for validations.
func (in *input) trustForValidation() (a reconcile.Answer) {
	for i, configuration := range in.configurations {
		var webhooks []map[string]any
		for _, webhook := range configuration.Webhooks {
			if !bytes.Equal(webhook.ClientConfig.CABundle, in.bundle()) {
				webhooks = append(webhooks, map[string]any{
					"name": webhook.Name, "clientConfig": map[string]any{"caBundle": in.bundle()},
				})
			}
		}
		if webhooks == nil {
			continue
		}
		step := reconcile.PatchStep(configurationKind, &in.configurations[i],
			patchOf(configuration, "webhooks", webhooks), bundleField)
		step.Spec = true
		a.Steps = append(a.Steps, step)
	}
	return explained(a)
}

var bundleField = []reconcile.Field{{Path: "caBundle"}}

func explained(a reconcile.Answer) reconcile.Answer {
	a.Why = "the API server trusts the authorities"
	if a.Steps != nil {
		a.Why = "the API server does not trust the authorities, or others"
	}
	return a
}

// clientOf returns how the API server asks for conversions of a kind, nil if it asks nobody.
func clientOf(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil {
		return nil
	}
	return crd.Spec.Conversion.Webhook.ClientConfig
}

// trusted reports whether all ask this server with trust in the newest authority.
func (in *input) trusted() bool {
	newest := readKeys(in.secret.Data, in.now).newest
	if newest == nil {
		return false
	}
	for _, crd := range in.crds {
		if client := clientOf(crd); client != nil && !trusts(client.CABundle, newest) {
			return false
		}
	}
	for _, configuration := range in.configurations {
		for _, webhook := range configuration.Webhooks {
			if !trusts(webhook.ClientConfig.CABundle, newest) {
				return false
			}
		}
	}
	return true
}

// since returns since when all have trusted the newest authority, given what that was at the last sync.
func since(was time.Time, in *input) time.Time {
	switch {
	case !in.trusted():
		return time.Time{}
	case was.IsZero():
		return in.now
	}
	return was
}

// trim keeps of an object what a sync of the certificates reads.
func trim(obj any) (any, error) {
	if object, is := obj.(metav1.Object); is {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	if crd, is := obj.(*apiextensionsv1.CustomResourceDefinition); is {
		crd.Status, crd.Spec.Versions = apiextensionsv1.CustomResourceDefinitionStatus{}, nil
	}
	return obj, nil
}
