// Command two-versions converts Bells between v1alpha1 and v1, when the API server asks for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/conversion"
	"example.com/foo-controller/pkg/kit/preflight"
	"example.com/foo-controller/pkg/kit/webhook"
)

// An oldBell is a Bell of v1alpha1: it has a text.
type oldBell struct {
	Spec struct {
		Text string `json:"text,omitempty"`
	} `json:"spec"`
}

// A bell is one of v1: the text is in a struct, because v1 also has its language.
type bell struct {
	Spec struct {
		Inscription struct {
			Text     string `json:"text,omitempty"`
			Language string `json:"language,omitempty"`
		} `json:"inscription"`
	} `json:"spec"`
}

// bells converts Bells. v1 is the hub: a third version would need functions to v1 and back, and none to v1alpha1.
var bells = conversion.New(schema.GroupVersionKind{Group: "tutorial.example.com", Version: "v1", Kind: "Bell"},
	conversion.VersionOf("v1alpha1", toV1, toV1alpha1))

// toV1 moves the text. What a Bell of v1alpha1 cannot know, the language, is not its business.
func toV1(old *oldBell) (*bell, error) {
	b := &bell{}
	b.Spec.Inscription.Text = old.Spec.Text
	return b, nil
}

// toV1alpha1 moves it back.
func toV1alpha1(b *bell) (*oldBell, error) {
	old := &oldBell{}
	old.Spec.Text = b.Spec.Inscription.Text
	return old, nil
}

func main() {
	if err := run(); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run() error {
	hooks := &webhook.Webhooks{
		Handlers: map[string]http.Handler{"/convert": webhook.Convert(bells)},
		Service:  "bells", Secret: "bells", Definitions: []string{"bells.tutorial.example.com"},
	}
	options, err := kit.Parse(kit.Program{
		Name: "two-versions", Does: "converts Bells", Kind: "Bell", Kinds: "Bells", Flags: hooks.AddFlags,
	}, os.Args[1:], os.Stdout)
	if err != nil {
		return err
	}
	ctx := kit.UntilSignal(context.Background())
	process, err := kit.NewProcess(ctx, options, preflight.Hints{})
	if err != nil {
		return err
	}
	stop, err := hooks.Start(ctx, process)
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	fmt.Println("stopped")
	return nil
}
