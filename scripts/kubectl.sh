#!/usr/bin/env bash
# Prints the path of a kubectl 1.32 or newer: the one of $KUBECTL, the one on the PATH, or one that is built with Go from
# the module in scripts/kubectl (pinned by its go.sum) and kept under target/. Without any, it prints the reason and exits with 3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
oldest=32

new_enough() {
    local minor
    minor=$("$1" version --client -o json 2>/dev/null | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p' | head -n 1)
    [[ -n $minor && $minor -ge $oldest ]]
}

if [[ -n ${KUBECTL:-} ]]; then
    new_enough "$KUBECTL" || { echo "KUBECTL=$KUBECTL is no kubectl 1.$oldest or newer" >&2; exit 3; }
    realpath "$KUBECTL"
    exit
fi
found=$(command -v kubectl || true)
if [[ -n $found ]] && new_enough "$found"; then
    echo "$found"
    exit
fi

sums=$(cat "$here"/kubectl/* | cksum | cut -d ' ' -f 1)
built="$here/../target/kubectl/$sums/kubectl"
if [[ ! -x $built ]]; then
    command -v go >/dev/null || { echo "there is no kubectl 1.$oldest or newer, and no Go to build one" >&2; exit 3; }
    version=$(sed -n 's/.*k8s\.io\/kubectl v0\.\([0-9.]*\).*/v1.\1/p' "$here/kubectl/go.mod" | head -n 1)
    minor=${version#v1.}
    about=k8s.io/component-base/version
    flags="-s -w -X $about.gitVersion=$version -X $about.gitMajor=1 -X $about.gitMinor=${minor%%.*}"
    mkdir -p "$(dirname "$built")"
    # Into its place in one step, so that a build which is cut short leaves nothing.
    (cd "$here/kubectl" && go build -mod=readonly -ldflags "$flags" -o "$built.part" . >&2) \
        || { echo "kubectl could not be built" >&2; exit 3; }
    mv "$built.part" "$built"
fi
realpath "$built"
