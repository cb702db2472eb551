package kit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/telemetry"
)

// A whole controller: it logs each ConfigMap that is new or has changed.
func Example() {
	run := func() error {
		options, err := kit.Parse(kit.Program{
			Name: "config-watcher", Does: "logs ConfigMaps", Kind: "ConfigMap", Kinds: "ConfigMaps",
		}, os.Args[1:], os.Stdout)
		if err != nil {
			return err
		}
		ctx := kit.UntilSignal(context.Background())
		process, err := kit.NewProcess(ctx, options, preflight.Hints{Forbidden: "kubectl apply -f rbac.yaml"})
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfigAndClient(process.Watch.Config, process.Watch.HTTP)
		if err != nil {
			return err
		}
		configMaps := informers.NewSharedInformerFactoryWithOptions(client, options.Resync,
			informers.WithNamespace(options.Namespace)).Core().V1().ConfigMaps()

		queue := kit.NewQueue(ctx, kit.QueueConfig{
			Name: "config-watcher", Kind: "configMap", Workers: options.Workers,
			Sync: func(ctx context.Context, key cache.ObjectName) kit.Outcome {
				configMap, err := configMaps.Lister().ConfigMaps(key.Namespace).Get(key.Name)
				if err != nil { // Only NotFound is possible.
					return kit.Done()
				}
				klog.FromContext(ctx).Info("There is a ConfigMap", "resourceVersion", configMap.ResourceVersion)
				return kit.Done()
			},
		})
		queue.Metrics = telemetry.NewMetrics("config_watcher", legacyregistry.MustRegister)
		caches := []kit.Informer{
			kit.NewInformer(corev1.SchemeGroupVersion.WithResource("configmaps"), configMaps.Informer(),
				client.CoreV1().ConfigMaps),
		}
		needs := kit.Needs{Permissions: kit.Allow(options.Namespace, "", "configmaps", "list", "watch")}
		stopServing, err := process.Serve(ctx, needs, caches, queue.Check())
		if err != nil {
			return err
		}
		defer stopServing()
		return process.Lead(ctx, caches, func(ctx context.Context) {
			// Only the leader registers its handlers: the queue of a standby would grow.
			handlers := kit.Objects[*corev1.ConfigMap](queue)
			if _, err := configMaps.TypedInformer().AddTypedEventHandler(handlers); err == nil {
				queue.Run(ctx)
			}
		})
	}
	if err := run(); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "config-watcher:", err)
		os.Exit(1)
	}
}

func ExampleParse() {
	program := kit.Program{
		Name: "widget-controller", Does: "makes Widgets", Kind: "Widget", Kinds: "Widgets", Version: "v1.2.3",
		Flags: func(fs *flag.FlagSet) { fs.String("shop", "", "`URL` of the shop") },
	}
	_, err := kit.Parse(program, []string{"--version"}, os.Stdout)
	fmt.Println(errors.Is(err, flag.ErrHelp))
	_, err = kit.Parse(program, []string{"--workers=0"}, os.Stdout)
	fmt.Println(err)
	// Output:
	// widget-controller v1.2.3
	// true
	// --workers=0: at least 1 is needed
}

// A sync that waits once for something outside the cluster, and fails once.
func ExampleNewQueue() {
	ctx, stop := context.WithCancel(context.Background())
	outcomes := []kit.Outcome{kit.Wait(time.Millisecond), kit.Retry(errors.New("not yet")), kit.Done()}
	queue := kit.NewQueue(ctx, kit.QueueConfig{
		Kind: "widget", Workers: 1,
		Sync: func(_ context.Context, key cache.ObjectName) kit.Outcome {
			outcome := outcomes[0]
			outcomes = outcomes[1:]
			outcome.Expected = true // Not logged.
			return outcome
		},
	})
	queue.OnSynced = func(key cache.ObjectName, outcome kit.Outcome) {
		fmt.Println(key, outcome.Kind, outcome.After, outcome.Err)
		if outcome.Kind == "done" {
			stop()
		}
	}
	queue.Add(cache.NewObjectName("default", "web"))
	queue.Run(ctx)
	// Output:
	// default/web wait 1ms <nil>
	// default/web retry 5ms not yet
	// default/web done 0s <nil>
}

// The children of a Widget are Deployments with its name and a suffix.
func ExampleChildren() {
	widgets := schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Widget"}
	exists := func(name cache.ObjectName) bool { return name.Name == "web" } // For example a lister.
	handlers := kit.Children[*appsv1.Deployment](widgets.GroupKind(), func(name cache.ObjectName) {
		if exists(name) {
			fmt.Println("queued:", name)
		}
	})
	owner := &metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-of-web"}
	handlers.OnAdd(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-frontend",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, widgets)},
	}}, false)
	// Output: queued: default/web
}

// A mistake in a name is noticed by the API server only when the controller asks for the permission.
func ExampleAllow() {
	for _, permission := range slices.Concat(
		kit.Allow("", "acme.example.com", "widgets", "list", "watch"),
		kit.Allow("", "acme.example.com", "widgets/status", "patch"),
	) {
		fmt.Println(permission)
	}
	// Output:
	// list widgets.acme.example.com
	// watch widgets.acme.example.com
	// patch widgets.acme.example.com/status
}
