#!/usr/bin/env bash
# node.sh BASE_TAR PROGRAMS OUT: kind's node image as a root file system, OUT/node.tar.
# PROGRAMS holds kubernetes, coredns and pause. One layer with all of them is every image that kubeadm asks for.
set -euo pipefail
base=$1 programs=$2 out=$3
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/versions.sh"
root=$out/root layer=$out/layer

# The layer: programs under the names they answer to, and what kube-proxy calls, with its plug-ins and libraries.
mkdir -p "$root" "$layer"/{bin,etc,lib64,tmp,run,usr/sbin,var/lib/nftables}
tar --extract --numeric-owner --directory "$root" --file "$base"
cp "$programs"/{kubernetes,coredns,pause} "$layer/bin/"
mkdir -p "$layer/usr/local/bin"
for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy etcd; do
  ln -s /bin/kubernetes "$layer/usr/local/bin/$name"
done
(cd "$root" && cp -a --parents usr/sbin/xtables-nft-multi usr/lib/*-linux-gnu/xtables "$layer/")
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
  ln -s xtables-nft-multi "$layer/usr/sbin/$name"
done
find "$layer/usr/sbin" "$layer/usr/lib" -type f -printf '/%P\n' | while read -r file; do
  for folder in /usr/sbin /usr/lib; do
    [ -f "$root$folder$file" ] && chroot "$root" ldd "$folder$file" 2>/dev/null || true
  done
done | grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r library; do
  mkdir -p "$layer$(dirname "$library")"
  cp --dereference "$root$library" "$layer$library"
done
tar --create --numeric-owner --owner=0 --group=0 --sort=name --mtime=@0 --directory "$layer" --file "$out/layer.tar" .
mkdir -p "$root/kind/images"
repository=$IMAGE_REPOSITORY
python3 -B "$here/image.py" "$root/kind/images/control-plane.tar" "$out/layer.tar" \
  "$repository/kube-apiserver:$KUBERNETES" "$repository/kube-controller-manager:$KUBERNETES" \
  "$repository/kube-scheduler:$KUBERNETES" "$repository/kube-proxy:$KUBERNETES" "$repository/etcd:$ETCD_TAG" \
  "$repository/coredns:$COREDNS_TAG=/bin/coredns" "$repository/pause:$PAUSE_TAG=/bin/pause"
rm -rf "$layer" "$out/layer.tar"

# The node: our files over Debian's, the programs, and what kind reads.
cp -r "$here"/node/. "$root/"
sed -i "s|@PAUSE@|$repository/pause:$PAUSE_TAG|" "$root/etc/containerd/config.toml"
install -m 755 "$programs/kubernetes" "$root/usr/bin/kubernetes"
for name in kubeadm kubelet kubectl; do ln -s kubernetes "$root/usr/bin/$name"; done
printf '%s' "$KUBERNETES" >"$root/kind/version"
mkdir -p "$root/etc/kubernetes/manifests" "$root/opt/cni"
ln -s /usr/lib/cni "$root/opt/cni/bin"
systemctl --root="$root" --quiet enable kubelet.service containerd.service 2>/dev/null ||
  chroot "$root" systemctl --quiet enable kubelet.service containerd.service
# A container has no hardware, no terminals and no host settings to manage; the last would be the machine's.
chroot "$root" systemctl --quiet mask systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket \
  systemd-udevd-control.socket systemd-sysctl.service systemd-modules-load.service systemd-logind.service \
  systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service systemd-tmpfiles-clean.timer getty.target \
  console-getty.service systemd-binfmt.service systemd-remount-fs.service apt-daily.timer apt-daily-upgrade.timer \
  dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
tar --create --numeric-owner --directory "$root" --file "$out/node.tar" .
rm -rf "$root"
