package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// newPair returns a certificate for name and its key.
func newPair(t testing.TB, name string) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// writePair writes a certificate for name and its key to files in dir, and returns their paths.
func writePair(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certPEM, keyPEM := newPair(t, name)
	write(t, certFile, certPEM)
	write(t, keyFile, keyPEM)
	return certFile, keyFile
}

func write(t testing.TB, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// served returns the name in the certificate that the server at url has in a new connection.
func served(t *testing.T, url string) string {
	t.Helper()
	resp, _ := send(t, newClient(t), http.MethodGet, url, reader)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s returned %s", url, resp.Status)
	}
	return resp.TLS.PeerCertificates[0].Subject.CommonName
}

// The steps of a replacement, and of failures during it, as a new connection sees them.
func TestCertificatesAreReplacedWithoutRestart(t *testing.T) {
	noLeaks(t)
	ctx, lines := newLog(t)
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, "first")
	server, err := NewMetrics(ctx, MetricsConfig{
		Address: anyPort, Handler: metricsHandler(t), API: &rest.Config{Host: newAPIServer(t).URL},
		CertFile: certFile, KeyFile: keyFile, backoff: &wait.Backoff{Steps: 1},
	})
	url := start(t, server, err) + metricsPath
	second, secondKey := newPair(t, "second")

	got := []string{served(t, url)}
	write(t, certFile, second) // The key is still the first one.
	got = append(got, served(t, url), served(t, url))
	write(t, keyFile, secondKey)
	got = append(got, served(t, url), served(t, url))
	os.Remove(certFile)
	got = append(got, served(t, url))
	write(t, certFile, second)
	got = append(got, served(t, url))
	os.Remove(certFile) // For the second time, so it is logged again.
	got = append(got, served(t, url))
	write(t, certFile, second)
	write(t, keyFile, []byte("no key"))
	got = append(got, served(t, url))
	writePair(t, dir, "third")
	got = append(got, served(t, url))

	want := []string{"first", "first", "first", "second", "second", "second", "second", "second", "second", "third"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong certificates (-want +got):\n%s", diff)
	}
	wantLines := []string{
		"ERROR Cannot load the certificate, serving the previous one err=certificate DIR/tls.crt with key DIR/tls.key: " +
			"tls: private key does not match public key file=DIR/tls.crt",
		"INFO Loaded the new certificate file=DIR/tls.crt",
		"ERROR Cannot load the certificate, serving the previous one err=read certificate: open DIR/tls.crt: " +
			"no such file or directory file=DIR/tls.crt",
		"ERROR Cannot load the certificate, serving the previous one err=read certificate: open DIR/tls.crt: " +
			"no such file or directory file=DIR/tls.crt",
		"ERROR Cannot load the certificate, serving the previous one err=certificate DIR/tls.crt with key DIR/tls.key: " +
			"tls: failed to find any PEM data in key input file=DIR/tls.crt",
		"INFO Loaded the new certificate file=DIR/tls.crt",
	}
	gotLines := strings.Split(strings.ReplaceAll(strings.Join(lines(), "\n"), dir, "DIR"), "\n")
	if diff := cmp.Diff(wantLines, gotLines); diff != "" {
		t.Errorf("wrong log (-want +got):\n%s", diff)
	}
}

// The kubelet replaces the files of a Secret at once: it changes the target of a link to their directory.
func TestCertificatesOfASecretAreReplaced(t *testing.T) {
	dir := t.TempDir()
	link := func(target string) {
		if err := os.Symlink(target, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"first", "second"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		writePair(t, filepath.Join(dir, name), name)
	}
	link("first")
	files, err := newCertFiles(filepath.Join(dir, "..data/tls.crt"), filepath.Join(dir, "..data/tls.key"), klog.Logger{})
	if err != nil {
		t.Fatal(err)
	}
	link("second")
	if changed, err := files.load(); err != nil || !changed || files.current.Leaf.Subject.CommonName != "second" {
		t.Errorf("got %s, changed %v, error %v", files.current.Leaf.Subject, changed, err)
	}
}

func TestCertificatesThatCannotBeUsedAreRefusedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := writePair(t, dir, "first")
	_, otherKey := newPair(t, "other")
	otherKeyFile := filepath.Join(dir, "other.key")
	write(t, otherKeyFile, otherKey)
	for _, tc := range []struct {
		name, certFile, keyFile, want string
	}{
		{"no key", certFile, "", "the certificate and its key are two files; give both or none"},
		{"no certificate", "", keyFile, "the certificate and its key are two files; give both or none"},
		{
			"a missing certificate", certFile + ".old", keyFile,
			"read certificate: open DIR/tls.crt.old: no such file or directory",
		},
		{
			"a missing key", certFile, keyFile + ".old",
			"read key of certificate: open DIR/tls.key.old: no such file or directory",
		},
		{
			"the key of another certificate", certFile, otherKeyFile,
			"certificate DIR/tls.crt with key DIR/other.key: tls: private key does not match public key",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewMetrics(t.Context(), MetricsConfig{
				Address: anyPort, API: &rest.Config{}, CertFile: tc.certFile, KeyFile: tc.keyFile,
			})
			if err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != tc.want {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
		})
	}
}

func TestACertificateThatDidNotChangeIsNotParsedAgain(t *testing.T) {
	certFile, keyFile := writePair(t, t.TempDir(), "first")
	files, err := newCertFiles(certFile, keyFile, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	first := files.current
	if got, err := files.get(nil); got != first || err != nil {
		t.Errorf("got another certificate, error %v", err)
	}
}

// Old versions of TLS are refused, and a certificate without files encrypts.
func TestMetricsHaveASelfSignedCertificateWithoutFiles(t *testing.T) {
	noLeaks(t)
	server, err := NewMetrics(t.Context(), MetricsConfig{
		Address: anyPort, Handler: metricsHandler(t), API: &rest.Config{Host: newAPIServer(t).URL},
	})
	url := start(t, server, err)
	client := newClient(t)
	resp, _ := send(t, client, http.MethodGet, url+metricsPath, reader)
	leaf := resp.TLS.PeerCertificates[0]
	if err := leaf.VerifyHostname("127.0.0.1"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %s, error %v", resp.Status, err)
	}
	if time.Until(leaf.NotAfter) < selfSignedAge-48*time.Hour {
		t.Errorf("the certificate ends at %s", leaf.NotAfter)
	}
	_, err = tls.Dial("tcp", server.Address(), &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
	})
	if err == nil || !strings.Contains(err.Error(), "protocol version not supported") {
		t.Errorf("with TLS 1.1 the error is %v", err)
	}
}

// BenchmarkFilesOfAHandshake measures the time that reading the files adds to a handshake.
func BenchmarkFilesOfAHandshake(b *testing.B) {
	certFile, keyFile := writePair(b, b.TempDir(), "first")
	files, err := newCertFiles(certFile, keyFile, klog.Background())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := files.get(nil); err != nil {
			b.Fatal(err)
		}
	}
}
