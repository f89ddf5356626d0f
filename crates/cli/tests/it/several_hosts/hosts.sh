#!/bin/sh
# hosts.sh FOLDER COUNT COMMAND...: runs a command on the first of COUNT hosts n1, n2, ... Each is a set of namespaces
# with its own name and network; all are on one bridge. Ends with the PID namespace that it is started in. File shape
# of the folder has the rates of links: lines `NTH in|out|both RATE`, of which the last that fits counts.
set -e
folder=$1 count=$2
shift 2
ip link add name bridge type bridge
ip link set bridge up
echo "127.0.0.1 localhost" >"$folder/names"
for nth in $(seq "$count"); do
  echo "10.9.0.$nth n$nth" >>"$folder/names"
done
for nth in $(seq "$count"); do
  # Open MPI names a folder by its process, whose number comes again in the next PID namespace, and leaves it
  # behind when the namespace ends.
  rm -rf "$folder/up$nth" "$folder/tmp-n$nth"
  mkdir "$folder/tmp-n$nth"
  unshare --uts --net --mount sh -c "hostname n$nth && mount --bind '$folder/names' /etc/hosts &&
    ip link set lo up && : >'$folder/up$nth' && exec sleep 600" &
  echo $! >"$folder/pid$nth"
done
shape() { # NTH DIRECTION tc...: limits a device to the rate in that direction
  [ -e "$folder/shape" ] || return 0
  rate=$(awk -v n="$1" -v way="$2" '($1 == n || $1 == "all") && ($2 == way || $2 == "both") { rate = $3 }
    END { print rate }' "$folder/shape")
  shift 2
  "$@" root tbf rate "$rate" burst 128kb latency 200ms
}
for nth in $(seq "$count"); do
  pid=$(cat "$folder/pid$nth")
  until [ -e "$folder/up$nth" ]; do
    kill -0 "$pid"
    sleep 0.05
  done
  ip link add "veth$nth" type veth peer name eth0 netns "$pid"
  ip link set "veth$nth" master bridge up
  nsenter --target "$pid" --net sh -c "ip addr add 10.9.0.$nth/24 dev eth0 && ip link set eth0 up"
  shape "$nth" in tc qdisc add dev "veth$nth"
  shape "$nth" out nsenter --target "$pid" --net tc qdisc add dev eth0
done
exec nsenter --target "$(cat "$folder/pid1")" --uts --net --mount --wd="$PWD" "$@"
