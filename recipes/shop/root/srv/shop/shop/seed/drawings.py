"""The pictures of a new shop: products as SVG, the photographs in reviews as PNG.

A product's picture is one of the drawings below in colours that follow from its name.
"""

import hashlib
import struct
import zlib

# (main colour, darker, light)
PALETTES = [
    ("#c8553d", "#8c3524", "#f6d9cf"),
    ("#588b8b", "#37605f", "#d8e8e6"),
    ("#d99a2b", "#96660f", "#faebcb"),
    ("#5b6fa8", "#394a7c", "#dde2f2"),
    ("#7a9b56", "#516d34", "#e3edd6"),
    ("#a06a8c", "#71445f", "#f0dfe9"),
]

# In a box of 400 x 300; {a} main colour, {b} darker, {c} light.
DRAWINGS = {
    "ball": '<circle cx="200" cy="155" r="75" fill="{a}"/><path d="M130 130q70 50 140 0M130 182q70-50 140 0" fill="none" stroke="{b}" stroke-width="8"/>',
    "bars": '<g stroke-width="18" stroke-linecap="round"><path d="M125 90v130" stroke="{a}"/><path d="M155 97v116" stroke="{b}"/><path d="M185 104v102" stroke="{a}"/><path d="M215 111v88" stroke="{b}"/><path d="M245 118v74" stroke="{a}"/><path d="M275 125v60" stroke="{b}"/></g>',
    "bear": '<circle cx="160" cy="85" r="22" fill="{b}"/><circle cx="240" cy="85" r="22" fill="{b}"/><circle cx="200" cy="120" r="55" fill="{a}"/><ellipse cx="200" cy="215" rx="60" ry="48" fill="{a}"/><ellipse cx="200" cy="135" rx="22" ry="17" fill="{c}"/><circle cx="181" cy="108" r="6"/><circle cx="219" cy="108" r="6"/><circle cx="200" cy="129" r="6"/>',
    "blocks": '<rect x="120" y="160" width="75" height="75" fill="{a}"/><rect x="205" y="160" width="75" height="75" fill="{b}"/><path d="M162 75h76v75h-76z" fill="{a}"/><circle cx="200" cy="112" r="22" fill="{c}"/><path d="M140 215l17-35 17 35z" fill="{c}"/>',
    "board": '<rect x="110" y="90" width="150" height="130" rx="22" fill="{a}"/><rect x="250" y="138" width="60" height="34" rx="17" fill="{a}"/><circle cx="292" cy="155" r="8" fill="{c}"/><path d="M130 120q50 20 110 0M130 155q60 18 110 0M130 190q50 16 110 0" fill="none" stroke="{b}" stroke-width="4"/>',
    "book": '<rect x="135" y="65" width="130" height="175" rx="6" fill="{a}"/><rect x="135" y="65" width="18" height="175" fill="{b}"/><rect x="172" y="95" width="75" height="10" fill="{c}"/><rect x="172" y="115" width="50" height="8" fill="{c}"/><circle cx="209" cy="180" r="26" fill="{c}"/>',
    "bottle": '<rect x="182" y="55" width="36" height="45" fill="{b}"/><path d="M182 95h36q30 20 30 55v70q0 20-20 20h-56q-20 0-20-20v-70q0-35 30-55z" fill="{a}"/><rect x="152" y="160" width="96" height="45" fill="{c}"/>',
    "bowl": '<path d="M105 130h190q0 95-95 95t-95-95z" fill="{a}"/><path d="M165 225h70v14h-70z" fill="{b}"/><circle cx="165" cy="118" r="20" fill="#7a9b56"/><circle cx="205" cy="110" r="24" fill="#94b56f"/><circle cx="243" cy="119" r="17" fill="#c8553d"/>',
    "box": '<path d="M120 130h160v100H120z" fill="{a}"/><path d="M120 130l30-40h160l-30 40z" fill="{b}"/><path d="M280 130l30-40v100l-30 40z" fill="{b}" opacity=".7"/><rect x="165" y="160" width="70" height="36" fill="{c}"/>',
    "can": '<path d="M140 120h110v110H140z" fill="{a}"/><path d="M250 190l60-85" stroke="{a}" stroke-width="18"/><path d="M292 88l36 26" stroke="{b}" stroke-width="14"/><path d="M150 120q-75 10-10 85" fill="none" stroke="{b}" stroke-width="12"/><path d="M150 120q45-60 90 0" fill="none" stroke="{b}" stroke-width="10"/>',
    "car": '<path d="M105 190q0-35 35-35l25-38h75l35 38q30 0 30 35z" fill="{a}"/><path d="M175 128h28v27h-46zM212 128h24l22 27h-46z" fill="{c}"/><circle cx="150" cy="195" r="24" fill="{b}"/><circle cx="255" cy="195" r="24" fill="{b}"/><circle cx="150" cy="195" r="9" fill="{c}"/><circle cx="255" cy="195" r="9" fill="{c}"/>',
    "cards": '<rect x="125" y="80" width="95" height="135" rx="10" fill="{b}" transform="rotate(-10 172 147)"/><rect x="180" y="85" width="95" height="135" rx="10" fill="{a}" transform="rotate(8 227 152)"/><path d="M200 165q27-45 54 0q-27 25-54 0z" fill="{c}" transform="rotate(8 227 152)"/>',
    "clock": '<circle cx="200" cy="155" r="80" fill="{b}"/><circle cx="200" cy="155" r="66" fill="{c}"/><path d="M200 108l13 47-13 47-13-47z" fill="{a}"/><circle cx="200" cy="155" r="7" fill="{b}"/><rect x="190" y="55" width="20" height="22" fill="{b}"/>',
    "cloth": '<path d="M115 85h170v140H115z" fill="{a}"/><path d="M115 110h170M115 200h170" stroke="{c}" stroke-width="10"/><path d="M145 85v140M255 85v140" stroke="{b}" stroke-width="6"/><path d="M115 225v14m17-14v14m17-14v14m17-14v14m17-14v14m17-14v14m17-14v14m17-14v14m17-14v14m17-14v14m17-14v14" stroke="{a}" stroke-width="4"/>',
    "envelope": '<rect x="115" y="95" width="170" height="120" rx="4" fill="{a}"/><path d="M115 97l85 70 85-70" fill="none" stroke="{c}" stroke-width="7"/><circle cx="200" cy="165" r="15" fill="{b}"/>',
    "glove": '<path d="M150 235v-70l-30-35q-6-20 14-20l30 25V85q0-14 13-14t13 14v35-48q0-14 13-14t13 14v48-40q0-14 13-14t13 14v45-25q0-13 12-13t12 13v80l-16 45z" fill="{a}"/><rect x="145" y="215" width="100" height="26" fill="{b}"/>',
    "house": '<path d="M145 130h110v105H145z" fill="{a}"/><path d="M120 140l80-75 80 75z" fill="{b}"/><circle cx="200" cy="165" r="19" fill="#2b2320"/><path d="M200 205v24" stroke="{b}" stroke-width="8"/>',
    "jar": '<rect x="160" y="70" width="80" height="30" rx="6" fill="{b}"/><rect x="145" y="100" width="110" height="135" rx="18" fill="{a}"/><rect x="165" y="140" width="70" height="50" fill="{c}"/><path d="M177 158h46M177 172h30" stroke="{b}" stroke-width="4"/>',
    "kettle": '<path d="M130 225q-10-105 70-105t70 105z" fill="{a}"/><path d="M258 160l52-35 10 16-55 55z" fill="{a}"/><path d="M140 140q60-110 120 0" fill="none" stroke="{b}" stroke-width="12"/><circle cx="200" cy="114" r="10" fill="{b}"/><rect x="122" y="222" width="156" height="14" rx="7" fill="{b}"/>',
    "kite": '<path d="M215 50l65 75-85 95-55-75z" fill="{a}"/><path d="M215 50l-20 170M140 145l140-20" stroke="{c}" stroke-width="5"/><path d="M195 220q-40 10-25 30t-40 15" fill="none" stroke="{b}" stroke-width="5"/>',
    "knife": '<path d="M110 205l150-130q35 35 5 75l-110 75z" fill="{c}" stroke="{b}" stroke-width="4"/><path d="M150 222l-45 42-28-28 40-40z" fill="{a}"/>',
    "lantern": '<path d="M165 75q35-45 70 0" fill="none" stroke="{b}" stroke-width="8"/><rect x="155" y="75" width="90" height="20" fill="{b}"/><rect x="162" y="95" width="76" height="115" fill="{c}" stroke="{a}" stroke-width="10"/><rect x="148" y="210" width="104" height="24" fill="{b}"/><path d="M200 115c28 36 17 62 0 72-17-10-28-36 0-72z" fill="#f3a32c"/>',
    "mug": '<path d="M130 95h115v110q0 25-25 25h-65q-25 0-25-25z" fill="{a}"/><path d="M245 120q55 0 50 40t-52 40" fill="none" stroke="{a}" stroke-width="18"/><path d="M130 130h115" stroke="{c}" stroke-width="8"/><path d="M160 78q-12-15 0-28m30 28q-12-15 0-28m30 28q-12-15 0-28" fill="none" stroke="{b}" stroke-width="5" stroke-linecap="round"/>',
    "pack": '<path d="M140 120q0-50 60-50t60 50v95q0 22-22 22h-76q-22 0-22-22z" fill="{a}"/><path d="M175 72q25-40 50 0" fill="none" stroke="{b}" stroke-width="10"/><rect x="158" y="165" width="84" height="52" rx="8" fill="{b}"/><path d="M140 130h120" stroke="{c}" stroke-width="8"/><rect x="192" y="120" width="16" height="24" fill="{b}"/>',
    "packet": '<path d="M145 70h110v170H145z" fill="{c}" stroke="{b}" stroke-width="5"/><path d="M145 70h110v28H145z" fill="{b}"/><path d="M200 225v-55" stroke="#516d34" stroke-width="6"/><g fill="{a}"><circle cx="200" cy="128" r="15"/><circle cx="176" cy="148" r="15"/><circle cx="224" cy="148" r="15"/><circle cx="186" cy="174" r="15"/><circle cx="214" cy="174" r="15"/></g><circle cx="200" cy="153" r="14" fill="#d99a2b"/>',
    "palette": '<rect x="105" y="95" width="190" height="125" rx="12" fill="{b}"/><rect x="115" y="105" width="170" height="105" rx="6" fill="{c}"/><g><circle cx="145" cy="135" r="16" fill="#c8553d"/><circle cx="185" cy="135" r="16" fill="#d99a2b"/><circle cx="225" cy="135" r="16" fill="#7a9b56"/><circle cx="262" cy="135" r="14" fill="#588b8b"/></g><path d="M130 185h130" stroke="{a}" stroke-width="9" stroke-linecap="round"/>',
    "pen": '<path d="M265 65l30 30-125 125-30-30z" fill="{a}"/><path d="M140 190l30 30-52 24z" fill="#d99a2b"/><path d="M118 244l24-26" stroke="{b}" stroke-width="4"/><path d="M235 95l30 30" stroke="{b}" stroke-width="8"/>',
    "plant": '<path d="M150 165h100l-14 75h-72z" fill="#c8553d"/><rect x="142" y="155" width="116" height="20" fill="#8c3524"/><path d="M200 155V70M175 155q-5-40-30-60M225 155q5-40 30-60" fill="none" stroke="#516d34" stroke-width="7"/><g fill="#7a9b56"><ellipse cx="200" cy="78" rx="13" ry="26"/><ellipse cx="150" cy="98" rx="13" ry="24" transform="rotate(-35 150 98)"/><ellipse cx="250" cy="98" rx="13" ry="24" transform="rotate(35 250 98)"/></g>',
    "pot": '<rect x="125" y="120" width="150" height="115" rx="14" fill="{a}"/><path d="M118 120h164" stroke="{b}" stroke-width="14" stroke-linecap="round"/><path d="M138 112q62-50 124 0z" fill="{a}"/><circle cx="200" cy="80" r="11" fill="{b}"/><path d="M125 155h-22v26h22M275 155h22v26h-22" fill="none" stroke="{b}" stroke-width="9"/>',
    "ruler": '<g transform="rotate(-20 200 155)"><rect x="85" y="130" width="230" height="50" rx="4" fill="{a}"/><path d="M105 130v25m20-25v15m20-15v25m20-25v15m20-15v25m20-25v15m20-15v25m20-25v15m20-15v25m20-25v15" stroke="{b}" stroke-width="4"/></g>',
    "spool": '<ellipse cx="200" cy="215" rx="70" ry="20" fill="{b}"/><rect x="145" y="105" width="110" height="110" fill="{a}"/><path d="M145 125q55 18 110 0m-110 25q55 18 110 0m-110 25q55 18 110 0m-110 22q55 18 110 0" fill="none" stroke="{c}" stroke-width="5"/><ellipse cx="200" cy="100" rx="70" ry="20" fill="{b}"/><ellipse cx="200" cy="100" rx="22" ry="7" fill="{c}"/>',
    "sticks": '<g stroke-width="13" stroke-linecap="round"><path d="M150 235l20-165" stroke="{a}"/><path d="M180 235l8-170" stroke="{b}"/><path d="M212 235l-2-168" stroke="{a}"/><path d="M245 235l-15-165" stroke="{b}"/></g><rect x="142" y="140" width="112" height="18" rx="9" fill="{c}" stroke="{b}" stroke-width="3"/>',
    "tent": '<path d="M200 75L90 235h220z" fill="{a}"/><path d="M200 75l-45 160h90z" fill="{b}"/><path d="M200 130l-22 105h44z" fill="{c}"/><path d="M200 75l-12-16m12 16l12-16" stroke="{b}" stroke-width="6"/>',
    "top": '<path d="M120 130q80-45 160 0q-20 65-80 110q-60-45-80-110z" fill="{a}"/><path d="M120 130q80 40 160 0" fill="none" stroke="{c}" stroke-width="8"/><rect x="191" y="65" width="18" height="50" rx="6" fill="{b}"/>',
    "trowel": '<path d="M215 130l60-60" stroke="{b}" stroke-width="26" stroke-linecap="round"/><path d="M165 180l50-50" stroke="#8b8680" stroke-width="10"/><path d="M120 225q-12-45 25-72l47 47q-27 37-72 25z" fill="{a}"/>',
}


def product_svg(name: str, drawing: str) -> str:
    """Draw a product."""
    digest = hashlib.sha256(name.encode()).digest()
    main, darker, light = PALETTES[digest[0] % len(PALETTES)]
    ground = PALETTES[(digest[0] + 1 + digest[1] % (len(PALETTES) - 1)) % len(PALETTES)][2]
    body = DRAWINGS[drawing].format(a=main, b=darker, c=light)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 300" width="400" height="300">'
        f'<rect width="400" height="300" fill="{ground}"/>'
        f'<ellipse cx="200" cy="243" rx="120" ry="14" fill="#000" opacity=".12"/>{body}</svg>\n'
    )


def photo_png(seed: int) -> bytes:
    """Make a small picture: a sunset whose colours follow from `seed`. Stored, not deflated: the same bytes everywhere."""
    width, height = 96, 64
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            is_sun = (x - 20 - 11 * seed % 60) ** 2 + (y - 30) ** 2 < 150
            is_land = y > 44 + (x * (seed + 3) // 17) % 9
            sky = (250 - y, 120 + y, (90 + 40 * seed) % 200)
            rows += bytes((255, 240, 180) if is_sun else (60, 70 + 20 * seed % 60, 60) if is_land else sky)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 0)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
