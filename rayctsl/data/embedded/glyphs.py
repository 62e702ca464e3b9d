"""Letters and symbols of many scripts, from the fonts that matplotlib ships, in the hands of different printers.

An alphabet is data (characters, fonts, style). A glyph is rendered once per font as a sharp mask, every image then
looks at one mask through its own affine and elastic map, and a style turns the masks into pictures.
No two characters of an alphabet are mirror images, so random flips keep the class.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rayctsl.data.embedded.fields import (
    Rng,
    blur,
    chance,
    cloud,
    colour_pair,
    finish,
    paint,
    per_image,
    random_grid,
    smooth_noise,
    step,
    uniform,
    warp,
)

SANS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique")
SERIF = ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic")
MONO = ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique")
STIX = ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta")
COMPUTER_MODERN = ("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10")

Style = Callable[[Rng, np.ndarray, np.ndarray], np.ndarray]  # rng, masks, clutter masks -> uint8 images


@dataclass(frozen=True)
class Alphabet:
    """One glyph dataset: which characters, in which fonts, printed how."""

    characters: str
    faces: tuple[str, ...]
    size: int
    style: Style
    turn: float = 0.25
    bend: float = 0.06
    shift: float = 0.15
    zoom: tuple[float, float] = (0.8, 1.15)
    stray: float = 1.7  # how far from the centre the pieces of other glyphs lie

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(unicodedata.name(character).lower() for character in self.characters)

    def make(self, rng: Rng, labels: np.ndarray) -> np.ndarray:
        """One image for each label, some hundred at a time: that fits the processor's cache."""
        masters = render_masters(self.characters, self.faces, self.size)
        parts = [self._print(rng, masters, labels[start : start + 256]) for start in range(0, len(labels), 256)]
        return np.concatenate(parts)

    def _print(self, rng: Rng, masters: np.ndarray, labels: np.ndarray) -> np.ndarray:
        count, faces = len(labels), len(self.faces)
        which = labels * faces + rng.integers(faces, size=count)
        grid = random_grid(rng, count, self.size, self.turn, self.zoom, 0.2, self.shift, self.bend)
        masks = warp(masters, which, grid)
        others = rng.integers(len(masters), size=count)
        angle = uniform(rng, 0, 2 * np.pi, count)
        away = self.stray * np.stack([np.cos(angle), np.sin(angle)], -1)
        clutter = warp(masters, others, random_grid(rng, count, self.size) + away[:, None, None, :])
        return self.style(rng, masks, clutter)


def render_masters(characters: str, faces: tuple[str, ...], size: int) -> np.ndarray:
    """Masks [characters x faces, size, size]; every glyph fills 3/4 of its square, whatever its font."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    masters = np.zeros((len(characters), len(faces), size, size), np.float32)
    for number, face in enumerate(faces):
        # The basic layout engine is part of Pillow itself, so no system library can change a glyph.
        font = ImageFont.truetype(str(folder / f"{face}.ttf"), 3 * size, layout_engine=ImageFont.Layout.BASIC)
        for index, character in enumerate(characters):
            masters[index, number] = _fit(_draw(font, character, 3 * size), size)
    return masters.reshape(-1, size, size)


def _draw(font: ImageFont.FreeTypeFont, character: str, size: int) -> Image.Image:
    canvas = Image.new("L", (3 * size, 3 * size))
    ImageDraw.Draw(canvas).text((size, size // 2), character, font=font, fill=255)
    return canvas.crop(canvas.getbbox())


def _fit(glyph: Image.Image, size: int) -> np.ndarray:
    scale = 0.75 * size / max(glyph.size)
    width, height = (max(1, round(side * scale)) for side in glyph.size)
    square = Image.new("L", (size, size))
    square.paste(glyph.resize((width, height), Image.Resampling.LANCZOS), ((size - width) // 2, (size - height) // 2))
    return np.asarray(square, np.float32) / 255


def _weight(rng: Rng, masks: np.ndarray, low: float = 0.3, high: float = 0.6) -> np.ndarray:
    """Fatter or thinner strokes: cut the soft edge of each mask at its own level."""
    return np.clip((masks - per_image(uniform(rng, low, high, len(masks)))) * 2.5 + 0.5, 0, 1)


def pen(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """A white pen on black, uneven pressure, sometimes the neighbour's stroke."""
    count, size = masks.shape[:2]
    pressure = np.clip(0.85 + 0.25 * smooth_noise(rng, count, size, 4), 0.25, 1)
    stray = clutter * per_image(chance(rng, 0.5, count) * uniform(rng, 0.4, 0.9, count))
    image = np.maximum(blur(_weight(rng, masks), 0.3) * pressure, stray)
    return finish(rng, image, noise=0.04, gain=0.15)


def scan(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """Dark print on stained paper with ruled lines, badly copied."""
    count, size = masks.shape[:2]
    paper = 0.8 + 0.12 * cloud(rng, count, size)
    rows = np.arange(size, dtype=np.float32)[None, :, None]
    spacing, phase = uniform(rng, 5, 11, count), uniform(rng, 0, 11, count)
    ruled = np.abs((rows + per_image(phase)) % per_image(spacing) - 1) < 0.6
    paper = paper - np.where(ruled & per_image(chance(rng, 0.5, count)), np.float32(0.3), np.float32(0))
    ink = per_image(uniform(rng, 0.05, 0.4, count))
    holes = smooth_noise(rng, count, size, size // 3) > 1.2
    shape = np.maximum(np.where(holes, np.float32(0.3), np.float32(1)) * _weight(rng, masks), clutter * 0.8)
    return finish(rng, blur(paper + (ink - paper) * shape, uniform(rng, 0, 0.8, count)), noise=0.06)


def street(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """Painted signs: any two colours, uneven light, neighbours on the same sign."""
    count, size = masks.shape[:2]
    ink, paper = colour_pair(rng, count, 0.5)
    shape = np.maximum(_weight(rng, masks), clutter)
    light = 1 + 0.25 * smooth_noise(rng, count, size, 2)
    image = paint(shape, ink, paper + 0.08 * cloud(rng, count, size)[..., None]) * light[..., None]
    return finish(rng, image, noise=0.04)


def chalk(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """Chalk on a board: grainy strokes, smears, half-wiped rests of other writing."""
    count, size = masks.shape[:2]
    board = 0.25 + 0.1 * cloud(rng, count, size, (1, 3, 9))
    grain = np.clip(1 + 0.5 * smooth_noise(rng, count, size, size // 2), 0.2, 1)
    image = board + 0.65 * _weight(rng, masks, 0.2, 0.5) * grain + 0.35 * clutter
    return finish(rng, image, noise=0.05)


def outline(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """Signs on a coloured texture, some filled and some only outlined."""
    count, size = masks.shape[:2]
    ink, paper = colour_pair(rng, count, 0.5)
    solid = _weight(rng, masks)
    hollow = np.clip(4 * blur(masks, 0.6) * (1.15 - masks), 0, 1)
    shape = np.where(per_image(chance(rng, 0.3, count)), hollow, solid)
    ground = paper + 0.15 * cloud(rng, count, size, (3, 7, 15))[..., None] * uniform(rng, 0, 1, count, 1, 1, 3)
    return finish(rng, paint(shape, ink, paint(0.5 * clutter, ink, ground)), noise=0.03)


def badge(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """A symbol on a round or square coloured badge, in front of a busy background."""
    count, size = masks.shape[:2]
    ink, plate = colour_pair(rng, count, 0.55)
    behind, spots = colour_pair(rng, count, 0.1)
    x, y = np.moveaxis(np.abs(random_grid(rng, count, size, 0.5, (0.95, 1.2), 0.1, 0.1)), -1, 0)
    reach = np.where(per_image(chance(rng, 0.5, count)), np.hypot(x, y), np.maximum(x, y))
    disc = step(0.9 - reach, size / 2)
    ground = paint(np.clip(cloud(rng, count, size, (4, 9)) * 2 + 0.5, 0, 1), spots, behind)
    ground = paint(clutter, ink, ground)
    image = paint(_weight(rng, masks), ink, paint(disc.astype(np.float32), plate, ground))
    return finish(rng, image, noise=0.04)


def tile(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """Bone tiles, light or dark, on a scratched board."""
    count, size = masks.shape[:2]
    board = 0.3 + 0.12 * cloud(rng, count, size, (2, 7, 19))
    image = board + (0.95 - board) * np.maximum(masks * per_image(uniform(rng, 0.5, 1, count)), 0.7 * clutter)
    return finish(rng, np.where(per_image(chance(rng, 0.5, count)), 1 - image, image), noise=0.05)


def relief(rng: Rng, masks: np.ndarray, clutter: np.ndarray) -> np.ndarray:
    """Carved in stone, or raised from it: only the edges are seen, lit from a random side."""
    count, size = masks.shape[:2]
    height = blur(_weight(rng, masks), 0.5) + 0.5 * clutter
    angle = uniform(rng, 0, 2 * np.pi, count)
    slope = np.cos(angle)[:, None, None] * np.gradient(height, axis=2)
    slope = slope + np.sin(angle)[:, None, None] * np.gradient(height, axis=1)
    stone = 0.5 + 0.1 * cloud(rng, count, size, (2, 6, 15))
    return finish(rng, stone + per_image(uniform(rng, 0.8, 1.5, count)) * slope, noise=0.04)


ALPHABETS = {
    "latin": Alphabet(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabefghmnqrt",
        SANS + SERIF + MONO + STIX + COMPUTER_MODERN,
        28,
        pen,
        turn=0.35,
        bend=0.1,
        shift=0.25,
    ),
    "greek": Alphabet("αβγδεζηθικλμνξοπρστυφχψωΓΔΛΞΣΩ", SANS + SERIF + MONO + STIX, 32, street),
    "cyrillic": Alphabet("АБВГДЖЗИКЛМНПРСТУФХЦЧШЩЪЫЬЭЮЯЂЉЊЋЏѢѲабеу", SANS + SERIF + MONO + STIX, 28, scan, shift=0.25),
    "syllabics": Alphabet(
        "ᐁᐂᐃᐅᐆᐓᐕᐯᐱᐳᑇᑌᑎᑐᑑᑗᑫᑬᑯᑱᑵᒉᒎᒝᒣᒦᒪᒬᓀᓁᓅᓍᓗᓖᓬᓭᓮᓵᔐᔓᔛᔦᔧᔪᔫᔳᔵᕙᕽᖢ", SANS, 32, chalk, turn=0.3, bend=0.08, shift=0.3
    ),
    "operators": Alphabet(
        "∀∁∂∃∅∆∈∉∏∑∓∔∗√∛∝∞∟∠∢∩∪∬∭∴∷∺∻∾∿≂≃≅≏≗≛≣≤≦≩≪≮≱⊂⊅⊆⊏⊓⊔⊞⊠⊢⊤⊥⊨⊪⊬⊮⊰⊲⊻⊼⊽⋇⋈⋋⋏⋐⋒⋓⋔⋚⋜⋤⋲⋵⋸↖↘↢↨↯↰↲↴↶↹↺↼↾⇅⇇⨁⨒⨗⩽⪄⪕⪙⪮",
        ("DejaVuSans", "DejaVuSans-Bold", "STIXGeneral"),
        32,
        outline,
        turn=0.15,
    ),
    "dominoes": Alphabet(
        "".join(chr(0x1F063 + number) for number in range(49)), SANS, 48, tile, bend=0.02, shift=0.1, zoom=(1.0, 1.3)
    ),
    "georgian": Alphabet(
        "აბგდევზთიკლმოპჟრსტუფქღყჩცჭჯჰჱჲჴჵჶ", SANS + SERIF + MONO, 28, pen, turn=0.35, bend=0.08, shift=0.25
    ),
    "digits": Alphabet("0123456789", SANS + SERIF + MONO + STIX + COMPUTER_MODERN, 32, street, bend=0.08),
    "symbols": Alphabet(
        "☁☃☄☉☊☎☝☠☢☤☮☯☸♀♂♄♅♈♊♌♐♑♔♕♖♗♘♙♠♣♨♪♫♮♲♿⚐⚒⚓⚔⚖⚗⚙⚛⚡⛃✁✆✇✈✍✎❄",
        SANS,
        48,
        badge,
        zoom=(0.8, 1.0),
    ),
    "armenian": Alphabet("ԱԳԴԵԶԷԹԺԻԼԽԾԿՀՁՃՄՅՆՈՉՊՎՒՓՔՕՖ", SANS + SERIF + MONO, 32, relief),
}
