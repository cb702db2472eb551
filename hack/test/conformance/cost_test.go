package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/hack/tools/controlplane"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// BenchmarkCost measures what a test pays for a server. ms-start is the time until it has answered the first request,
// MB its memory with a thousand ConfigMaps, and requests/s those of one client that creates, reads, updates and deletes
// ConfigMaps one after the other. The real server stands for envtest, which runs the same two processes.
//
//	go test -run '^$' -bench Cost .
func BenchmarkCost(b *testing.B) {
	b.Run("simulated", func(b *testing.B) {
		cost(b, heapUsed, func() kubernetes.Interface {
			s := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
			return kubernetes.NewForConfigOrDie(s.Config("a"))
		})
	})
	b.Run("fake", func(b *testing.B) {
		cost(b, heapUsed, func() kubernetes.Interface { return fake.NewClientset() })
	})
	b.Run("real", func(b *testing.B) {
		var plane *controlplane.ControlPlane
		defer func() {
			if plane != nil {
				plane.Stop()
			}
		}()
		memory := func() float64 {
			if plane == nil {
				return 0
			}
			return memoryOf(b, filepath.Dir(plane.Kubeconfig()))
		}
		cost(b, memory, func() kubernetes.Interface {
			var err error
			if plane, err = controlplane.Start("../../..", "--components=api"); err != nil {
				b.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
			if err != nil {
				b.Fatal(err)
			}
			config.QPS = -1
			return kubernetes.NewForConfigOrDie(config)
		})
	})
}

func cost(b *testing.B, memory func() float64, start func() kubernetes.Interface) {
	before, started := memory(), time.Now()
	api := start().CoreV1().ConfigMaps("default")
	ctx := context.Background()
	create := func(name string) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}
		cm, err := api.Create(ctx, cm, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return cm
	}
	create("first")
	ready := time.Since(started)
	for i := range 1000 {
		create(fmt.Sprint("kept-", i))
	}
	used := memory() - before
	for b.Loop() {
		create("a")
		cm, err := api.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		cm.Data["a"] = "c"
		if _, err := api.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := api.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(4*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(ready)/float64(time.Millisecond), "ms-start")
	b.ReportMetric(used, "MB")
}

// heapUsed returns the memory that this process uses, in MB.
func heapUsed() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / 1e6
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memoryOf returns the memory of the components of the control plane in a directory, in MB.
func memoryOf(b *testing.B, dir string) (total float64) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		command, _ := os.ReadFile(file) // The process may have ended.
		if !strings.Contains(string(command), dir) || !strings.Contains(string(command), "\x00component\x00") {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if found := resident.FindSubmatch(status); found != nil {
			kilobytes, _ := strconv.ParseFloat(string(found[1]), 64) // It is a number.
			total += kilobytes / 1000
		}
	}
	return total
}
