"""Undoing a write of several requests, for engines without transactions over them.

A new version is written first and the old one deleted last. Only the writing is undone: once all of
it has succeeded, a delete that fails may have been carried out all the same, and to remove the new
version then would lose both. Two versions side by side are mended by sending the document again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from corral.api.errors import ProviderError, Unavailable


@contextmanager
def undone_on_failure(
    put_back: Iterable[Callable[[], object]], remove: Callable[[], object]
) -> Iterator[None]:
    """Undo what a block has written where it fails; the first failure is the one to tell of.

    Args:
        put_back: Requests that write again what was there before.
        remove: Removes what was not; not called unless all is back.
    """
    try:
        yield
    except ProviderError:
        if _all_done(put_back):
            with suppress(ProviderError):
                remove()
        raise


def _all_done(requests: Iterable[Callable[[], object]]) -> bool:
    """Send requests, and return True if all were acknowledged.

    One that fails stops none of the others, unless the engine is gone: it may have been carried
    out all the same, and then half a version would stay that way.
    """
    done = True
    for request in requests:
        try:
            request()
        except Unavailable:
            return False
        except ProviderError:
            done = False
    return done
