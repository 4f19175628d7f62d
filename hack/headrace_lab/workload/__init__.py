"""Workload of the demo: real traces turned into requests at three front-ends. Pure: no clock, no chance, no network.

Azure's trace gives when requests arrive and how long answers are; Mooncake's gives conversations, prompt lengths and
shared prefixes (Azure's has none). Both are cut copies in ``headrace_lab/data``.
"""
