# For pipelines that judge finished runs: score, report, gate, compare, merge. Without torch.
#
#   docker build -f ci.Dockerfile -t fedaudit-ci .
#   docker run -v "$PWD/runs:/runs" fedaudit-ci gate /runs/release --fail-if "tpr@0.01 > 0.05" --junit /runs/gate.xml
FROM python:3.11-slim
ARG FEDAUDIT="fedaudit"
RUN python -m pip install --no-cache-dir "$FEDAUDIT"
RUN useradd --create-home auditor
USER auditor
WORKDIR /home/auditor
ENTRYPOINT ["fedaudit"]
