#!/usr/bin/env bash
# Prints the path of a candidate of client-go's leader election, which `scripts/elector.sh build` builds with Go from the module in
# scripts/elector (pinned by its go.sum), and keeps under target/. Without it, it prints the reason and exits with 3.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sums=$(cat "$here"/elector/* | cksum | cut -d ' ' -f 1)
built="$here/../target/elector/$sums/elector"
if [[ ! -x $built ]]; then
    [[ ${1:-} == build ]] || { echo "there is no elector: scripts/elector.sh build builds it" >&2; exit 3; }
    command -v go >/dev/null || { echo "there is no Go to build the elector" >&2; exit 3; }
    mkdir -p "$(dirname "$built")"
    # Into its place in one step, so that an interrupted build leaves nothing.
    (cd "$here/elector" && go build -mod=readonly -ldflags '-s -w' -o "$built.part" . >&2) \
        || { echo "the elector could not be built" >&2; exit 3; }
    mv "$built.part" "$built"
fi
realpath "$built"
