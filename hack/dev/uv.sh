# Sourced by scripts that write locks: $uv is uv, the machine's or one of our own that goes with the script.
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  tools=$(mktemp -d); trap 'rm -rf "$tools"' EXIT
  python3 -m venv "$tools/venv"
  "$tools/venv/bin/pip" --quiet install uv
  uv=$tools/venv/bin/uv
fi
