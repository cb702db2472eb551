package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
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

	mu sync.Mutex
	// served is what the server uses, nil as long as the Secret has nothing. mu guards it.
	served *tls.Certificate
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
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.own():
		return nil
	case w.served == nil:
		return fmt.Errorf("there is no certificate in the Secret %s/%s: if it does not exist, apply the manifests",
			w.namespace, w.Secret)
	case time.Now().After(w.served.Leaf.NotAfter):
		return fmt.Errorf("the certificate in the Secret %s/%s has ended", w.namespace, w.Secret)
	}
	return nil
}

// certificate returns the certificate for a handshake.
func (w *Webhooks) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.served == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return w.served, nil
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
	config := serving.WebhooksConfig{
		Address: w.address, Handler: mux, CertFile: w.certFile, KeyFile: w.keyFile, TLS: process.TLS(),
	}
	if w.own() {
		config.Certificate = w.certificate
	}
	server, err := serving.NewWebhooks(ctx, config)
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
	webhooks       *Webhooks
	queue          *kit.Queue
	secret         cache.SharedIndexInformer
	definitions    []cache.SharedIndexInformer
	configurations []cache.SharedIndexInformer
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
	for _, name := range w.Definitions {
		k.definitions = append(k.definitions, only(extensions.RESTClient(), "customresourcedefinitions", "", name,
			&apiextensionsv1.CustomResourceDefinition{}))
	}
	for _, name := range w.Configurations {
		k.configurations = append(k.configurations, only(kube.AdmissionregistrationV1().RESTClient(),
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
	for _, informer := range k.informers() {
		// They fail only for an informer that runs already, or has ended.
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
		k.webhooks.serve(secret)
	}
	k.queue.Add(k.key())
}

// serve takes the certificate of the Secret, if it is one.
func (w *Webhooks) serve(secret *corev1.Secret) {
	served := readKeys(secret.Data, time.Now()).served
	if served == nil { // Somebody has broken it. The previous one may still be trusted.
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served = served
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
	in.crds = listOf[*apiextensionsv1.CustomResourceDefinition](k.definitions)
	in.configurations = listOf[*admissionregistrationv1.ValidatingWebhookConfiguration](k.configurations)
	if k.trustedSince = since(k.trustedSince, in); !k.synced() {
		k.trustedSince = time.Time{}
	}
	in.settled = !k.trustedSince.IsZero() && in.now.Sub(k.trustedSince) >= settling
	return k.Reconcile(ctx, rotation.Sync(in))
}

// synced reports whether all informers have listed their object, or that there is none.
func (k *keeper) synced() bool {
	return !slices.ContainsFunc(k.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

func (k *keeper) informers() []cache.SharedIndexInformer {
	return slices.Concat([]cache.SharedIndexInformer{k.secret}, k.definitions, k.configurations)
}

// listOf returns what the informers have.
func listOf[T any](informers []cache.SharedIndexInformer) (found []T) {
	for _, informer := range informers {
		for _, obj := range informer.GetIndexer().List() {
			found = append(found, obj.(T))
		}
	}
	return found
}

// names are the host names in the certificate. The last ones are for a controller outside of the cluster.
func (w *Webhooks) names() []string {
	return []string{w.Service + "." + w.namespace + ".svc", "localhost", "127.0.0.1"}
}
