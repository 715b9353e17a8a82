#!/bin/bash
# run.sh SECONDS DIR SCRIPT: boots the virtual machine with DIR as its /mnt and
# runs /mnt/SCRIPT in it as root; exits with the script's exit code, 124 when
# the time is over.
#
# The machine has no network device. It is emulated (KVM of a machine that is a
# guest itself seldom boots it; ADVERB_VM_ACCEL=kvm tries), and so 6 to 20
# times slower than the host.
set -euo pipefail
[ $# = 3 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
limit=$1 share=$2 script=$3
work=${ADVERB_VM:-${TMPDIR:-/tmp}/adverb-vm}
log=$(mktemp "$work/console.XXXXXX")
trap 'rm -f "$log"' EXIT
echo "$script" >"$share/.script"
# Emulated machines now and then die while they boot. Those are started again.
for _ in 1 2 3; do
    rm -f "$share"/.started "$share"/.rc
    rc=0
    timeout -k 5 "$limit" qemu-system-x86_64 \
        -accel "${ADVERB_VM_ACCEL:-tcg,thread=multi,tb-size=512}" -machine q35 -cpu max -smp 2 -m 2560 \
        -nic none -display none -no-reboot -monitor none \
        -kernel "$work/vmlinuz" -initrd "$work/initrd.gz" \
        -append 'console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr maxcpus=1 random.trust_cpu=on' \
        -drive file="$work/root.ext4",format=raw,if=virtio,readonly=on \
        -virtfs local,path="$share",mount_tag=share,security_model=none,multidevs=remap \
        -device virtio-rng-pci \
        -device virtio-serial-pci -chardev stdio,id=out,signal=off -device virtconsole,chardev=out \
        -serial "file:$log" </dev/null || rc=$?
    [ -e "$share/.started" ] && break
done
if [ "$rc" = 0 ] && [ -s "$share/.rc" ]; then
    exit "$(cat "$share/.rc")"
fi
echo "run.sh: the machine did not end by itself (qemu: $rc); its console:" >&2
tail -n 25 "$log" >&2
[ "$rc" = 124 ] && exit 124
exit 125
