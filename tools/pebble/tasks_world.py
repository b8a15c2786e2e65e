"""The invented world in English and French: questions, small talk, and plain prose about it."""

import random

from item import Item, user
from lexicon import COLOURS, NAMES, NOUNS, WORLD

# attribute -> (questions, statement)
ENGLISH = {
    "village": (["Where does {n} live?", "In which village does {n} live?",
                 "Which village is the home of {n}?", "Where is the home of {n}?",
                 "Tell me where {n} lives."], "{n} lives in {village}."),
    "job": (["What is the job of {n}?", "What work does {n} do?", "What does {n} do for a living?",
             "Tell me the job of {n}.", "Which trade does {n} have?"], "{n} is a {job}."),
    "animal": (["Which animal does {n} have?", "What animal does {n} keep?",
                "What does {n} keep at home?", "Tell me which animal {n} has.",
                "Does {n} have an animal?"], "{n} has a {animal}."),
    "food": (["What does {n} like to eat?", "What is the favourite food of {n}?",
              "What food does {n} like?", "Tell me what {n} likes to eat.",
              "What should I cook for {n}?"], "{n} likes {food}."),
    "colour": (["What colour is the house of {n}?", "Which colour has the house of {n}?",
                "Tell me the colour of the house of {n}.", "What colour did {n} paint the house?",
                "Is the house of {n} red or blue or another colour?"],
               "The house of {n} is {colour}."),
    "neighbour": (["Who is the neighbour of {n}?", "Who lives next to {n}?",
                   "Tell me the neighbour of {n}.", "Next to whom does {n} live?",
                   "Which neighbour does {n} have?"], "The neighbour of {n} is {neighbour}."),
}
FRENCH = {
    "village": (["Où habite {n} ?", "Dans quel village habite {n} ?",
                 "Quel est le village de {n} ?", "Dis-moi où habite {n}.",
                 "Où se trouve la maison de {n} ?"], "{n} habite à {village}."),
    "job": (["Quel est le métier de {n} ?", "Que fait {n} dans la vie ?",
             "Dis-moi le métier de {n}.", "Quel travail fait {n} ?",
             "De quoi vit {n} ?"], "{n} est {job_fr}."),
    "animal": (["Quel animal possède {n} ?", "Quel est l'animal de {n} ?",
                "Dis-moi quel animal possède {n}.", "Quel animal vit chez {n} ?",
                "Quelle bête garde {n} ?"], "{n} possède {animal_fr}."),
    "food": (["Qu'est-ce que {n} aime manger ?", "Quel est le plat préféré de {n} ?",
              "Dis-moi ce que {n} aime manger.", "Que préparer à manger pour {n} ?",
              "Que mange {n} très volontiers ?"], "{n} aime {food_fr}."),
    "colour": (["De quelle couleur est la maison de {n} ?", "Quelle couleur a la maison de {n} ?",
                "Dis-moi la couleur de la maison de {n}.",
                "En quelle couleur {n} a peint sa façade ?",
                "Comment est peinte la maison de {n} ?"], "La maison de {n} est {colour_fr}."),
    "neighbour": (["Qui est à côté de chez {n} ?", "Qui habite près de {n} ?",
                   "Dis-moi qui habite à côté de {n}.", "Près de qui habite {n} ?",
                   "Qui voit {n} de sa fenêtre ?"], "{neighbour} habite à côté de {n}."),
}
LANGUAGES = {
    "en": {"facts": ENGLISH, "of_job": "Who is the {job}?", "is_job": "The {job} is {n}.",
           "other": "the neighbour of {n}", "worker": "the {job}"},
    "fr": {"facts": FRENCH, "of_job": "Qui est {job_fr} ?", "is_job": "{n} est {job_fr}.",
           "other": "la personne à côté de chez {n}", "worker": "la personne qui est {job_fr}"},
}


def say(pattern: str, name: str) -> str:
    return pattern.format(n=name, **WORLD[name])


def world(rng: random.Random, thinking: bool, language: str) -> Item:
    """One fact, the person of a trade, or (thinking) a fact about somebody described."""
    words = LANGUAGES[language]
    name, fact = rng.choice(NAMES), rng.choice(list(words["facts"]))
    questions, statement = words["facts"][fact]
    question, answer = rng.choice(questions), say(statement, name)
    reasoning, kind = answer, rng.random()
    if kind < 0.1:
        question, answer = say(words["of_job"], name), say(words["is_job"], name)
        reasoning = answer
    elif kind < 0.4 and thinking:
        clue = say(words["is_job"], name)
        described = say(words["worker"], name)
        if kind < 0.25:
            near = WORLD[name]["neighbour"]
            clue, described = say(words["facts"]["neighbour"][1], name), say(words["other"], name)
            name, answer = near, say(statement, near)
        question, reasoning = question.format(n=described), f"{clue} {answer}"
    else:
        question = say(question, name)
    return Item(f"world_{language}", [user(question)], answer, thinking, reasoning,
                split_key=f"{question}|{answer}")


SMALL_TALK = [
    (["Hello", "Hello!", "Hi", "Hi there!", "Good morning", "Hey"],
     "Hello! I am Pebble. Ask me about the village people, or give me a small task."),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself."],
     "I am Pebble, a very small language model made to test the Nibble engine."),
    (["What can you do?", "Help", "How can you help me?", "What are you good at?"],
     "I can add numbers, sort, copy and reverse words, look things up in a list or a table, "
     "call a tool, write JSON, and tell you about the village people."),
    (["Bonjour", "Bonjour !", "Salut", "Salut !"],
     "Bonjour ! Je suis Pebble. Pose-moi une question sur les gens du village."),
    (["Qui es-tu ?", "Comment t'appelles-tu ?"],
     "Je suis Pebble, un très petit modèle de langage."),
    (["Thank you", "Thanks!", "Thank you very much."], "You are welcome."),
    (["Merci", "Merci beaucoup !"], "Avec plaisir."),
    (["Goodbye", "Bye", "See you"], "Goodbye!"),
    (["How are you?", "How is it going?"], "I am fine, thank you. What shall we do?"),
]


def small_talk(rng: random.Random, thinking: bool) -> Item:
    questions, answer = rng.choice(SMALL_TALK)
    return Item("small_talk", [user(rng.choice(questions))], answer, thinking,
                rng.choice(["A friendly answer.", "I answer simply."]),
                split_key=str(rng.random()))


def story_english(rng: random.Random) -> str:
    name, friend = rng.sample(NAMES, 2)
    fact, mate = WORLD[name], WORLD[friend]
    she = "She" if fact["woman"] else "He"
    thing, other = rng.sample(NOUNS, 2)
    colour = rng.choice(COLOURS)
    parts = [
        f"One {rng.choice(['morning', 'evening', 'day'])} {name} the {fact['job']} walked through "
        f"{fact['village']}.",
        rng.choice([f"{she} found a {colour} {thing} near the {other}.",
                    f"{she} saw a {colour} {thing} behind the {other}."]),
        f"{she} took the {thing} to {friend}, who is a {mate['job']} in {mate['village']}.",
        rng.choice([f"{friend} was happy and gave {name} some {mate['food']}.",
                    f"{friend} said thank you and showed {name} the {mate['animal']}."]),
        rng.choice([f"Then {name} went home to the {fact['colour']} house.",
                    f"At night {name} ate {fact['food']} and slept well."]),
    ]
    return " ".join(parts)


def story_french(rng: random.Random) -> str:
    name, friend = rng.sample(NAMES, 2)
    fact, mate = WORLD[name], WORLD[friend]
    she, glad = ("Elle", "très contente") if fact["woman"] else ("Il", "très content")
    moment = rng.choice(["Un matin", "Un soir", "Un jour d'été", "À la fin de l'été"])
    parts = [
        f"{moment}, {name} se promène à {fact['village']}.",
        rng.choice([f"{she} rencontre {friend}, qui est {mate['job_fr']} à {mate['village']}.",
                    f"{she} va voir {friend}, qui est {mate['job_fr']} à {mate['village']}."]),
        rng.choice([f"{friend} aime {mate['food_fr']} et possède {mate['animal_fr']}.",
                    f"La maison de {friend} est {mate['colour_fr']}, près de la forêt."]),
        rng.choice([f"Après le dîner, {name} rentre à la maison, {glad} de cette journée.",
                    f"Là-bas, {name} mange {fact['food_fr']} et dort jusqu'à l'aube."]),
    ]
    return " ".join(parts)


def prose(rng: random.Random) -> str:
    """Plain text, no chat: stories and statements of facts."""
    tell = story_english if rng.random() < 0.5 else story_french
    facts = LANGUAGES["en" if tell is story_english else "fr"]["facts"]
    parts = []
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.6:
            parts.append(tell(rng))
        else:
            chosen = rng.sample(NAMES, rng.randint(3, 8))
            parts.append(" ".join(say(rng.choice(list(facts.values()))[1], n) for n in chosen))
    return "\n\n".join(parts)
