#!/usr/bin/env bash
# `make play`: the controller and an example Foo on the simulated API server, in .cluster. It prints each change of the
# Foo. Ctrl-C stops everything and removes .cluster.
#
# With RUN_UNTIL_READY=1 it ends as soon as the example Foo is Ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly example=artifacts/examples/example-foo.yaml
source hack/local.sh

take_directory
stop_at_end "the controller, then the simulated API server"

step "Starting the simulated API server: bin/play"
open_hold
mkfifo "$dir/foo.yaml"
bin/play --kubeconfig="$dir/kubeconfig" --create="$dir/foo.yaml" ${RUN_UNTIL_READY:+--until-ready} \
	<"$dir/hold" 2>"$dir/requests.log" 9>&- &
started+=("$!")
cluster=$!
wait_for_log "play: watch foos" "$dir/requests.log" "The simulated API server did not start"
echo "It logs each request, and what it changes, to $dir/requests.log"
write_env

start_controller "$dir/kubeconfig"

step "In another terminal, in this directory, talk to it like this (hack/cmd/play/README.md has more to try):"
print_usage "scale foo/example-foo --replicas=5"

step "Creating a Foo from $example. Its changes show below; Ctrl-C stops everything"
cat "$example" 1<>"$dir/foo.yaml" # Not >, which waits for a server that has ended.

# Wait for Ctrl-C, or until one of the processes ends.
while alive "$cluster"; do
	alive "$controller" || fail "The controller ended" "$dir/controller.log"
	sleep 0.1
done
wait "$cluster" && [[ -n ${RUN_UNTIL_READY:-} ]] || fail "The simulated API server ended" "$dir/requests.log"
