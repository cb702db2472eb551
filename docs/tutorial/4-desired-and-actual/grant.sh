#!/usr/bin/env bash
# Grants verbs on resources to the ServiceAccount learner, for instance: grant.sh list,watch deployments.apps
set -o errexit -o nounset -o pipefail
name=learner-$(tr -c 'a-z\n' '-' <<<"$1-$2")
{
	kubectl create clusterrole "$name" --verb="$1" --resource="$2"
	kubectl create clusterrolebinding "$name" --clusterrole="$name" --serviceaccount=default:learner
	kubectl label clusterrole,clusterrolebinding "$name" tutorial=4
} >/dev/null
echo "learner may $1 $2"
