"""The stores of tests that perform rounds on each kind of them."""

from tests.stores.objects.conftest import s3, store, url

__all__ = ["s3", "store", "url"]
