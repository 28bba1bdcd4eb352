"""Every hard case that concerns a backend of this release has a test, and this file knows where it is."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

CASES = [
    *(1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13),
    *(14, 15, 16, 18, 19, 20, 22, 23),
    *(25, 26, 27, 28, 30, 31, 33),
    *(34, 36, 37, 38, 41),
    *(42, 43, 44, 45),
    *(47, 48, 49, 50, 51, 53, 55, 56, 58, 59, 62, 63, 64),
    *(67, 69, 70, 72, 74, 76),
    *(79, 80),
]
"""Without those of object storage and OpenSearch only (54, 57, 77), and of poolers (61)."""

ELSEWHERE = {
    67: ("migrations/test_bound_setup.py", "test_case_67_in_the_callers_transaction"),
    70: ("migrations/test_hosts.py", "test_case_70_a_hosts_autogenerate_leaves_our_tables_alone"),
    76: ("migrations/test_fixtures.py", "test_case_76_every_old_checkpoint_loads_equal_and_can_be_built_upon"),
}
"""Cases whose tests are in other folders."""


def test_every_case_has_a_test():
    found = set()
    for path in [*TESTS.glob("hard_cases/test_*.py"), *TESTS.glob("processes/test_*.py")]:
        found |= {int(number) for number in re.findall(r"def test_case_(\d\d)_", path.read_text())}
    for number, (file, name) in ELSEWHERE.items():
        assert f"def {name}(" in Path(TESTS, file).read_text(), number
    assert sorted(found | set(ELSEWHERE)) == sorted(CASES)
