"""Word lists and the facts of Pebble's invented world. Data only; every choice is fixed here."""

import random

NOUNS = """
apple arrow badge basket bell bench bird boat book bottle bowl box bread bridge brush bucket
button cable candle carpet chair chalk cheese clock cloud coat coin copper corn cotton crown cup
desk dish door dragon drum eagle engine fan feather fence field flag flower flute fork fox garden
gate glass glove grain grass hammer harp hat hill honey horn horse house island jacket jar kettle
key kite knife ladder lake lamp leaf lemon letter lion lock map marble mask meadow melon mirror
moon motor needle nest onion orange oven owl paint panel paper pear pencil pepper piano pillow
pipe plate plum pocket pond pot pump purse rabbit radio rail ribbon ring river road robe rocket
roof rope rose sail salt sand scarf seed shelf ship shirt shoe silk silver spoon spring stamp star
stone stool storm sugar swan table tent thread tiger torch tower train tree trumpet tulip tunnel
vase violin wagon wall watch wheel whistle window wolf wood wool zebra
""".split()

SYLLABLES = [c + v for c in "b d f g k l m n p r s t v z".split() for v in "aeiou"]

COLOURS = ["red", "green", "blue", "yellow", "purple", "orange", "white", "black"]
COLOURS_FR = ["rouge", "verte", "bleue", "jaune", "violette", "orange", "blanche", "noire"]

VILLAGES = ["Lumé", "Sarno", "Vélin", "Drosk", "Amary", "Kélo", "Brunn", "Tosca"]
ANIMALS = [("cat", "un chat"), ("dog", "un chien"), ("goat", "une chèvre"),
           ("horse", "un cheval"), ("sheep", "un mouton"), ("hen", "une poule"),
           ("donkey", "un âne"), ("bee hive", "une ruche")]
FOODS = [("bread", "le pain"), ("honey", "le miel"), ("cheese", "le fromage"),
         ("fish", "le poisson"), ("soup", "la soupe"), ("plums", "les prunes"),
         ("rice", "le riz"), ("eggs", "les œufs")]
# name, is she a woman, job in English, job in French
PEOPLE_JOBS = [
    ("Tovi", 1, "baker", "boulangère"), ("Bran", 0, "smith", "forgeron"),
    ("Elka", 1, "teacher", "maîtresse"), ("Joss", 0, "fisher", "pêcheur"),
    ("Mirel", 1, "doctor", "médecin"), ("Oren", 0, "miller", "meunier"),
    ("Sanna", 1, "weaver", "tisserande"), ("Dario", 0, "shepherd", "berger"),
    ("Ylva", 1, "painter", "peintre"), ("Renzo", 0, "cook", "cuisinier"),
    ("Nadia", 1, "singer", "chanteuse"), ("Pavel", 0, "tailor", "tailleur"),
    ("Ines", 1, "gardener", "jardinière"), ("Hugo", 0, "carpenter", "menuisier"),
    ("Freya", 1, "sailor", "matelote"), ("Theo", 0, "hunter", "chasseur"),
    ("Alma", 1, "judge", "juge"), ("Karel", 0, "guard", "gardien"),
    ("Lotta", 1, "farmer", "fermière"), ("Marco", 0, "potter", "potier"),
    ("Zora", 1, "dancer", "danseuse"), ("Felix", 0, "barber", "coiffeur"),
    ("Greta", 1, "writer", "écrivaine"), ("Samo", 0, "beekeeper", "apiculteur"),
]


def build_world() -> dict:
    """name -> facts. The draw is seeded, so the world never changes."""
    rng = random.Random(20)
    names = [p[0] for p in PEOPLE_JOBS]
    order = names[:]
    rng.shuffle(order)
    neighbour = {a: b for a, b in zip(order, order[1:] + order[:1])}
    world = {}
    for n, (name, woman, job, job_fr) in enumerate(PEOPLE_JOBS):
        animal, food, colour = (rng.randrange(8) for _ in range(3))
        world[name] = {
            "woman": bool(woman), "job": job, "job_fr": job_fr,
            "village": VILLAGES[(n * 3 + n // 8) % 8],
            "animal": ANIMALS[animal][0], "animal_fr": ANIMALS[animal][1],
            "food": FOODS[food][0], "food_fr": FOODS[food][1],
            "colour": COLOURS[colour], "colour_fr": COLOURS_FR[colour],
            "neighbour": neighbour[name],
        }
    return world


WORLD = build_world()
NAMES = list(WORLD)


def invented_word(rng: random.Random) -> str:
    """A word of two or three syllables."""
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3)))
