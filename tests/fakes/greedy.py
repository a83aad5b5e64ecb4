"""A server whose greedy outputs are known, and a verifier that can be told how to go wrong."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from tests.fakes.speculating import SpeculatingServer

LENGTH = 12
NEAR, NEAR_MARGIN, CLEAR_MARGIN = 5, 0.125, 3.0  # token 5 is a near tie, all others are clear


class GreedyServer(SpeculatingServer):
    """Says the tokens " w0", " w1" …; " r0", " r1" … are their runners-up.

    faults: "tie" says the runner-up where it is near; "accepts_anything" a token that is neither,
    "accepts_runner_up" the runner-up where it is far behind; "cut" ends early; "off" drafts
    nothing; "no_logprobs", "refuses" don't answer as asked.
    """

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("logprobs"):
            return await super().generate(request)
        self.bodies.append(body)
        if "refuses" in self.faults:
            return web.Response(status=400, text="logprobs are not supported")
        rows = [self._position(i) for i in range(LENGTH)]
        if "cut" in self.faults:
            del rows[-3:]
        steps = [] if "off" in self.faults else [2] * (LENGTH // 3)
        self._count(self.state.ranks[0], steps, len(rows))
        content = [] if "no_logprobs" in self.faults else rows
        choice = {"logprobs": {"content": content}, "finish_reason": "length"}
        return web.json_response({"choices": [choice]})

    def _position(self, index: int) -> dict[str, Any]:
        margin = NEAR_MARGIN if index == NEAR else CLEAR_MARGIN
        likely = [
            {"token": f" w{index}", "logprob": -0.25, "bytes": None},
            {"token": f" r{index}", "logprob": -0.25 - margin, "bytes": None},
        ]
        said = 0
        if ("tie" in self.faults and index == NEAR) or (
            "accepts_runner_up" in self.faults and index == NEAR + 1
        ):
            said = 1
        if "accepts_anything" in self.faults and index == NEAR:
            return {"token": " wrong", "logprob": -9.0, "bytes": None, "top_logprobs": likely}
        return {**likely[said], "top_logprobs": likely}
