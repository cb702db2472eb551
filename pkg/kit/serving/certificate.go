package serving

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// getCertificate returns the certificate for a TLS handshake. It may be called concurrently.
type getCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificateOf returns the certificate of two files, or what other returns if no files are given.
func certificateOf(certFile, keyFile string, logger klog.Logger, other func() (getCertificate, error)) (
	getCertificate, error) {
	switch {
	case certFile == "" && keyFile == "":
		return other()
	case certFile == "" || keyFile == "":
		return nil, errors.New("the certificate and its key are two files; give both or none")
	}
	files, err := newCertFiles(certFile, keyFile, logger)
	if err != nil {
		return nil, err
	}
	return files.get, nil
}

// selfSignedAge is how long a self-signed certificate is valid. It is longer than any process runs, because nothing
// replaces the certificate.
const selfSignedAge = 10 * 365 * 24 * time.Hour

// selfSigned returns a certificate that is made now and is only in memory. It encrypts the connection. It does not
// prove which server this is, so clients can only use it without verification.
func selfSigned() (getCertificate, error) {
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{
		Host: "localhost", AlternateIPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, MaxAge: selfSignedAge,
	})
	if err != nil {
		return nil, fmt.Errorf("make a self-signed certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("make a self-signed certificate: %w", err)
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
}

// certFiles is a certificate and its key in two files, which may be replaced at any time.
//
// The files are read for each handshake, and parsed if one of them has changed. That costs a small part of the
// handshake, needs no goroutine and no watch of the file system, and a new certificate is served at once. If the files
// cannot be read, or the key does not belong to the certificate because only one of them is replaced yet, the previous
// pair is served.
type certFiles struct {
	certFile, keyFile string
	logger            klog.Logger

	mu              sync.Mutex
	certPEM, keyPEM []byte           // The content of the files that current was made of. mu guards it and the others.
	current         *tls.Certificate // The newest pair that was valid.
	failure         string           // Why the newest content is not served. "" if it is.
}

// newCertFiles returns the pair in the two files. It is an error if there is no valid pair now.
func newCertFiles(certFile, keyFile string, logger klog.Logger) (*certFiles, error) {
	f := &certFiles{certFile: certFile, keyFile: keyFile, logger: logger}
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// get implements getCertificate.
func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.load()
	if err != nil {
		f.report(err)
		return f.current, nil
	}
	f.failure = ""
	if changed {
		f.logger.Info("Loaded the new certificate", "file", f.certFile)
	}
	return f.current, nil
}

// load reads the files, and parses their content if it has changed. mu must be held, except during construction.
func (f *certFiles) load() (changed bool, err error) {
	certPEM, err := os.ReadFile(f.certFile)
	if err != nil {
		return false, fmt.Errorf("read certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.keyFile)
	if err != nil {
		return false, fmt.Errorf("read key of certificate: %w", err)
	}
	if f.current != nil && bytes.Equal(certPEM, f.certPEM) && bytes.Equal(keyPEM, f.keyPEM) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return false, fmt.Errorf("certificate %s with key %s: %w", f.certFile, f.keyFile, err)
	}
	f.certPEM, f.keyPEM, f.current = certPEM, keyPEM, &pair
	return true, nil
}

// report logs err, unless it is the error of the last handshake. mu must be held.
func (f *certFiles) report(err error) {
	if f.failure == err.Error() {
		return
	}
	f.failure = err.Error()
	f.logger.Error(err, "Cannot load the certificate, serving the previous one", "file", f.certFile)
}
