"""What obstore's errors mean. It has few classes, and says the rest (status, S3's code) in its messages."""

from __future__ import annotations

import re

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\(code: (\w{1,64})\)")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w{1,64})")
_ADVICE = {
    "AccessDenied": "these credentials lack a right: s3:ListBucket on the bucket, s3:GetObject, s3:PutObject and "
    "s3:DeleteObject on what is in it are needed",
    "AuthorizationHeaderMalformed": "the region is another one: give region_name",
    "ExpiredToken": "the session token has expired",
    "InvalidAccessKeyId": "the access key is unknown: check aws_access_key_id",
    "NoSuchBucket": "there is no such bucket: make it, or pass create_bucket=True",
    "NotImplemented": "the service does not know this kind of request",
    "PermanentRedirect": "the bucket is in another region: give region_name or its endpoint_url",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "SignatureDoesNotMatch": "the secret key is wrong: check aws_secret_access_key",
}
_PASSING = ("InternalError", "ServiceUnavailable", "SlowDown")
_NO_OBJECT = ("NoSuchKey", "BlobNotFound")
_METADATA_SERVICES = ("/latest/api/token", "/latest/meta-data/", "169.254.170.2", "metadata.google.internal")


class Refusal(Exception):  # noqa: N818  never leaves this package
    """A request that failed; obstore's own error is the cause, the text says what is wrong and what to do.

    Attributes:
        status: The answer's HTTP status, 0 without an answer.
        missing: Whether there is no such object (and the bucket is there).
        unavailable: Whether the service cannot be reached or is overloaded, so that it may work later.
        lost: Whether the connection broke: the request may have been carried out.
        no_bucket: Whether there is no such bucket.
    """

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        missing: bool = False,
        unavailable: bool = False,
        lost: bool = False,
        no_bucket: bool = False,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.missing = missing
        self.unavailable = unavailable
        self.lost = lost
        self.no_bucket = no_bucket


def refusal(error: Exception) -> Refusal:
    """What an error of obstore's means.

    Raises:
        Exception: The error itself, if it is none of obstore's.
    """
    from obstore.exceptions import BaseError

    if not isinstance(error, BaseError | FileNotFoundError | ValueError):
        raise error
    said = str(error)
    found, code = _STATUS.search(said), _CODE.search(said)
    status = int(found[1]) if found else 0
    name = (code[1] or code[2]) if code else ""
    if any(place in said for place in _METADATA_SERVICES):
        return Refusal(
            "no credentials: give aws_access_key_id and aws_secret_access_key, or profile_name, or set the environment "
            "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; nor does a metadata service of this machine's know "
            "any",
            status=403,
        )
    if status:
        busy = status >= 500 and status != 501
        advice = _advice(name or {401: "AccessDenied", 403: "AccessDenied"}.get(status, ""))
        text = f"the service answered {status}" + (f" {name}" if name else "") + advice
        # Any web server says 404; only a bucket's service says what is missing. A HEAD has no body to say it in.
        missing = status == 404 and (name in _NO_OBJECT or "performing HEAD" in said)
        unavailable = busy or status in (408, 409, 429)
        return Refusal(text, status=status, missing=missing, unavailable=unavailable, no_bucket=name == "NoSuchBucket")
    if name:  # of one of many objects to delete
        return Refusal(f"the service answered {name}" + _advice(name), unavailable=name in _PASSING)
    if isinstance(error, FileNotFoundError):
        return Refusal("there is no such object", status=404, missing=True)
    if found := _CERTIFICATE.search(said):
        return Refusal(
            f"its certificate is not trusted ({found[1]}): with verify name a file that has the authority's",
            unavailable=True,
        )
    if "InvalidContentType" in said:
        return Refusal("it does not speak TLS: endpoint_url begins with http:// then", unavailable=True)
    if "error sending request" in said or "HTTP error" in said or "timed out" in said:
        return Refusal("it cannot be reached, or the connection was lost", unavailable=True, lost=True)
    return Refusal(said.partition("\n")[0][:300])


def _advice(name: str) -> str:
    return f": {_ADVICE[name]}" if name in _ADVICE else ""
