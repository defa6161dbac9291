"""Passages of sentences that are put together from verbs, and questions about each of their parts.

events.txt has the verbs. A sentence says who did it, and what, where, when, why, with whom and with what may be added to
it; another person often does the same with something else, so that a word of the question alone does not find the answer.
Every part can be asked for in several ways, and is answered in the words of the passage.
"""
import re

from facts import DAYS, MONTHS, NUMBERS, a, capital
from pools import HE_NAMES, LIKED, SCENERY, SHE_NAMES, AT, Pools
from scenes import LISTS, OPEN
from texts import read_lines
from tales import plural

COLOURS = LISTS["c"]
FEELINGS = "sad happy tired angry excited proud lonely nervous bored worried surprised cheerful hungry thirsty cold ill afraid".split()
RELATIVES = "sister brother mother father aunt uncle grandmother grandfather cousin friend teacher neighbour neighbor grandma grandpa dad mum classmate twin boss".split()
SHE_RELATIVES = {"sister", "mother", "aunt", "grandmother", "grandma", "mum"}
HE_RELATIVES = {"brother", "father", "uncle", "grandfather", "grandpa", "dad"}
TITLES = ["Mr. ", "Mrs. ", "Mr ", "Mrs ", "Dr. ", "Aunt ", "Uncle ", "Grandma ", "Grandpa ", "Captain ", "Farmer ", "Miss ", "Old ", "Little ", "Young "]
TIMES = """yesterday|this morning|in the morning|in the evening|at night|last week|last summer|in spring|in summer|in autumn|in winter|at noon|after lunch|before breakfast|after school|on her birthday|
    at midnight|in the afternoon|last night|today|at the weekend|during the holidays|after dinner""".replace("\n", "").replace("    ", "").split("|")
SMALL_PLACES = LISTS["spot"] + """under the tree|behind the house|on the roof|at the top of the hill|beside the road|under the bed|in the yard|on the stairs|in the hall|by the window|near the fence|
    in a drawer|under a stone|in the corner|behind the sofa|on the balcony|at the gate|next to the oven|in front of the shop|on a bench|inside a box|under a leaf|in the mud|on a branch|between the books""".replace("\n", "").replace("    ", "").split("|")
WITH = """a spoon|a brush|a rope|a stick|a ladder|a shovel|a hammer|a knife|a net|an old key|a needle|a bucket|a broom|a torch|a map|glue|string|tape|a magnet|a hook|scissors|a blanket|both hands|a stone|a pencil|
    a sponge|a lamp|a saw|a wire|a towel|a wheelbarrow""".replace("\n", "").replace("    ", "").split("|")
REASONS = """it was raining|{he} was ill|{he} had a fever|the door was locked|{he} had a broken arm|{he} was late|it was too dark|the bus did not come|{he} had lost the key|nobody was at home|the shop was closed|{he} had no money|
    {he} was tired|there was no wind|the water was too cold|the dog was barking|{he} had a headache|it was {his} birthday|the lights went out|{he} had to help {his} mother|the road was icy|{he} missed the train|
    {he} could not sleep|the battery was empty|{he} had forgotten the time|{he} had a sore throat|the snow was too deep|a wheel was broken|the teacher was ill|{he} did not know the way|there was a storm|the baby was asleep|
    {he} was afraid of the dark|somebody had eaten the cake|the bridge was closed|{his} shoes were wet|{he} had a toothache|the phone did not work|the river was too deep|it was so hot""".replace("\n", "").replace("    ", "").split("|")
FILLERS = """It was a {weather} day.|The sun was shining.|Everybody laughed.|It took a long time.|Then they all went home.|The birds were singing.|Nobody said a word.|That was a surprise.|They were all very hungry afterwards.|
    The street was quiet.|It was a lot of work.|Nobody had expected that.|It smelled of flowers.|Everyone was happy in the end.|The clock struck {n}.|The neighbours came to look.|Soon it was dark.|The wind was blowing.|
    It was the best day of the year.|Some people clapped.|{pet} barked all the time.|The radio was playing.|Outside, it began to snow.|There was still a lot to do.|It was almost time for bed.""".replace("\n", "").replace("    ", "").split("|")


def read_verbs():
    """[(past, base, participle, kinds of the object)] of events.txt."""
    verbs = [[p.strip() for p in line.split("|")] for line in read_lines("events.txt")]
    return [(past, base, participle, kinds.split()) for past, base, participle, kinds in verbs]


VERBS = read_verbs()
THINGS = sorted(set(LISTS["thing"] + OPEN["thing"] + LISTS["cloth"]))
CLASSES = {
    "thing": THINGS, "food": LISTS["food"] + OPEN["food"], "dish": LISTS["food1"], "animal": LISTS["wild"] + OPEN["wild"] + LISTS["pet"], "plant": LISTS["flowers"] + LISTS["vegs"] + [t + " trees" for t in LISTS["tree"]],
    "built": LISTS["build"], "cloth": LISTS["cloth"], "job": LISTS["job"] + OPEN["job"], "drink": LISTS["drink"], "many": LISTS["stuffs"] + LISTS["fruits"] + LISTS["vegs"] + LISTS["birds"] + LISTS["flowers"],
    "part": ["the " + p for p in LISTS["part"]] + ["the kitchen", "the car", "the room", "the boat", "the shed", "the garage", "the stove", "the bike"],
    "topic": LISTS["topic"] + ["a {c} horse", "a lost key", "the stars"], "instrument": ["the " + i for i in LISTS["instrument"]], "sport": LISTS["sport"], "body": LISTS["body"] + ["tongue", "nose", "ear", "leg", "thumb"],
    "place": LISTS["place"], "show": ["a song", "a poem", "a story", "a joke", "a letter", "a postcard", "a riddle", "a secret", "a diary", "a play"], "wildpl": [plural(w) for w in LISTS["wild"]],
}


class Person:
    """Somebody of a passage: how the first sentence calls them, and the others."""

    def __init__(self, rng, pools, taken):
        draw = rng.random()
        self.name, girl = pools.person(rng, taken)
        self.he, self.his, self.him = ("she", "her", "her") if girl else ("he", "his", "him")
        self.first = self.name
        if draw < 0.1:
            title = rng.choice(TITLES)
            she = {"Mr": 0, "Mrs": 1, "Aunt": 1, "Uncle": 0, "Grandma": 1, "Grandpa": 0, "Miss": 1}.get(title.strip(" ."))
            if she is not None:
                self.he, self.his, self.him = ("she", "her", "her") if she else ("he", "his", "him")
            self.name = self.first = title + self.name
        elif draw < 0.2:
            self.first = f"{self.name}, {a(rng.choice(CLASSES['job']))},"
        elif draw < 0.28:
            word = rng.choice(CLASSES["animal"])
            if word not in taken:
                taken.add(word)
                self.first = rng.choice((f"{a(word)} named {self.name}", f"{a(word)} called {self.name}"))


class Scene:
    """A passage in the making: sentences, questions and who is in it."""

    def __init__(self, rng, pools):
        self.rng, self.pools, self.taken = rng, pools, set()
        self.lines, self.asks = [], []
        self.people = [Person(rng, pools, self.taken) for _ in range(rng.choice((1, 2, 2, 2, 3)))]
        self.said = set() # whose first mention was

    def one(self, words, keep=True):
        for _ in range(9):
            word = self.rng.choice(words)
            if word not in self.taken:
                break
        if keep:
            self.taken.add(word)
        return word

    def fresh_thing(self):
        word = self.pools.thing(self.rng, self.taken)
        self.taken.add(word)
        return word

    def mention(self, person, last):
        """How a sentence begins: whole at first, then by name or, right after a sentence about them, as he or she."""
        if person not in self.said:
            self.said.add(person)
            return capital(person.first)
        return capital(person.he) if last is person and self.rng.random() < 0.6 else person.name

    def thing(self, kind):
        """(what a sentence says, the answer, the noun if it is one thing, its colour, its number)"""
        r = self.rng
        if kind in ("part", "instrument", "sport", "place", "show", "drink", "food", "topic"):
            word = self.one(CLASSES[kind]).replace("{c}", r.choice(COLOURS))
            return word, word, None, None, None
        if kind == "many" or kind in ("thing", "plant", "animal") and r.random() < 0.25:
            word = self.one(CLASSES["many"] if kind in ("many", "plant") else CLASSES["wildpl"]) if kind != "thing" else plural(self.fresh_thing())
            draw = r.random()
            if draw < 0.5:
                n = self.one(NUMBERS[2:13] if r.random() < 0.7 else [str(n) for n in range(2, 60)])
                return f"{n} {word}", f"{n} {word}", word, None, n
            if draw < 0.65:
                c = self.one(COLOURS)
                return f"{c} {word}", f"{c} {word}", word, c, None
            return (word if draw < 0.9 else f"some {word}"), word, None, None, None
        if kind == "plant":
            word = self.one(CLASSES["plant"])
            return word, word, None, None, None
        if kind == "body":
            word = self.one(CLASSES["body"])
            return "{his} " + word, "{his} " + word, None, None, None
        word = self.fresh_thing() if kind == "thing" else self.one(CLASSES[kind])
        draw = r.random()
        if draw < 0.3:
            c = self.one(COLOURS)
            return a(f"{c} {word}"), a(f"{c} {word}"), word, c, None
        if draw < 0.4:
            return "{his} " + word, "{his} " + word, word, None, None
        if draw < 0.5:
            adjective = r.choice("old new big small broken beautiful heavy strange wooden little tiny huge long lovely".split())
            return a(f"{adjective} {word}"), a(f"{adjective} {word}"), word, None, None
        if draw < 0.55:
            c = self.one(COLOURS)
            return f"{{his}} new {c} {word}", f"{{his}} new {c} {word}", word, c, None
        return a(word), a(word), word, None, None

    def ask(self, answer, *ways):
        self.asks.append((self.rng.choice(ways), capital(answer) + "."))
        if len(ways) > 3 and self.rng.random() < 0.3:
            self.asks.append((self.rng.choice(ways), capital(answer) + "."))

    def event(self, person, verb, last, helper=None):
        """One sentence with a verb, and its questions."""
        r = self.rng
        past, base, participle, kinds = verb
        said, answer, noun, colour, number = self.thing(r.choice(kinds))
        said, answer = (t.replace("{his}", person.his) for t in (said, answer))
        who = self.mention(person, last)
        known = "the " + noun if noun and not number else answer
        before = after = ""
        name = person.name
        draw = r.random()
        if draw < 0.2:
            place = self.one(SMALL_PLACES)
            after = " " + place
            self.ask(place, f"Where did {name} {base} {known}?", f"Where was it that {name} {past} {known}?", f"In which place did {name} {base} {known}?", f"Where did {person.he} {base} {known}?")
        elif draw < 0.34:
            day = self.one(["on " + d for d in DAYS]) if r.random() < 0.5 else self.one(TIMES + ["in " + m for m in MONTHS]).replace("her", person.his)
            if r.random() < 0.5 and who not in ("He", "She"):
                before = capital(day) + r.choice((" ", ", "))
            else:
                after = " " + day
            self.ask(day, f"When did {name} {base} {known}?", f"When was it that {name} {past} {known}?", *([f"On which day did {name} {base} {known}?", f"On what day did {person.he} {base} {known}?", f"What day was it when {name} {past} {known}?"] if day.startswith("on ") and day[3:] in DAYS else []))
        elif draw < 0.42:
            tool = self.one(WITH)
            after = " with " + tool
            self.ask(r.choice((tool, "with " + tool)), f"What did {name} use to {base} {known}?", f"With what did {name} {base} {known}?", f"How did {name} {base} {known}?")
        elif draw < 0.52:
            who2 = r.choice(RELATIVES)
            after = f" for {person.his} {who2}"
            self.ask(f"for {person.his} {who2}", f"For whom did {name} {base} {known}?", f"Who did {name} {base} {known} for?")
        elif draw < 0.62:
            reason = self.one(REASONS).replace("{he}", person.he).replace("{his}", person.his)
            after = " because " + reason
            self.ask(r.choice(("because " + reason, reason)), f"Why did {name} {base} {known}?", f"What was the reason that {name} {past} {known}?", f"Why did {person.he} {base} {known}?")
        elif draw < 0.7:
            mate, girl = self.pools.person(r, self.taken)
            who2 = r.choice(RELATIVES)
            after = f" with {person.his} {who2} {mate}"
            self.ask(mate, f"With whom did {name} {base} {known}?", f"Who {past} {known} with {name}?", f"Who is {name}'s {who2}?", f"What is the name of {name}'s {who2}?", f"Who helped {name}?")
        self.lines.append(f"{before}{who if not before or person.first.startswith(person.name) else who[0].lower() + who[1:]} {past} {said}{after}.")
        if not noun or r.random() < 0.6:
            self.ask(answer, f"What did {name} {base}?", f"What was it that {name} {past}?", f"Tell me what {name} {past}.", f"What did {person.he} {base}?" if len(self.people) == 1 else f"Which thing did {name} {base}?")
        self.ask(name, f"Who {past} {known}?", f"Who {past} {answer if not number else noun}?", f"Who was it that {past} {known}?", f"Tell me who {past} {known}.", f"By whom {'were' if number else 'was'} {known} {participle}?")
        if colour and noun:
            be = "were" if noun.endswith("s") and not noun.endswith("ss") else "was"
            self.ask(colour, f"What colour {be} the {noun}?", f"What color {be} {name}'s {noun}?", f"Which colour did the {noun} have?", f"What colour is {name}'s {noun}?" if be == "was" else f"What colour are the {noun}?")
        if number:
            self.ask(number, f"How many {noun} did {name} {base}?", f"How many {noun} were there?", f"What number of {noun} did {person.he} {base}?", f"How many {noun} did {person.he} {base}?")
        return person

    # ---- Other kinds of sentences ------------------------------------------------------------

    def gave(self, person, last):
        r = self.rng
        other = r.choice([p for p in self.people if p is not person] or [None])
        giver, giver_said = (other.name, other.name) if other else (None, None)
        if not other or r.random() < 0.5:
            who = r.choice(RELATIVES)
            giver, giver_said = f"{person.his} {who}", f"{person.his} {who}"
        said, answer, noun, colour, number = self.thing(r.choice(("thing", "thing", "food", "many", "animal")))
        said, answer = (t.replace("{his} new ", "a new ").replace("{his}", "a") for t in (said, answer))
        known = "the " + noun if noun and not number else answer
        if not other and r.random() < 0.5:
            return self.two_gave(person, giver)
        verb, base = r.choice((("gave", "give"), ("gave", "give"), ("sent", "send"), ("brought", "bring"), ("lent", "lend"), ("showed", "show"), ("bought", "buy"), ("sold", "sell")))
        self.said.add(person)
        self.lines.append(f"{capital(giver_said)} {verb} {person.name} {said}." if r.random() < 0.75 else f"{person.name} got {said} from {giver_said}.")
        self.ask(answer, f"What did {giver} {base} {person.name}?", f"What did {person.name} get from {giver}?", f"What did {person.name} get?", f"What was {person.name} given?" if verb == "gave" else f"What did {giver} {base} to {person.name}?")
        self.ask(giver, f"Who {verb} {person.name} {known}?", f"From whom did {person.name} get {known}?", f"Who did {person.name} get {known} from?", f"Where did {person.name} get {known} from?")
        self.ask(person.name, f"Who got {known}?", f"To whom did {giver} {base} {known}?")
        if number:
            self.ask(number, f"How many {noun} did {person.name} get?")
        if colour:
            self.ask(colour, f"What colour is {known}?", f"What colour did {known} have?")
        return None

    def two_gave(self, person, giver):
        """Two people, each with something else."""
        r = self.rng
        second = f"{person.his} {r.choice([w for w in RELATIVES if w not in giver])}"
        (one, a1, *_), (two, a2, *_) = ((t[0].replace("{his} new ", "a new ").replace("{his}", "a"), t[1].replace("{his} new ", "a new ").replace("{his}", "a")) for t in (self.thing("thing"), self.thing(r.choice(("thing", "animal", "food")))))
        verb, base = r.choice((("gave", "give"), ("gave", "give"), ("brought", "bring"), ("sent", "send"), ("bought", "buy"), ("lent", "lend"), ("showed", "show")))
        whom = person.him if person in self.said and r.random() < 0.4 else person.name
        self.said.add(person)
        self.lines.append(f"{capital(giver)} {verb} {whom} {one}{r.choice((' and ', ', and ', ', but '))}{second} {verb} {person.him} {two}." if r.random() < 0.6 else f"{person.name} got {one} from {giver} and {two} from {second}.")
        for who, answer in ((giver, a1), (second, a2)):
            of = who.replace(person.his, person.name + "'s", 1)
            self.ask(answer, f"What did {person.name} get from {who}?", f"What did {who} {base} {person.name}?", f"What did {of} {base} {person.him}?", f"What did {who} {base} {person.him}?")
            self.ask(who, f"Who {verb} {person.name} {answer}?", f"From whom did {person.name} get {answer}?", f"Who did {person.name} get {answer} from?")
        return None

    def passed_on(self, person, last):
        """One does something with a thing, another does something with "it"."""
        r = self.rng
        others = [p for p in self.people if p is not person]
        if not others:
            return self.happened(person, last)
        other, noun, place, place2 = r.choice(others), self.fresh_thing(), self.one(SMALL_PLACES), self.one(SMALL_PLACES)
        (past, base), (past2, base2) = r.choice((("left", "leave"), ("lost", "lose"), ("forgot", "forget"), ("dropped", "drop"), ("hid", "hide"), ("put", "put"))), r.choice((
            ("found", "find"), ("saw", "see"), ("picked up", "pick up"), ("took", "take"), ("noticed", "notice"), ("kicked", "kick"), ("carried away", "carry away"), ("discovered", "discover")))
        who = self.mention(person, last)
        self.lines.append(f"{who} {past} {person.his} {noun} {place}.")
        called = capital(f"{a(r.choice(['kind', 'young', 'old', 'friendly', 'tall']))} {r.choice(CLASSES['job'])} {r.choice(('named', 'called'))} {other.name}") if other not in self.said and r.random() < 0.4 else capital(other.first) if other not in self.said else other.name
        self.said.add(other)
        after = f" {place2}" if r.random() < 0.5 else ""
        past2_it = past2.replace(" ", " it ", 1) if " " in past2 else past2 + " it"
        self.lines.append(f"{called} {past2_it}{after}{r.choice(('', '', ' and gave it back', f' and ran after {person.him}', ' and laughed'))}.")
        self.ask(other.name, f"Who {past2} the {noun}?", f"Who {past2} {person.name}'s {noun}?", f"Who was it that {past2} the {noun}?")
        self.ask(person.name, f"Who {past} the {noun}?", f"Whose {noun} was it?", f"Who {past} {person.his} {noun}?")
        self.ask(f"{person.his} {noun}", f"What did {person.name} {base}?", f"What was it that {person.name} {past}?")
        self.ask(place, f"Where did {person.name} {base} the {noun}?", f"Where did {person.name} {base} {person.his} {noun}?")
        if after and place2:
            self.ask(place2, f"Where did {other.name} {base2} the {noun}?", f"Where did {other.name} {base2} it?")
        return None

    def moved(self, person, last):
        r = self.rng
        who, place = self.mention(person, last), self.one(LISTS["place"])
        verb, base = r.choice((("went", "go"), ("walked", "walk"), ("ran", "run"), ("drove", "drive"), ("travelled", "travel"), ("hurried", "hurry"), ("rode", "ride"), ("came", "come"), ("moved", "move")))
        draw, after = r.random(), ""
        if draw < 0.35:
            ride = self.one(LISTS["ride"])
            after = " " + ride
            self.ask(ride, f"How did {person.name} get to {place}?", f"How did {person.name} {base} to {place}?", f"How did {person.he} get there?")
        elif draw < 0.6:
            mate = f"{person.his} {r.choice(RELATIVES)}"
            after = f" with {mate}"
            self.ask(f"{mate}", f"Who went with {person.name}?", f"With whom did {person.name} {base} to {place}?", f"Who did {person.name} {base} to {place} with?")
        elif draw < 0.8:
            day = self.one(["on " + d for d in DAYS] + TIMES).replace("her", person.his)
            after = " " + day
            self.ask(day, f"When did {person.name} {base} to {place}?", *([f"On what day did {person.name} {base} to {place}?", f"Which day did {person.name} {base} to {place}?"] if day[3:] in DAYS else []))
        self.lines.append(f"{who} {verb} to {place}{after}.")
        self.ask(f"to {place}", f"Where did {person.name} {base}?", f"Where did {person.he} {base}?" if len(self.people) == 1 else f"To which place did {person.name} {base}?")
        self.ask(person.name, f"Who {verb} to {place}?", f"Who was it that {verb} to {place}?")
        return person

    def happened(self, person, last):
        """Something happens to a thing; nobody does it."""
        r = self.rng
        noun = self.fresh_thing()
        verb, ask, where = r.choice((("got stuck", "got stuck", 1), ("fell down", "fell down", 0), ("broke", "broke", 0), ("was lying", "was lying", 1), ("disappeared", "disappeared", 0), ("stood", "stood", 1), ("fell", "fell", 1),
                                     ("was hanging", "was hanging", 1), ("lay", "lay", 1), ("was hidden", "was hidden", 1), ("was lost", "was lost", 0), ("was stolen", "was stolen", 0), ("burned", "burned", 0), ("rang", "rang", 0),
                                     ("was floating", "was floating", 1), ("rolled away", "rolled away", 0), ("flew away", "flew away", 0), ("was found", "was found", 1), ("stopped working", "stopped working", 0)))
        place = self.one(SMALL_PLACES) if where or r.random() < 0.3 else ""
        owner = person.name + "'s" if r.random() < 0.6 else "the"
        self.said.add(person)
        self.lines.append(capital(f"{owner} {noun} {verb} {place}".strip()) + ".")
        self.ask(f"{owner} {noun}", f"What {ask}{' ' + place if place and r.random() < 0.6 else ''}?", f"Which thing {ask}?")
        if place:
            be = f"Where was {owner} {noun}?"
            self.ask(place, be, f"Where was the {noun}?", f"In what place was the {noun}?")
        if owner != "the":
            self.ask(person.name + "'s", f"Whose {noun} {verb}?")
        return None

    def could_not(self, person, last):
        r = self.rng
        who, verb = self.mention(person, last), r.choice(VERBS)
        said, _, noun, _, number = self.thing(r.choice(verb[3]))
        deed = r.choice((f"{verb[1]} {said.replace('{his}', person.his)}", r.choice(("go out", "come to the party", "sleep", "play outside", "go to school", "go swimming", "see anything", "eat anything", "come along", "run fast", "finish the work", "go home", "sing"))))
        reason = self.one(REASONS).replace("{he}", person.he).replace("{his}", person.his)
        self.lines.append(f"{who} could not {deed}{r.choice((' because ', ', because '))}{reason}." if r.random() < 0.75 else f"{capital(reason)}, so {who if who == person.name else who.lower()} could not {deed}.")
        self.ask(r.choice(("because " + reason, reason)), f"Why couldn't {person.name} {deed}?", f"Why could {person.name} not {deed}?", f"Why could {person.he} not {deed}?", f"What was the reason that {person.name} could not {deed}?")
        self.ask(f"{deed}", f"What could {person.name} not do?", f"What couldn't {person.name} do?")
        return person

    def seasons(self, person, last):
        r = self.rng
        who = self.mention(person, last)
        one, other = r.choice((("summer", "winter"), ("the morning", "the evening"), ("spring", "autumn"), ("the afternoon", "the evening"), ("January", "July")))
        (v1, v2) = r.sample([v for v in VERBS if "thing" in v[3] or "many" in v[3] or "food" in v[3]], 2)
        deeds = []
        for past, base, *_ in (v1, v2):
            what = self.one(CLASSES["many"] + CLASSES["food"]) if r.random() < 0.7 else plural(self.fresh_thing())
            third = base + ("es" if re.search(r"(s|sh|ch|x|o)$", base) else "s") if not re.search(r"[^aeiou]y$", base) else base[:-1] + "ies"
            deeds.append((base, third, what))
        (b1, t1, w1), (b2, t2, w2) = deeds
        self.lines.append(f"In {one} {person.he if who in ('He', 'She') else person.name} {t1} {w1}, {r.choice(('and', 'but'))} in {other} {person.he} {t2} {w2}.")
        self.said.add(person)
        for when, base, third, what in ((one, b1, t1, w1), (other, b2, t2, w2)):
            self.ask(what, f"What does {person.name} {base} in {when}?", f"In {when}, what does {person.name} {base}?", f"What does {person.he} {base} in {when}?")
            self.ask(f"in {when}", f"When does {person.name} {base} {what}?")
            self.ask(f"{person.he} {third} {what}", f"What does {person.name} do in {when}?")
        return person

    def liked(self, person, last):
        r = self.rng
        other = r.choice([p for p in self.people if p is not person] or [None])
        kind, words = r.choice((("food", CLASSES["food"]), ("animal", [f"the {w}" for w in CLASSES["animal"]]), ("colour", COLOURS), ("subject", LISTS["subject"]), ("game", LISTS["sport"]), ("fruit", LISTS["fruits"]),
                                ("flower", LISTS["flowers"]), ("book", [f"the one about {t}" for t in LISTS["topic"]]), ("toy", [f"the {t}" for t in THINGS]), ("drink", LISTS["drink"])))
        x = self.one(words)
        who = self.mention(person, last)
        self.lines.append(r.choice((f"{who} liked {x} best", f"{who} liked {x} most", f"{person.name}'s favourite {kind} was {x}", f"{who} loved {x} more than anything")))
        self.said.add(person)
        if other and r.random() < 0.7:
            y = self.one(words)
            self.lines[-1] += f", {r.choice(('but', 'and'))} {other.name} {r.choice(('liked', 'preferred'))} {y}"
            self.said.add(other)
            self.ask(y, f"What did {other.name} like?", f"Which {kind} did {other.name} like?", f"What was {other.name}'s favourite?", f"Which {kind} was {other.name}'s favourite?")
            self.ask(other.name, f"Who liked {y}?")
        self.lines[-1] += "."
        self.ask(x, f"What did {person.name} like best?", f"Which {kind} did {person.name} like best?", f"What was {person.name}'s favourite {kind}?", f"Which {kind} was {person.name}'s favourite?", f"What is {person.name}'s favourite {kind}?")
        self.ask(person.name, f"Who liked {x} best?", f"Who liked {x}?")
        return person

    def named(self, person, last):
        """Animals with names, side by side."""
        r = self.rng
        one, other = self.one(CLASSES["animal"]), self.one(CLASSES["animal"])
        (n1, _), (n2, _) = self.pools.person(r, self.taken), self.pools.person(r, self.taken)
        who = self.mention(person, last)
        if r.random() < 0.5:
            self.lines.append(f"{who} had {a(one)} {r.choice(('called', 'named'))} {n1} and {a(other)} {r.choice(('called', 'named'))} {n2}.")
            self.ask("two", f"How many animals did {person.name} have?", f"How many pets did {person.name} have?")
            self.ask(n2, f"What was the {other} called?", f"What is the {other}'s name?", f"Tell me the name of the {other}.", f"What is the name of the {other}?", f"Who is the {other}?")
            self.ask(a(other), f"What kind of animal is {n2}?", f"What animal is {n2}?", f"What is {n2}?")
        else:
            self.lines.append(f"{who} {r.choice(('had', 'has', 'owned', 'lived with'))} {a(one)} {r.choice(('called', 'named', 'whose name was'))} {n1}.")
        self.ask(n1, f"What was the {one} called?", f"What is the {one}'s name?", f"Give me the name of the {one}.", f"What is the name of {person.name}'s {one}?", f"What did {person.name} call the {one}?")
        self.ask(a(one), f"What kind of animal is {n1}?", f"What animal is {n1}?", f"What animal did {person.name} have?")
        return person

    def plan(self, person, last):
        """What will be, by a day and an hour."""
        r = self.rng
        day, n, place = self.one(DAYS), self.one(NUMBERS[5:13]), self.one(LISTS["place"])
        who = r.choice(("our class", "our family", "the team", "the choir", "we", "the whole school", person.name))
        verb = "will go" if r.random() < 0.6 else "are going" if who == "we" else "is going"
        things = [self.one([a(t) for t in THINGS]), self.one(CLASSES["food"])]
        ride = self.rng.choice(("bus", "train", "boat", "ferry", "plane", "tram"))
        self.lines.append(capital(f"on {day} {who} {verb} to {place}."))
        self.ask(f"on {day}", f"On what day is the trip to {place}?", f"When is the trip to {place}?", f"Which day is the trip?", f"When {'are' if who == 'we' else 'is'} {who} going to {place}?".replace("we", "they") if who == "we" else f"When does {who} go to {place}?")
        self.ask(f"to {place}", "Where does the trip go?", f"Where will {'they' if who == 'we' else who} go on {day}?")
        if r.random() < 0.6:
            self.lines.append(f"The {ride} leaves at {n}.")
            self.ask(f"at {n}", f"When does the {ride} leave?", f"What time does the {ride} leave?", f"At what time does the {ride} leave?")
        if r.random() < 0.5:
            self.lines.append(f"Everybody must bring {things[0]} and {things[1]}.")
            self.ask(f"{things[0]} and {things[1]}", "What must everybody bring?", "What do they have to bring?", "What should everyone take along?")
        return None

    def felt(self, person, last):
        r = self.rng
        who, feel = self.mention(person, last), self.one(FEELINGS)
        reason = self.one(REASONS).replace("{he}", person.he).replace("{his}", person.his)
        self.lines.append(f"{who} {r.choice(('was', 'felt'))} {feel} because {reason}.")
        self.ask(r.choice(("because " + reason, reason)), f"Why was {person.name} {feel}?", f"Why did {person.name} feel {feel}?", f"What made {person.name} {feel}?")
        self.ask(feel, f"How did {person.name} feel?", f"How was {person.name}?", f"What did {person.name} feel?")
        self.ask(person.name, f"Who was {feel}?", f"Who felt {feel}?")
        return person

    def lives(self, person, last):
        r = self.rng
        who, word = self.mention(person, last), self.one(SCENERY)
        place = f"{r.choice(('in', 'near', 'beside', 'behind', 'close to', AT.get(word, 'in')))} {a(r.choice(('small ', 'old ', 'big ', '', '')) + word)}"
        self.lines.append(f"{who} {r.choice(('lives', 'lived'))} {place}.")
        self.ask(place, f"Where does {person.name} live?", f"Where did {person.name} live?", f"In what place does {person.name} live?")
        self.ask(person.name, f"Who lives {place}?", f"Who lived {place}?")
        return person

    def filler(self):
        self.lines.append(self.rng.choice(FILLERS).replace("{weather}", self.rng.choice(LISTS["weather"])).replace("{n}", self.rng.choice(NUMBERS[1:13])).replace("{pet}", "A dog"))

    def play(self):
        r, last = self.rng, None
        kinds = [self.gave, self.gave, self.passed_on, self.passed_on, self.moved, self.happened, self.could_not, self.seasons, self.liked, self.named, self.plan, self.felt, self.lives]
        n = r.choice((1, 2, 2, 3, 3, 3, 4, 5))
        while n > 0:
            person = self.people[0] if r.random() < 0.5 else r.choice(self.people)
            draw = r.random()
            if draw < 0.5:
                verb = r.choice(VERBS)
                last = self.event(person, verb, last)
                others = [p for p in self.people if p is not person]
                if others and r.random() < 0.45: # the same verb again, by another
                    last = self.event(r.choice(others), verb, last)
                    if len(self.lines) > 1 and r.random() < 0.5:
                        second = self.lines.pop()
                        second = second if second.split()[0].strip(",'s") in self.taken or second.startswith(tuple(TITLES)) else second[0].lower() + second[1:]
                        self.lines[-1] = self.lines[-1][:-1] + r.choice((", and ", " and ", ", but ")) + second
                    n -= 1
            else:
                last = r.choice(kinds)(person, last)
            n -= 1
            if r.random() < 0.15:
                self.filler()


def settled(scene):
    """Only questions whose answer is certain: asked once, and about what is said once."""
    answers = {}
    for question, answer in scene.asks:
        answers.setdefault(question, set()).add(answer)
    done = [(q, next(iter(some))) for q, some in answers.items() if len(some) == 1]
    return [(capital(q), answer) for q, answer in done if len(scene.people) == 1 or not re.search(r"\b(?:did|could|does) (?:he|she)\b|^(?:What|Where) (?:did|does) \w+ do\?", q)]


def event_passage(rng, pools=Pools()):
    """(passage, [(question, answer)])"""
    while True:
        scene = Scene(rng, pools)
        scene.play()
        # "What did Ann find?" has two answers if she found two things.
        verbs = [(p.name, v[1]) for p in scene.people for v in VERBS for q, _ in scene.asks if q == f"What did {p.name} {v[1]}?"]
        asks = settled(scene)
        if asks:
            break
    rng.shuffle(asks)
    return " ".join(scene.lines), asks
