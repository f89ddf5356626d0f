#!/bin/sh
# ssh [OPTIONS] HOST COMMAND...: runs a command on a host of hosts.sh, without the variables of this one.
while :; do
  case "$1" in
  -[bceFiJlmopS]) shift 2 ;;
  -*) shift ;;
  *) break ;;
  esac
done
folder=${0%/*}
host=$1
shift
exec nsenter --target "$(cat "$folder/pid${host#n}")" --uts --net --mount --wd="$PWD" \
  env -i "PATH=$PATH" "HOME=$HOME" "TMPDIR=$folder/tmp-$host" sh -c "$*"
