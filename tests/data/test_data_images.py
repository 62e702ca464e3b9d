"""Decoding: colours, sizes, antialiasing, damage by name, and the same result in one process or several."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from rayctsl.data import images
from rayctsl.data.images import decode, decode_into, is_grey
from rayctsl.data.raw import Picture


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def photograph(side: int, seed: int = 0) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((side * 4 // 3, side), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "CMYK", "LA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_grey_or_colour(mode, channels):
    """What Pillow shows of the picture: the same numbers whatever the mode it was stored in."""
    given = photograph(40).convert(mode)
    content = encoded(given, "TIFF" if mode == "CMYK" else "PNG")
    image = decode(content, (given.height, given.width), channels)
    shown = np.asarray(given.convert("L" if channels == 1 else "RGB")).reshape(image.shape)
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, shown)
    small = decode(content, (12, 20), channels)
    resized = given.convert("L" if channels == 1 else "RGB").resize((20, 12), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(small, np.asarray(resized).reshape(12, 20, channels))


def test_sixteen_bit_grey_keeps_its_range():
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    image = decode(encoded(Image.fromarray(ramp)), (8, 8), 1)[..., 0]
    np.testing.assert_array_equal(image, ramp >> 8)


def drawing() -> Image.Image:
    """Half of it black ink, half of it nothing, which is black as well in most programs' files."""
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[:, :4, 3] = 255
    return Image.fromarray(ink)


def palette_of_two() -> Image.Image:
    return drawing().getchannel("A").point(lambda alpha: alpha // 255, "P")  # 0 is nothing, 1 is ink


@pytest.mark.parametrize(
    ("image", "options"),
    [
        (drawing(), {}),
        (drawing().convert("LA"), {}),
        (palette_of_two(), {"transparency": 0}),
        (palette_of_two(), {"transparency": bytes([0, 255])}),
        (Image.fromarray(np.repeat(np.uint8([[0, 9]]), 4, 1).repeat(8, 0)), {"transparency": 9}),
        (Image.fromarray(np.repeat(np.uint16([[0, 2304]]), 4, 1).repeat(8, 0)), {"transparency": 2304}),
        (drawing().convert("RGB"), None),
    ],
    ids=["RGBA", "LA", "P", "P with a table", "L", "16 bits", "opaque"],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_transparent_is_white(image, options, channels):
    if image.mode == "P":
        image.putpalette([0, 0, 0] * 2)
    seen = decode(encoded(image, **(options or {})), (8, 8), channels)
    assert (seen[:, :4] == 0).all()
    assert (seen[:, 4:] == (0 if options is None else 255)).all()


def test_half_transparent_ink_is_grey():
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert (decode(encoded(image), (8, 8), 1) == 127).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_camera_says(kind, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    content = encoded(photograph(40), kind, exif=exif)
    with Image.open(io.BytesIO(content)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    assert upright.size == ((40, 53) if orientation > 4 else (53, 40))
    image = decode(content, (upright.height, upright.width), 3)
    np.testing.assert_array_equal(image, np.asarray(upright))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("nonsense", [b"no header", b"MM\0*\0\0\0", b"II*\0\xff\xff\xff\xff"])
def test_a_camera_that_says_nonsense_does_not_spoil_its_picture(kind, nonsense):
    content = encoded(photograph(40), kind, exif=b"Exif\0\0" + nonsense)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in an import
        image = decode(content, (40, 53), 3)
    np.testing.assert_array_equal(image, decode(encoded(photograph(40), kind), (40, 53), 3))


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 40 * 53 - 1)
    content = encoded(photograph(40))
    monkeypatch.setattr(images, "_eight_bits", lambda image: pytest.fail("it was decoded"))
    with pytest.raises(ValueError, match="53 x 40 pixels are too many"):
        decode(content, (8, 8), 3)


def test_resizing_is_antialiased():
    """A fine chessboard must become even grey, not a coarse pattern."""
    board = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)
    image = decode(board, (16, 16), 1).astype(int)
    assert abs(image - 127.5).max() < 12


def test_same_as_torchvisions_resize():
    """The pixels of a squeezed photograph are those that torchvision's default resizing gives."""
    picture = photograph(300)
    from rayctsl.torchvision_import import import_torchvision

    import_torchvision()
    from torchvision.transforms import Resize

    np.testing.assert_array_equal(decode(encoded(picture), (84, 84), 3), np.asarray(Resize((84, 84))(picture)))


def test_array_of_the_right_shape_is_untouched():
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 1), dtype=np.uint8)
    np.testing.assert_array_equal(decode(image, (28, 28), 1), image)


def test_is_grey(tmp_path):
    path = tmp_path / "a.png"
    photograph(8).convert("L").save(path)
    assert is_grey(path)
    photograph(8).save(path)
    assert not is_grey(path)


def pictures(count: int) -> list[Picture]:
    return [
        Picture("train" if n % 3 else "test", n // 3 if n % 3 == 0 else n - n // 3 - 1, f"{n}.png", content)
        for n, content in enumerate(encoded(photograph(20, n)) for n in range(count))
    ]


def test_processes_give_the_same_as_one(tmp_path):
    results = []
    for workers in (1, 2):
        arrays = {"train": np.zeros((120, 12, 12, 3), np.uint8), "test": np.zeros((60, 12, 12, 3), np.uint8)}
        decode_into(arrays, pictures(180), "demo", workers)
        assert all(array.any(axis=(1, 2, 3)).all() for array in arrays.values())
        results.append(arrays)
    for split in ("train", "test"):
        np.testing.assert_array_equal(results[0][split], results[1][split])


@pytest.mark.parametrize("workers", [1, 2])
def test_all_damaged_images_are_named_together(workers):
    stream = pictures(90)
    cut = encoded(photograph(300), "JPEG")
    for number, content in ((4, b"no image"), (50, cut[: len(cut) // 2]), (70, b"")):
        stream[number] = stream[number]._replace(content=content)
    arrays = {"train": np.zeros((60, 8, 8, 3), np.uint8), "test": np.zeros((30, 8, 8, 3), np.uint8)}
    with pytest.raises(ValueError, match="demo: 3 images cannot be read") as caught:
        decode_into(arrays, stream, "demo", workers)
    for number in (4, 50, 70):
        assert f"{number}.png (" in str(caught.value)
    assert "0x" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_error_of_the_source_ends_the_pool():
    def broken():
        yield from pictures(70)
        raise ValueError("the archive ends early")

    arrays = {"train": np.zeros((60, 8, 8, 3), np.uint8), "test": np.zeros((30, 8, 8, 3), np.uint8)}
    with pytest.raises(ValueError, match="ends early"):
        decode_into(arrays, broken(), "demo", 2)


def test_fuzzed_images_are_refused_or_read():
    chance = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP"):
        whole = encoded(photograph(30), kind)
        stream = []
        for row in range(120):
            content = bytearray(whole)
            for place in chance.integers(0, len(content), 3):
                content[place] = chance.integers(256)
            stream.append(
                Picture("train", row, f"{row}.{kind}", bytes(content[: chance.integers(1, len(content) + 1)]))
            )
        with pytest.raises(ValueError, match="images cannot be read"):
            decode_into({"train": np.zeros((120, 8, 8, 3), np.uint8)}, stream, kind, 1)
