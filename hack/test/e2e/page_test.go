package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file tests the page of /debug/syncs in a browser. What the endpoint serves is tested in pkg/kit/syncs.

var screenshots = flag.String("screenshots", "", "directory for pictures of the page; its path begins at the root")

// A browser shows the page. Its methods must not run concurrently.
type browser struct {
	ctx context.Context

	mu     sync.Mutex
	alarms []string // Dialogs, exceptions of the script, and what the Content-Security-Policy has blocked.
}

// openPage opens the page of a controller.
func openPage(t *testing.T, p *process) *browser {
	t.Helper()
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	})
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	b := &browser{}
	b.ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Listen(b.ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.do(t, chromedp.EmulateViewport(1400, 900), chromedp.Navigate("http://"+p.address(t, "debug")+"/debug/syncs"))
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.alarms = append(b.alarms, "a dialog: "+event.Message)
	case *runtime.EventExceptionThrown:
		b.alarms = append(b.alarms, "an exception: "+event.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if event.Entry.Source == log.EntrySourceSecurity {
			b.alarms = append(b.alarms, event.Entry.Text)
		}
	}
}

// takeAlarms returns the alarms since the last call.
func (b *browser) takeAlarms() (alarms []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	alarms, b.alarms = b.alarms, nil
	return alarms
}

// do waits for the elements that the steps need.
func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, eventually)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// run runs a script in the page. The policy of the page is not for it.
func (b *browser) run(t *testing.T, script string) {
	t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[*runtime.RemoteObject](script)); err != nil {
		t.Fatal(err)
	}
}

// waitUntil waits until an expression of JavaScript is true. On failure it logs the text of the page.
func (b *browser) waitUntil(t *testing.T, expression string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			t.Logf("the page (%v):\n%s", err, text)
		}
	}()
	until(t, expression, func(context.Context) (bool, error) {
		return chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
	})
}

// waitForText waits until an element that matches selector has all texts.
func (b *browser) waitForText(t *testing.T, selector string, texts ...string) {
	t.Helper()
	var tests []string
	for _, text := range texts {
		tests = append(tests, fmt.Sprintf("e.textContent.includes(%q)", text))
	}
	b.waitUntil(t, fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => %s)",
		selector, strings.Join(tests, " && ")))
}

// row returns the selector of a Foo's row in the list.
func (e *env) row(name string) string {
	return fmt.Sprintf(`#objects tr[data-key="%s/%s"]`, e.namespace, name)
}

// capture writes pictures of the page, if -screenshots asks for them.
func (b *browser) capture(t *testing.T, name string, width, height int64) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	b.run(t, "scrollTo(0, 0)")
	b.do(t, chromedp.EmulateViewport(width, height))
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestThePageShowsWhatTheControllerDoes(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed: apt-get install chromium")
	}
	e := newEnv(t, fullCluster)
	p := e.controller(t, "--debug-bind-address=127.0.0.1:0")
	b := openPage(t, p)
	const request, markup = `[data-part="request"]`, "<img/src=x/onerror=alert(1)>"

	t.Run("a scale", func(t *testing.T) {
		b.waitForText(t, "#kind", "foo")
		e.createFoo(t, "web", v1alpha1.FooSpec{DeploymentName: "web", Image: "nginx:1.29", Replicas: new(int32(1))})
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
		b.waitForText(t, e.row("web"), "Available")
		b.do(t, chromedp.Click(chromedp.CSS(e.row("web"))))
		b.waitForText(t, "#detail h2", e.namespace+"/web")
		e.editFoo(t, "web", `{"spec":{"replicas":2}}`)
		b.waitForText(t, request+` tr[data-key="spec.replicas"] .have`, "1")
		b.waitForText(t, request+` tr[data-key="spec.replicas"] .want`, "2")
		b.waitForText(t, `[data-part="status"]`, "2 of 2 replicas available")
	})
	t.Run("a refusal and its backoff", func(t *testing.T) {
		e.quota(t, "count/deployments.apps=1")
		e.createFoo(t, "refused", v1alpha1.FooSpec{DeploymentName: "refused"})
		b.waitForText(t, e.row("refused"), "not ready: Refused", ", in ")
		b.do(t, chromedp.Click(chromedp.CSS(e.row("refused"))))
		b.waitForText(t, `[data-outcome="retry"] .failed`, "exceeded quota")
		b.capture(t, "debug-syncs", 1400, 520)
		b.capture(t, "debug-syncs-narrow", 400, 800)
		b.do(t, chromedp.EmulateViewport(1400, 900), chromedp.Click(chromedp.CSS(e.row("web"))))
		b.waitForText(t, "#namespaces tbody tr:first-child", e.namespace+"001")
	})
	t.Run("a corrected change, which is only text", func(t *testing.T) {
		e.kubectl(t, "", "set", "image", "deployment/web", "nginx="+markup, "-n", e.namespace)
		b.waitForText(t, request, "patch Deployment", "nginx].image", markup, "\u2192 ok")
		b.waitUntil(t, `!document.querySelector("img")`)
		if alarms := b.takeAlarms(); len(alarms) > 0 {
			t.Errorf("alarms of the browser: %v", alarms)
		}
	})
	t.Run("a rename", func(t *testing.T) {
		e.kubectl(t, "", "delete", "quota", "--all", "-n", e.namespace)
		e.waitForReason(t, "web", v1alpha1.ReasonAvailable)
		e.editFoo(t, "web", `{"spec":{"deploymentName":"other"}}`)
		b.waitForText(t, request, "create Deployment other")
		b.waitForText(t, request, "delete Deployment web")
	})
	t.Run("new syncs change nothing that the reader opened or focused", func(t *testing.T) {
		b.run(t, `summary = document.querySelector(".sync[open] [data-part=rules] summary"); summary.focus()`)
		b.do(t, chromedp.KeyEvent(kb.Enter))
		e.editFoo(t, "web", `{"spec":{"replicas":3}}`)
		b.waitForText(t, request+` tr[data-key="spec.replicas"] .want`, "3")
		b.waitUntil(t, `summary.isConnected && summary.parentElement.open && document.activeElement === summary`)
	})
	t.Run("the keyboard opens, filters and closes", func(t *testing.T) {
		b.do(t, chromedp.KeyEvent(kb.Escape))
		b.waitUntil(t, `document.querySelector("#detail").hidden`)
		b.do(t, chromedp.KeyEvent("/"))
		b.waitUntil(t, `document.activeElement.name === "name"`)
		b.run(t, `document.activeElement.value = ""`) // Here, unlike at a keyboard, the key also becomes text.
		b.do(t, chromedp.KeyEvent("refu"))
		b.waitUntil(t, `document.querySelectorAll("#objects tr").length === 1 && location.hash === "#name=refu"`)
		b.do(t, chromedp.Focus(chromedp.CSS("#objects button")), chromedp.KeyEvent(kb.Enter))
		b.waitForText(t, `[data-outcome="retry"] [data-part="outcome"]`, "after a failure; next try ")
		b.do(t, chromedp.Reload()) // The address has the filter and the open object.
		b.waitForText(t, "#detail h2", e.namespace+"/refused")
		b.do(t, chromedp.KeyEvent(kb.Escape))
		b.waitUntil(t, `document.activeElement.closest("tr") === document.querySelector("#objects tr")`)
	})
	t.Run("a narrow window needs no horizontal scrolling", func(t *testing.T) {
		b.do(t, chromedp.EmulateViewport(400, 800))
		b.waitUntil(t, `document.documentElement.scrollWidth <= 400`)
		b.do(t, chromedp.Click(chromedp.CSS("#objects tr")))
		b.waitForText(t, "#detail:not([hidden]) h2", e.namespace+"/refused")
		b.waitUntil(t, `document.documentElement.scrollWidth <= 400`)
	})
	t.Run("scripts of others do not run", func(t *testing.T) {
		if alarms := b.takeAlarms(); len(alarms) > 0 {
			t.Errorf("alarms of the browser: %v", alarms)
		}
		b.run(t, `script = document.createElement("script"); script.text = "injected = true"; document.body.append(script)`)
		b.waitUntil(t, `script.isConnected && typeof injected === "undefined"`)
	})
	t.Run("a controller that has ended", func(t *testing.T) {
		p.stop(t)
		b.waitForText(t, `#state[data-state="lost"]`, "the controller does not answer since ")
		b.waitForText(t, "#detail h2", e.namespace+"/refused")
	})
}
