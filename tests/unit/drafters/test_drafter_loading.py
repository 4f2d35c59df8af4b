from __future__ import annotations

import pytest

from drafters.config import DrafterConfig
from drafters.errors import DrafterConfigError
from drafters.loading import check_config, load_drafter


def test_the_nearest_method_is_named() -> None:
    with pytest.raises(DrafterConfigError, match=r"'promt_lookup'; did you mean 'prompt_lookup'\?"):
        check_config(DrafterConfig(method="promt_lookup"))


def test_the_nearest_parameter_is_named() -> None:
    with pytest.raises(DrafterConfigError, match=r"'max_ngrm'; did you mean 'max_ngram'\?"):
        load_drafter(DrafterConfig(params={"max_ngrm": 3}))


def test_a_path_is_no_method() -> None:
    with pytest.raises(DrafterConfigError, match="unknown drafting method"):
        check_config(DrafterConfig(method="..loading"))


def test_parameters_reach_the_method() -> None:
    assert load_drafter(DrafterConfig(params={"max_tokens": 3})).max_tokens == 3
