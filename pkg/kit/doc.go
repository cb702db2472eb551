// Package kit has what the main.go and the worker loop of every controller repeat. It is five calls, and a queue:
//
//	options, err := kit.Parse(program, os.Args[1:], os.Stdout)   // Flags.
//	ctx := kit.UntilSignal(context.Background())                 // SIGTERM and Ctrl-C.
//	process, err := kit.NewProcess(ctx, options, hints)          // Connections and the election; sends nothing.
//	queue := kit.NewQueue(ctx, kit.QueueConfig{...})             // Calls a Sync for each key.
//	stop, err := process.Serve(ctx, needs, informers, queue.Check()) // /healthz, /readyz, /metrics, /debug.
//	err = process.Lead(ctx, informers, queue.Run)                // Fills the caches, waits for the Lease, runs, stops.
//
// A Sync may be any function. One that plays the rules of a plan, see package reconcile, is [Reconciler.Reconcile]: it
// sends the requests, and [Reconciler.Explain] answers what it would send.
//
// Between these calls a controller makes its clients and informers itself, with client-go, and registers handlers such
// as [Objects] and [Children]. The example of the package is a whole controller.
//
// There is no interface to implement and no registry: a controller calls functions and passes plain structs. Each call
// can be replaced by client-go's own parts, as the README of the package shows, and the packages below can be used
// without this one. They do not import each other, but reconcile uses state.
package kit
