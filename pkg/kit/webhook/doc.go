// Package webhook serves conversion and validation for the API server, with certificates of its own.
//
// A webhook of this package is a pure function: [Convert] serves a conversion.Conversion, which converts objects
// between the versions of their kind, [Validate] one that admits a request or refuses it. So each copy of a controller
// gives the same answer, whether or not it leads, and a client that is not the API server learns nothing that it could
// not compute. Defaults belong into the schema, and what the schema, its rules or a policy can refuse needs no webhook.
//
// # Certificates
//
// [Webhooks] keeps an authority and a certificate in a Secret, which the manifests create empty, and makes the API
// server trust the authority: in the CustomResourceDefinitions and ValidatingWebhookConfigurations that have a webhook
// of this controller, it sets caBundle, and nothing else. Each copy does that, whether or not it leads: the caches of a
// copy may need a conversion before it can lead. All writes carry the version that was seen, so one of them wins.
//
// An authority is valid for two years. After one there is a new one, and the API server trusts both until the old one
// ends. The new one signs the certificate that is served only when all have trusted it for ten minutes. A certificate
// is valid for 90 days, and renewed after 60. The clocks of nodes may differ by a day.
//
// With --webhook-cert-file and --webhook-key-file, the files are served, and read again when they change. Then this
// package writes nothing: whatever issues the certificate must also set caBundle, as the CA injector of cert-manager
// does. No permission for the Secret, the definitions or the configurations is needed.
//
// How the certificates are kept follows knative.dev/pkg/webhook/certificates, which has one authority at a time.
package webhook
