"""Links of three and more clusters."""

import msgspec
import pytest

from replicate.config import Config
from sprocket.common.errors import ConfigError
from tests.replicate.clusters import config_of

_NAMES = dict.fromkeys("abc", "127.0.0.1:1")
_NO_FORWARD = "forward = false"


def _config(*links: str, more: str = "") -> Config:
    return config_of(_NAMES, list(links), more)


def test_the_clusters_whose_messages_come_to_one_are_known() -> None:
    assert _config("a>b", "b>c", "c>a").origins("a", "T") == {"a", "b", "c"}
    assert _config("a>b", "b>c", more=_NO_FORWARD).origins("c", "T") == {"b", "c"}
    assert _config("a>b", "b>c", more='topics = ["O*"]').origins("c", "T") == {"c"}


def test_offsets_need_a_link_that_reads_the_target_where_others_are_copied_to_both() -> None:
    links = ["c>a", "c>b", "a>b"]
    with pytest.raises(ConfigError, match="need a link that reads b"):
        _config(*links, more=_NO_FORWARD)
    for good in ([*links, "b>a"], ["c>b", "a>b"]):
        assert _config(*good, more=_NO_FORWARD)
    assert _config(*links, more="forward = false\ngroups = []")


@pytest.mark.parametrize(("topics", "good"), [("Other*", False), ("*", True), ("T*", True), ("T1", False)])
def test_the_link_that_reads_the_target_has_the_same_topics(topics: str, good: bool) -> None:
    links = _config("c>a", "c>b", "a>b", "b>a", more=f'{_NO_FORWARD}\ntopics = ["T*"]')
    read = msgspec.structs.replace(links.links[-1], topics=(topics,))
    changed = msgspec.structs.replace(links, links=(*links.links[:-1], read))
    if good:
        assert changed.checked() == changed
    else:
        with pytest.raises(ConfigError, match="need a link that reads b"):
            changed.checked()
