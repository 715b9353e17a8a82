#!/bin/bash
# Builds the virtual machine in which the kernel's software RoCE runs: kernel,
# initrd and root image, from Debian packages. Only what is missing is built.
#
# Needs root on Debian 12, and takes packages from where the machine's apt
# takes them. The work folder is $ADVERB_VM, by default ${TMPDIR:-/tmp}/rxe-vm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${ADVERB_VM:-${TMPDIR:-/tmp}/adverb-vm}
suite=bookworm-backports # its kernel is 6.12
mkdir -p "$work"
say() { printf 'vm: %s (%d s)\n' "$*" "$SECONDS"; }

missing=()
for package in qemu-system-x86 debootstrap busybox-static e2fsprogs cpio kmod; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1
fi
source=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | awk '$2 == "bookworm" { print $1; exit }')
[ -n "$source" ] || { say 'apt knows no source for Debian 12'; exit 1; }

# The kernel package, unpacked. It has an apt state of its own, so that the
# machine does not learn of another suite.
private_apt() {
    apt-"$1" -o Dir::Etc::sourcelist="$work/aptk/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/aptk/lists" -o Dir::Cache="$work/aptk/cache" -o APT::Sandbox::User=root "${@:2}"
}
if [ ! -s "$work/kver" ]; then
    say "kernel of $suite"
    rm -rf "$work/kernel"
    mkdir -p "$work"/aptk/{lists/partial,cache/archives/partial} "$work/kernel"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source $suite main" >"$work/aptk/sources.list"
    private_apt get update -q >/dev/null
    package=$(private_apt cache depends linux-image-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2 }' | tail -1)
    (cd "$work/kernel" && private_apt get download -q "$package" >/dev/null && dpkg -x ./*.deb . && rm ./*.deb)
    version=$(ls "$work/kernel/lib/modules")
    cp "$work/kernel/boot/vmlinuz-$version" "$work/vmlinuz"
    echo "$version" >"$work/kver"
fi
version=$(cat "$work/kver")

if [ ! -e "$work/rootfs/.done" ]; then
    say 'Debian 12'
    packages=rdma-core,ibverbs-providers,ibverbs-utils,rdmacm-utils,perftest
    packages+=,iproute2,ethtool,tcpdump,kmod,procps,busybox-static
    rm -rf "$work/rootfs"
    debootstrap --variant=minbase --include="$packages" bookworm "$work/rootfs" "$source" >"$work/debootstrap.log" 2>&1 ||
        { tail -20 "$work/debootstrap.log"; exit 1; }
    rm -rf "$work"/rootfs/var/cache/apt/* "$work"/rootfs/var/lib/apt/lists/* "$work"/rootfs/usr/share/{locale,man,info}
    touch "$work/rootfs/.done"
fi

# The root image: Debian, the kernel's modules, and our first process. Guests
# mount it read-only below an overlay, so any number of them can share it.
if [ ! -s "$work/root.ext4" ] || ! cmp -s "$here/init" "$work/rootfs/sbin/adverb-init"; then
    say 'root image'
    modules="$work/rootfs/lib/modules" from="$work/kernel/lib/modules/$version"
    rm -rf "$modules" "$work/root.ext4"
    mkdir -p "$modules/$version/kernel/drivers" "$work/rootfs/mnt"
    cp "$from"/modules.{order,builtin,builtin.modinfo} "$modules/$version/"
    for part in arch block crypto fs lib mm net drivers/infiniband drivers/net drivers/virtio drivers/block drivers/char; do
        [ -d "$from/kernel/$part" ] && cp -r "$from/kernel/$part" "$modules/$version/kernel/$(dirname "$part")/"
    done
    rm -rf "$modules/$version"/kernel/drivers/net/{wireless,wwan,can,hamradio,usb}
    depmod -b "$work/rootfs" "$version" 2>/dev/null
    install -m 755 "$here/init" "$work/rootfs/sbin/adverb-init"
    mke2fs -q -t ext4 -O ^has_journal -d "$work/rootfs" "$work/root.tmp" "$(($(du -sm "$work/rootfs" | cut -f1) * 12 / 10 + 64))M"
    mv "$work/root.tmp" "$work/root.ext4"
    rm -f "$work/initrd.gz"
fi

if [ ! -s "$work/initrd.gz" ]; then
    say initrd
    tree=$(mktemp -d "$work/initrd.XXXX")
    mkdir -p "$tree"/{bin,mod,proc,dev,ro,rw,root}
    cp "$(command -v busybox)" "$tree/bin/busybox"
    : >"$tree/order"
    for module in virtio_pci virtio_blk ext4 overlay 9p 9pnet_virtio; do
        modprobe -d "$work/rootfs" -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }'
    done | awk '!seen[$0]++' | while read -r file; do
        name=$(basename "$file" .xz)
        case $file in *.xz) xz -dc "$file" >"$tree/mod/$name" ;; *) cp "$file" "$tree/mod/$name" ;; esac
        echo "$name" >>"$tree/order"
    done
    cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in $($b cat /order); do $b insmod /mod/$module || echo "no $module"; done
$b mount -t ext4 -o ro /dev/vda /ro
$b mount -t tmpfs -o mode=755 tmpfs /rw
$b mkdir /rw/upper /rw/work
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /root
exec $b switch_root /root /sbin/adverb-init
INIT
    chmod +x "$tree/init"
    (cd "$tree" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd.tmp"
    mv "$work/initrd.tmp" "$work/initrd.gz"
    rm -rf "$tree"
fi
