package kit

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// widgets is a controller with a flag of its own.
var widgets = Program{
	Name: "widget-controller", Does: "makes Widgets", Kind: "Widget", Kinds: "Widgets", Version: "v1",
	Flags: func(fs *flag.FlagSet) { fs.String("shop", "", "`URL` of the shop") },
}

// resetLogging lets a test parse flags again. The goroutine that flushes the log would read what it resets.
func resetLogging(t *testing.T) {
	t.Cleanup(func() {
		klog.StopFlushDaemon()
		if err := logsapi.ResetForTest(nil); err != nil {
			t.Error(err)
		}
	})
}

// --help lists all flags, and each of them can be set.
func TestFlagsOfHelpCanBeSet(t *testing.T) {
	values := map[string]string{
		"kubeconfig": "a-file", "context": "a-name", "master": "https://127.0.0.1:1",
		"workers": "3", "resync": "5m", "kube-api-qps": "20", "kube-api-burst": "50",
		"namespace": "team", "leader-elect": "true", "leader-elect-namespace": "acme",
		"leader-elect-lease-duration": "8s", "leader-elect-renew-deadline": "5s", "leader-elect-retry-period": "1s",
		"health-probe-bind-address": ":8081", "metrics-bind-address": ":8443", "debug-bind-address": "127.0.0.1:6060",
		"metrics-cert-file": "a-file", "metrics-key-file": "a-file",
		"tls-min-version": "VersionTLS13", "tls-cipher-suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
		"logging-format": "json", "v": "3", "vmodule": "controller=4", "version": "true",
		"shop": "https://shop.example.com",
	}
	var help strings.Builder
	if _, err := Parse(widgets, []string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("--help: %v", err)
	}
	var printed []string
	for line := range strings.Lines(help.String()) {
		if name, isFlag := strings.CutPrefix(strings.TrimSpace(line), "--"); isFlag {
			printed = append(printed, strings.Fields(name)[0])
		}
	}
	if diff := cmp.Diff(append(slices.Clone(flagOrder), "shop"), printed); diff != "" {
		t.Errorf("flags of --help (-want +got):\n%s", diff)
	}
	fs, _ := (&Options{program: widgets}).flags()
	fs.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(printed, f.Name) {
			t.Errorf("--help lacks --%s", f.Name)
		}
	})
	for _, name := range printed {
		t.Run(name, func(t *testing.T) {
			resetLogging(t)
			_, err := Parse(widgets, []string{"--" + name + "=" + values[name]}, io.Discard)
			if err != nil && (name != "version" || !errors.Is(err, flag.ErrHelp)) {
				t.Errorf("set to %q: %v", values[name], err)
			}
		})
	}
}

// A kind without namespaces has no flag for one, and its objects are named without one.
func TestFlagsOfAKindWithoutNamespaces(t *testing.T) {
	for _, scoped := range []bool{true, false} {
		question := &Question{Kind: "Widget", ClusterScoped: scoped}
		program := Program{Name: "widget-controller", Kind: "Widget", ClusterScoped: scoped, Flags: question.AddFlags}
		for _, test := range []struct {
			arg, err string
			wrong    bool
		}{
			{arg: "--namespace=team", wrong: scoped, err: "flag provided but not defined: -namespace; see --help"},
			{arg: "--explain=web", wrong: !scoped, err: "give NAMESPACE/NAME of a Widget"},
			{arg: "--explain=team/web", wrong: scoped, err: "give NAME of a Widget"},
		} {
			t.Run(fmt.Sprint(test.arg, scoped), func(t *testing.T) {
				resetLogging(t)
				if _, err := Parse(program, []string{test.arg}, io.Discard); test.wrong != (err != nil) ||
					test.wrong && !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v", err)
				}
			})
		}
		resetLogging(t)
		var help strings.Builder
		_, err := Parse(program, []string{"--help"}, &help)
		if strings.Contains(help.String(), "--namespace") == scoped || !errors.Is(err, flag.ErrHelp) {
			t.Errorf("error %v, and the help is\n%s", err, &help)
		}
	}
}

// Of a process with several kinds, one that is not the first is asked for by its name.
func TestAQuestionAboutAnotherKind(t *testing.T) {
	for value, want := range map[string]string{
		"team/web": "Widget team/web", "widget/team/web": "Widget team/web", "gadget/team/web": "Gadget team/web",
		"gadget/web": "Widget gadget/web", "Gadget/team/web": "Gadget team/web", "plan/web": "Plan " +
			"web", "plan/team/web": "error", "other/team/web": "error",
		"web": "error", "*/*": "Widget *", "team/*": "Widget team/*", "gadget/*/*": "Gadget *",
		"gadget/team/*": "Gadget team/*", "plan/*": "Plan *", "*": "error", "*/web": "error", "gadget/*/web": "error",
	} {
		q := &Question{Kind: "Widget"}
		q.Also("Gadget", false)
		q.Also("Plan", true)
		got := "error"
		if err := q.set(value); err == nil {
			got = q.Kind + " " + q.Object.String()
		}
		if got != want {
			t.Errorf("--explain=%s asks for %s, want %s", value, got, want)
		}
	}
}

func TestAMistakeInAFlagIsOneLine(t *testing.T) {
	for args, want := range map[string]string{
		"--no-such-flag":          "flag provided but not defined: -no-such-flag; see --help",
		"--workers=many":          `invalid value "many" for flag -workers: parse error; see --help`,
		"start":                   `unexpected argument "start": all settings are flags, see --help`,
		"--namespace=a/b":         "--namespace=a/b: this is not the name of a namespace",
		"--workers=0":             "--workers=0: at least 1 is needed",
		"--resync=-1s":            "--resync=-1s: give a time, or 0 for no resync",
		"--kube-api-qps=0.1":      "--kube-api-qps=0.1: give a rate of at least 1, or -1 for no limit",
		"--tls-min-version=1":     `--tls-min-version=1: unknown tls version "1"`,
		"--tls-cipher-suites=RSA": "--tls-cipher-suites=RSA: Cipher suite RSA not supported or doesn't exist",
		"--logging-format=pl":     `format: Invalid value: "pl": Unsupported log format`,
	} {
		t.Run(args, func(t *testing.T) {
			resetLogging(t)
			if _, err := Parse(widgets, []string{args}, io.Discard); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// /debug/config shows the flags, and must not show a password.
func TestTheValuesOfFlagsHaveNoPassword(t *testing.T) {
	resetLogging(t)
	options, err := Parse(widgets, []string{"--master=https://alice:secret@127.0.0.1:1", "--shop=here"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"master": options.values["master"], "shop": options.values["shop"]}
	want := map[string]string{"master": "https://alice:xxxxx@127.0.0.1:1", "shop": "here"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// A read-only connection answers a read, and sends none of the four kinds of writes.
func TestReadOnly(t *testing.T) {
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Method)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`)
	}))
	defer server.Close()
	resetLogging(t)
	options, err := Parse(widgets, []string{"--master=" + server.URL}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := options.ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.HTTP.CloseIdleConnections()
	maps := kubernetes.NewForConfigOrDie(connection.Config).CoreV1().ConfigMaps("default")
	found, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || found.Name != "a" {
		t.Errorf("get: %v, %v", found, err)
	}
	for method, write := range map[string]func() error{
		"POST": func() error { _, err := maps.Create(t.Context(), found, metav1.CreateOptions{}); return err },
		"PUT":  func() error { _, err := maps.Update(t.Context(), found, metav1.UpdateOptions{}); return err },
		"PATCH": func() error {
			_, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"DELETE": func() error { return maps.Delete(t.Context(), "a", metav1.DeleteOptions{}) },
	} {
		if err := write(); err == nil || !strings.Contains(err.Error(), "was not sent: this connection only reads") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if !slices.Equal(sent, []string{"GET"}) {
		t.Errorf("sent %q, want a GET", sent)
	}
}
