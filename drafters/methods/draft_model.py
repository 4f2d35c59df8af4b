"""A smaller language model drafts for the target.

Source: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding",
arXiv:2211.17192, and Chen et al. 2023, arXiv:2302.01318: the draft is a chain of the model's own
tokens. As a tree, its nodes are chosen as in EAGLE-2 (Li et al. 2024, arXiv:2406.16858), section 4,
by the probability of their paths; that needs no training. Where the target samples, the draft model
samples with the same noise (``drafters.model_drafting.candidates``).

The model has a paged cache of its own. A session keeps its pages between calls: tokens that it
drafted itself and that were accepted are not computed again, tokens that came in rounds without it
are computed at its next call, and a session that lost its pages to others is computed anew. What a
call computes is bounded: of a long context a part at a time, with empty drafts until it is done.

A sequence whose context is longer than the model's, or has tokens that the model does not know,
gets empty drafts. Knows no other drafters.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from drafters.api import Draft, SessionContext, TargetInfo
from drafters.errors import DrafterConfigError
from drafters.model_drafting.drafting import GrowthLimits, ModelDrafting
from drafters.model_drafting.folder import DraftModelFolder, read_folder
from drafters.model_drafting.session_cache import DraftSession
from drafters.model_drafting.settings import DraftModelSettings, Shape
from models.compute_threads import compute_once
from models.errors import ModelError
from models.paged_model import PagedModel


class DraftModel:
    """Proposes what a smaller model with the target's tokenizer would say.

    The score of a draft is the number of its tokens that are expected to be accepted, by the draft
    model's own probabilities.

    Args:
        model: The model: an absolute folder, the same on every node that drafts; or a name as
            the target may have one (``smollm2``, or one on the Hugging Face hub).
        cache_dir: Absolute folder that named models are fetched into, on every node that drafts;
            needed where ``model`` is a name.
        shape: ``chain``: the model's own token each time; ``tree``: the nodes whose paths are
            likeliest, listed best first.
        max_tokens: Largest draft, at least 1 (published default of trees 60; of chains the best
            sizes found were up to 10).
        top_k: Children that a tree's node gets, at least 1 (published default 10).
        beam: Most nodes of a tree computed at each depth, at least 1 (published default 10).
        depth: Depth of a tree, at least 1 (published default 6).
        max_step_tokens: Most tokens of contexts computed in one call, at least 1. Sequences that
            lack more get an empty draft, and are further the next time.
        num_threads: Threads a call computes with on CPU, at least 1.
        device: ``auto``, ``cpu`` or ``cuda``; ``auto`` takes a GPU if there is one.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; ``auto`` is float32 on CPU and
            bfloat16 on a GPU.
        cache_tokens: Tokens that the model's cache holds; 0 sizes it from free memory.
        max_context: Longest context; 0 takes the model's own limit.

    Raises:
        DrafterConfigError: If a value cannot be, or the model cannot be had or is not supported.
    """

    def __init__(
        self,
        *,
        model: str,
        cache_dir: str = "",
        shape: Shape = "chain",
        max_tokens: int = 60,
        top_k: int = 10,
        beam: int = 10,
        depth: int = 6,
        max_step_tokens: int = 256,
        num_threads: int = 1,
        device: str = "auto",
        dtype: str = "auto",
        cache_tokens: int = 0,
        max_context: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._settings = DraftModelSettings(**given)
        folder = read_folder(model, cache_dir, max_context)
        self._version = (
            f"draft_model/1(model={folder.name},digest={folder.digest},"
            f"{self._settings.proposals_key()})"
        )
        with _threads(num_threads):
            self._drafting = _load(folder, self._settings)

    @property
    def version(self) -> str:
        """Changes whenever the method's proposals may, and with the model."""
        return self._version

    @property
    def max_tokens(self) -> int:
        """Largest draft the method makes."""
        return self._settings.max_tokens

    def open(self, session_id: str, context: SessionContext) -> None:
        """Start the session, or start it anew, from the whole context; computes nothing."""
        session = DraftSession(list(context.token_ids), context.noise)
        self._drafting.sessions.open(session_id, session)

    def position(self, session_id: str) -> int:
        """Return the length of the session's context; 0 if the session is unknown."""
        return self._drafting.sessions.length(session_id)

    def extend(self, session_id: str, token_ids: Sequence[int]) -> None:
        """Append emitted tokens to a session; computes nothing.

        Raises:
            UnknownSessionError: If the session is not open.
        """
        self._drafting.sessions.get(session_id).extend(token_ids)

    def propose(self, wanted: Sequence[tuple[str, int]]) -> list[Draft]:
        """Propose for each (session, most tokens) a draft of at most that many tokens.

        Raises:
            UnknownSessionError: If a session is not open.
        """
        most: dict[str, int] = {}
        for session_id, max_tokens in wanted:
            most[session_id] = max(max_tokens, most.get(session_id, 0))
        with _threads(self._settings.num_threads):
            drafts = self._drafting.draft(most)
        return [drafts[session_id].prefix(max_tokens) for session_id, max_tokens in wanted]

    def close(self, session_id: str) -> None:
        """Forget a session; unknown ones are no error."""
        self._drafting.sessions.close(session_id)


def check(params: Mapping[str, Any], target: TargetInfo) -> None:
    """Check before deploying that the model is there and has the target's tokenizer.

    Reads its configuration and tokenizer, and fetches it where it is a name and not there yet; does
    not load it.

    Raises:
        DrafterConfigError: If not.
    """
    arguments = inspect.signature(DraftModel).bind(**params)
    arguments.apply_defaults()
    settings = DraftModelSettings(**arguments.arguments)
    read_folder(settings.model, settings.cache_dir, settings.max_context).check_tokenizer(target)


def _load(folder: DraftModelFolder, settings: DraftModelSettings) -> ModelDrafting:
    try:
        model = compute_once(PagedModel, folder.path, settings.paged_model)
    except ModelError as error:
        raise DrafterConfigError(f"draft_model: {error}") from error
    largest = settings.max_tokens
    if settings.shape == "chain":
        limits = GrowthLimits(largest, top_k=1, beam=1, depth=largest)
    else:
        limits = GrowthLimits(largest, settings.top_k, settings.beam, settings.depth)
    return ModelDrafting(model, folder.num_tokens, limits, settings.max_step_tokens)


@contextmanager
def _threads(num_threads: int) -> Iterator[None]:
    """Let torch compute with so many threads: a Verifier that drafts in its process has its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


DRAFTER = DraftModel
