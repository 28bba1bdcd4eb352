"""A double of OCI Object Storage, for tests: an HTTP server of our own on 127.0.0.1. It is not the service.

It speaks the requests that the SDK sends for a bucket and its objects, checks each one's signature, and answers with the
service's statuses, codes and headers. Beside them it stands for the metadata service of an instance and for the service
that gives tokens to instances. Faults are ordered by tests. docs/oci.md says what of it is documented, what somebody saw
on the real service, and what is a guess.
"""
