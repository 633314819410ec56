"""The accounts, orders and reviews of a new shop. The passwords are those that the recipe's README gives."""

from datetime import datetime
from typing import NamedTuple


class Person(NamedTuple):
    """An account; staff accounts have no address and order nothing."""

    username: str
    password: str
    first_name: str
    last_name: str
    address: tuple[str, str, str, str]  # street, postcode, city, country
    is_admin: bool = False


class PastOrder(NamedTuple):
    """An order placed before the shop was built."""

    username: str
    placed_at: datetime
    status: str
    payment: str
    lines: dict[str, int]  # product name: quantity


class PastReview(NamedTuple):
    """A review written before the shop was built; `photo` seeds its picture."""

    username: str
    product: str
    rating: int
    title: str
    text: str
    written_at: datetime
    photo: int | None = None


PEOPLE = [
    Person("admin", "admin-lantern", "Ada", "Lane", ("", "", "", ""), is_admin=True),
    Person("alice", "alice-lantern", "Alice", "Moreau", ("12 Rue des Tanneurs", "69001", "Lyon", "France")),
    Person("bob", "bob-lantern", "Bob", "Jansen", ("Kerkstraat 41", "3581 RC", "Utrecht", "Netherlands")),
    Person("carol", "carol-lantern", "Carol", "Lindqvist", ("Storgatan 7", "903 26", "Umeå", "Sweden")),
    Person(
        "dave", "dave-lantern", "Dave", "Okafor", ("3 Harbour Row", "BT1 2AB", "Belfast", "United Kingdom")
    ),
]

ORDERS = [
    PastOrder(
        "alice",
        datetime(2024, 9, 3, 10, 15),
        "shipped",
        "invoice",
        {"Stoneware Mug": 2, "Linen Tea Towel": 3},
    ),
    PastOrder(
        "bob", datetime(2024, 9, 17, 19, 2), "shipped", "delivery", {"Two-Person Tent": 1, "Steel Flask": 2}
    ),
    PastOrder(
        "carol", datetime(2024, 10, 1, 8, 40), "shipped", "invoice", {"Coloured Pencils": 1, "Rag Bear": 1}
    ),
    PastOrder("alice", datetime(2024, 10, 12, 21, 30), "cancelled", "invoice", {"Copper Kettle": 1}),
    PastOrder(
        "dave", datetime(2024, 11, 5, 13, 5), "shipped", "delivery", {"Mending": 1, "Knots You Will Use": 2}
    ),
    PastOrder(
        "carol",
        datetime(2024, 11, 20, 16, 55),
        "placed",
        "invoice",
        {"Harbour Jigsaw": 1, "Building Blocks": 1},
    ),
    PastOrder(
        "bob", datetime(2024, 12, 2, 9, 12), "placed", "invoice", {"Wool Blanket": 1, "Camp Lantern": 1}
    ),
    PastOrder(
        "alice", datetime(2024, 12, 9, 18, 47), "placed", "delivery", {"Fountain Pen": 1, "Bottle of Ink": 2}
    ),
]

REVIEWS = [
    PastReview(
        "alice",
        "Stoneware Mug",
        5,
        "My morning mug",
        "Sits well in the hand and keeps the tea warm. Bought a second.",
        datetime(2024, 9, 20, 7, 30),
        1,
    ),
    PastReview(
        "bob",
        "Stoneware Mug",
        4,
        "Good, but small",
        "Lovely glaze. I would buy a bigger one.",
        datetime(2024, 10, 2, 12, 0),
    ),
    PastReview(
        "alice",
        "Linen Tea Towel",
        5,
        "No lint at all",
        "They do what it says. Third wash and softer each time.",
        datetime(2024, 9, 28, 18, 10),
    ),
    PastReview(
        "bob",
        "Two-Person Tent",
        5,
        "Dry through a storm",
        "A night of rain on the coast, and not a drop inside.",
        datetime(2024, 10, 6, 20, 45),
        2,
    ),
    PastReview(
        "dave",
        "Two-Person Tent",
        3,
        "Snug for two",
        "Well made, but two tall people should be good friends.",
        datetime(2024, 10, 19, 11, 20),
    ),
    PastReview(
        "bob",
        "Steel Flask",
        4,
        "Hot until evening",
        "Twelve hours is no lie. The lid is a little stiff.",
        datetime(2024, 10, 8, 17, 0),
    ),
    PastReview(
        "carol",
        "Rag Bear",
        5,
        "Has a name already",
        "He is called Mister Buttons and may not be washed, I am told.",
        datetime(2024, 10, 15, 19, 35),
        3,
    ),
    PastReview(
        "carol",
        "Coloured Pencils",
        4,
        "Soft and bright",
        "The greens are wonderful; one red broke in the post.",
        datetime(2024, 10, 16, 9, 5),
    ),
    PastReview(
        "dave",
        "Mending",
        5,
        "Saved my jumper",
        "Clear drawings. The elbow looks better than before.",
        datetime(2024, 11, 24, 21, 15),
    ),
    PastReview(
        "dave",
        "Knots You Will Use",
        4,
        "Twelve is enough",
        "I use three of them every week.",
        datetime(2024, 11, 25, 8, 50),
    ),
    PastReview(
        "carol",
        "The Lighthouse Ledger",
        5,
        "Read in one night",
        "The missing page is the best page.",
        datetime(2024, 11, 2, 22, 40),
    ),
    PastReview(
        "alice",
        "Egg Timer",
        2,
        "Loud",
        "It rings, as promised. The neighbours know when I have eggs.",
        datetime(2024, 12, 1, 8, 15),
    ),
]
