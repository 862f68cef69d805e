"""A multilingual model reads what an English one does not, by their own tokenizers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from corral.api.embedder import Embedder
from corral.providers.embedding.e5.config import E5Config
from corral.providers.embedding.e5.embedder import create as create_e5
from corral.providers.embedding.minilm.config import MiniLMConfig
from corral.providers.embedding.minilm.embedder import create as create_minilm

SAID = {
    "english": "Who wrote the book about the siege of Leningrad?",
    "german": "Wann wurde die Universität gegründet, und von wem?",
    "norwegian": "Når ble universitetet grunnlagt, og av hvem?",
    "russian": "Кто основал этот университет?",
    "chinese": "谁在十九世纪建立了这所大学?",
    "japanese": "この大学は十九世紀に誰によって設立されましたか?",
    "korean": "이 대학은 19세기에 누가 설립했습니까?",
    "hindi": "इस विश्वविद्यालय की स्थापना किसने की थी?",
    "telugu": "ఈ విశ్వవిద్యాలయాన్ని ఎవరు స్థాపించారు?",
    "khmer": "តើអ្នកណាបានបង្កើតសាកលវិទ្យាល័យនេះ",
    "arabic": "من أسس هذه الجامعة في القرن التاسع عشر؟",
}
ENGLISH_READS = {"english": (0.95, 1.0), "german": (0.5, 0.9), "norwegian": (0.3, 0.7)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Embedder]:
    """Both models on the real weights; nothing is embedded."""

    async def opened(home: Path) -> dict[str, Embedder]:
        minilm = create_minilm("minilm", MiniLMConfig(threads=1), home)
        e5 = create_e5("e5", E5Config(threads=1), home)
        found: dict[str, Embedder] = {
            "minilm": await minilm.embedder("all-MiniLM-L6-v2"),
            "e5": await e5.embedder("multilingual-e5-small"),
        }
        await minilm.close()
        await e5.close()
        return found

    return asyncio.run(opened(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize("language", SAID)
def test_a_model_reads_its_own_languages(models: dict[str, Embedder], language: str) -> None:
    """multilingual-e5-small reads all of them, all-MiniLM-L6-v2 English, and some of what shares
    its letters.

    If this fails: hybrid search trusts vectors of a text that the model cannot read, or distrusts
    those of one that it can.
    """
    text = SAID[language]
    low, high = ENGLISH_READS.get(language, (0.0, 0.35))
    assert low <= models["minilm"].reads(text) <= high
    assert models["e5"].reads(text) >= 0.9
