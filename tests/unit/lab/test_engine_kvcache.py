"""The pool of KV blocks: taken, shared, cached, evicted, given back."""

from __future__ import annotations

import pytest

from headrace_lab.engine.kvcache import BlockPool


def test_a_pool_has_blocks() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(0, 1)
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(1, 0)


def test_too_much_takes_nothing() -> None:
    pool = BlockPool(4, 2)
    assert not pool.take(5)
    assert pool.take(4)
    assert pool.usage == 1
    pool.release(4, [])
    assert pool.usage == 0


def test_published_blocks_serve_others_until_the_last_user_leaves() -> None:
    pool = BlockPool(4, 2)
    assert pool.take(2)
    assert pool.publish(b"a")
    assert not pool.publish(b"a")
    assert pool.hits([b"a", b"b"]) == 1
    pool.share([b"a"])
    pool.release(0, [b"a"])
    assert pool.available == 2
    pool.release(0, [b"a"])
    assert (pool.available, pool.free) == (4, 2)
    assert pool.hits([b"a"]) == 1
    assert not pool.publish(b"a")


def test_eviction_takes_the_least_recently_used_and_deep_blocks_before_their_parents() -> None:
    pool = BlockPool(6, 2)
    assert pool.take(6)
    for key in (b"a", b"ab", b"x"):
        assert pool.publish(key)
    pool.release(0, [b"a", b"ab"])
    pool.release(0, [b"x"])
    pool.share([b"x"])
    pool.release(0, [b"x"])
    assert pool.take(1)
    assert [pool.hits([key]) for key in (b"a", b"ab", b"x")] == [1, 0, 1]
    assert pool.take(2)
    assert [pool.hits([key]) for key in (b"a", b"x")] == [0, 1]
    assert pool.available == 3
