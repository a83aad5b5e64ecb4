"""Any OpenAI-compatible server: nothing is known of it but its streams (--metrics none).

A chunk of a method that always drafts is one verify step: AL = decode tokens / decode chunks. What
a request's last step lost at a stop is missing, up to N tokens a request.
"""

from __future__ import annotations

from utils.acceptance.engines import Engine

ENGINE = Engine(
    name="openai",
    how_to_enable="nothing is known of this server's metrics: measure with --metrics none",
    sources=(),
)
