#!/usr/bin/env bash
# step.sh NAME COMMAND...: runs the command, and says its name before and its time after.
set -uo pipefail
# A make with several jobs offers its count of jobs to all it starts; cargo has its own.
unset MAKEFLAGS MFLAGS
name=$1
shift
echo "==> $name" >&2
start=$SECONDS
"$@"
code=$?
took=$((SECONDS - start))
if [ "$code" -eq 0 ]; then
  echo "==> $name: done in ${took} s" >&2
else
  echo "==> $name: FAILED (exit code $code) after ${took} s" >&2
fi
exit "$code"
