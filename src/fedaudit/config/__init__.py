"""What a user may ask for, checked before anything heavy is imported."""

from fedaudit.config.schema import Config, load_config, parse

__all__ = ["Config", "load_config", "parse"]
