#!/usr/bin/env bash
# Prints the path of a helm 3: the one of $HELM, the one on the PATH, or the one that `scripts/helm.sh build` has built with Go
# from the module in scripts/helm (pinned by its go.sum), and has put under target/. Without any, it prints the reason and exits
# with 3. The build takes minutes, so that tests do not start it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

is_helm_3() {
    [[ $("$1" version --template '{{.Version}}' 2>/dev/null) == v3.* ]]
}

if [[ -n ${HELM:-} ]]; then
    is_helm_3 "$HELM" || { echo "HELM=$HELM is no helm 3" >&2; exit 3; }
    realpath "$HELM"
    exit
fi
found=$(command -v helm || true)
if [[ -n $found ]] && is_helm_3 "$found"; then
    echo "$found"
    exit
fi

sums=$(cat "$here"/helm/* | cksum | cut -d ' ' -f 1)
built="$here/../target/helm/$sums/helm"
if [[ ! -x $built ]]; then
    [[ ${1:-} == build ]] || { echo "there is no helm 3: scripts/helm.sh build builds it" >&2; exit 3; }
    command -v go >/dev/null || { echo "there is no Go to build helm" >&2; exit 3; }
    version=$(sed -n 's/^.*helm\.sh\/helm\/v3 \(v[0-9.]*\).*/\1/p' "$here/helm/go.mod" | head -n 1)
    mkdir -p "$(dirname "$built")"
    # Into its place in one step, so that an interrupted build leaves nothing.
    (cd "$here/helm" && go build -mod=readonly -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$version" \
        -o "$built.part" helm.sh/helm/v3/cmd/helm >&2) || { echo "helm could not be built" >&2; exit 3; }
    mv "$built.part" "$built"
fi
realpath "$built"
