#!/bin/sh
# Ends this node's pods in time, whether or not an engine is there. A timer runs it every ten seconds.
#
# The node's end was written down at its launch; what the API server says of it since then (the annotation on this
# node) comes before that, and is remembered. The longest grace of the pods here is asked for likewise. At the end less
# that grace and a spare half minute the node powers off, and the kubelet gives each pod its grace on the way.
# The agent in the cluster (`tidemill node agent`) acts 15 seconds earlier, pod by pod. What it stopped already has its
# grace, so this is for a node that has no such agent, or whose API server is away.
set -u
root=${TIDEMILL_ROOT:-}
state=$root/etc/tidemill
. "$state/agent.env" # CLUSTER, REGION, ANNOTATION, SPARE_S, MOST_S, ASK_EVERY_S
now=$(date -u +%s)

recalled() { cat "$state/$1" 2>/dev/null || echo "${2:-}"; }

remember() { printf '%s\n' "$2" >"$state/$1.new" && mv "$state/$1.new" "$state/$1"; }

ask() {
  token=$(aws eks get-token --cluster-name "$CLUSTER" --region "$REGION" --output json | jq -r .status.token) || return 1
  server=$(sed -n 's/^ *server: *//p' "$root/var/lib/kubelet/kubeconfig" | head -n 1)
  curl --silent --fail --max-time 3 --cacert "$root/etc/kubernetes/pki/ca.crt" \
    --header "Authorization: Bearer $token" "$server$1"
}

own_name() { sed -n 's/.*--hostname-override=\([^ "]*\).*/\1/p' "$root/etc/eks/kubelet/environment" | head -n 1; }

refresh() {
  name=$(own_name)
  [ -n "$name" ] || return 0
  told=$(ask "/api/v1/nodes/$name" | jq -r --arg key "$ANNOTATION" '.metadata.annotations[$key] // empty') || told=
  if [ -n "$told" ] && date -u -d "$told" +%s >/dev/null 2>&1; then remember ends-at "$told"; fi
  # Daemons stay to the end; what has finished needs no grace, and what was deleted has it.
  grace=$(ask "/api/v1/pods?fieldSelector=spec.nodeName=$name" | jq -r '[.items[]
    | select(.status.phase == "Pending" or .status.phase == "Running")
    | select(.metadata.deletionTimestamp == null)
    | select(any(.metadata.ownerReferences[]?; .kind == "DaemonSet") | not)
    | .spec.terminationGracePeriodSeconds // 30] | max // 0') || grace=
  case $grace in '' | *[!0-9]*) ;; *) remember longest-grace "$grace" ;; esac
}

is_due() {
  ends_at=$(recalled ends-at)
  [ -n "$ends_at" ] || exit 0
  end=$(date -u -d "$ends_at" +%s) || exit 1
  # Never asked with success: as long as the engine would take at least.
  grace=$(recalled longest-grace 600)
  [ "$grace" -le "$MOST_S" ] || grace=$MOST_S
  [ "$now" -ge "$((end - grace - SPARE_S))" ]
}

if [ "$((now - $(recalled asked-at 0)))" -ge "$ASK_EVERY_S" ]; then
  remember asked-at "$now"
  refresh
elif is_due && [ ! -e "$state/ending" ]; then
  refresh # pods may have been stopped since
fi

if is_due && [ ! -e "$state/ending" ]; then
  remember ending "$now"
  echo "this node must be empty by $ends_at: powering off, with ${grace}s of grace for its pods"
  systemctl poweroff
fi
