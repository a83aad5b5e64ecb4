"""The rules of a recipe. One function each; its name is the rule's, its docstring says it."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from utils.acceptance.argv import flag, option
from utils.acceptance.engines import FORCED_ACCEPTANCE
from utils.errors import UsageError
from utils.recipes import catalogue, spelling
from utils.recipes.rehearsal import environment
from utils.recipes.subject import Subject

Found = Iterator[tuple[int, str]]  # (line, what is wrong and how to put it right)
Rule = Callable[[Subject], Found]

MOST_LINES = 50
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trt": "TensorRT-LLM"}
END = ("run_benchmark_serving", "run_eval")
_NO_FACT = re.compile(
    r"\|\| true|\b(?:curl|jq|awk|sed|trap|while|until|for|function|if|case)\b|python3? -|\(\) *\{"
)
_TYPED_N = re.compile(
    r"--spec(?:ulative)?-(?:config|algorithm|num-\S+|eagle-topk|\S*block-size|draft-model\S*"
    r"|method|model|tokens)"
)
_SPECULATIVE = re.compile(r"\bspeculate |\bspeculation_args\b|spec-decode|per-request-metrics")
_LEFTOVER = re.compile(r"(?<!\$)\{[A-Za-z_]\w*\}")
_OTHER_TEMPLATE = ("--chat-template", "--skip-tokenizer-init")
_DYNAMO = "--dyn-"  # options of Dynamo's own, which no engine knows
_NO_CACHE = {"vllm": "--no-enable-prefix-caching", "sglang": "--disable-radix-cache"}


def header(recipe: Subject) -> Found:
    """The comment on top says what runs where, cites the page and names the engine's versions."""
    name = recipe.name
    first = recipe.header[0] if recipe.header else ""
    title = TITLES[name.engine_family]
    for want in (f"in {name.precision}", name.hw.upper(), f"with {title}"):
        if want not in first:
            yield 2, f"the first line doesn't say {want!r}; the file's name does"
    if name.hw != "cpu" and not any(line.startswith("# Page: ") for line in recipe.header):
        yield 2, "cite where the flags come from: # Page: <address>"
    if not recipe.versions:
        yield 2, f"name the versions that take these flags: # Flags: {name.engine_family} 1.2.3"
    for number, line in enumerate(recipe.lines, start=1):
        if "TODO" in line:
            yield number, "finish what is left to do"


def strict(recipe: Subject) -> Found:
    """Strict mode, then the library, before anything else."""
    library = "multi_node_lib.sh" if recipe.name.disaggregated else "benchmark_lib.sh"
    start = ("set -euo pipefail", f'source "$(dirname "$0")/../{library}"')
    for (number, line), want in zip(recipe.code, start, strict=False):
        if line != want:
            yield number, f"want {want!r} here"


def facts_only(recipe: Subject) -> Found:
    """A recipe states facts: no loops, functions or traps, the library's verbs at the end."""
    if len(recipe.lines) > MOST_LINES:
        yield MOST_LINES, f"{len(recipe.lines)} lines are too many; {MOST_LINES} will do"
    for number, line in recipe.code:
        if found := _NO_FACT.search(line):
            yield number, f"{found[0]!r} belongs in the library or in Python"
    for (number, line), want in zip(recipe.code[-2:], END, strict=False):
        if line != want:
            yield number, f"want {want!r} here"


def n_once(recipe: Subject) -> Found:
    """A twin says method and N once, in `speculate`; its base doesn't speculate."""
    said = [number for number, line in recipe.code if line.startswith("speculate ")]
    if bool(said) != recipe.name.speculative:
        yield (said or [1])[0], "a recipe is named ..._mtp.sh if and only if it calls speculate"
    for number in said[1:]:
        yield number, "speculate was called before; N is said once"
    for number, line in recipe.code:
        if found := _TYPED_N.search(line):
            yield number, f"{found[0]} is what speculate is for; remove it"
    drafting = [row for row in recipe.served if row.topology.get("ROLE") != "prefill"]
    if said and any(len(row.speculated) != 1 for row in drafting):
        yield said[0], 'put "${speculation_args[@]}" among the arguments, once'


def twin(recipe: Subject) -> Found:
    """A twin differs from its base in speculation only."""
    if not recipe.name.speculative:
        return
    base = Subject(recipe.path.with_name(recipe.path.name.replace("_mtp.sh", ".sh")), ())
    if not base.path.exists():
        yield 1, f"has no base to compare with; write {base.path.name}"
        return
    theirs, ours = ([line for _, line in side.code] for side in (base, recipe))
    for change in difflib.ndiff(theirs, ours):
        line = change[2:]
        if change[0] == "-":
            yield 1, f"its base has {line!r}; have it here too"
        elif change[0] == "+" and not _SPECULATIVE.search(line):
            yield _line(recipe, line), f"its base has no {line!r}; have it there too"


def chat_route(recipe: Subject) -> Found:
    """Prompts go through the chat route and the model's own template."""
    if recipe.model.endpoint != "chat":
        yield 1, f"models.yaml sends {recipe.model.prefix} to {recipe.model.endpoint}; want chat"
    for word in _OTHER_TEMPLATE:
        if any(flag(argv, word) for argv in recipe.arguments()):
            yield recipe.line_of(word), f"{word}: other prompts than the golden's; remove it"


def metrics(recipe: Subject) -> Found:
    """The engine counts, and shows its counts."""
    for argv in recipe.arguments():
        if recipe.name.engine_family == "sglang" and not flag(argv, "--enable-metrics"):
            yield recipe.line_of("serve"), "SGLang shows no metrics; add --enable-metrics"
        if flag(argv, "--disable-log-stats"):
            yield recipe.line_of("--disable-log-stats"), "no counters without stats; remove it"


def no_cache(recipe: Subject) -> Found:
    """A repeated prompt costs what it costs: the prefix cache is off."""
    want = _NO_CACHE.get(recipe.name.engine_family)
    if want and not all(flag(argv, want) for argv in recipe.arguments()):
        yield recipe.line_of("serve"), f"add {want}"


def address(recipe: Subject) -> Found:
    """The server takes its model, name and port from the environment and listens on loopback.

    On several nodes Dynamo sees to all of that but the name.
    """
    for argv in recipe.arguments():
        told = environment(recipe.model.checkpoint(recipe.name.precision))
        alone = not recipe.name.disaggregated
        if alone and told["MODEL_PATH"] not in argv:
            yield recipe.line_of("serve"), 'serve the weights of "$MODEL_PATH"'
        for name, value, text in (
            ("--served-model-name", told["MODEL"], '"$MODEL"'),
            ("--port", told["PORT"], '"$PORT"'),
            ("--host", "127.0.0.1", "127.0.0.1"),
        ):
            if (alone or name == "--served-model-name") and option(argv, name) != value:
                yield recipe.line_of(name), f"want {name} {text}"


def reasoning_parser(recipe: Subject) -> Found:
    """Thinking is told from the answer by the parser that models.yaml names."""
    name, parses = "--reasoning-parser", recipe.name.engine_family
    if recipe.name.disaggregated:
        name, parses = "--dyn-reasoning-parser", "dynamo"
    want = recipe.model.reasoning_parser.get(parses)
    if want and recipe.arguments() and recipe.values(name) != {want}:
        yield recipe.line_of(name), f"want {name} {want}"


def options(recipe: Subject) -> Found:
    """Each engine version that the header names takes every option, by its own parser."""
    yield from _checked(recipe, is_json=False)
    family = recipe.name.engine_family
    for argv in recipe.arguments():
        for row in spelling.outdated(argv, family):
            yield (
                recipe.line_of(row.before[0]),
                f"{shlex.join(row.before)} is {shlex.join(row.now)} since {family} {row.since};"
                " write that, older engines get their own",
            )


def json_arguments(recipe: Subject) -> Found:
    """JSON among the arguments can be parsed."""
    yield from _checked(recipe, is_json=True)


def _checked(recipe: Subject, is_json: bool) -> Found:
    family = recipe.name.engine_family
    for version in recipe.versions:
        if version not in catalogue.versions(family):
            continue  # `versions` says so
        known = catalogue.load(family, version)
        for argv in recipe.arguments():
            # the command, of vLLM its model too, of Dynamo its module
            skipped = 3 if family == "vllm" or recipe.name.disaggregated else 2
            words = spelling.spell(_engines_own(argv[skipped:]), family, version)
            for problem in known.problems(words):
                if problem.is_json == is_json:
                    yield recipe.line_of(problem.word), problem.text


def _engines_own(words: Sequence[str]) -> list[str]:
    """Without Dynamo's own options, which take one value each."""
    dynamos = {i for i, word in enumerate(words) if word.startswith(_DYNAMO)}
    return [word for i, word in enumerate(words) if not {i, i - 1} & dynamos]


def versions(recipe: Subject) -> Found:
    """There is a catalogue of every engine version that the header names."""
    for version in recipe.versions:
        try:
            catalogue.load(recipe.name.engine_family, version)
        except UsageError as error:
            yield _line(recipe, "# Flags:"), str(error)


def synthetic(recipe: Subject) -> Found:
    """Acceptance is measured, never made up."""
    for number, line in recipe.code:
        for word in (*FORCED_ACCEPTANCE, "synthetic"):
            if word.lower() in line.lower():
                yield number, f"{word} makes up what is measured here; remove it"


def leftover(recipe: Subject) -> Found:
    """No {NAME} that nobody filled in."""
    for number, line in recipe.code:
        if found := _LEFTOVER.search(line):
            yield number, f"{found[0]} looks like a variable without its $"


def dry_run(recipe: Subject) -> Found:
    """It starts under every plausible topology, or says itself that one is not for it."""
    for row in recipe.rehearsals:
        if row.error and not row.refused:
            yield 1, f"{row.label}: {' '.join(row.error.split())}"
    if recipe.rehearsals and all(row.refused for row in recipe.rehearsals):
        yield recipe.line_of("die"), "refuses every plausible topology"


def _line(recipe: Subject, text: str) -> int:
    return next((n for n, line in enumerate(recipe.lines, start=1) if text in line), 1)


RULES: dict[str, Rule] = {
    rule.__name__.replace("_", "-"): rule
    for rule in (
        header,
        strict,
        facts_only,
        n_once,
        twin,
        chat_route,
        metrics,
        no_cache,
        address,
        reasoning_parser,
        options,
        json_arguments,
        versions,
        synthetic,
        leftover,
        dry_run,
    )
}
