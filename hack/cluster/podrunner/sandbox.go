//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file is the process that holds the namespaces of a pod, as the pause container does on other nodes. It runs
// under the command "podrunner sandbox". Its only connection to the runner is a channel, and it ends with that.
//
// The runner starts it in new user, mount, network, PID, IPC and UTS namespaces. In these it is root, so it may mount
// and configure the network, but outside it has no more permissions than the user who started the runner. When it ends,
// the kernel kills all processes of the pod, and removes their mounts and their network. So nothing can be left behind.

const (
	sandboxCommand = "sandbox"
	// channelFile is the number of the file with the channel to the runner.
	channelFile = 3
	// apiHost and apiPort are where the API server is for a pod. It is on the loopback interface of the pod, since the
	// certificate of the API server is valid for that address. The runner forwards connections to the real address.
	apiHost = "127.0.0.1"
	apiPort = "443"
)

// A sandboxSpec is what a sandbox has to know about its pod. Paths are those of the machine.
type sandboxSpec struct {
	// Dir is a directory for this pod. The file systems of the pod are mounted there, seen only by the pod.
	Dir string `json:"dir"`
	// Image is the directory with the unpacked image.
	Image string `json:"image"`
	// Volumes are the directories of the volumes, by their names.
	Volumes map[string]string `json:"volumes"`
	// PodIP and Hostname are those of the pod.
	PodIP    string `json:"podIP"`
	Hostname string `json:"hostname"`
}

// A containerSpec is what to start in a sandbox. Paths are those of the container.
type containerSpec struct {
	// Args are the entrypoint and its arguments. Env has NAME=VALUE.
	Args []string `json:"args"`
	Env  []string `json:"env"`
	// Dir is the working directory.
	Dir string `json:"dir"`
	// UID and GID are those that the process has in the container.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// HostUID and HostGID are those that the process has in the sandbox: the same, if the runner is root. An ordinary
	// user may have only one ID in a namespace, which is 0 in the sandbox.
	HostUID int `json:"hostUID"`
	HostGID int `json:"hostGID"`
	// ReadOnly is readOnlyRootFilesystem.
	ReadOnly bool `json:"readOnly"`
	// NoNewPrivileges is set if allowPrivilegeEscalation is false.
	NoNewPrivileges bool `json:"noNewPrivileges"`
	// Capabilities are the numbers of those that a process in the container can get.
	Capabilities []uintptr `json:"capabilities"`
	// Mounts are the volumes in the container.
	Mounts []mount `json:"mounts"`
}

// A mount is where a container has a volume.
type mount struct {
	Volume   string `json:"volume"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
}

// newSandboxProcess returns the command that starts a sandbox. The IDs are those of a container that will run in it.
func newSandboxProcess(file *os.File, uid, gid int) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", sandboxCommand)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings:                idMappings(os.Geteuid(), uid),
		GidMappings:                idMappings(os.Getegid(), gid),
		GidMappingsEnableSetgroups: isRoot(),
		Setsid:                     true, // Ctrl-C in a terminal is for the runner only.
		Pdeathsig:                  syscall.SIGKILL,
	}
	return cmd
}

func isRoot() bool { return os.Geteuid() == 0 }

// idMappings make the user of the runner root in the sandbox. If the runner is root, the user of the container is there
// too.
func idMappings(runner, container int) []syscall.SysProcIDMap {
	mappings := []syscall.SysProcIDMap{{ContainerID: 0, HostID: runner, Size: 1}}
	if isRoot() && container != 0 {
		mappings = append(mappings, syscall.SysProcIDMap{ContainerID: container, HostID: container, Size: 1})
	}
	return mappings
}

// hostID returns the ID of the sandbox that a container's ID is mapped to.
func hostID(container int) int {
	if isRoot() {
		return container
	}
	return 0
}

// runSandbox is the main function of a sandbox. It returns when the runner closes the channel.
func runSandbox() error {
	ch, err := channelOf(os.NewFile(channelFile, "channel"))
	if err != nil {
		return err
	}
	spec := sandboxSpec{}
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return fmt.Errorf("read the description of the sandbox: %w", err)
	}
	listener, err := setUpSandbox(spec)
	if err != nil {
		_ = ch.send(message{Error: err.Error()})
		return err
	}
	if err := ch.send(message{}, listener); err != nil {
		return err
	}
	listener.Close()
	s := &sandbox{spec: spec, channel: ch}
	for {
		m, files, err := ch.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.handle(m, files)
	}
}

// setUpSandbox configures the namespaces, and returns the socket at the address of the API server.
func setUpSandbox(spec sandboxSpec) (*os.File, error) {
	if err := setUpNetwork(spec.PodIP); err != nil {
		return nil, fmt.Errorf("set up the network: %w", err)
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return nil, fmt.Errorf("set the host name: %w", err)
	}
	if err := setUpMounts(spec); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(apiHost, apiPort))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// setUpNetwork starts the loopback interface, the only one in the namespace, and gives it the address of the pod.
func setUpNetwork(podIP string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("start the loopback interface: %w", err)
	}
	address, err := unix.NewIfreq("lo:pod")
	if err != nil {
		return err
	}
	if err := address.SetInet4Addr(net.ParseIP(podIP).To4()); err != nil {
		return fmt.Errorf("%s: %w", podIP, err)
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, address); err != nil {
		return fmt.Errorf("add the address of the pod: %w", err)
	}
	return nil
}

// setUpMounts gives the sandbox a root file system of its own, with only what its containers need: the image, the
// volumes, some devices, and directories for the containers.
func setUpMounts(spec sandboxSpec) error {
	if err := mountAt("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	root := filepath.Join(spec.Dir, "sandbox")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := mountAt("tmpfs", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	for volume, source := range spec.Volumes {
		if err := bind(source, filepath.Join(root, "volumes", volume), 0); err != nil {
			return err
		}
	}
	if err := bind(spec.Image, filepath.Join(root, "image"), unix.MS_RDONLY); err != nil {
		return err
	}
	if err := setUpDevices(filepath.Join(root, "dev")); err != nil {
		return err
	}
	for _, dir := range []string{"proc", "container"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return err
	}
	return changeRoot(root)
}

// setUpDevices makes the devices of the machine that every container has available in dir.
func setUpDevices(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		target := filepath.Join(dir, device)
		if err := os.WriteFile(target, nil, 0o666); err != nil {
			return err
		}
		if err := mountAt(filepath.Join("/dev", device), target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func mountProc(target string) error {
	return mountAt("proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// bind makes a directory appear at target too.
func bind(source, target string, flags uintptr) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := mountAt(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	// A bind mount ignores other flags. They need a second call, which must repeat those that it inherits.
	var stat unix.Statfs_t
	if err := unix.Statfs(target, &stat); err != nil {
		return err
	}
	const inherited = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY | unix.MS_NOATIME |
		unix.MS_NODIRATIME
	flags |= uintptr(stat.Flags) & inherited
	return mountAt("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|flags, "")
}

// mountAt is mount(2) with an error that names the target.
func mountAt(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", strings.TrimSpace(kind+" "+source), target, err)
	}
	return nil
}

// changeRoot makes dir, a mount point, the root of this mount namespace, and removes what was there before.
func changeRoot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("change to %s: %w", dir, err)
	}
	// With equal arguments, the old root is mounted on top of the new one, so no directory is necessary for it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("make %s the root: %w", dir, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the previous root: %w", err)
	}
	return unix.Chdir("/")
}

// A sandbox has the state of the process.
type sandbox struct {
	spec    sandboxSpec
	channel *channel
	// count is how many containers were started, container the running one or nil.
	count     int
	container *os.Process
}

// handle answers a request. It does not block.
func (s *sandbox) handle(m message, files []*os.File) {
	switch {
	case m.Start != nil:
		s.answer(m, s.start(m.Start, files))
	case m.Signal != 0:
		s.answer(m, s.container.Signal(syscall.Signal(m.Signal)))
	case m.Dial != "":
		go s.dial(m)
	}
}

// answer answers a request with an error or, if that is nil, with files.
func (s *sandbox) answer(m message, err error, files ...*os.File) {
	reply := message{ID: m.ID}
	if err != nil {
		reply.Error = err.Error()
	}
	_ = s.channel.send(reply, files...) // If the runner is gone, receive returns that.
}

// dial connects to an address in the network of the pod.
func (s *sandbox) dial(m message) {
	conn, err := net.Dial("tcp", m.Dial)
	if err != nil {
		s.answer(m, err)
		return
	}
	defer conn.Close()
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		s.answer(m, err)
		return
	}
	defer file.Close()
	s.answer(m, nil, file)
}

// start starts a container, and returns when its entrypoint runs.
func (s *sandbox) start(spec *containerSpec, files []*os.File) error {
	for _, file := range files {
		defer file.Close()
	}
	root, err := s.newRoot(spec)
	if err != nil {
		return err
	}
	problem, report, err := os.Pipe()
	if err != nil {
		return err
	}
	defer problem.Close()
	cmd := newContainerProcess(spec, root, report)
	cmd.Stdout, cmd.Stderr = files[0], files[0]
	err = cmd.Start()
	report.Close()
	if err != nil {
		return err
	}
	// The process closes the pipe when it becomes the entrypoint. Otherwise it writes the reason.
	reason, _ := io.ReadAll(problem)
	if len(reason) > 0 {
		_ = cmd.Wait()
		return errors.New(string(reason))
	}
	s.container = cmd.Process
	go s.wait(cmd)
	return nil
}

// wait reports the end of the container.
func (s *sandbox) wait(cmd *exec.Cmd) {
	_ = cmd.Wait() // The result is in ProcessState.
	state := cmd.ProcessState.Sys().(syscall.WaitStatus)
	exit := &exitStatus{Code: int32(state.ExitStatus())}
	if state.Signaled() {
		exit = &exitStatus{Code: 128 + int32(state.Signal()), Signal: int32(state.Signal())}
	}
	_ = s.channel.send(message{Exit: exit})
}

// newRoot mounts a root file system for a container, and returns its directory. All containers share the image, and
// each has a layer of its own above it, in memory, for what it writes and for mount points.
func (s *sandbox) newRoot(spec *containerSpec) (string, error) {
	s.count++
	dir := path.Join("/container", strconv.Itoa(s.count))
	root, upper, work := path.Join(dir, "root"), path.Join(dir, "upper"), path.Join(dir, "work")
	for _, d := range []string{root, upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	layers := fmt.Sprintf("lowerdir=/image,upperdir=%s,workdir=%s", upper, work)
	if err := mountAt("overlay", root, "overlay", unix.MS_NOSUID|unix.MS_NODEV, layers); err != nil {
		return "", err
	}
	if err := writeNetworkFiles(path.Join(root, "etc"), s.spec); err != nil {
		return "", err
	}
	if err := os.MkdirAll(path.Join(root, "proc"), 0o755); err != nil {
		return "", err
	}
	if err := bind("/dev", path.Join(root, "dev"), 0); err != nil {
		return "", err
	}
	for _, m := range spec.Mounts {
		flags := uintptr(0)
		if m.ReadOnly {
			flags = unix.MS_RDONLY
		}
		if err := bind(path.Join("/volumes", m.Volume), path.Join(root, m.Path), flags); err != nil {
			return "", err
		}
	}
	if !spec.ReadOnly {
		return root, nil
	}
	return root, mountAt("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, "")
}

// writeNetworkFiles writes what a kubelet adds to each image.
func writeNetworkFiles(etc string, spec sandboxSpec) error {
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"hosts":       fmt.Sprintf("127.0.0.1\tlocalhost\n%s\t%s\n", spec.PodIP, spec.Hostname),
		"hostname":    spec.Hostname + "\n",
		"resolv.conf": "", // The cluster has no DNS.
	} {
		if err := os.WriteFile(path.Join(etc, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
