"""What needs torch, as functions that the engine's Python runs; each asserts and returns nothing.

Usage: torch_cases.py FOLDER; prints one JSON object, name of the case → traceback or null.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import json
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.decode_torch import files, sharded
from utils.decode_eval import eagle3_head, history, referee, snapshot, weights
from utils.decode_eval.eagle3_head import Eagle3Head, Past
from utils.decode_eval.referee import Sampling
from utils.errors import HarnessError, NotMeasured, UsageError

GREEDY = Sampling()
VOCABULARY = 16


@contextmanager
def refuses(kind: type[HarnessError], text: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing was raised, want {kind.__name__} with {text!r}")


def llama(seed: int = 0, layers: int = 8, **more: Any) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {**files.SIZES, "num_hidden_layers": layers, "max_position_embeddings": 128, **more}
    return LlamaForCausalLM(LlamaConfig(**sizes, eos_token_id=None, bos_token_id=None)).eval()


def head(seed: int = 0) -> Eagle3Head:
    torch.manual_seed(seed)
    config = {**files.EAGLE3, "rms_norm_eps": 1e-5, "rope_theta": 1e4}
    return Eagle3Head(config, torch.tensor([1, 3, 5, 15])).eval()


def written(folder: Path) -> weights.Weights:
    return weights.read(folder / "model" / "consolidated")


def digest(folder: Path) -> str:
    return weights.digest_of(written(folder))


# The snapshot.


def case_export_keeps_every_tensor_as_it_is(folder: Path) -> None:
    model = head()
    model.norm.weight.data = model.norm.weight.data.bfloat16()
    made = snapshot.export_draft_snapshot(model, folder)
    found = written(folder)
    assert made.folder == folder / "model" / "consolidated"
    assert {path.name for path in made.folder.iterdir()} == {"config.json", "model.safetensors"}
    assert [path.name for path in (folder / "model").iterdir()] == ["consolidated"]
    assert set(found.tensors) == set(model.state_dict())
    kinds = {found.tensors[name].dtype for name in ("norm.weight", "fc.weight", "d2t", "t2d")}
    assert kinds == {"BF16", "F32", "I64", "BOOL"}
    assert found.integers("d2t") == files.D2T
    assert found.integers("t2d") == files.T2D
    assert made.size_bytes == sum(t.size for t in found.tensors.values())
    again = eagle3_head.load(made.folder).state_dict()
    assert all(torch.equal(again[n], t.to(again[n].dtype)) for n, t in model.state_dict().items())


def case_another_export_takes_the_place_of_the_first(folder: Path) -> None:
    first, second = head(1), head(2)
    snapshot.export_draft_snapshot(first, folder)
    made = snapshot.export_draft_snapshot(second, folder)
    again = eagle3_head.load(made.folder)
    assert torch.equal(again.fc.weight, second.fc.weight)
    assert not torch.equal(again.fc.weight, first.fc.weight)


def case_tied_embeddings_are_tied_again_by_the_reader(folder: Path) -> None:
    model = llama(tie_word_embeddings=True)
    made = snapshot.export_draft_snapshot(model, folder)
    assert "lm_head.weight" not in written(folder).tensors
    again = LlamaForCausalLM.from_pretrained(made.folder).eval()
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids).logits, again(ids).logits)
    assert json.loads((made.folder / "config.json").read_text())["architectures"] == [
        "LlamaForCausalLM"
    ]


class Shared(nn.Module):
    """Two names for one tensor, two views of another; nobody says that they are tied."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"hidden_size": 4}
        self.a = nn.Linear(4, 4, bias=False)
        self.b = self.a
        whole = torch.arange(8.0)
        self.register_buffer("c", whole[:4])
        self.register_buffer("d", whole[4:])


def case_shared_memory_is_written_under_every_name(folder: Path) -> None:
    from safetensors.torch import load_file

    model = Shared()
    made = snapshot.export_draft_snapshot(model, folder)
    found = load_file(made.folder / weights.FILE)
    assert torch.equal(found["a.weight"], found["b.weight"])
    assert found["c"].tolist() == [0, 1, 2, 3]
    assert found["d"].tolist() == [4, 5, 6, 7]
    config = json.loads((made.folder / "config.json").read_text())
    assert config["architectures"] == ["Shared"]


def case_wrappers_are_taken_off(folder: Path) -> None:
    model = head()
    models = {"plain": model, "compiled": torch.compile(model), "parallel": nn.DataParallel(model)}
    for name, one in models.items():
        snapshot.export_draft_snapshot(one, folder / name)
    assert len({digest(folder / name) for name in models}) == 1


class Adapted(nn.Module):
    """As PEFT wraps a model: merging changes the weights of the model that it is called on."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.lora = nn.Parameter(torch.ones_like(base.fc.weight))

    def merge_and_unload(self) -> nn.Module:
        self.base.fc.weight.data += self.lora
        return self.base


def case_adapters_are_merged_in_a_copy(folder: Path) -> None:
    model = Adapted(head())
    before = model.base.fc.weight.clone()
    made = snapshot.export_draft_snapshot(model, folder)
    assert torch.equal(model.base.fc.weight, before)
    assert torch.equal(eagle3_head.load(made.folder).fc.weight, before + 1)


def case_ddp_and_fsdp_in_two_processes(folder: Path) -> None:
    snapshot.export_draft_snapshot(llama(), folder / "plain")
    torch.multiprocessing.spawn(sharded.rank, (folder,), nprocs=2)
    for name in ("ddp", "fsdp"):
        assert digest(folder / name) == digest(folder / "plain"), name
    assert (folder / "refused").read_text().startswith("model.embed_tokens.weight is sharded")
    (row,) = history.read(folder / "callback" / "decode_eval")
    assert (row["outcome"], row["snapshot"]["sha256"]) == ("measured", digest(folder / "plain"))


def case_a_full_disk_leaves_nothing(folder: Path) -> None:
    first = snapshot.export_draft_snapshot(head(1), folder)
    before = digest(folder)
    usage = shutil.disk_usage(folder)._replace(free=first.size_bytes)
    with mock.patch("shutil.disk_usage", return_value=usage), refuses(NotMeasured, "make room"):
        snapshot.export_draft_snapshot(head(2), folder)
    full = OSError(28, "No space left on device")
    with mock.patch("safetensors.torch.save_file", side_effect=full):
        try:
            snapshot.export_draft_snapshot(head(2), folder)
        except OSError as error:
            assert error is full
    assert [path.name for path in (folder / "model").iterdir()] == ["consolidated"]
    assert digest(folder) == before


def case_a_model_without_config_is_refused(folder: Path) -> None:
    with refuses(UsageError, "Linear has no config"):
        snapshot.export_draft_snapshot(nn.Linear(2, 2), folder)
    assert not (folder / "model").exists()


def case_a_checkpoint_is_linked_and_never_removed(folder: Path) -> None:
    made = snapshot.export_draft_snapshot(head(), folder / "kept")
    before = digest(folder / "kept")
    used = snapshot.use_checkpoint(made.folder, folder / "step")
    assert used.size_bytes == 0
    assert used.folder.resolve() == made.folder and digest(folder / "step") == before
    snapshot.export_draft_snapshot(head(1), folder / "step")
    assert digest(folder / "kept") == before
    snapshot.use_checkpoint(made.folder, folder / "step")
    shutil.rmtree(folder / "step" / "model")
    assert digest(folder / "kept") == before
    (made.folder / "config.json").unlink()
    with refuses(UsageError, "has no config.json"):
        snapshot.use_checkpoint(made.folder, folder / "step")


# The head and the referee.


def case_training_and_drafting_see_the_same(folder: Path) -> None:
    """Step s of every row at once, as in training, is what a chain from that row alone comes to."""
    model, length = head(), 7
    features, embedded = torch.randn(length, 24), torch.randn(3, length, 8)
    past, hidden, unrolled = Past(), model.fc(features), []
    for step in range(3):
        hidden, logits = model(embedded[step], hidden, past)
        unrolled.append(logits)
    for row in range(1, length):
        past, hidden = Past(), model.fc(features[: row + 1])
        given = embedded[0, : row + 1]
        for step in range(3):
            hidden, logits = model(given, hidden, past)
            assert torch.allclose(logits[-1], unrolled[step][row], atol=1e-5)
            hidden = hidden[-1:]
            given = embedded[step + 1, row : row + 1] if step < 2 else given


def case_a_chain_of_drafts_is_a_sequence_that_grows(folder: Path) -> None:
    """Draft by draft, as an engine does it, and in one pass with plain causal attention."""
    model, rows = head(), 5
    embedded, hidden = torch.randn(rows, 8), model.fc(torch.randn(rows, 24))
    past, inputs, states = Past(), [embedded], [hidden]
    given = embedded
    for _ in range(3):
        hidden, logits = model(given, hidden, past)
        _, whole = model(torch.cat(inputs), torch.cat(states), Past())
        assert torch.allclose(logits[-1], whole[-1], atol=1e-5)
        hidden, given = hidden[-1:], torch.randn(1, 8)
        inputs.append(given)
        states.append(hidden)


def case_a_head_drafts_tokens_of_its_vocabulary(folder: Path) -> None:
    drafter = referee.Eagle3Drafter(head(), torch.randn(VOCABULARY, 8))
    with torch.no_grad():
        drafts, spread = drafter.propose([1, 2, 3], torch.randn(2, 24), 3, Sampling(1.0))
    assert set(drafts) <= {1, 3, 5, 15}
    assert spread.nonzero()[:, 1].unique().tolist() == [1, 3, 5, 15]
    assert torch.allclose(spread.sum(1), torch.ones(3))


def case_rejection_keeps_the_targets_distribution(folder: Path) -> None:
    """q · min(1, p / q) + P(rejected) · residual = p, for every token."""
    torch.manual_seed(0)
    for _ in range(100):
        p, q = (torch.randn(6).mul(2).softmax(0) for _ in range(2))
        chance = torch.tensor([referee.accept_probability(p, q, t) for t in range(6)])
        out = q * chance + (1 - (q * chance).sum()) * referee.residual(p, q)
        assert torch.allclose(out, p, atol=1e-6)


def case_verify_draws_from_known_distributions(folder: Path) -> None:
    """10,000 draws: the first token from p0, the one after an accepted run from p1; chi-square."""
    sampling = Sampling(1.0, torch.Generator().manual_seed(0))
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]])
    q = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    counts = torch.zeros(2, 4)
    accepted = 0
    for _ in range(10_000):
        draft = sampling.draw(q[0])
        count, further = referee.verify([draft], q, p, sampling)
        accepted += count
        for place, token in enumerate([*[draft][:count], further]):
            counts[place, token] += 1
    for place in range(2):
        expected = p[place] * counts[place].sum()
        chi_square = ((counts[place] - expected) ** 2 / expected).sum()
        assert chi_square < 16.27, (place, chi_square)  # 3 degrees of freedom, p = 0.001
    rate = float(torch.minimum(p[0], q[0]).sum())  # 0.5
    assert abs(accepted / 10_000 - rate) < 0.02


def case_greedy_output_is_the_targets_own(folder: Path) -> None:
    target, prompt = llama(0), [3, 1, 4, 1, 5]
    embedding = target.get_input_embeddings().weight.detach()
    drafters = {
        "itself": referee.ModelDrafter(target),
        "other": referee.ModelDrafter(llama(1, layers=1)),
        "head": referee.Eagle3Drafter(head(), embedding),
    }
    own = referee.decode_plain(target, prompt, 30, set(), GREEDY)
    assert len(own.tokens) == 30
    for name, drafter in drafters.items():
        found = referee.decode(target, drafter, prompt, 3, 30, set(), GREEDY)
        assert found.tokens == own.tokens, name
        if name == "itself":
            assert set(found.accepted) == {3}
        assert all(0 <= count <= 3 for count in found.accepted)


def case_an_output_ends_at_a_stop_inside_an_accepted_run(folder: Path) -> None:
    target, prompt = llama(0), [3, 1, 4, 1, 5]
    own = referee.decode_plain(target, prompt, 12, set(), GREEDY).tokens
    stop = {own[2]}
    short = referee.decode_plain(target, prompt, 12, stop, GREEDY).tokens
    assert short == own[: own.index(own[2]) + 1]
    found = referee.decode(target, referee.ModelDrafter(target), prompt, 3, 12, stop, GREEDY)
    assert found.tokens == short


def case_sampled_output_has_the_targets_distribution(folder: Path) -> None:
    """The second token of 600 outputs, with a draft of its own mind, against the target's."""
    target, draft, prompt = llama(0, layers=4), referee.ModelDrafter(llama(1, layers=1)), [3, 1]
    sampling = Sampling(0.01, torch.Generator().manual_seed(1))
    counts = torch.zeros(2, VOCABULARY)
    for _ in range(600):
        spoken = referee.decode(target, draft, prompt, 2, 2, set(), sampling).tokens
        plain = referee.decode_plain(target, prompt, 2, set(), sampling).tokens
        counts[0, spoken[1]] += 1
        counts[1, plain[1]] += 1
    used = counts[:, counts.sum(0) >= 10]
    chi_square = ((used[0] - used[1]) ** 2 / used.sum(0)).sum()
    assert used.shape[1] == 4
    assert chi_square < 16.27, chi_square  # 3 degrees of freedom, p = 0.001


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    results: dict[str, str | None] = {}
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            place = folder / name
            place.mkdir()
            try:
                case(place)
                results[name] = None
            except Exception:  # noqa: BLE001 # the other cases still run; pytest shows it
                results[name] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
