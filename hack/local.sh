# What hack/run.sh and hack/cluster.sh share: a local control plane in the directory $dir, and its end. They set dir, and
# source this file.

started=() # The processes, in the order of their start.
cluster='' stopping='' stopped_first=''

kubectl() { bin/localcluster kubectl --dir "$dir" -- "$@"; }
step() { printf '\n==> %s\n' "$*"; }

# alive PID: reports whether a child process still runs.
alive() { [[ -n $1 ]] && kill -0 "$1" 2>/dev/null; }

stop() { # PID
	alive "$1" || return 0
	kill -TERM "$1" 2>/dev/null || true
	while alive "$1"; do wait "$1" 2>/dev/null || true; done # A signal interrupts wait.
}

fail() { # MESSAGE LOG
	printf '%s. The end of its log:\n' "$1" >&2
	tail -n 20 "$2" >&2
	exit 1
}

# stop_at_end WHAT: at the end of the script, all that has started stops, the latest first, and $dir is removed.
stop_at_end() {
	stopped_first=$1
	trap clean_up EXIT
	trap 'stopping=yes; exit' INT TERM
}

clean_up() {
	local status=$? i
	trap '' TERM PIPE # Further signals, and a closed output, must not interrupt the cleanup.
	# Another Ctrl-C makes what still stops end at once: to the pod runner, a second signal means that.
	trap 'kill -TERM "${started[@]}" 2>/dev/null || true' INT
	set +o errexit
	step "Stopping: $stopped_first, then the control plane"
	for ((i = ${#started[@]} - 1; i >= 0; i--)); do stop "${started[i]}"; done
	rm -rf "$dir"
	echo "Nothing is left behind."
	[[ -z $stopping ]] || exit 0
	exit "$status"
}

# start_cluster starts the control plane, and waits until it is ready. $dir/hold is a pipe that only the script holds
# open, as descriptor 9. What reads from it ends when the script does.
start_cluster() {
	step "Starting Kubernetes: etcd, API server, controllers, scheduler and a simulated node, all on loopback"
	mkfifo "$dir/hold"
	exec 9<>"$dir/hold"
	bin/localcluster up --dir "$dir" --stop-with-stdin <"$dir/hold" >"$dir/cluster.log" 2>&1 9>&- &
	started+=("$!")
	cluster=$!
	until grep -qx ready "$dir/cluster.log"; do
		alive "$cluster" || fail "The control plane did not start" "$dir/cluster.log"
		sleep 0.2
	done
	kubectl version
}
