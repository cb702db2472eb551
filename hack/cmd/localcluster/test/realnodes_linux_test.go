package localcluster_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startRealNodes starts a cluster with two real nodes.
func startRealNodes(t *testing.T, dir string) *upRun {
	t.Helper()
	programs := filepath.Join(filepath.Dir(binary), "node")
	if os.Geteuid() != 0 {
		t.Skip("real nodes need root")
	}
	if _, err := os.Stat(filepath.Join(programs, "kubelet")); err != nil {
		t.Skip("no programs of a node: `make bin/node` builds them")
	}
	up := launchCluster(t, dir, "--nodes=2", "--node-programs="+programs)
	awaitReady(t, up)
	return up
}

// TestRealNodes runs pods on two nodes. What nodes do to a machine ends with them, also after SIGKILL, and the cluster
// starts again with its data.
func TestRealNodes(t *testing.T) {
	before := machine(t)
	dir := filepath.Join(t.TempDir(), `a "cluster", its files`)
	up := startRealNodes(t, dir)
	up.mustKubectl(t, "create", "deployment", "web", "--image=localhost/pause:1", "--replicas=4")
	expectPods := func() {
		t.Helper()
		up.mustKubectl(t, "rollout", "status", "deployment/web", "--timeout=60s")
		hosts := up.mustKubectl(t, "get", "pods", "-o", `jsonpath={range .items[*]}{.status.hostIP} {end}`)
		for _, node := range []string{"10.244.0.1", "10.244.1.1"} {
			if !strings.Contains(hosts, node) {
				t.Errorf("no pod runs on the node %s: %s", node, hosts)
			}
		}
		if got := up.mustKubectl(t, "get", "--raw", "/api/v1/nodes/node-1/proxy/healthz"); got != "ok" {
			t.Errorf("the API server asks a kubelet, and gets %q", got)
		}
	}
	bridge := bridgeAddress(t, up)
	expectPods()
	if now := bridgeAddress(t, up); now != bridge {
		t.Errorf("the hardware address of the gateway was %s, and is %s with pods, which have the former one", bridge, now)
	}
	if diff := machine(t); diff != before {
		t.Errorf("a running node has changed this machine:\n%s\nbefore:\n%s", diff, before)
	}
	up.signal(t, syscall.SIGKILL)
	expectExit(t, up, -1)
	expectNothingLeft(t, up)

	up = startRealNodes(t, dir)
	expectPods()
	up.signal(t, syscall.SIGTERM)
	expectExit(t, up, 0)
	expectNothingLeft(t, up)
	if diff := machine(t); diff != before {
		t.Errorf("nodes have left something:\n%s\nbefore:\n%s", diff, before)
	}
	eventually(t, 10*time.Second, "no cgroup is left", func() error {
		left, _ := filepath.Glob("/sys/fs/cgroup/localcluster-*")
		if more, _ := filepath.Glob("/sys/fs/cgroup/*/localcluster-*"); len(left)+len(more) > 0 {
			return fmt.Errorf("left: %v %v", left, more)
		}
		return nil
	})
}

// bridgeAddress returns the hardware address of the bridge of the first node.
func bridgeAddress(t *testing.T, up *upRun) string {
	t.Helper()
	processes, address := up.leftovers(t), make(chan string)
	go func() { // It ends with its thread, which has entered the other network.
		defer close(address)
		runtime.LockOSThread()
		for pid := range processes {
			network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err != nil {
				continue // It has ended.
			}
			err = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
			network.Close()
			bridge, errFind := net.InterfaceByName("cni0")
			if err == nil && errFind == nil {
				address <- bridge.HardwareAddr.String()
				return
			}
		}
	}()
	found := <-address
	if found == "" {
		t.Fatal("no process of the cluster has a network with the bridge cni0")
	}
	return found
}

// machine returns what this machine has of what nodes change: interfaces, addresses, routes, mounts and sysctls.
func machine(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("bash", "-c", `cut -d: -f1 /proc/net/dev; cat /proc/net/fib_trie /proc/net/route
		cut -d" " -f4- /proc/self/mountinfo | sort; cd /proc/sys
		head vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_max* \
			net/ipv4/ip_forward`).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
