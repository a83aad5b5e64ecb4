"""The load's client: what it sends, what it makes of streams, and when it gives up."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.speculating import MODEL, SpeculatingServer
from utils.acceptance import client, engines, stream
from utils.acceptance.client import Load, Pace, Prompt
from utils.acceptance.engines import load as adapter
from utils.acceptance.stream import Answer, Events, StreamError

VLLM = adapter("vllm")
SECRET = "sk-very-secret"


def prompts(count: int, **more: Any) -> list[Prompt]:
    return [
        Prompt(f"q{i}", ({"role": "user", "content": f"say {i}"},), **more) for i in range(count)
    ]


def send(
    server: SpeculatingServer, count: int = 4, pace: Pace | None = None, **more: Any
) -> list[Answer]:
    how = {"concurrency": 4, "output_len": 21, **more}
    load = Load(server.base_url, MODEL, {"temperature": 0.0}, {"thinking": True}, **how)
    return client.run(load, prompts(count), VLLM, pace)


def answer_of(*events: str, engine: str = "vllm") -> Answer:
    """The answer to a stream of these data lines."""
    gathered, answer = Events(), Answer("q")
    for number, event in enumerate(events):
        gathered.feed(f"data: {event}\n\n".encode(), float(number))
    stream.read(gathered, answer, adapter(engine))
    return answer


USAGE = '{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}'
END = '{"choices": [{"delta": {}, "finish_reason": "stop"}]}'


def delta(**fields: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": fields}]})


def test_a_stream_is_read_by_its_meaning() -> None:
    answer = answer_of(
        delta(role="assistant", content=""),
        delta(reasoning="let"),
        delta(reasoning_content=" me"),
        delta(content="x"),
        delta(tool_calls=[{"function": {"name": "f", "arguments": "{"}}]),
        delta(tool_calls=[{"function": {"arguments": "}"}}]),
        END,
        USAGE,
        "[DONE]",
    )
    assert (answer.reasoning, answer.text, answer.tool_calls) == ("let me", "x", "f{}")
    assert (answer.chunks, answer.ttft_s, answer.e2e_s) == (5, 1.0, 5.0)
    assert (answer.prompt_tokens, answer.completion_tokens) == (3, 5)
    assert (answer.ok, answer.finish_reason) == (True, "stop")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (['{"choices": [', USAGE, "[DONE]"], "undecodable"),
        (['{"a": {}', "{}}", USAGE, "[DONE]"], "undecodable"),
        (['{"a": "}', '{"}', "{}", "[DONE]"], "undecodable"),
        (["[1]", USAGE, "[DONE]"], "not an object"),
        (['{"a": NaN}', USAGE, "[DONE]"], "undecodable"),
        (['{"error": {"message": "out of memory"}}', "[DONE]"], "out of memory"),
        ([delta(content="x"), "[DONE]"], "no usage"),
        ([delta(content="x"), USAGE], r"without \[DONE\]"),
        ([delta(content="x"), USAGE, "[DONE]"], "broken off: finish_reason None"),
        ([END.replace("stop", "aborted"), USAGE, "[DONE]"], "broken off: finish_reason aborted"),
        (['{"choices": 5}', USAGE, "[DONE]"], "unknown shape"),
        (
            ['{"usage": {"prompt_tokens": "3", "completion_tokens": 5}}', "[DONE]"],
            "where a count should be",
        ),
        (['{"metrics": {"speculative_decoding": {"x": 1}}}', USAGE, "[DONE]"], "unknown shape"),
        ([delta(content=5), USAGE, "[DONE]"], "5 where text should be"),
        ([delta(tool_calls=[{"function": {"name": [1]}}]), USAGE, "[DONE]"], "text should be"),
    ],
)
def test_a_broken_stream_is_an_error_with_its_name(events: list[str], words: str) -> None:
    with pytest.raises(StreamError, match=words):
        answer_of(*events)


@given(st.lists(st.integers(1, 40), min_size=1), st.booleans())
def test_events_are_the_same_however_the_bytes_arrive(cuts: list[int], crlf: bool) -> None:
    events = [delta(content="héllo\u2028"), ": comment", END, USAGE, "[DONE]"]
    end = "\r\n" if crlf else "\n"
    text = "".join((e if e[0] == ":" else f"data: {e}") + end + end for e in events)
    raw, gathered, answer = text.encode(), Events(), Answer("q")
    for number in range(len(raw)):
        size = cuts[number % len(cuts)]
        gathered.feed(raw[:size], 0.0)
        raw = raw[size:]
    stream.read(gathered, answer, VLLM)
    assert (answer.text, answer.completion_tokens) == ("héllo\u2028", 5)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_crash(raw: bytes) -> None:
    gathered = Events()
    gathered.feed(raw + b"\ndata: [DONE]\n", 0.0)
    with pytest.raises(StreamError):
        stream.read(gathered, Answer("q"), VLLM)


WORDS = ("choices", "delta", "content", "reasoning", "tool_calls", "function", "arguments", "usage")
WORDS += ("completion_tokens", "prompt_tokens", "token_ids", "finish_reason", "text", "metrics")
WORDS += ("speculative_decoding", "sglext", "spec_tokens_details", "meta_info", "spec_verify_ct")
WORDS += ("num_spec_steps", "num_accepted_draft_tokens", "acceptance_histogram", "timings", "error")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(0, 2) | st.sampled_from(["", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=20,
)


FIELDS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=4)
# Mostly of the right shape, down to some leaf that isn't.
CHOICES = st.builds(lambda choice, delta: {**choice, "delta": delta}, FIELDS, FIELDS)
CHUNKS = FIELDS | st.builds(lambda chunk, c: {**chunk, "choices": [c]}, FIELDS, CHOICES)


@given(st.lists(CHUNKS, max_size=4))
def test_whatever_a_chunk_holds_is_an_answer_or_one_named_error(chunks: list[Any]) -> None:
    for engine in engines.known().values():
        gathered, answer = Events(), Answer("q")
        for chunk in [*map(json.dumps, chunks), USAGE, "[DONE]"]:
            gathered.feed(f"data: {chunk}\n\n".encode(), 0.0)
        with contextlib.suppress(StreamError):
            stream.read(gathered, answer, engine)
            assert answer.ok
            assert answer.completion_tokens == 5
            row = json.loads(json.dumps(answer.as_json()))
            assert Answer.from_json(row).as_json() == row


def test_answers_that_no_turn_of_the_loop_was_left_for_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client._Run, "_decode_in_turn", lambda _: None)
    with SpeculatingServer().running() as server:
        answers = send(server)
    assert [(answer.ok, answer.error) for answer in answers] == [(True, None)] * 4


def test_every_field_is_sent_and_nothing_else() -> None:
    with SpeculatingServer().running() as server:
        (answer,) = send(server, 1)
    assert answer.ok
    assert server.bodies == [
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "say 0"}],
            "max_tokens": 21,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "chat_template_kwargs": {"thinking": True},
            "return_token_ids": True,
        }
    ]


def test_the_completions_endpoint_gets_the_text_as_it_is() -> None:
    with SpeculatingServer(faults=("no_chat",)).running() as server:
        (answer,) = send(server, 1, endpoint="completions")
    assert answer.ok
    assert answer.text
    (body,) = server.bodies
    assert body["prompt"] == "say 0"
    assert not body.keys() & {"messages", "chat_template_kwargs"}


def test_later_turns_carry_the_answers_before_them() -> None:
    with SpeculatingServer().running() as server:
        load = Load(server.base_url, MODEL, {}, {}, output_len=9, concurrency=2)
        answers = client.run(load, prompts(2, later=("and?", "so?")), VLLM)
    assert [a.id for a in answers] == ["q0", "q0#2", "q0#3", "q1", "q1#2", "q1#3"]
    assert all(a.ok for a in answers)
    last = max(server.bodies, key=lambda body: len(body["messages"]))
    assert [m["role"] for m in last["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert last["messages"][-1]["content"] == "so?"
    assert last["messages"][1]["content"] in {a.text for a in answers}


def test_turns_after_a_failed_one_are_not_sent() -> None:
    with SpeculatingServer(faults=("no_usage",)).running() as server:
        load = Load(server.base_url, MODEL, {}, {}, output_len=9, concurrency=2)
        answers = client.run(load, prompts(1, later=("and?",)), VLLM)
    assert len(server.bodies) == 1
    assert answers[1].error == "not sent: q0 failed"


@pytest.mark.parametrize("fault", ["mute", "silent"])
def test_silence_ends_one_request_and_no_other(fault: str) -> None:
    with SpeculatingServer(faults=(fault,)).running() as server:
        began = time.monotonic()
        answers = send(server, 8, stall_s=0.5)
        assert time.monotonic() - began < 5
    errors = [a.error for a in answers if a.error]
    assert errors == ["no byte for 0.5 s"]
    assert sum(a.ok for a in answers) == 7


def test_a_slow_server_is_not_a_silent_one() -> None:
    with SpeculatingServer(faults=("drip",)).running() as server:
        answers = send(server, 4, stall_s=0.4)
    assert all(answer.ok for answer in answers)
    assert max(answer.e2e_s or 0 for answer in answers) > 0.45


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return SECRET


def test_the_api_key_goes_into_the_header_and_nowhere_else(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.cli.measuring import run
    from utils.evals import speedbench

    prompt_file = speedbench.prepare_proxy(tmp_path)
    with SpeculatingServer(faults=("says_key",)).running() as server:
        run(server, prompt_file, tmp_path / "al.json")
    assert server.keys == {f"Bearer {key}"}
    written = (tmp_path / "al.json").read_text()
    assert "HTTP 401: bad Bearer ***" in written
    assert key not in written + "".join(capsys.readouterr())


def test_pace_says_how_well_the_client_kept_up() -> None:
    pace = Pace(4)
    with SpeculatingServer(faults=("slow",)).running() as server:
        send(server, 12, pace)
    assert pace.reached_concurrency == 4
    assert pace.duration_s >= 0.6
    assert 0 < pace.cpu_share < 1


def test_digests_differ_by_what_is_sent() -> None:
    load = Load("http://h", MODEL, {}, {}, output_len=9, concurrency=2)
    first = client.payload_digest(load, prompts(2), VLLM)
    assert first == client.payload_digest(load, prompts(2), VLLM)
    assert first != client.payload_digest(load, prompts(2, later=("and?",)), VLLM)
    assert first != client.payload_digest(load, prompts(2), adapter("sglang"))
