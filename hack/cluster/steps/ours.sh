#!/usr/bin/env bash
# ours.sh BASE_TAR SOURCE PYTHON OUT [MODULES]: the distribution in SOURCE, as OUT/layer.tar to lie on any of its
# dependencies. PYTHON is one of this machine with hatchling. MODULES: extension modules to lie beside their source.
set -euo pipefail
base=$1 source=$2 python=$3 out=$4 modules=${5:-}
layer=$out/layer
. "$(dirname "$0")/root.sh"

mkdir "$out/wheel"
(cd "$source" && "$python" -m hatchling build --target wheel --directory "$out/wheel" >/dev/null)
wheel=("$out"/wheel/*.whl)
site=/opt/headrace/lib/python$(python_version)/site-packages
"$python" -m zipfile -e "${wheel[0]}" "$root$site"
[ -z "$modules" ] || cp -r "$modules/." "$root$site/"
chroot "$root" python3 -m compileall -q "$site"
mkdir -p "$layer/opt/headrace/bin" "$layer$site"
mv "$root$site"/* "$layer$site/"
printf '#!/opt/headrace/bin/python\nimport sys\n\nfrom headrace_cli.main import main\n\nsys.exit(main())\n' \
  >"$layer/opt/headrace/bin/headrace"
chmod 755 "$layer/opt/headrace/bin/headrace"
tar --create --numeric-owner --owner=0 --group=0 --sort=name --directory "$layer" --file "$out/layer.tar" .
rm -rf "$root" "$layer" "$out/wheel"
