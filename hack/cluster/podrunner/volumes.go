//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// volumes are the volumes of a pod, each a directory of the machine. They are projected volumes, as the one with the
// token of the ServiceAccount, the CA and the namespace, which admission adds to each pod.
type volumes struct {
	client kubernetes.Interface
	// dir has a directory for each volume.
	dir string
	// uid and gid own the files.
	uid, gid int
	// refreshAt is when the first of the tokens has to be replaced, or zero.
	refreshAt time.Time
}

// dirs returns the directories of the volumes by their names.
func (v *volumes) dirs(pod *corev1.Pod) map[string]string {
	dirs := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		dirs[volume.Name] = filepath.Join(v.dir, volume.Name)
	}
	return dirs
}

// write writes the files of all volumes. Later calls replace them while the container runs.
func (v *volumes) write(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	v.refreshAt = time.Time{}
	for _, volume := range pod.Spec.Volumes {
		dir := filepath.Join(v.dir, volume.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		files, err := v.files(ctx, pod, &volume, now)
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		for name, content := range files {
			if err := v.writeFile(filepath.Join(dir, name), content); err != nil {
				return fmt.Errorf("volume %s: %w", volume.Name, err)
			}
		}
	}
	return nil
}

// files returns the content of a volume.
func (v *volumes) files(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume,
	now time.Time) (map[string]string, error) {
	files := map[string]string{}
	for _, source := range volume.Projected.Sources {
		if err := v.project(ctx, pod, &source, now, files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// project adds the files of one source to files.
func (v *volumes) project(ctx context.Context, pod *corev1.Pod, source *corev1.VolumeProjection, now time.Time,
	files map[string]string) error {
	switch {
	case source.ServiceAccountToken != nil:
		token, err := v.token(ctx, pod, source.ServiceAccountToken, now)
		files[source.ServiceAccountToken.Path] = token
		return err
	case source.ConfigMap != nil:
		object, err := v.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, source.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return addItems(files, object.Data, source.ConfigMap.Items)
	case source.DownwardAPI != nil:
		for _, item := range source.DownwardAPI.Items {
			value, err := fieldOf(pod, item.FieldRef.FieldPath, "", "")
			if err != nil {
				return err
			}
			files[item.Path] = value
		}
	}
	return nil
}

func addItems(files, data map[string]string, items []corev1.KeyToPath) error {
	if len(items) == 0 {
		for key, value := range data {
			files[key] = value
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			return fmt.Errorf("references non-existent config key: %s", item.Key)
		}
		files[item.Path] = value
	}
	return nil
}

// token returns a new token of the pod's ServiceAccount. It is valid as long as the pod exists, and has to be replaced
// after 80 % of its time, like those of the kubelet.
func (v *volumes) token(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection,
	now time.Time) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	answer, err := v.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	lifetime := answer.Status.ExpirationTimestamp.Sub(now)
	if asked := answer.Spec.ExpirationSeconds; asked != nil {
		lifetime = min(lifetime, time.Duration(*asked)*time.Second)
	}
	refreshAt := now.Add(min(lifetime*8/10, 24*time.Hour))
	if v.refreshAt.IsZero() || refreshAt.Before(v.refreshAt) {
		v.refreshAt = refreshAt
	}
	return answer.Status.Token, nil
}

// writeFile replaces a file atomically. Only the user of the container can read it.
func (v *volumes) writeFile(file, content string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temp := file + ".new"
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		return err
	}
	if isRoot() { // An ordinary user is the user of the container.
		if err := os.Chown(temp, v.uid, v.gid); err != nil {
			return err
		}
	}
	return os.Rename(temp, file)
}
