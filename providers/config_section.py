"""The base of every section of `run.yaml`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section: an unknown key is refused, and no error quotes a value, which may be a secret."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)
