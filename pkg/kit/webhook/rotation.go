package webhook

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

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
