#!/usr/bin/env bash
# Generates all files that are derived from pkg/apis, with the tools pinned in go.mod and hack/tools/tools.mod. It works
# without a network once the modules of the tools are cached.
#
#   hack/generate.sh           writes into this tree
#   hack/generate.sh --verify  writes into a copy, and fails if the copy differs from this tree
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly api_dir=pkg/apis/samplecontroller/v1alpha1 generated=pkg/generated crd_dir=artifacts/crd api_page=docs/api.md

generate() { # in the current directory
	local module api out header=hack/boilerplate.go.txt
	module=$(go list -m)
	api=$module/$api_dir
	out=$module/$generated
	rm -rf "$generated" "$crd_dir"/*.yaml "$api_dir"/zz_generated.*
	mkdir -p "$generated"
	echo "generate: deep copies and scheme registration"
	go tool deepcopy-gen --go-header-file "$header" --output-file zz_generated.deepcopy.go "$api"
	go tool register-gen --go-header-file "$header" --output-file zz_generated.register.go "$api"
	echo "generate: CustomResourceDefinition and apply configurations"
	go tool -modfile=hack/tools/tools.mod controller-gen \
		crd:crdVersions=v1,generateEmbeddedObjectMeta=false "output:crd:artifacts:config=$crd_dir" \
		"applyconfiguration:headerFile=$header" "paths=./$api_dir/..."
	go run ./hack/tools/crd-times "$crd_dir"/*.yaml
	echo "generate: clientset, listers, informers"
	go tool client-gen --go-header-file "$header" --output-dir "$generated/clientset" --output-pkg "$out/clientset" \
		--clientset-name versioned --fake-clientset=false --apply-configuration-package "$out/applyconfiguration" \
		--input-base "$module/pkg/apis" --input samplecontroller/v1alpha1
	go tool lister-gen --go-header-file "$header" --output-dir "$generated/listers" --output-pkg "$out/listers" "$api"
	go tool informer-gen --go-header-file "$header" --output-dir "$generated/informers" --output-pkg "$out/informers" \
		--versioned-clientset-package "$out/clientset/versioned" --listers-package "$out/listers" "$api"
	echo "generate: API reference"
	go run ./hack/tools/api-docs "$api_dir" "$crd_dir"/*.yaml artifacts/examples/example-foo.yaml "$api_page"
}

case "${1-}" in
"") generate ;;
--verify)
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	mkdir -p "$copy"/{pkg,hack,artifacts/crd,docs}
	cp -R go.mod go.sum "$copy/"
	cp -R pkg/apis "$copy/pkg/"
	cp -R hack/tools hack/tools/api-docs hack/tools/crd-times hack/boilerplate.go.txt "$copy/hack/"
	cp -R artifacts/examples "$copy/artifacts/"
	cp "$crd_dir/Kustomization" "$copy/$crd_dir/" # Not generated.
	(cd "$copy" && generate)
	for path in "$api_dir" "$generated" "$crd_dir" "$api_page"; do
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
