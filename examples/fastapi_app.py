"""A FastAPI app with Corral inside it, as a library: no server beside it, no network between.

CORRAL_HOME=herd uvicorn fastapi_app:app

PUT  /notes/NAME  {"text": ...}     stores a note
GET  /answer?question=...           the passages that answer, with their notes
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel, Field

import corral.providers.library as corral
from corral.providers.library import Corral

NOTES = "notes"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the data folder while the app runs."""
    async with corral.open() as herd:
        await herd.register(NOTES, search_mode="hybrid")
        app.state.herd = herd
        yield


app = FastAPI(title="Notes", lifespan=lifespan)


async def _herd(request: Request) -> Corral:
    herd: Corral = request.app.state.herd
    return herd


Herd = Annotated[Corral, Depends(_herd)]


class Note(BaseModel):
    """A note."""

    text: str = Field(min_length=1)


@app.put("/notes/{name}")
async def put(name: str, note: Note, herd: Herd) -> dict[str, int]:
    """Store a note; one of that name is replaced."""
    report = await herd.insert(NOTES, {name: note.text})
    return {"chunks": report.chunks[name]}


@app.get("/answer")
async def answer(question: str, herd: Herd) -> dict[str, Any]:
    """Return a context for a question, and the notes that it cites."""
    found = await herd.ask(question, NOTES, max_tokens=1000, citations=True)
    return {"context": found.text, "notes": found.metadata.get("document_ids", [])}
