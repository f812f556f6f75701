#!/usr/bin/env bash
# Three hosts with a third of a model's feed-forward blocks each, and this one with its attention: as network namespaces of this
# machine, each behind a link of its own that is shaped. Needs Linux, root, iproute2, and the examples, built with
#     cargo build --release --features net --examples
#
#     examples/rust/hosts.sh [--model FILE] [--mbit 100] [--ms 1] [--loss 0] [--tokens 48]
#
# Addresses are private (10.77.1.0/30 to 10.77.3.0/30), nothing leaves this machine, and all of it goes away at the end.
# Latency and loss need the kernel's netem; where it is absent, that is said, and the links have a rate alone.
set -euo pipefail
cd "$(dirname "$0")/../.."

built=${CARGO_TARGET_DIR:-target}/release/examples
model=examples/models/stories260K mbit=100 ms=1 loss=0 tokens=48
while [ $# -gt 0 ]; do
    case $1 in
    --model | --mbit | --ms | --loss | --tokens) declare "${1#--}=${2:?$1 needs a value}" && shift ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit 2 ;;
    esac
    shift
done

work=$(mktemp -d)
servers=()
finish() {
    # Whoever holds these open serves.
    exec 7>&- 8>&- 9>&-
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for host in 1 2 3; do
        ip link delete "skulk$host" 2>/dev/null || true
        ip netns delete "skulk$host" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT

shape() { # device, command before it
    local device=$1
    shift
    if ! "$@" tc qdisc replace dev "$device" root netem delay "${ms}ms" loss "${loss}%" rate "${mbit}mbit" 2>/dev/null; then
        [ -n "${told:-}" ] || echo "this kernel has no netem: links have $mbit Mbit/s, and no latency or loss of their own"
        told=yes
        "$@" tc qdisc replace dev "$device" root tbf rate "${mbit}mbit" burst 64kb latency 100ms
    fi
}

head -c 24 /dev/urandom | base64 | tr -d '/+=\n' >"$work/key"
layers=$("$built/generate" --model "$model" --max-tokens 1 | sed -nE '1s/.*, ([0-9]+) layers,.*/\1/p')
ends=(0 $((layers / 3)) $((2 * layers / 3)) "$layers")
at=()
for host in 1 2 3; do
    ip netns add "skulk$host"
    ip link add "skulk$host" type veth peer name side netns "skulk$host"
    ip address add "10.77.$host.1/30" dev "skulk$host"
    ip link set "skulk$host" up
    ip netns exec "skulk$host" ip address add "10.77.$host.2/30" dev side
    ip netns exec "skulk$host" ip link set side up
    shape "skulk$host"
    shape side ip netns exec "skulk$host"
    mkfifo "$work/input$host"
    ip netns exec "skulk$host" "$built/serve" --model "$model" --listen "http://10.77.$host.2:7000" --threads 1 \
        --layers "${ends[host - 1]}..${ends[host]}" --key-file "$work/key" <"$work/input$host" >"$work/address$host" &
    servers+=($!)
    eval "exec $((host + 6))>'$work/input$host'"
    for _ in $(seq 100); do
        [ ! -s "$work/address$host" ] || break
        sleep 0.1
    done
    address=$(cat "$work/address$host")
    [ -n "$address" ] || { echo "host $host did not begin to serve" >&2 && exit 1; }
    echo "layers ${ends[host - 1]}..${ends[host]} at $address"
    at+=(--ffn-at "$address")
done
timeout 120 "$built/generate" --model "$model" --threads 1 --stages 1 --max-tokens "$tokens" "${at[@]}" --key-file "$work/key"
