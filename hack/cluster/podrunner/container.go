//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file is the last process before the entrypoint of a container. It runs under the command "podrunner container":
// the sandbox starts it in new user, mount and PID namespaces. It drops its permissions and becomes the entrypoint,
// which is then process 1 of its container, as on any node.

const (
	containerCommand = "container"
	// reportFile is the number of the file that gets the reason why the entrypoint cannot start.
	reportFile = 3
)

// newContainerProcess returns the command that becomes the entrypoint. root is the root file system of the container.
func newContainerProcess(spec *containerSpec, root string, report *os.File) *exec.Cmd {
	encoded, _ := json.Marshal(spec) // It has only strings and numbers.
	cmd := exec.Command("/proc/self/exe", containerCommand, root, string(encoded))
	cmd.Env = []string{} // Nothing of the machine.
	cmd.ExtraFiles = []*os.File{report}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: spec.UID, HostID: spec.HostUID, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: spec.GID, HostID: spec.HostGID, Size: 1}},
		GidMappingsEnableSetgroups: spec.HostUID == spec.UID,
		// An ordinary user may not change its groups in a user namespace.
		Credential: &syscall.Credential{
			Uid: uint32(spec.UID), Gid: uint32(spec.GID), NoSetGroups: spec.HostUID != spec.UID,
		},
		// A user other than root has capabilities after an exec only if they are ambient.
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
		Setsid:      true,
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

// runContainer becomes the entrypoint of a container. It returns only if it cannot.
func runContainer(root, encoded string) error {
	report := os.NewFile(reportFile, "report")
	unix.CloseOnExec(reportFile)
	err := becomeEntrypoint(root, encoded)
	fmt.Fprint(report, err)
	return err
}

func becomeEntrypoint(root, encoded string) error {
	runtime.LockOSThread() // Capabilities belong to a thread, and exec continues with those of this one.
	spec := containerSpec{}
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		return err
	}
	// The mounts of the sandbox are locked in this namespace, and only a mount of our own can become the root.
	if err := mountAt(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := mountProc(root + "/proc"); err != nil {
		return err
	}
	if err := changeRoot(root); err != nil {
		return err
	}
	if err := unix.Chdir(spec.Dir); err != nil {
		return fmt.Errorf("working directory %s: %w", spec.Dir, err)
	}
	if err := dropPermissions(&spec); err != nil {
		return err
	}
	program, err := find(spec.Args[0], spec.Env)
	if err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", program, syscall.Exec(program, spec.Args, spec.Env))
}

// dropPermissions takes from this thread, and from what it starts, the capabilities that are not in the spec. An exec
// gives the user root all capabilities that are left in the bounding set, and another user none.
func dropPermissions(spec *containerSpec) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	for capability := uintptr(0); ; capability++ {
		if slices.Contains(spec.Capabilities, capability) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err == unix.EINVAL {
			break // The kernel does not know a capability of this number.
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	if !spec.NoNewPrivileges {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// find returns the path of a program in the container.
func find(program string, env []string) (string, error) {
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			os.Setenv("PATH", value)
		}
	}
	return exec.LookPath(program)
}
