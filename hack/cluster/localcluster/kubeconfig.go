package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
