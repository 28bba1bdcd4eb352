"""The SDK's import path of what is in `locus_store.backends.objects.s3`."""

from locus_store.backends.objects.s3 import S3Backend, S3Checkpointer

__all__ = ["S3Backend", "S3Checkpointer"]
