package kit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

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
