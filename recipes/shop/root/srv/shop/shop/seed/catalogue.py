"""What a new shop sells."""

from typing import NamedTuple


class Item(NamedTuple):
    """One product: the drawing is named in drawings.py, the price is in euros."""

    name: str
    drawing: str
    price: str
    stock: int
    description: str


class Shelf(NamedTuple):
    """One category with its products."""

    name: str
    description: str
    items: list[Item]


SHELVES = [
    Shelf(
        "Kitchen",
        "Pots, boards and the mug that you will reach for first.",
        [
            Item(
                "Stoneware Mug",
                "mug",
                "14.50",
                48,
                "Holds 350 ml and the warmth of a whole chapter. Dishwasher safe.",
            ),
            Item(
                "Enamel Stock Pot",
                "pot",
                "49.00",
                12,
                "Five litres, white enamel on steel, for soup that feeds a street.",
            ),
            Item(
                "Olive Wood Board",
                "board",
                "32.90",
                20,
                "Cut from one piece; no two have the same grain. Oil it now and then.",
            ),
            Item("Salad Bowl", "bowl", "27.00", 16, "Wide and shallow, turned from ash, with room to toss."),
            Item(
                "Spice Jars, Set of Six",
                "jar",
                "21.00",
                30,
                "Glass with cork lids and blank labels. Spices not included.",
            ),
            Item(
                "Olive Oil Bottle",
                "bottle",
                "18.00",
                25,
                "Half a litre, pours without dripping down the side.",
            ),
            Item(
                "Chef's Knife",
                "knife",
                "79.00",
                9,
                "A 20 cm blade of carbon steel that takes an edge and keeps it.",
            ),
            Item(
                "Linen Tea Towel",
                "cloth",
                "11.90",
                60,
                "Dries glasses without lint and gets better with every wash.",
            ),
            Item("Egg Timer", "clock", "9.50", 35, "Wind it up; it rings. No battery, no app."),
            Item(
                "Copper Kettle",
                "kettle",
                "119.00",
                5,
                "Two litres of tea water, with a whistle that means it.",
            ),
        ],
    ),
    Shelf(
        "Garden",
        "For beds, balconies and window sills.",
        [
            Item(
                "Potted Rosemary",
                "plant",
                "8.90",
                40,
                "A strong young plant in a terracotta pot. Likes sun, forgives neglect.",
            ),
            Item(
                "Hand Trowel",
                "trowel",
                "16.50",
                28,
                "Forged steel on an ash handle, narrow enough for bulbs.",
            ),
            Item(
                "Watering Can",
                "can",
                "38.00",
                14,
                "Seven litres, galvanised, with a brass rose for seedlings.",
            ),
            Item(
                "Wildflower Seeds",
                "packet",
                "4.50",
                120,
                "Thirty kinds of meadow flowers, enough for ten square metres.",
            ),
            Item(
                "Bird House",
                "house",
                "29.00",
                18,
                "Larch wood, with the small door that keeps the magpies out.",
            ),
            Item(
                "Garden Gloves",
                "glove",
                "13.00",
                33,
                "Goatskin palms, cotton backs; supple from the first day.",
            ),
            Item(
                "Bamboo Stakes", "sticks", "6.90", 80, "Ten stakes of 1.2 m for beans, tomatoes and optimism."
            ),
            Item(
                "Jute Twine",
                "spool",
                "5.20",
                75,
                "Eighty metres, rots down in the compost when its work is done.",
            ),
            Item(
                "Garden Lantern",
                "lantern",
                "42.00",
                11,
                "For a candle, behind glass, on the table or from a branch.",
            ),
            Item(
                "Tulip Bulbs, Box of 25",
                "box",
                "15.00",
                0,
                "Mixed colours, planted in autumn, thanked for in April.",
            ),
        ],
    ),
    Shelf(
        "Books",
        "Read by us before they are sold to you.",
        [
            Item(
                "The Lighthouse Ledger",
                "book",
                "12.99",
                22,
                "A novel: forty years of weather, written down by a keeper who left out one night.",
            ),
            Item(
                "Bread Without Hurry",
                "book",
                "24.00",
                15,
                "Sixty recipes for people who can wait until tomorrow.",
            ),
            Item(
                "A Field Guide to Clouds",
                "book",
                "17.50",
                19,
                "Name what is over your head: ten families, a hundred photographs.",
            ),
            Item(
                "Maps of Small Islands",
                "book",
                "34.00",
                8,
                "Fifty islands, drawn by hand, with the ferry times.",
            ),
            Item(
                "The Clockmaker's Cat",
                "book",
                "9.99",
                37,
                "A picture book about patience, for readers from four.",
            ),
            Item(
                "Knots You Will Use",
                "book",
                "8.50",
                41,
                "Twelve knots, well explained, with a piece of rope to practise.",
            ),
            Item(
                "Letters from the Night Train",
                "book",
                "13.50",
                17,
                "Short stories, one for every stop between Lisbon and Riga.",
            ),
            Item(
                "Mending",
                "book",
                "19.00",
                13,
                "Socks, elbows, teacups: how to make it last, and look better for it.",
            ),
            Item(
                "The Quiet Orchard",
                "book",
                "14.90",
                21,
                "A mystery in which the apples know more than the inspector.",
            ),
            Item(
                "Arithmetic for the Curious",
                "book",
                "16.00",
                24,
                "Why the tricks work, from casting out nines to long division.",
            ),
        ],
    ),
    Shelf(
        "Toys",
        "Wood, cloth and string; nothing that needs charging.",
        [
            Item(
                "Building Blocks",
                "blocks",
                "36.00",
                26,
                "Fifty beech blocks in eight shapes, in a cotton bag.",
            ),
            Item("Rubber Ball", "ball", "5.90", 90, "Bounces higher than you expect."),
            Item("Diamond Kite", "kite", "22.00", 19, "Flies in a light wind and folds into its own sleeve."),
            Item("Harbour Jigsaw", "blocks", "18.50", 23, "Five hundred pieces, most of them sea."),
            Item("Wooden Car", "car", "12.00", 44, "Rolls straight, has no siren, survives stairs."),
            Item("Spinning Top", "top", "6.50", 52, "Turned from maple. The house record is 94 seconds."),
            Item(
                "Rag Bear", "bear", "28.00", 15, "Sewn from old shirts, each with its own pattern. Washable."
            ),
            Item("Xylophone", "bars", "31.00", 10, "Eight true notes and two mallets. Sorry, parents."),
            Item(
                "Memory Cards",
                "cards",
                "11.00",
                38,
                "Thirty-six pairs of birds, all of them in your garden if you wait.",
            ),
            Item(
                "Marble Run",
                "sticks",
                "45.00",
                7,
                "Tracks, bends and a bell at the end; never built the same way twice.",
            ),
        ],
    ),
    Shelf(
        "Outdoors",
        "For a night under the sky or an hour on the hill.",
        [
            Item(
                "Two-Person Tent",
                "tent",
                "189.00",
                6,
                "Stands in four minutes, weighs 2.1 kg, keeps out the rain sideways.",
            ),
            Item(
                "Canvas Daypack", "pack", "68.00", 17, "Eighteen litres of waxed canvas with leather straps."
            ),
            Item(
                "Steel Flask", "bottle", "26.00", 34, "Tea stays hot for twelve hours, water cold for a day."
            ),
            Item("Brass Compass", "clock", "23.50", 20, "Points north, also when the telephone is empty."),
            Item("Camp Lantern", "lantern", "39.00", 13, "Burns paraffin, dims to a glow, packs flat."),
            Item("Wool Blanket", "cloth", "85.00", 9, "Woven in one mill since 1871, warm when wet."),
            Item("Enamel Camp Mug", "mug", "9.90", 66, "Chips, never breaks. Doubles as a small pot."),
            Item("Tinder Box", "box", "12.50", 29, "Fire steel, birch bark and dry wool; works in the rain."),
            Item("Folding Saw", "knife", "34.50", 14, "Cuts an arm-thick branch, folds into its handle."),
            Item("Trail Kettle", "kettle", "44.00", 12, "A litre boils on a handful of twigs."),
        ],
    ),
    Shelf(
        "Stationery",
        "Paper, ink and good reasons to use them.",
        [
            Item("Fountain Pen", "pen", "54.00", 11, "A steel nib with a little spring, filled by a piston."),
            Item("Dotted Notebook", "book", "12.00", 70, "160 pages that lie flat and do not mind ink."),
            Item("Brass Ruler", "ruler", "14.00", 27, "Fifteen centimetres, engraved, straight for life."),
            Item("Letter Set", "envelope", "16.90", 31, "Twenty sheets and envelopes of laid paper."),
            Item(
                "Paper Tape, Three Rolls",
                "spool",
                "8.00",
                58,
                "Sticks, comes off again, and can be written on.",
            ),
            Item(
                "Watercolour Tin",
                "palette",
                "27.50",
                16,
                "Twelve half pans and a brush in a tin for the pocket.",
            ),
            Item("Coloured Pencils", "bars", "19.50", 24, "Twenty-four soft leads in cedar."),
            Item("Desk Tray", "box", "33.00", 10, "Oak, with a place for the things that roll away."),
            Item(
                "Bottle of Ink",
                "jar",
                "10.50",
                45,
                "Blue-black, 50 ml, turns grey with the years as it should.",
            ),
            Item("Pocket Calendar", "cards", "7.50", 0, "A week on two pages, and a ribbon to find today."),
        ],
    ),
]

FEATURED = {
    "Stoneware Mug",
    "Watering Can",
    "The Lighthouse Ledger",
    "Rag Bear",
    "Two-Person Tent",
    "Fountain Pen",
    "Copper Kettle",
    "Diamond Kite",
}
