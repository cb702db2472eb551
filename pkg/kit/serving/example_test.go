package serving_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"example.com/foo-controller/pkg/kit/serving"
)

// The health endpoint of a controller: one cache that is being filled, and its workers.
func ExampleNewHealth() {
	process, end := context.WithCancel(context.Background()) // Ends when nothing is left to do.
	defer end()
	ctx, stop := context.WithCancel(process) // Ends when the process is asked to stop.
	defer stop()
	listed := make(chan struct{}) // For example cache.DoneChecker.Done of an informer.
	workers := serving.NewBusy(time.Minute)

	server, err := serving.NewHealth(process, serving.HealthConfig{
		Address: "127.0.0.1:0",
		Live:    []serving.Check{workers.Check("workers")},
		Ready: []serving.Check{
			serving.Until("foos", listed, "not listed yet", func() string { return "foos is forbidden" }),
			{Name: "not-stopping", Do: func() error { return context.Cause(ctx) }},
		},
	})
	if err != nil {
		fmt.Println(err) // For example that the address is in use.
		return
	}
	ended := make(chan error)
	go func() { ended <- server.Run(process) }()

	done := workers.Start("default/web") // What a worker does around each key.
	done()

	show(server, "/healthz?verbose")
	show(server, "/readyz")
	close(listed)
	show(server, "/readyz")
	stop()
	show(server, "/readyz")
	end()
	fmt.Println(<-ended)
	// Output:
	// 200 [+]workers ok
	// healthz check passed
	// 500 [-]foos failed: not listed yet: foos is forbidden
	// [+]not-stopping ok
	// readyz check failed
	// 200 ok
	// 500 [+]foos ok
	// [-]not-stopping failed: context canceled
	// readyz check failed
	// <nil>
}

// show prints the response of a server.
func show(server *serving.Server, path string) {
	resp, err := http.Get("http://" + server.Address() + path)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
}
