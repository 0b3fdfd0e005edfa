# asyncop's image: `docker build .`, `podman build .` and `buildah bud .` all make it.
#
# Layers, from the most stable to the least: base, its byte code, dependencies, asyncop. A change of asyncop's code
# ships the last one only, which is small.
#
# An index, a proxy or a certificate of one's own needs no change here: hand them in as build secrets, which never
# become part of a layer:
#   docker build --secret id=pip.conf,src=pip.conf --secret id=ca.crt,src=ca.crt .
# where pip.conf may say `cert = /run/secrets/ca.crt`.

# Builder and runtime must be the same Python: byte code and extension modules belong to one version.
ARG BASE=docker.io/library/python:3.13-slim-trixie

FROM ${BASE} AS base
# The official image holds the standard library without byte code, and a read-only root can't keep any: without this
# each start would compile it anew.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash \
      -x '/(site-packages|dist-packages|ensurepip|idlelib|lib2to3|pydoc_data|test|tests|tkinter|turtledemo)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"

FROM base AS dependencies
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends binutils >/dev/null
COPY requirements.txt /src/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    python3 -m venv --without-pip /opt/asyncop \
    && pip --python /opt/asyncop/bin/python install --no-cache-dir --no-compile --disable-pip-version-check \
      --only-binary :all: --require-hashes -r /src/requirements.txt
# Debug sections are most of the extension modules' size. Tests, stubs and Cython sources serve nobody at run time;
# the licences in *.dist-info stay. Of kubernetes_asyncio's generated classes (a third of it all) only the byte code
# stays: they import as ever, docstrings included. Equal times make equal layers.
RUN site=$(echo /opt/asyncop/lib/python3*/site-packages) \
    && find "$site" -name '*.so' -exec strip --strip-debug {} + \
    && find "$site" -type d -name tests -prune -exec rm -r {} + \
    && find "$site" -type f \( -name '*_test.py' -o -name '*.py[ix]' -o -name '*.px[di]' -o -name '*.[ch]' \) -delete \
    && find "$site" -maxdepth 1 -type f ! -name '*.py' ! -name '*.pth' -delete \
    && cd "$site/kubernetes_asyncio/client" \
    && python3 -m compileall -q -b --invalidation-mode unchecked-hash -x '/__init__\.py$' -p "$PWD" api models \
    && find api models -name '*.py' ! -name __init__.py -delete \
    && python3 -m compileall -q --invalidation-mode unchecked-hash "$site" \
    && find /opt/asyncop -exec touch -h -d @0 {} +

FROM dependencies AS code
COPY requirements-build.txt /src/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes --target /build \
      -r /src/requirements-build.txt
COPY pyproject.toml README.md LICENSE /src/
COPY asyncop /src/asyncop
RUN PYTHONPATH=/build pip --python /opt/asyncop/bin/python install --no-cache-dir --no-compile \
      --disable-pip-version-check --no-build-isolation --no-index --no-deps --prefix /out /src \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /out -p /opt/asyncop /out/lib \
    && find /out -exec touch -h -d @0 {} +

FROM base AS runtime
LABEL org.opencontainers.image.title="asyncop" \
      org.opencontainers.image.description="An asyncio controller for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
# SAFEPATH: a file in the working directory can't shadow a module. ARENA_MAX: threads of their own malloc arenas cost
# more memory than they save time. Never PYTHONOPTIMIZE=2: kubernetes_asyncio reads its own docstrings.
ENV PATH=/opt/asyncop/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    PYTHONSAFEPATH=1 \
    MALLOC_ARENA_MAX=2 \
    HOME=/tmp \
    TMPDIR=/tmp
WORKDIR /app
COPY --from=dependencies /opt/asyncop /opt/asyncop
COPY --from=code /out /opt/asyncop
USER 65532:65532
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/asyncop/bin/python", "-m", "asyncop"]
CMD ["--help"]
