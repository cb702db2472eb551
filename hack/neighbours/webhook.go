package main

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hang is how long the webhook does not answer. The API server waits for at most 30 s.
const hang = 10 * time.Second

// A webhook is a server on loopback that receives the admission reviews of Deployments of the tenant and hangs.
type webhook struct {
	server *httptest.Server
	called atomic.Int64
}

func startWebhook() *webhook {
	w := &webhook{}
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		w.called.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // Only then the server notices when the connection is closed.
		pause(r.Context(), hang+time.Second)
		answer.WriteHeader(http.StatusInternalServerError)
	}))
	return w
}

func (w *webhook) stop() {
	w.server.CloseClientConnections() // Else Close waits for those that hang.
	w.server.Close()
}

// install registers the webhook, and waits until the API server calls it.
func (w *webhook) install(ctx context.Context, p *place) error {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	_, err := p.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "hangs"},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name:         "hangs.example.com",
				ClientConfig: admissionv1.WebhookClientConfig{URL: &w.server.URL, CABundle: certificate},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"},
					},
				}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
					corev1.LabelMetadataName: tenant,
				}},
				FailurePolicy:  new(admissionv1.Fail),
				SideEffects:    new(admissionv1.SideEffectClassNone),
				TimeoutSeconds: new(int32(hang.Seconds())), AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return poll(ctx, time.Minute, func() (bool, error) {
		tryCtx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = tryDeployment(tryCtx, p) // It is only asked whether the webhook is called.
		return w.called.Load() > 0, nil
	})
}

// tryDeployment asks the API server whether the tenant can create a Deployment.
func tryDeployment(ctx context.Context, p *place) error {
	labels := map[string]string{"app": "try"}
	_, err := p.kube.AppsV1().Deployments(tenant).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "try"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}},
			},
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
