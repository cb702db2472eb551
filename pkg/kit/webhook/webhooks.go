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

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/leader"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/serving"
)

// checkPeriod is how often a sync checks the certificates without an event: time alone makes them old.
const checkPeriod = 10 * time.Minute

// Webhooks are those of a process. Set the exported fields, call AddFlags before the flags are parsed, and Start before
// Process.Serve: what a cache lists may need a conversion.
type Webhooks struct {
	// Handlers are the webhooks by their path, such as those of Convert and Validate.
	Handlers map[string]http.Handler
	// Service is the name of the Service through which the API server asks, in the namespace of the process. Secret is the
	// name of the Secret with the certificates, there too. It must exist.
	Service, Secret string
	// Definitions and Configurations are the names of the CustomResourceDefinitions and ValidatingWebhookConfigurations
	// that have webhooks of this process, and of no other.
	Definitions, Configurations []string

	address, namespace, certFile, keyFile string

	// served is what the server uses, nil as long as the Secret has nothing.
	served atomic.Pointer[tls.Certificate]
}

// AddFlags adds the flags of the webhooks.
func (w *Webhooks) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&w.address, "webhook-bind-address", "0", "`address` of the webhooks; 0 turns them off")
	fs.StringVar(&w.namespace, "webhook-namespace", "",
		"`name` of the namespace of the Service and the Secret of the webhooks; empty is that of the pod it runs in")
	fs.StringVar(&w.certFile, "webhook-cert-file", "",
		"`file` with the certificate of the webhooks; it may change; without one, the controller makes them itself")
	fs.StringVar(&w.keyFile, "webhook-key-file", "", "`file` with the key of that certificate")
}

// own reports whether the certificates are those of the Secret.
func (w *Webhooks) own() bool { return w.address != "0" && w.certFile == "" && w.keyFile == "" }

// Needs returns what the webhooks need. Call it after Start. /readyz has the check webhooks also if they are off.
func (w *Webhooks) Needs() (needs kit.Needs) {
	needs.Ready = []serving.Check{{Name: "webhooks", Do: w.check}}
	if !w.own() {
		return needs
	}
	allow := func(namespace, group, resource, name string) {
		for _, permission := range kit.Allow(namespace, group, resource, "get", "list", "watch", "patch") {
			permission.Name = name
			needs.Permissions = append(needs.Permissions, permission)
		}
	}
	allow(w.namespace, "", "secrets", w.Secret)
	for _, name := range w.Definitions {
		allow("", apiextensionsv1.GroupName, "customresourcedefinitions", name)
	}
	for _, name := range w.Configurations {
		allow("", admissionregistrationv1.GroupName, "validatingwebhookconfigurations", name)
	}
	return needs
}

// check returns why the webhooks cannot be served, or nil.
func (w *Webhooks) check() error {
	served := w.served.Load()
	switch {
	case !w.own():
		return nil
	case served == nil:
		return fmt.Errorf("there is no certificate in the Secret %s/%s: if it does not exist, apply the manifests",
			w.namespace, w.Secret)
	case time.Now().After(served.Leaf.NotAfter):
		return fmt.Errorf("the certificate in the Secret %s/%s has ended", w.namespace, w.Secret)
	}
	return nil
}

// certificate returns the certificate for a handshake.
func (w *Webhooks) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if served := w.served.Load(); served != nil {
		return served, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Start serves the webhooks and keeps their certificates in the background. It returns an error if a flag is wrong, the
// address is in use, the namespace is unknown, or a client cannot be made. Call stop after everything else has stopped:
// it waits for requests in work. Call Start once.
func (w *Webhooks) Start(ctx context.Context, process *kit.Process) (stop func(), err error) {
	if w.own() && w.namespace == "" {
		if w.namespace, err = leader.PodNamespace(); err != nil {
			return nil, fmt.Errorf("%w: give --webhook-namespace=NAME", err)
		}
	}
	if w.own() && len(apivalidation.ValidateNamespaceName(w.namespace, false)) > 0 {
		return nil, fmt.Errorf("--webhook-namespace=%s: this is not the name of a namespace", w.namespace)
	}
	mux := http.NewServeMux()
	for path, handler := range w.Handlers {
		mux.Handle(path, handler)
	}
	server, err := serving.NewWebhooks(ctx, serving.WebhooksConfig{
		Address: w.address, Handler: mux, CertFile: w.certFile, KeyFile: w.keyFile, Certificate: w.certificate,
		TLS: process.TLS(),
	})
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "An endpoint has ended")
		}
	})
	if w.own() {
		keeper, err := w.newKeeper(ctx, process)
		if err != nil {
			cancel()
			running.Wait()
			return nil, err
		}
		running.Go(func() { keeper.run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// A keeper keeps the certificates of Webhooks.
type keeper struct {
	*kit.Reconciler
	webhooks  *Webhooks
	queue     *kit.Queue
	secret    cache.SharedIndexInformer
	informers []cache.SharedIndexInformer // That of the Secret, and one for each definition and configuration.
	// trustedSince is since when all have trusted the newest authority, as far as this process knows. Only syncs use it.
	trustedSince time.Time
}

func (w *Webhooks) newKeeper(ctx context.Context, process *kit.Process) (*keeper, error) {
	to, err := process.Ungated()
	if err != nil {
		return nil, err
	}
	kube, kubeErr := kubernetes.NewForConfigAndClient(to.Config, to.HTTP)
	extensions, extensionsErr := apiextensions.NewForConfigAndClient(to.Config, to.HTTP)
	if err := errors.Join(kubeErr, extensionsErr); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	k := &keeper{webhooks: w}
	k.queue = kit.NewQueue(ctx, kit.QueueConfig{Kind: "secret", Workers: 1, Sync: k.sync})
	k.secret = only(kube.CoreV1().RESTClient(), "secrets", w.namespace, w.Secret, &corev1.Secret{})
	k.informers = append(k.informers, k.secret)
	for _, name := range w.Definitions {
		k.informers = append(k.informers, only(extensions.RESTClient(), "customresourcedefinitions", "", name,
			&apiextensionsv1.CustomResourceDefinition{}))
	}
	for _, name := range w.Configurations {
		k.informers = append(k.informers, only(kube.AdmissionregistrationV1().RESTClient(),
			"validatingwebhookconfigurations", "", name, &admissionregistrationv1.ValidatingWebhookConfiguration{}))
	}
	k.Reconciler = &kit.Reconciler{Name: process.Name(), Queue: k.queue, Trim: trim, Kinds: []kit.Kind{
		withoutLog(kit.KindOf(secretKind, "secrets", k.secret, kube.CoreV1().Secrets)),
		withoutCache(kit.KindOf(crdKind, "customresourcedefinitions", k.secret,
			ofCluster(extensions.CustomResourceDefinitions))),
		withoutCache(kit.KindOf(configurationKind, "validatingwebhookconfigurations", k.secret,
			ofCluster(kube.AdmissionregistrationV1().ValidatingWebhookConfigurations))),
	}}
	return k, nil
}

// only returns an informer of one object.
func only(client cache.Getter, resource, namespace, name string, example runtime.Object) cache.SharedIndexInformer {
	list := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	options := cache.SharedIndexInformerOptions{ResyncPeriod: checkPeriod}
	return cache.NewSharedIndexInformerWithOptions(list, example, options)
}

// ofCluster returns the client of a kind without namespaces as one of a kind that has them.
func ofCluster[C any](client func() C) func(namespace string) C {
	return func(string) C { return client() }
}

// withoutCache returns a kind whose objects have an informer each, so there is no cache in which a version could be
// waited for. A patch of an old version gets a conflict, and is repeated after a live read. KindOf needs an informer
// all the same.
func withoutCache(kind kit.Kind) kit.Kind {
	kind.Informer, kind.Store = kit.Informer{}, nil
	return kind
}

// silenced returns a context without a logger: client-go logs the bodies of requests at V(8), and those of the Secret
// have private keys.
func silenced(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// withoutLog returns a kind whose requests client-go does not log.
func withoutLog(kind kit.Kind) kit.Kind {
	send := kind.Send
	kind.Send = func(ctx context.Context, manager string, step *reconcile.Step) (metav1.Object, error) {
		return send(silenced(ctx), manager, step)
	}
	return kind
}

// run keeps the certificates until ctx ends.
func (k *keeper) run(ctx context.Context) {
	silent := silenced(ctx) // Process.Serve reports a permission that is missing.
	var running sync.WaitGroup
	defer running.Wait()
	handlers := cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(any, bool) { k.changed() },
		UpdateFunc: func(any, any) { k.changed() },
		DeleteFunc: func(any) { k.changed() },
	}
	for _, informer := range k.informers {
		// These fail only for an informer that runs already, or has ended.
		utilruntime.Must(informer.SetTransform(trim))
		_, err := informer.AddEventHandler(handlers)
		utilruntime.Must(err)
		running.Go(func() { informer.RunWithContext(silent) })
	}
	k.queue.Run(ctx)
}

// key is that of the Secret.
func (k *keeper) key() cache.ObjectName {
	return cache.NewObjectName(k.webhooks.namespace, k.webhooks.Secret)
}

// changed takes the certificate of the Secret, and queues a sync.
func (k *keeper) changed() {
	if secret := k.find(); secret != nil {
		if served := readKeys(secret.Data, time.Now()).served; served != nil { // Else the previous one may still be trusted.
			k.webhooks.served.Store(served)
		}
	}
	k.queue.Add(k.key())
}

// find returns the Secret that the cache has, or nil.
func (k *keeper) find() *corev1.Secret {
	found, _, _ := k.secret.GetIndexer().GetByKey(k.key().String()) // A cache has no errors.
	secret, _ := found.(*corev1.Secret)
	return secret
}

// sync renews what is to be renewed.
func (k *keeper) sync(ctx context.Context, key cache.ObjectName) kit.Outcome {
	secret := k.find()
	switch {
	case !k.secret.HasSynced():
		return kit.Done() // It comes with an event.
	case secret == nil:
		klog.FromContext(ctx).Error(nil, "The Secret of the webhooks does not exist: apply the manifests", "secret", key)
		return k.Gone(ctx, key)
	}
	in := &input{secret: secret, names: k.webhooks.names(), now: time.Now()}
	synced := true // All informers have listed their object, or that there is none.
	for _, informer := range k.informers {
		synced = synced && informer.HasSynced()
		for _, obj := range informer.GetIndexer().List() {
			switch obj := obj.(type) {
			case *apiextensionsv1.CustomResourceDefinition:
				in.crds = append(in.crds, obj)
			case *admissionregistrationv1.ValidatingWebhookConfiguration:
				in.configurations = append(in.configurations, obj)
			}
		}
	}
	if k.trustedSince = since(k.trustedSince, in); !synced {
		k.trustedSince = time.Time{}
	}
	in.settled = !k.trustedSince.IsZero() && in.now.Sub(k.trustedSince) >= settling
	return k.Reconcile(ctx, rotation.Sync(in))
}

// names are the host names in the certificate. The last ones are for a controller outside of the cluster.
func (w *Webhooks) names() []string {
	return []string{w.Service + "." + w.namespace + ".svc", "localhost", "127.0.0.1"}
}
