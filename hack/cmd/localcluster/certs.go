package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime is the longest time that one "up" can run. It issues new certificates at each start.
	leafLifetime = 365 * 24 * time.Hour
)

// A pki has the keys and certificates of one cluster, as files in one directory. The authorities and
// the key for ServiceAccount tokens never change, because etcd and users keep what they have signed.
type pki struct {
	dir         string
	ca, etcdCA  authority
	admin       credentials
	controllers map[string]credentials
	etcdClient  tls.Certificate
}

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // of cert
}

// Credentials are a certificate and its key as PEM.
type credentials struct{ cert, key []byte }

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir, controllers: map[string]credentials{}}
	var err error
	if p.ca, err = p.authority("ca"); err != nil {
		return nil, err
	}
	// etcd trusts an authority of its own. The authority of the cluster also signs certificates of users,
	// with which they could bypass RBAC by connecting to etcd.
	if p.etcdCA, err = p.authority("etcd-ca"); err != nil {
		return nil, err
	}
	if err := p.serviceAccountKey(); err != nil {
		return nil, err
	}

	server := pkix.Name{CommonName: "localcluster"}
	if _, err := p.issue(p.ca, "server", server, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	if _, err := p.issue(p.etcdCA, "etcd-server", server, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	etcdClient, err := p.issue(p.etcdCA, "etcd-client", pkix.Name{CommonName: apiServer}, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	if p.etcdClient, err = tls.X509KeyPair(etcdClient.cert, etcdClient.key); err != nil {
		return nil, err
	}
	admin := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	if p.admin, err = p.issue(p.ca, "admin", admin, x509.ExtKeyUsageClientAuth); err != nil {
		return nil, err
	}
	for _, name := range []string{controllerManager, scheduler} {
		subject := pkix.Name{CommonName: "system:" + name}
		if p.controllers[name], err = p.issue(p.ca, name, subject, x509.ExtKeyUsageClientAuth); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// authority returns the authority that is stored under name. It creates the authority if it does not exist.
func (p *pki) authority(name string) (authority, error) {
	pair, err := tls.LoadX509KeyPair(p.file(name+".crt"), p.file(name+".key"))
	if err == nil {
		key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
		if !ok {
			return authority{}, fmt.Errorf("%s: not a key of ours", p.file(name+".key"))
		}
		return authority{cert: pair.Leaf, key: key, pem: encode("CERTIFICATE", pair.Certificate[0])}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return authority{}, fmt.Errorf("load the authority %s: %w", name, err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := newTemplate(pkix.Name{CommonName: "localcluster-" + name}, authorityLifetime)
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	creds, err := sign(template, template, key, key)
	if err != nil {
		return authority{}, err
	}
	if err := p.write(name, creds); err != nil {
		return authority{}, err
	}
	block, _ := pem.Decode(creds.cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	return authority{cert: cert, key: key, pem: creds.cert}, err
}

// issue creates a certificate for subject and stores it under name.
func (p *pki) issue(ca authority, name string, subject pkix.Name, usage x509.ExtKeyUsage) (credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return credentials{}, err
	}
	template := newTemplate(subject, leafLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	if usage == x509.ExtKeyUsageServerAuth {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceAddress)}
		template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	}
	creds, err := sign(template, ca.cert, key, ca.key)
	if err != nil {
		return credentials{}, err
	}
	return creds, p.write(name, creds)
}

// serviceAccountKey creates the key pair for ServiceAccount tokens, unless it exists.
func (p *pki) serviceAccountKey() error {
	if _, err := os.Stat(p.file("sa.pub")); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.file("sa.key"), encode("PRIVATE KEY", private), 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.file("sa.pub"), encode("PUBLIC KEY", public), 0o600)
}

func (p *pki) write(name string, creds credentials) error {
	// The key is written first, so that an authority with a certificate is complete.
	if err := os.WriteFile(p.file(name+".key"), creds.key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.file(name+".crt"), creds.cert, 0o600)
}

func newTemplate(subject pkix.Name, lifetime time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // rand.Reader does not fail.
	return &x509.Certificate{
		Subject:               subject,
		SerialNumber:          serial,
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(lifetime),
		BasicConstraintsValid: true,
	}
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (credentials, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, crypto.PublicKey(key.Public()), parentKey)
	if err != nil {
		return credentials{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return credentials{}, err
	}
	return credentials{cert: encode("CERTIFICATE", der), key: encode("PRIVATE KEY", private)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeKubeconfigs writes D/kubeconfig, for the administrator, and one for each controller.
func (c *cluster) writeKubeconfigs() error {
	if err := c.writeKubeconfig("kubeconfig", "admin", c.pki.admin); err != nil {
		return err
	}
	for name, creds := range c.pki.controllers {
		if err := c.writeKubeconfig(name+".kubeconfig", "system:"+name, creds); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) writeKubeconfig(file, user string, creds credentials) error {
	const name = "localcluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.url(apiServer), CertificateAuthorityData: c.pki.ca.pem}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: creds.cert, ClientKeyData: creds.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: "default"}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	return writeFile(c.file(file), data)
}

// writeFile replaces a file atomically, so that no reader sees half of it. Only the owner can read it.
func writeFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // Mode 0600.
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if _, err := temp.Write(data); err != nil {
		temp.Close()
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	giveToOwner(temp.Name())
	return os.Rename(temp.Name(), path)
}

// giveToOwner gives a file to the owner of its directory, or all that is in a directory to the owner of that one. Only
// root can: a user who starts nodes with sudo has to read the files, and to remove them.
func giveToOwner(path string) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		info, err = os.Stat(filepath.Dir(path))
	}
	if err != nil || os.Geteuid() != 0 {
		return
	}
	owner := info.Sys().(*syscall.Stat_t)
	filepath.WalkDir(path, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			os.Lchown(path, int(owner.Uid), int(owner.Gid)) // An error shows when the user needs the file.
		}
		return nil
	})
}
