package webhook

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
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
	change[authoritiesKey], change[authorityPrivateKey] = encodeCertificates(k.authorities...), encoded
	return nil
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
	change[certificateKey], change[privateKey] = encodeCertificates(certificate), encoded
	return nil
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

func encodeCertificates(all ...*x509.Certificate) (encoded []byte) {
	for _, one := range all {
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: one.Raw})...)
	}
	return encoded
}
