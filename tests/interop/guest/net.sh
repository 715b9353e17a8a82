# The network of the guest; sourced. Software RoCE knows only the first network
# namespace, so there it is, on one end of a veth; Adverb is in the namespace
# "peer", on the other end.
#
#   rxe_a on va   10.0.0.1  fd00::1  fe80::ff:fe00:a
#   Adverb on vb  10.0.0.2  fd00::2  fe80::ff:fe00:b
#
# On both, GID 0 is the link-local one, 1 is IPv4, 2 the global IPv6 one.

network() { # network MTU
    local peer='ip netns exec peer' i
    ip netns add peer
    sysctl -qw net.ipv6.conf.default.accept_dad=0
    $peer sysctl -qw net.ipv6.conf.default.accept_dad=0
    $peer ip link set lo up
    ip link add va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b netns peer
    ip link set va mtu "$1" up
    $peer ip link set vb mtu "$1" up
    ip addr add 10.0.0.1/24 dev va
    ip addr add fd00::1/64 dev va nodad
    $peer ip addr add 10.0.0.2/24 dev vb
    $peer ip addr add fd00::2/64 dev vb nodad
    rdma link add rxe_a type rxe netdev va
    for ((i = 0; i < 100; i++)); do
        [ "$(cat /sys/class/infiniband/rxe_a/ports/1/gid_attrs/types/2 2>/dev/null)" = 'RoCE v2' ] && return 0
        sleep 0.1
    done
    echo 'rxe_a never got its GIDs'
    return 1
}

# Prints the process that holds the namespace: /proc/ITS/net/tcp is what listens there.
holder() {
    ip netns exec peer sleep infinity >/dev/null 2>&1 &
    echo $!
}

weather() { # weather none|loss|reorder: on both ends
    local rule
    tc qdisc del dev va root 2>/dev/null
    ip netns exec peer tc qdisc del dev vb root 2>/dev/null
    case $1 in
        none) return ;;
        loss) rule='loss 1%' ;;
        reorder) rule='delay 2ms reorder 75% 50%' ;;
        *) return 1 ;;
    esac
    # shellcheck disable=SC2086
    tc qdisc add dev va root netem limit 10000 $rule && ip netns exec peer tc qdisc add dev vb root netem limit 10000 $rule
}
