# The node of a site, with its guard: no update leaves it unaudited, whatever app runs.
#
#   docker build -f site.Dockerfile -t our-node .
#   docker run --read-only --tmpfs /tmp -v /srv/site:/site -v /srv/audits:/audits our-node \
#       --superlink superlink.example:8000 --root-certificates /site/ca.pem
#
# /site has site.toml, game.npz and the module of the model; it is the site's alone. /audits outlives the container: a
# party that halted stays halted.
FROM python:3.11-slim
ARG FEDAUDIT="fedaudit[flower]"
RUN python -m pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "$FEDAUDIT"
RUN useradd --create-home node && mkdir -p /audits && chown node /audits
USER node
ENV FLWR_HOME=/audits/flwr FLWR_TELEMETRY_ENABLED=0
WORKDIR /site
ENTRYPOINT ["fedaudit", "guard", "/site/site.toml", "--", "flower-supernode"]
