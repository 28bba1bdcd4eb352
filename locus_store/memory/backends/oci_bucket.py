"""The SDK's import path of what is in `locus_store.backends.objects.oci`."""

from locus_store.backends.objects.oci import OCIBucketBackend, OCIBucketCheckpointer

__all__ = ["OCIBucketBackend", "OCIBucketCheckpointer"]
