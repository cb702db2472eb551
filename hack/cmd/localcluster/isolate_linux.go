package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// isolateCommand is the hidden command of the first process of the namespaces.
	isolateCommand = "isolated"
	// isolatedVariable is set for an "up" in the namespaces.
	isolatedVariable = "LOCALCLUSTER_ISOLATED"
	// machineNetworkFD is the file descriptor of the network namespace outside.
	machineNetworkFD = 3
)

// The directory of the cluster and the programs of a node, as seen in the namespaces. These paths have no special
// characters; the real ones may.
const (
	isolatedDir      = "/run/cluster"
	isolatedPrograms = "/run/programs"
)

// isolate runs this program once more, in network, mount and pid namespaces of its own, and returns its exit code. All
// that real nodes do to a machine ends with these namespaces: addresses, mounts, sysctls of the network and processes.
// The kernel kills the first process in them when this one ends, even by SIGKILL, and with it all others.
func isolate(dir, programs string) (int, error) {
	network, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return 0, err
	}
	defer giveToOwner(dir)
	signals := stopSignals()
	runtime.LockOSThread() // The kernel counts the thread that starts a process as its parent.
	cmd := exec.Command("/proc/self/exe", append([]string{isolateCommand, dir, programs}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), isolatedVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{network}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // Ctrl-C in a terminal reaches only this process.
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("make namespaces, which needs root: %w", err)
	}
	go passOn(signals, cmd.Process)
	cmd.Wait()
	return cmd.ProcessState.ExitCode(), nil
}

// stopSignals returns the requests to stop that come from now on.
func stopSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	return signals
}

// passOn sends signals to a process.
func passOn(signals <-chan os.Signal, process *os.Process) {
	for s := range signals {
		process.Signal(s)
	}
}

// runIsolated is the first process of the namespaces. It prepares them, starts "up", and waits for all orphans until
// "up" ends.
func runIsolated(args []string) (int, error) {
	if err := errors.Join(mountAgain(args[0], args[1]), startNetwork()); err != nil {
		return 0, err
	}
	cmd := exec.Command("/proc/self/exe", args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(machineNetworkFD, "network")}
	signals := stopSignals()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go passOn(signals, cmd.Process)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case pid == cmd.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// mountAgain mounts what the programs of a node write outside of their directory: /proc for the new pid namespace with
// read-only sysctls except those of the network, an empty /run, and a /var whose changes are in memory.
func mountAgain(dir, programs string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Both may be below /run or /var, which are hidden below.
	ours, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer ours.Close()
	theirs, err := os.Open(programs)
	if err != nil {
		return err
	}
	defer theirs.Close()
	opened := func(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		{source: "proc", target: "/proc", kind: "proc"},
		{source: "run", target: "/run", kind: "tmpfs", data: "mode=755"},
		{source: "/proc/sys/net", target: "/proc/sys/net", flags: unix.MS_BIND},
		{source: "/proc/sys", target: "/proc/sys", flags: unix.MS_BIND | unix.MS_REC},
		{target: "/proc/sys", flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{source: opened(ours), target: isolatedDir, flags: unix.MS_BIND},
		// A kubelet mounts a directory that is not shared again, while it makes a socket there. The rename of that socket
		// may then fail.
		{target: isolatedDir, flags: unix.MS_SHARED},
		{source: opened(theirs), target: isolatedPrograms, flags: unix.MS_BIND},
		{source: "var", target: "/var", kind: "overlay", data: "lowerdir=/var,upperdir=/run/var/upper,workdir=/run/var/work"},
		{source: isolatedDir, target: dir, flags: unix.MS_BIND},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if m.target != "/run" {
			continue
		}
		for _, dir := range []string{isolatedDir, isolatedPrograms, "/run/var/upper", "/run/var/work"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	return hideSysctls()
}

// hideSysctls lets a kubelet read the sysctls of the machine that it wants to set as if they were set.
func hideSysctls() error {
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join("/run", filepath.Base(name))
		if err := os.WriteFile(file, []byte(value), 0o444); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}

// startNetwork gives loopback the address of the Service "kubernetes", which pods connect to. Without kube-proxy, this
// is the only Service that has an address.
func startNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(serviceAddress + "/32")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
}

// startBridge makes the bridge of a node, on which its pods will be. Its address is that of the node.
func startBridge(name, address string) error {
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	// Without an address of its own, a bridge takes the lowest one of its ports, which come and go with pods. Pods whose
	// gateway changes its address cannot reach the API server for half a minute. The 2 marks an address that no maker of
	// hardware has given.
	attrs := netlink.LinkAttrs{Name: name, HardwareAddr: append(net.HardwareAddr{2, 0}, parsed.IP.To4()...)}
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	return errors.Join(netlink.LinkAdd(bridge), netlink.AddrAdd(bridge, parsed), netlink.LinkSetUp(bridge))
}

// isolated reports whether this process is in the namespaces.
func isolated() bool { return os.Getenv(isolatedVariable) != "" }

// outside calls a function in the network of the machine. A socket stays in the network in which it was made.
func outside(makeSocket func() error) error {
	syscall.CloseOnExec(machineNetworkFD)
	runtime.LockOSThread() // If the thread cannot return, it stays locked, and ends with its goroutine.
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Setns(machineNetworkFD, unix.CLONE_NEWNET); err != nil {
		return err
	}
	made := makeSocket()
	if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	runtime.UnlockOSThread()
	return made
}

// cgroupMounts returns where the hierarchies of cgroups are mounted: one in version 2, one for each controller in
// version 1.
func cgroupMounts() (paths []string, err error) {
	text, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[2], "cgroup") {
			paths = append(paths, fields[1])
		}
	}
	return paths, err
}

// makeCgroups makes a cgroup in each hierarchy. In version 2, its parents pass their controllers on to it.
func makeCgroups(name string) error {
	paths, err := cgroupMounts()
	for _, path := range paths {
		err = errors.Join(err, os.MkdirAll(filepath.Join(path, name), 0o755))
		for _, parent := range []string{path, filepath.Join(path, filepath.Dir(name))} {
			controllers, unified := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
			for _, controller := range strings.Fields(string(controllers)) {
				unified = errors.Join(unified,
					os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0))
			}
			if !errors.Is(unified, fs.ErrNotExist) {
				err = errors.Join(err, unified)
			}
		}
	}
	return err
}

// killCgroup kills the processes in a cgroup and in those below it, and those that have a word in their command line.
func killCgroup(name, word string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup")) // It may have ended.
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		isOf := strings.Contains(string(groups), ":"+name+"/") || strings.Contains(string(line), word)
		if isOf && pid > 1 && pid != os.Getpid() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// removeCgroups removes the cgroups that ended containers have left.
func removeCgroups(name string) {
	paths, _ := cgroupMounts()
	for _, path := range paths {
		var dirs []string
		filepath.WalkDir(filepath.Join(path, name), func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			syscall.Rmdir(dirs[i]) // Of what still runs, it stays.
		}
	}
}
