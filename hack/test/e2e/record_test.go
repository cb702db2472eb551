package e2e

import (
	"compress/gzip"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

var record = flag.String("record", "", "file for the scrapes of TestRecordScrapes; its path begins at the root")

const (
	scrapeInterval = 15 * time.Second
	scrapes        = 41 // From the first one to the last one, ten minutes.
)

// A recordedCopy is a controller that is scraped as a pod: a process that has ended is started again.
type recordedCopy struct {
	pod     string
	start   func() *process
	process *process
}

// A recording has the samples of all series, one for each scrape. "" is none.
type recording struct {
	copies  []*recordedCopy
	metrics map[string]string // Those that are recorded.
	samples map[string][]string
	taken   int
}

// TestRecordScrapes records what Prometheus would store of two copies in ten minutes in which much goes wrong. It is no
// test: hack/test/monitoring evaluates the queries of the dashboard on the file.
func TestRecordScrapes(t *testing.T) {
	if *record == "" {
		t.Skip("a recording of ten minutes; run with -record FILE")
	}
	e := newDedicatedEnv(t, fullCluster)
	r := &recording{metrics: documentedMetrics(t), samples: map[string][]string{}}
	for _, pod := range []string{"foo-controller-a", "foo-controller-b"} {
		flags := append(usual.flags(), "-v=2", "--kubeconfig", e.kubeconfig(t, nil), "--metrics-bind-address=127.0.0.1:0")
		start := func() *process { return startProcess(t, exec.Command("bin/foo-controller", flags...)) }
		r.copies = append(r.copies, &recordedCopy{pod: pod, start: start, process: start()})
	}
	trouble := e.trouble(t, r)
	ticker := time.NewTicker(scrapeInterval)
	defer ticker.Stop()
	for scrape := range scrapes {
		r.scrape(t)
		if happens := trouble[scrape]; happens != nil {
			happens()
		}
		<-ticker.C
	}
	r.write(t, *record)
}

// trouble returns what happens after some of the scrapes.
func (e *env) trouble(t *testing.T, r *recording) map[int]func() {
	create := func(prefix string, count int, image string) {
		for i := range count {
			name := fmt.Sprintf("%s-%d", prefix, i)
			e.createFoo(t, name, v1alpha1.FooSpec{DeploymentName: name, Replicas: new(int32(1)), Image: image})
		}
	}
	limited := &env{cluster: e.cluster, namespace: e.cluster.namespace(t)}
	return map[int]func(){
		1: func() { create("web", 30, "nginx:1") },
		4: func() { // A quota refuses Deployments.
			limited.quota(t, "count/deployments.apps=0")
			for _, name := range []string{"a", "b", "c"} {
				limited.createFoo(t, name, fooSpec(name))
			}
		},
		6: func() { create("stuck", 2, neverReadyImage) },
		7: func() { e.editDeployment(t, "stuck-0", `{"spec":{"progressDeadlineSeconds":20}}`) },
		9: func() { e.editDeployment(t, "web-0", `{"spec":{"replicas":3}}`) },

		// The leader cannot renew its Lease, and ends.
		12: func() { e.kill(t, "kube-apiserver") },
		15: func() { e.revive(t, "kube-apiserver") },

		// A permission is missing.
		21: func() {
			e.kubectl(t, "", "patch", "clusterrole", controllerName, "--type=json", "-p",
				`[{"op":"replace","path":"/rules/3/verbs","value":["get","list","watch"]}]`)
			create("forbidden", 1, "nginx:1")
		},
		26: func() { e.kubectl(t, "", "apply", "-f", "artifacts/deploy/rbac.yaml") },

		29: func() {
			e.kubectl(t, "", "delete", "quota", "--all", "-n", limited.namespace)
			e.editFoo(t, "stuck-0", `{"spec":{"image":"nginx:1"}}`)
		},
		32: func() { r.leader(t).process.signal(syscall.SIGTERM) },
		35: func() { create("many", 100, "nginx:1") },
	}
}

// leader returns the copy that led at the last scrape.
func (r *recording) leader(t *testing.T) *recordedCopy {
	t.Helper()
	for _, c := range r.copies {
		for series, samples := range r.samples {
			if strings.HasPrefix(series, `leader_election_master_status{`) && strings.Contains(series, c.pod) &&
				samples[len(samples)-1] == "1" {
				return c
			}
		}
	}
	t.Fatal("no copy leads")
	return nil
}

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)$`)

// scrape takes one sample of each series. What has no sample this time gets "".
func (r *recording) scrape(t *testing.T) {
	t.Helper()
	r.taken++
	for _, c := range r.copies {
		target := fmt.Sprintf(`job="foo-controller",namespace="foo-system",pod=%q`, c.pod)
		if c.process.ended() {
			c.process.code = c.process.cmd.ProcessState.ExitCode() // Without an API server it is 1.
			r.add("up{"+target+"}", "0")
			c.process = c.start() // The kubelet does that.
			continue
		}
		_, text := fetch(t, "http://"+c.process.address(t, "metrics")+"/metrics", "")
		r.add("up{"+target+"}", "1")
		for _, found := range sample.FindAllStringSubmatch(text, -1) {
			name, labels, value := found[1], found[2], found[3]
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if r.metrics[name] == "" && r.metrics[family] == "" {
				continue
			}
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			r.add(name+"{"+strings.TrimSuffix(target+","+labels, ",")+"}", strconv.FormatFloat(number, 'f', -1, 64))
		}
	}
}

func (r *recording) add(series, value string) {
	samples := r.samples[series]
	for len(samples) < r.taken-1 {
		samples = append(samples, "")
	}
	r.samples[series] = append(samples, value)
}

// write writes the recording as the command "load" of Prometheus' own tests.
func (r *recording) write(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(file)
	fmt.Fprintln(packed, "# Two copies of the controller in ten minutes with trouble, see hack/test/e2e/record_test.go.")
	fmt.Fprintln(packed, "load", scrapeInterval)
	for _, series := range slices.Sorted(maps.Keys(r.samples)) {
		fmt.Fprintf(packed, "  %s %s\n", series, r.values(r.samples[series]))
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// values returns samples in the notation of Prometheus' tests: 1x3 is four times 1, _ is none, and stale is what
// Prometheus stores when a series ends.
func (r *recording) values(samples []string) string {
	var words []string
	for i := 0; i < r.taken; {
		value, times := "", 1
		if i < len(samples) {
			value = samples[i]
			for i+times < len(samples) && samples[i+times] == value {
				times++
			}
		}
		switch {
		case value == "" && i > 0 && i <= len(samples) && samples[i-1] != "":
			words = append(words, "stale")
			times = 1
		case value == "":
			words = append(words, "_")
			times = 1
		case times == 1:
			words = append(words, value)
		default:
			words = append(words, fmt.Sprintf("%sx%d", value, times-1))
		}
		i += times
	}
	return strings.Join(words, " ")
}
