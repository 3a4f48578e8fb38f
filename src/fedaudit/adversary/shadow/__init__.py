"""Models that an adversary trains beside the federation. Nothing here imports torch before a model is trained."""

from fedaudit.adversary.shadow.references import References

__all__ = ["References"]
