# Sourced, with $base, a tar of a Debian with Python, and $out. $root: that Debian unpacked, for the time of a step.
root=$out/root
mkdir "$root"
tar --extract --numeric-owner --directory "$root" --file "$base"

# python_version: of its Python, as 3.11.
python_version() { chroot "$root" python3 -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")'; }

# install_locked SITE PYTHON REQUIREMENTS…: the locked distributions into its folder SITE, for its Python.
# PYTHON is one of this machine with pip; its version is free.
install_locked() {
  local site=$1 python=$2 version glibc minor options locks=()
  shift 2
  version=$(python_version | tr -d .)
  glibc=$(chroot "$root" python3 -c 'import platform; print(platform.libc_ver()[1].split(".")[1])')
  options=(--implementation cp --python-version "$version" --abi "cp$version" --abi abi3 --abi none)
  for minor in $(seq 5 "$glibc"); do options+=(--platform "manylinux_2_${minor}_$(uname -m)"); done
  options+=(--platform "manylinux2014_$(uname -m)")
  for lock in "$@"; do locks+=(--requirement "$lock"); done
  "$python" -m pip --quiet --disable-pip-version-check install --target "$root$site" --no-compile --no-deps \
    --root-user-action=ignore --only-binary=:all: --require-hashes "${options[@]}" "${locks[@]}"
  rm -rf "$root$site/bin"
}
