"""What a user may ask for, checked before anything heavy is imported."""
