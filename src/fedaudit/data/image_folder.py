"""A folder of pictures: one folder inside it for each class, with PNG or JPEG files in it, however deep.

Pillow decodes them; it is an extra, because nobody else needs it: `pip install 'fedaudit[images]'`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data.cells import INSTEAD, NAMES
from fedaudit.data.records import as_images, dataset
from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import kind_of
from fedaudit.types import Dataset

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

SUFFIXES = (".png", ".jpg", ".jpeg")
Colour = Literal["grey", "rgb"]
MAX_PIXELS = 2**26  # of one picture: a small file may unpack to gigabytes


class ImageOptions(DataOptions):
    path: Path = Field(description="the folder, relative to this file; in it a folder for each class")
    size: Annotated[int, Field(ge=4, le=1024)] | None = Field(
        None, description="pictures are scaled to so many pixels in width and height; not set: all must be of one size"
    )
    colour: Colour | None = Field(None, description="not set: grey if all of them are, else rgb")
    subject_before: Annotated[str, Field(min_length=1)] | None = Field(
        None, description='whose picture it is: its file name up to the first of these, for example "_"'
    )


@DATA.register(
    "images", "your own pictures: path = a folder with a folder of PNG or JPEG files for each class", ImageOptions
)
def load(options: ImageOptions) -> Dataset:
    files = _files(options.path)
    opened = pictures([path for path, _ in files], options.size, options.colour)
    if options.colour is None:
        depth = max(picture.shape[2] for picture in opened)
        opened = [np.repeat(picture, depth // picture.shape[2], axis=2) for picture in opened]
    shapes = {picture.shape for picture in opened}
    if len(shapes) > 1:
        what = f"{options.path} holds pictures of {len(shapes)} sizes"
        raise FedauditError("image-sizes", what, "Set data.size, to which all are scaled, for example size = 32.")
    names = [path.relative_to(options.path).as_posix() for path, _ in files]
    return dataset(
        options.path.name,
        as_images(np.stack(opened)),
        np.array([label for _, label in files]),
        id=np.array(names),
        subject=_subjects(files, options.subject_before),
    )


def _files(folder: Path) -> list[tuple[Path, str]]:
    """Every picture with its class, sorted by name."""
    if not folder.exists():
        raise FedauditError("data-missing", f"there is no folder {folder}", "Check data.path.")
    if not folder.is_dir():
        kind = kind_of(folder)
        todo = 'Write name = "table" for it.' if kind in ("text", "parquet") else INSTEAD.get(kind, "Give a folder.")
        raise FedauditError("image-folder", f"{folder} is {NAMES[kind]}, not a folder", todo, exit_code=REFUSED)
    within = sorted(each for each in folder.iterdir() if each.is_dir())
    found = [
        (path, label.name) for label in within for path in sorted(label.rglob("*")) if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        what = f"{folder} has no folder with PNG or JPEG files in it"
        raise FedauditError("image-folder", what, "Put the pictures of each class into a folder named for the class.")
    return found


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        what = "pictures are read by Pillow, which is not installed"
        raise FedauditError("no-pillow", what, "Install it: pip install 'fedaudit[images]'.") from None
    module: ModuleType = Image
    return module


def pictures(files: Sequence[Path], size: int | None, colour: Colour | None) -> list[NDArray[np.uint8]]:
    pillow = _pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)  # what is too large is refused
        return [_opened(path, size, colour, pillow) for path in files]


def _opened(path: Path, size: int | None, colour: Colour | None, pillow: ModuleType) -> NDArray[np.uint8]:
    """Height x width x 1 or 3. What is transparent is shown on black, as Pillow does."""
    try:
        with pillow.open(path, formats=("PNG", "JPEG")) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError("too large")
            grey = colour == "grey" or (colour is None and picture.mode in ("1", "L", "LA"))
            picture = picture.convert("L" if grey else "RGB")
            if size is not None:
                picture = picture.resize((size, size), pillow.Resampling.BILINEAR)
            values = np.asarray(picture, dtype=np.uint8)
    # Pillow raises the third of a broken PNG, and the last of one that is far too large.
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError):
        what = f"{path} is not a PNG or JPEG picture of at most {MAX_PIXELS >> 20} million pixels"
        raise FedauditError("image-unreadable", what, "Replace it, or take it away.", exit_code=REFUSED) from None
    return values[:, :, None] if values.ndim == 2 else values


def _subjects(files: list[tuple[Path, str]], before: str | None) -> NDArray[np.str_] | None:
    if before is None:
        return None
    lacking = [path for path, _ in files if before not in path.stem]
    if lacking:
        what = f"{len(lacking)} file names do not have {before!r} in them, the first is {lacking[0].name!r}"
        raise FedauditError("image-subject", what, "Rename them, or change data.subject_before.")
    return np.array([path.stem.partition(before)[0] for path, _ in files])
