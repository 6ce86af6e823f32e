#!/bin/sh
# Prints the path of the newest Python that is installed, if it is newer than the given one (python3.11 by default).
#
#   newest_python.sh [PYTHON]
#
# Pythons without the global lock are left out: the wheel is not for them.

code='
import sys, sysconfig, venv, ensurepip
if not sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info.releaselevel == "final":
    print("%d %d %d %s" % (*sys.version_info[:3], sys.executable))
'
oldest=$("${1:-python3.11}" -c "$code" 2>/dev/null) || exit 1
for python in python3.15 python3.14 python3.13 python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python; do
  "$python" -c "$code" 2>/dev/null
done | sort -k1,1n -k2,2n -k3,3n | tail -n 1 | while read -r major minor patch path; do
  # shellcheck disable=SC2086
  set -- $oldest
  if [ "$major" -gt "$1" ] || { [ "$major" -eq "$1" ] && [ "$minor" -gt "$2" ]; }; then
    echo "$path"
  fi
done
