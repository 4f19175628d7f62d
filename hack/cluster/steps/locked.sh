# Sourced. install_locked ROOT SITE PYTHON REQUIREMENTS…: the locked distributions into ROOT/SITE, for ROOT's Python.
# PYTHON is one of this machine with pip; its version is free.
install_locked() {
  local root=$1 site=$2 python=$3 version glibc minor options locks=()
  shift 3
  version=$(chroot "$root" python3 -c 'import sys; print(f"{sys.version_info.major}{sys.version_info.minor}")')
  glibc=$(chroot "$root" python3 -c 'import platform; print(platform.libc_ver()[1].split(".")[1])')
  options=(--implementation cp --python-version "$version" --abi "cp$version" --abi abi3 --abi none)
  for minor in $(seq 5 "$glibc"); do options+=(--platform "manylinux_2_${minor}_$(uname -m)"); done
  options+=(--platform "manylinux2014_$(uname -m)")
  for lock in "$@"; do locks+=(--requirement "$lock"); done
  "$python" -m pip --quiet --disable-pip-version-check install --target "$root$site" --no-compile --no-deps \
    --root-user-action=ignore --only-binary=:all: --require-hashes "${options[@]}" "${locks[@]}"
  rm -rf "$root$site/bin"
}
