#!/usr/bin/env bash
# Generates all that is derived from pkg/apis, with the tools pinned in go.mod and hack/tools/tools.mod. It works
# without a network once their modules are cached.
#
#   hack/generate.sh           writes into this tree
#   hack/generate.sh --verify  writes into a copy, and fails if the copy differs from this tree
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly version=acme/v1alpha1 generated=pkg/generated crd_dir=artifacts/crd
readonly api_dir=pkg/apis/$version

generate() { # in the current directory
	local module api out header=hack/boilerplate.go.txt
	module=$(go list -m)
	api=$module/$api_dir out=$module/$generated
	rm -rf "$generated" "$crd_dir"/*.yaml "$api_dir"/zz_generated.*
	mkdir -p "$generated"
	go tool deepcopy-gen --go-header-file "$header" --output-file zz_generated.deepcopy.go "$api"
	go tool register-gen --go-header-file "$header" --output-file zz_generated.register.go "$api"
	go tool -modfile=hack/tools/tools.mod controller-gen \
		crd:crdVersions=v1,generateEmbeddedObjectMeta=false "output:crd:artifacts:config=$crd_dir" \
		"applyconfiguration:headerFile=$header" "paths=./$api_dir/..."
	go tool crd-times "$crd_dir"/*.yaml
	go tool client-gen --go-header-file "$header" --output-dir "$generated/clientset" --output-pkg "$out/clientset" \
		--clientset-name versioned --fake-clientset=false --apply-configuration-package "$out/applyconfiguration" \
		--input-base "$module/pkg/apis" --input "$version"
	go tool lister-gen --go-header-file "$header" --output-dir "$generated/listers" --output-pkg "$out/listers" "$api"
	go tool informer-gen --go-header-file "$header" --output-dir "$generated/informers" --output-pkg "$out/informers" \
		--versioned-clientset-package "$out/clientset/versioned" --listers-package "$out/listers" "$api"
}

case "${1-}" in
"") generate ;;
--verify)
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	mkdir -p "$copy"/pkg "$copy/$crd_dir"
	sed "s|=> \.|=> $PWD/.|" go.mod >"$copy/go.mod" # A path in it is relative.
	cp -R go.sum hack "$copy/"
	cp -R pkg/apis "$copy/pkg/"
	cp "$crd_dir/Kustomization" "$copy/$crd_dir/" # Not generated.
	(cd "$copy" && generate)
	for path in "$api_dir" "$generated" "$crd_dir"; do
		diff -ru "$path" "$copy/$path" || {
			echo "generate: $path is out of date: run 'make generate' and commit the result" >&2
			exit 1
		}
	done
	;;
*)
	echo "usage: hack/generate.sh [--verify]" >&2
	exit 2
	;;
esac
